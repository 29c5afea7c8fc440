//! Batch normalization, and below it group normalization. For batch normalization each pass over the tensor
//! is one parallel loop. There are as few as possible, two forward and two backward, because memory bandwidth
//! is the limit. Second passes go from the end to the start, where the caches still hold the last reads of
//! the first pass.

use crate::dispatch::multiversion;
use crate::element::Element;
use crate::elementwise::add_up;
use crate::norm_operands::{Infer, Saved, Train};
use crate::pointwise::{Act, Cut, with_act};
use crate::rows::{Blocks, Rows, RowsMut};
use crate::threads::Shards;
use crate::{Cpu, statistics};
use core::ops::Range;
use towers_program::ops::{BatchNormInferGradient, GroupNorm};
use towers_program::{Activation, BatchNorm, Shape, View, ViewMut, Write};

/// What normalization does to each channel: `act((x - mean) * scale + beta)`.
///
/// Both passes compute exactly this, so the backward pass finds the forward pass's input of the activation.
/// The mean is subtracted first: folded into the offset, a large mean would cost digits.
#[derive(Clone, Copy)]
struct Affine<'a, A> {
    mean: &'a [f32],
    /// `gamma / sqrt(var + epsilon)`.
    scale: &'a [f32],
    beta: &'a [f32],
    act: A,
}

/// Scratch elements of what begins with statistics of rows and channels, and of the gradients of what follows: at most,
/// for so many rows or fewer.
pub(crate) fn statistics_len((rows, c): (usize, usize)) -> usize {
    statistics::scratch_len(rows, c).max(c)
}

pub(crate) fn gradients_len((rows, c): (usize, usize)) -> usize {
    (c + Blocks::most_for_sums(rows) * 2 * c).max(3 * c)
}

pub(crate) fn forward_train<E: Element>(
    cpu: &Cpu,
    bn: &BatchNorm,
    x: View<[E]>,
    y: ViewMut<[E]>,
    runs: Train<'_, f32>,
) {
    let samples = x.layout.shape.n as f64;
    let (x, y) = (Rows::new(x), RowsMut::new(y));
    let count = x.count() as f64;
    let mut scratch = cpu.scratch(statistics_len((x.count(), x.width())));
    let mut whole = Whole::new(bn, runs, samples, count);
    statistics::of_columns(cpu, x, &mut scratch, |k, mean, squares| whole.set(k, mean, squares));
    whole.normalize(cpu, bn, x, y, &mut scratch);
}

/// One replica's statistics: means, sums of squared differences, samples.
pub(crate) fn statistics<E: Element>(cpu: &Cpu, x: View<[E]>, stats: &mut [f32]) {
    let (numbers, samples) = stats.split_at_mut(2 * x.layout.shape.c);
    let (mean, squares) = numbers.split_at_mut(x.layout.shape.c);
    samples[0] = x.layout.shape.n as f32;
    let x = Rows::new(x);
    let mut scratch = cpu.scratch(statistics_len((x.count(), x.width())));
    statistics::of_columns(cpu, x, &mut scratch, |k, mean_k, squares_k| {
        (mean[k], squares[k]) = (mean_k as f32, squares_k as f32);
    });
}

/// The second half of a training pass forward, with the statistics of all replicas.
pub(crate) fn forward_synchronized<E: Element>(
    cpu: &Cpu,
    bn: &BatchNorm,
    x: View<[E]>,
    y: ViewMut<[E]>,
    stats: &[f32],
    runs: Train<'_, f32>,
) {
    let shape = x.layout.shape;
    let joined = statistics::GatheredStats::of(stats, shape);
    let mut whole = Whole::new(bn, runs, shape.n as f64, joined.count());
    (0..shape.c).for_each(|k| {
        let (mean, squares) = joined.column(k);
        whole.set(k, mean, squares);
    });
    whole.normalize(cpu, bn, Rows::new(x), RowsMut::new(y), &mut cpu.scratch(shape.c));
}

