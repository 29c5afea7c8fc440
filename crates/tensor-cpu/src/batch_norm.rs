//! Batch normalization: each pass over the tensor is one parallel loop, and there are as few as can be, two forward
//! and two backward, because memory sets the pace. Second passes go from the end to the start, where the caches still hold
//! what the first pass read last.

use crate::activation::floor;
use crate::dispatch::multiversion;
use crate::elementwise::add_up;
use crate::rows::{Blocks, Rows, RowsMut};
use crate::threads::Shards;
use crate::{Cpu, statistics};
use core::ops::Range;
use tensor_backend::{BatchNorm, View, ViewMut, Write};

/// What normalization does to each channel: `act((x - mean) * scale + beta)`.
///
/// Both passes compute exactly this, so the backward pass finds the very mask of the forward pass. The mean is
/// subtracted first: folded into the offset, a large mean would cost digits.
#[derive(Clone, Copy)]
struct Affine<'a> {
    mean: &'a [f32],
    /// `gamma / sqrt(var + epsilon)`.
    scale: &'a [f32],
    beta: &'a [f32],
    floor: f32,
}

pub(crate) fn forward_train(
    cpu: &Cpu,
    bn: &BatchNorm,
    x: View<[f32]>,
    gamma: &[f32],
    beta: &[f32],
    bias: Option<&[f32]>,
    y: ViewMut<[f32]>,
    saved: &mut [f32],
    sums: &mut [f32],
) {
    let samples = x.layout.shape.n as f64;
    let (x, y) = (Rows::new(x), RowsMut::new(y));
    let (c, count) = (gamma.len(), x.count() as f64);
    let (mean, inverse) = saved.split_at_mut(c);
    let (n_mean, n_var) = sums.split_at_mut(c);
    let mut scratch = cpu.scratch(c.max(statistics::scratch(x)));
    statistics::of_columns(cpu, x, &mut scratch, |k, mean_k, squares| {
        mean[k] = mean_k as f32;
        inverse[k] = (1.0 / (squares / count.max(1.0) + f64::from(bn.epsilon)).sqrt()) as f32;
        n_mean[k] = (samples * (mean_k + bias.map_or(0.0, |bias| f64::from(bias[k])))) as f32;
        // A single number has no unbiased variance: it counts as 0.
        n_var[k] = (samples * squares / (count - 1.0).max(1.0)) as f32;
    });
    let scale = &mut scratch[..c];
    scale.iter_mut().zip(gamma).zip(&*inverse).for_each(|((scale, gamma), inverse)| *scale = gamma * inverse);
    normalize(cpu, Affine { mean, scale, beta, floor: floor(bn.act) }, x, y);
}

pub(crate) fn forward_infer(
    cpu: &Cpu,
    bn: &BatchNorm,
    x: View<[f32]>,
    gamma: &[f32],
    beta: &[f32],
    mean: &[f32],
    var: &[f32],
    y: ViewMut<[f32]>,
) {
    let mut scratch = cpu.scratch(gamma.len());
    let scale = &mut scratch[..gamma.len()];
    for ((scale, &gamma), &var) in scale.iter_mut().zip(gamma).zip(var) {
        *scale = (f64::from(gamma) / (f64::from(var) + f64::from(bn.epsilon)).sqrt()) as f32;
    }
    normalize(cpu, Affine { mean, scale, beta, floor: floor(bn.act) }, Rows::new(x), RowsMut::new(y));
}

fn normalize(cpu: &Cpu, affine: Affine, x: Rows, y: RowsMut) {
    let blocks = Blocks::for_map(x).reversed();
    cpu.pool().run(blocks.count(), &|block| normalize_rows(affine, x, y, blocks.range(block)));
}

multiversion! {
    fn normalize_rows(affine: Affine, x: Rows, y: RowsMut, rows: Range<usize>) {
        let c = x.width();
        let (mean, scale, beta) = (&affine.mean[..c], &affine.scale[..c], &affine.beta[..c]);
        for row in rows {
            // SAFETY: each task has rows of its own.
            let (x, y) = (&x.row(row)[..c], &mut unsafe { y.row(row) }[..c]);
            for k in 0..c {
                let z = (x[k] - mean[k]) * scale[k] + beta[k];
                y[k] = if z < affine.floor { affine.floor } else { z };
            }
        }
    }
}