/// What follows from the statistics of a whole batch, for the samples at hand.
struct Whole<'a> {
    runs: Train<'a, f32>,
    epsilon: f64,
    /// Samples at hand.
    samples: f64,
    /// Numbers of each channel in the whole batch.
    count: f64,
}

impl<'a> Whole<'a> {
    fn new(bn: &BatchNorm, runs: Train<'a, f32>, samples: f64, count: f64) -> Self {
        Whole { runs, epsilon: f64::from(bn.epsilon), samples, count }
    }

    /// Notes a channel's mean and sum of squared differences from it.
    fn set(&mut self, k: usize, mean: f64, squares: f64) {
        let Whole { runs, epsilon, samples, count } = self;
        let c = runs.gamma.len();
        runs.saved[k] = mean as f32;
        runs.saved[c + k] = (1.0 / (squares / count.max(1.0) + *epsilon).sqrt()) as f32;
        runs.sums[k] = (*samples * (mean + runs.bias.map_or(0.0, |bias| f64::from(bias[k])))) as f32;
        // A single number has no unbiased variance: it counts as 0.
        runs.sums[c + k] = (*samples * squares / (*count - 1.0).max(1.0)) as f32;
    }

    fn normalize<E: Element>(
        self,
        cpu: &Cpu,
        bn: &BatchNorm,
        x: Rows<E>,
        y: RowsMut<E>,
        scratch: &mut [f32],
    ) {
        let Train { gamma, beta, saved, .. } = self.runs;
        normalize_batch(cpu, bn, x, Saved { gamma, beta, saved }, y, scratch);
    }
}

/// Recomputes the output of a training pass, from its saved statistics.
pub(crate) fn recompute_forward<E: Element>(
    cpu: &Cpu,
    bn: &BatchNorm,
    x: View<[E]>,
    runs: Saved<'_, f32>,
    y: ViewMut<[E]>,
) {
    normalize_batch(cpu, bn, Rows::new(x), runs, RowsMut::new(y), &mut cpu.scratch(runs.gamma.len()));
}

/// Normalizes with the statistics of a batch.
fn normalize_batch<E: Element>(
    cpu: &Cpu,
    bn: &BatchNorm,
    x: Rows<E>,
    runs: Saved<'_, f32>,
    y: RowsMut<E>,
    scratch: &mut [f32],
) {
    let Saved { gamma, beta, saved } = runs;
    let (mean, inverse) = saved.split_at(gamma.len());
    let scale = &mut scratch[..gamma.len()];
    scale_by(gamma, inverse, scale);
    with_act!(cpu, bn.act, |act| normalize(cpu, Affine { mean, scale, beta, act }, x, y));
}

/// `scale = gamma / sqrt(var + epsilon)`.
fn scale_by(gamma: &[f32], inverse: &[f32], scale: &mut [f32]) {
    scale.iter_mut().zip(gamma).zip(inverse).for_each(|((scale, gamma), inverse)| *scale = gamma * inverse);
}

pub(crate) fn forward_infer<E: Element>(
    cpu: &Cpu,
    bn: &BatchNorm,
    x: View<[E]>,
    runs: Infer<'_, f32>,
    y: ViewMut<[E]>,
) {
    let Infer { gamma, beta, mean, .. } = runs;
    let mut scratch = cpu.scratch(gamma.len());
    let scale = &mut scratch[..gamma.len()];
    scale.iter_mut().enumerate().for_each(|(k, scale)| *scale = scale_of(bn, runs, k) as f32);
    let (x, y) = (Rows::new(x), RowsMut::new(y));
    with_act!(cpu, bn.act, |act| normalize(cpu, Affine { mean, scale, beta, act }, x, y));
}

/// `gamma / sqrt(var + epsilon)` of a channel, in inference.
fn scale_of(bn: &BatchNorm, runs: Infer<'_, f32>, k: usize) -> f64 {
    f64::from(runs.gamma[k]) / (f64::from(runs.var[k]) + f64::from(bn.epsilon)).sqrt()
}

/// The gradient of inference's input: `dy` normalized without a mean and without a beta.
pub(crate) fn infer_backward<E: Element>(
    cpu: &Cpu,
    op: &BatchNormInferGradient,
    dy: View<[E]>,
    [gamma, var]: [&[f32]; 2],
    dx: ViewMut<[E]>,
) {
    let bn = BatchNorm { epsilon: op.epsilon, act: Activation::None };
    let mut scratch = cpu.scratch(2 * gamma.len());
    let (scale, zeros) = scratch[..2 * gamma.len()].split_at_mut(gamma.len());
    zeros.fill(0.0);
    let runs = Infer { gamma, beta: zeros, mean: zeros, var };
    scale.iter_mut().enumerate().for_each(|(k, scale)| *scale = scale_of(&bn, runs, k) as f32);
    let affine = Affine { mean: zeros, scale, beta: zeros, act: Cut::of(Activation::None) };
    normalize(cpu, affine, Rows::new(dy), RowsMut::new(dx));
}

/// What inference does to the sums of a convolution with this bias, before the activation:
/// `(sum + offset) * scale + beta`.
pub(crate) fn fold(
    bn: &BatchNorm,
    runs: Infer<'_, f32>,
    bias: Option<&[f32]>,
    offset: &mut [f32],
    scale: &mut [f32],
) {
    for (k, (offset, scale)) in offset.iter_mut().zip(scale).enumerate() {
        *offset = bias.map_or(0.0, |bias| bias[k]) - runs.mean[k];
        *scale = scale_of(bn, runs, k) as f32;
    }
}

fn normalize<A: Act, E: Element>(cpu: &Cpu, affine: Affine<A>, x: Rows<E>, y: RowsMut<E>) {
    let blocks = Blocks::for_map(x).reversed();
    cpu.pool().run(blocks.count(), &|block| normalize_rows(cpu.simd(), affine, x, y, blocks.range(block)));
}

multiversion! {
    fn normalize_rows<A: Act, E: Element>(affine: Affine<A>, x: Rows<E>, y: RowsMut<E>, rows: Range<usize>) {
        let c = x.width();
        let (mean, scale, beta) = (&affine.mean[..c], &affine.scale[..c], &affine.beta[..c]);
        for row in rows {
            // SAFETY: each task has separate rows.
            let (x, y) = (&x.row(row)[..c], &mut unsafe { y.row(row) }[..c]);
            let numbers = |k: usize| (x[k].get() - mean[k]) * scale[k] + beta[k];
            affine.act.map(c, numbers, |k, number| y[k] = E::of(number));
        }
    }
}

/// With `xhat = (x - mean) * inverse` and `dz` the gradient before the activation: `dbeta = sum(dz)` and
/// `dgamma = sum(dz * xhat)`.
pub(crate) fn backward_params<E: Element>(
    cpu: &Cpu,
    bn: &BatchNorm,
    x: View<[E]>,
    dy: View<[E]>,
    runs: Saved<'_, f32>,
    dgamma: &mut [f32],
    dbeta: &mut [f32],
) {
    let (x, dy) = (Rows::new(x), Rows::new(dy));
    let Saved { gamma, beta, saved } = runs;
    let c = gamma.len();
    let (mean, inverse) = saved.split_at(c);
    let blocks = Blocks::for_sums(x);
    let mut scratch = cpu.scratch(gradients_len((x.count(), c)));
    let (scale, partials) = scratch.split_at_mut(c);
    let partials = &mut partials[..blocks.count() * 2 * c];
    scale_by(gamma, inverse, scale);

    let shards = Shards::new(partials);
    with_act!(cpu, bn.act, |act| cpu.pool().run(blocks.count(), &|block| {
        // SAFETY: each task has a separate part.
        let sums = unsafe { shards.part(block * 2 * c..(block + 1) * 2 * c) };
        sum_gradients(cpu.simd(), Affine { mean, scale, beta, act }, x, dy, blocks.range(block), sums);
    }));
    add_up(partials, 2 * c, 0, dbeta);
    add_up(partials, 2 * c, c, dgamma);
    dgamma.iter_mut().zip(inverse).for_each(|(dgamma, inverse)| *dgamma *= inverse);
}