/// With `m` numbers in a channel, `xhat = (x - mean) * inverse` and `dz` the gradient before the activation:
/// `dx = gamma * inverse * (dz - sum(dz) / m - xhat * sum(dz * xhat) / m)`.
pub(crate) fn backward(
    cpu: &Cpu,
    bn: &BatchNorm,
    x: View<[f32]>,
    dy: View<[f32]>,
    gamma: &[f32],
    beta: &[f32],
    saved: &[f32],
    dgamma: &mut [f32],
    dbeta: &mut [f32],
    dx: ViewMut<[f32]>,
    mode: Write,
) {
    let (x, dy, dx) = (Rows::new(x), Rows::new(dy), RowsMut::new(dx));
    let c = gamma.len();
    let (mean, inverse) = saved.split_at(c);
    let blocks = Blocks::for_sums(x);
    let mut scratch = cpu.scratch(3 * c + Blocks::most_for_sums(x) * 2 * c);
    let (coefficients, partials) = scratch.split_at_mut(3 * c);
    let partials = &mut partials[..blocks.count() * 2 * c];
    let (scale, coefficients) = coefficients.split_at_mut(c);
    scale.iter_mut().zip(gamma).zip(inverse).for_each(|((scale, gamma), inverse)| *scale = gamma * inverse);
    let affine = Affine { mean, scale, beta, floor: floor(bn.act) };

    let shards = Shards::new(partials);
    cpu.pool().run(blocks.count(), &|block| {
        // SAFETY: each task has a part of its own.
        let sums = unsafe { shards.part(block * 2 * c..(block + 1) * 2 * c) };
        sum_gradients(affine, x, dy, blocks.range(block), sums);
    });
    add_up(partials, 2 * c, 0, dbeta);
    add_up(partials, 2 * c, c, dgamma);

    let (offset, slope) = coefficients.split_at_mut(c);
    let count = x.count() as f32;
    for k in 0..c {
        dgamma[k] *= inverse[k];
        offset[k] = dbeta[k] / count;
        slope[k] = inverse[k] * dgamma[k] / count;
    }
    let blocks = Blocks::for_map(x).reversed();
    cpu.pool().run(blocks.count(), &|block| {
        input_gradients(affine, offset, slope, x, dy, dx, mode, blocks.range(block));
    });
}

multiversion! {
    /// `sums` receives the sums of `dz` and of `dz * (x - mean)`.
    fn sum_gradients(affine: Affine, x: Rows, dy: Rows, rows: Range<usize>, sums: &mut [f32]) {
        let c = x.width();
        let (mean, scale, beta) = (&affine.mean[..c], &affine.scale[..c], &affine.beta[..c]);
        sums.fill(0.0);
        let (of_dz, of_products) = sums.split_at_mut(c);
        let (of_dz, of_products) = (&mut of_dz[..c], &mut of_products[..c]);
        for row in rows {
            let (x, dy) = (&x.row(row)[..c], &dy.row(row)[..c]);
            for k in 0..c {
                let centred = x[k] - mean[k];
                let dz = if centred * scale[k] + beta[k] <= affine.floor { 0.0 } else { dy[k] };
                of_dz[k] += dz;
                of_products[k] += dz * centred;
            }
        }
    }
}

multiversion! {
    /// `dx = scale * (dz - offset - (x - mean) * slope)`.
    fn input_gradients(
        affine: Affine,
        offset: &[f32],
        slope: &[f32],
        x: Rows,
        dy: Rows,
        dx: RowsMut,
        mode: Write,
        rows: Range<usize>,
    ) {
        let c = x.width();
        let (mean, scale, beta) = (&affine.mean[..c], &affine.scale[..c], &affine.beta[..c]);
        let (offset, slope) = (&offset[..c], &slope[..c]);
        for row in rows {
            let (x, dy) = (&x.row(row)[..c], &dy.row(row)[..c]);
            // SAFETY: each task has rows of its own.
            let dx = &mut unsafe { dx.row(row) }[..c];
            let gradient = |k: usize| {
                let centred = x[k] - mean[k];
                let dz = if centred * scale[k] + beta[k] <= affine.floor { 0.0 } else { dy[k] };
                scale[k] * (dz - offset[k] - centred * slope[k])
            };
            match mode {
                Write::Set => (0..c).for_each(|k| dx[k] = gradient(k)),
                Write::Add => (0..c).for_each(|k| dx[k] += gradient(k)),
            }
        }
    }
}