/// With `m` numbers in a channel of the whole batch: `dx = gamma * inverse * (dz - dbeta / m - xhat * dgamma / m)`.
pub(crate) fn backward_data<E: Element>(
    cpu: &Cpu,
    bn: &BatchNorm,
    x: View<[E]>,
    dy: View<[E]>,
    runs: Saved<'_, f32>,
    [dgamma, dbeta]: [&[f32]; 2],
    count: usize,
    dx: ViewMut<[E]>,
    mode: Write,
) {
    let (x, dy, dx) = (Rows::new(x), Rows::new(dy), RowsMut::new(dx));
    let Saved { gamma, beta, saved } = runs;
    let c = gamma.len();
    let (mean, inverse) = saved.split_at(c);
    let mut scratch = cpu.scratch(gradients_len((x.count(), c)));
    let (scale, coefficients) = scratch[..3 * c].split_at_mut(c);
    let (offset, slope) = coefficients.split_at_mut(c);
    scale_by(gamma, inverse, scale);
    let count = count as f32;
    for k in 0..c {
        offset[k] = dbeta[k] / count;
        slope[k] = inverse[k] * dgamma[k] / count;
    }
    let (offset, slope) = (&*offset, &*slope);
    let blocks = Blocks::for_map(x).reversed();
    with_act!(cpu, bn.act, |act| cpu.pool().run(blocks.count(), &|block| {
        let affine = Affine { mean, scale, beta, act };
        input_gradients(cpu.simd(), affine, offset, slope, x, dy, dx, mode, blocks.range(block));
    }));
}

multiversion! {
    /// `sums` receives the sums of `dz` and of `dz * (x - mean)`.
    fn sum_gradients<A: Act, E: Element>(affine: Affine<A>, x: Rows<E>, dy: Rows<E>, rows: Range<usize>, sums: &mut [f32]) {
        let c = x.width();
        let (mean, scale, beta) = (&affine.mean[..c], &affine.scale[..c], &affine.beta[..c]);
        sums.fill(0.0);
        let (of_dz, of_products) = sums.split_at_mut(c);
        let (of_dz, of_products) = (&mut of_dz[..c], &mut of_products[..c]);
        for row in rows {
            let (x, dy) = (&x.row(row)[..c], &dy.row(row)[..c]);
            let of = |k: usize| (x[k].get() - mean[k]) * scale[k] + beta[k];
            affine.act.slopes(c, of, |k| dy[k].get(), |k, dz| {
                of_dz[k] += dz;
                of_products[k] += dz * (x[k].get() - mean[k]);
            });
        }
    }
}

multiversion! {
    /// `dx = scale * (dz - offset - (x - mean) * slope)`.
    fn input_gradients<A: Act, E: Element>(
        affine: Affine<A>,
        offset: &[f32],
        slope: &[f32],
        x: Rows<E>,
        dy: Rows<E>,
        dx: RowsMut<E>,
        mode: Write,
        rows: Range<usize>,
    ) {
        let c = x.width();
        let (mean, scale, beta) = (&affine.mean[..c], &affine.scale[..c], &affine.beta[..c]);
        let (offset, slope) = (&offset[..c], &slope[..c]);
        for row in rows {
            let (x, dy) = (&x.row(row)[..c], &dy.row(row)[..c]);
            // SAFETY: each task has separate rows.
            let dx = &mut unsafe { dx.row(row) }[..c];
            let of = |k: usize| (x[k].get() - mean[k]) * scale[k] + beta[k];
            affine.act.slopes(c, of, |k| dy[k].get(), |k, dz| {
                let gradient = scale[k] * (dz - offset[k] - (x[k].get() - mean[k]) * slope[k]);
                // Read in any case: AVX-512 F has no masked loads of 16 bits, without which the loop would not be vectorized.
                let sum = dx[k].get() + gradient;
                dx[k] = E::of(if mode == Write::Set { gradient } else { sum });
            });
        }
    }
}

/// Scratch elements of a sample's channel in group normalization: two sums, mean and inverse deviation, a part's statistics.
const OF_GROUPS: usize = 2 + 2 + statistics::RUNS;

/// Scratch elements of group normalization.
pub(crate) fn groups_len(shape: Shape) -> usize {
    shape.n * shape.c * OF_GROUPS
}

/// Rows whose numbers are added up in f32.
const CHUNK: usize = 512;

/// A group normalization with its parameters. A task takes a sample, whose numbers stay in the caches from one pass to the next.
#[derive(Clone, Copy)]
pub(crate) struct Groups<'a> {
    pub(crate) op: &'a GroupNorm,
    pub(crate) gamma: &'a [f32],
    pub(crate) beta: &'a [f32],
}

impl Groups<'_> {
    /// `numbers` receives for each channel the mean of its group over `rows`, then the inverse deviation. `part` is scratch memory.
    fn moments<E: Element>(
        self,
        cpu: &Cpu,
        x: Rows<E>,
        rows: Range<usize>,
        numbers: &mut [f32],
        part: &mut [f32],
    ) {
        let (c, size) = (x.width(), x.width() / self.op.groups);
        let (means, squares) = numbers.split_at_mut(c);
        for start in rows.clone().step_by(CHUNK) {
            let chunk = start..(start + CHUNK).min(rows.end);
            let (before, more) = ((start - rows.start) as f32, chunk.len() as f32);
            statistics::reduce(cpu.simd(), x, chunk, part);
            let share = more / (before + more);
            for k in 0..c {
                let apart = if before == 0.0 { 0.0 } else { part[k] - means[k] };
                let (mean, square) =
                    if before == 0.0 { (part[k], 0.0) } else { (means[k] + apart * share, squares[k]) };
                (means[k], squares[k]) = (mean, square + part[c + k] + apart * apart * before * share);
            }
        }
        let each = rows.len() as f64;
        for (means, squares) in means.chunks_mut(size).zip(squares.chunks_mut(size)) {
            let mean = means.iter().map(|&mean| f64::from(mean)).sum::<f64>() / size as f64;
            let between = means.iter().map(|&own| (f64::from(own) - mean).powi(2)).sum::<f64>() * each;
            let within = squares.iter().map(|&squares| f64::from(squares)).sum::<f64>();
            let variance = (within + between) / (each * size as f64);
            means.fill(mean as f32);
            squares.fill((1.0 / (variance + f64::from(self.op.epsilon)).sqrt()) as f32);
        }
    }

    pub(crate) fn forward<E: Element>(self, cpu: &Cpu, x: View<[E]>, y: ViewMut<[E]>) {
        let (samples, pixels) = (x.layout.shape.n, x.layout.shape.h * x.layout.shape.w);
        let (x, y, c) = (Rows::new(x), RowsMut::new(y), x.layout.shape.c);
        if x.count() == 0 {
            return;
        }
        let pitch = OF_GROUPS * c;
        let mut scratch = cpu.scratch(samples * pitch);
        let shards = Shards::new(&mut scratch);
        with_act!(cpu, self.op.act, |act| cpu.pool().run(samples, &|sample| {
            // SAFETY: each task has a separate part.
            let own = unsafe { shards.part(sample * pitch..(sample + 1) * pitch) };
            let (numbers, part) = own.split_at_mut(2 * c);
            let rows = sample * pixels..(sample + 1) * pixels;
            self.moments(cpu, x, rows.clone(), numbers, part);
            let (mean, inverse) = numbers.split_at(c);
            scale_by(self.gamma, inverse, &mut part[..c]);
            normalize_rows(cpu.simd(), Affine { mean, scale: &part[..c], beta: self.beta, act }, x, y, rows);
        }));
    }

    /// With `m` numbers in a group, and `dz` the gradient before the activation:
    /// `dx = inverse * (gamma * dz - sum(gamma * dz) / m - xhat * sum(gamma * dz * xhat) / m)`.
    pub(crate) fn backward<E: Element>(
        self,
        cpu: &Cpu,
        x: View<[E]>,
        dy: View<[E]>,
        dx: ViewMut<[E]>,
        [dgamma, dbeta]: [&mut [f32]; 2],
        mode: Write,
    ) {
        let (samples, pixels) = (x.layout.shape.n, x.layout.shape.h * x.layout.shape.w);
        let (x, dy, dx, c) = (Rows::new(x), Rows::new(dy), RowsMut::new(dx), x.layout.shape.c);
        if x.count() == 0 {
            dgamma.fill(0.0);
            dbeta.fill(0.0);
            return;
        }
        let size = c / self.op.groups;
        let (pitch, count) = (OF_GROUPS * c, (pixels * size) as f32);
        let mut scratch = cpu.scratch(samples * pitch);
        let partials = &mut scratch[..samples * pitch];
        let shards = Shards::new(partials);
        with_act!(cpu, self.op.act, |act| cpu.pool().run(samples, &|sample| {
            // SAFETY: each task has a separate part.
            let own = unsafe { shards.part(sample * pitch..(sample + 1) * pitch) };
            let (sums, own) = own.split_at_mut(2 * c);
            let (numbers, part) = own.split_at_mut(2 * c);
            let rows = sample * pixels..(sample + 1) * pixels;
            self.moments(cpu, x, rows.clone(), numbers, part);
            let (mean, inverse) = numbers.split_at(c);
            let (scale, part) = part.split_at_mut(c);
            scale_by(self.gamma, inverse, scale);
            let affine = Affine { mean, scale, beta: self.beta, act };
            sum_gradients(cpu.simd(), affine, x, dy, rows.clone(), sums);
            let (of_dz, of_products) = sums.split_at_mut(c);
            of_products.iter_mut().zip(inverse).for_each(|(sum, inverse)| *sum *= inverse);
            let (offset, slope) = part.split_at_mut(c);
            for from in (0..c).step_by(size) {
                let group = from..from + size;
                let weighted = |sums: &[f32]| -> f32 {
                    self.gamma[group.clone()]
                        .iter()
                        .zip(&sums[group.clone()])
                        .map(|(gamma, sum)| gamma * sum)
                        .sum()
                };
                let deviation = inverse[from];
                offset[group.clone()].fill(deviation * weighted(of_dz) / count);
                slope[group.clone()].fill(deviation * deviation * weighted(of_products) / count);
            }
            group_gradients(cpu.simd(), affine, offset, slope, x, dy, dx, mode, rows);
        }));
        add_up(partials, pitch, 0, dbeta);
        add_up(partials, pitch, c, dgamma);
    }
}

multiversion! {
    /// `dx = scale * dz - offset - (x - mean) * slope`.
    fn group_gradients<A: Act, E: Element>(
        affine: Affine<A>,
        offset: &[f32],
        slope: &[f32],
        x: Rows<E>,
        dy: Rows<E>,
        dx: RowsMut<E>,
        mode: Write,
        rows: Range<usize>,
    ) {
        let c = x.width();
        let (mean, scale, beta) = (&affine.mean[..c], &affine.scale[..c], &affine.beta[..c]);
        let (offset, slope) = (&offset[..c], &slope[..c]);
        for row in rows {
            let (x, dy) = (&x.row(row)[..c], &dy.row(row)[..c]);
            // SAFETY: each task has separate rows.
            let dx = &mut unsafe { dx.row(row) }[..c];
            let of = |k: usize| (x[k].get() - mean[k]) * scale[k] + beta[k];
            affine.act.slopes(c, of, |k| dy[k].get(), |k, dz| {
                let gradient = scale[k] * dz - offset[k] - (x[k].get() - mean[k]) * slope[k];
                let sum = dx[k].get() + gradient;
                dx[k] = E::of(if mode == Write::Set { gradient } else { sum });
            });
        }
    }
}
