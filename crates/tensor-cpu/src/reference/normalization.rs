use super::activation::{act, act_gradient};
use super::operand::{Input, Output, put};
use crate::norm_operands::{Infer, Saved, Train};
use core::ops::Range;
use towers_program::ops::{BatchNormInferGradient, GroupNorm};
use towers_program::{BatchNorm, Write};

/// The numbers of one channel.
fn channel(x: Input, c: usize) -> impl Iterator<Item = f64> {
    (0..x.shape().rows()).map(move |row| x.row(row)[c])
}

/// A channel's mean and the sum of squared differences from it.
fn moments(x: Input, c: usize) -> (f64, f64) {
    let mean = channel(x, c).sum::<f64>() / (x.shape().rows() as f64).max(1.0);
    (mean, channel(x, c).map(|x| (x - mean).powi(2)).sum())
}

pub(crate) fn forward_train(bn: &BatchNorm, x: Input, y: Output, runs: Train<'_, f64>) {
    forward(bn, x, y, runs, x.shape().rows() as f64, |c| moments(x, c));
}

/// One replica's statistics: means, sums of squared differences, samples.
pub(crate) fn statistics(x: Input, stats: &mut [f64]) {
    let channels = x.shape().c;
    (0..channels).for_each(|c| (stats[c], stats[channels + c]) = moments(x, c));
    stats[2 * channels] = x.shape().n as f64;
}

/// The same with the statistics of all replicas: the sum of squared differences from the mean of all is that within the
/// replicas and that between them.
pub(crate) fn forward_synchronized(bn: &BatchNorm, x: Input, y: Output, stats: &[f64], runs: Train<'_, f64>) {
    let shape = x.shape();
    let pixels = (shape.h * shape.w) as f64;
    let replicas = || stats.chunks_exact(BatchNorm::stats_len(shape.c));
    let count_of = |stats: &[f64]| stats[2 * shape.c] * pixels;
    let count = replicas().map(count_of).sum::<f64>();
    forward(bn, x, y, runs, count, |c| {
        let mean = replicas().map(|own| count_of(own) * own[c]).sum::<f64>() / count.max(1.0);
        let squares = |own: &[f64]| own[shape.c + c] + count_of(own) * (own[c] - mean).powi(2);
        (mean, replicas().map(squares).sum())
    });
}

/// With `count` numbers in a channel of the whole batch, and a channel's mean and sum of squared differences.
fn forward(
    bn: &BatchNorm,
    x: Input,
    y: Output,
    runs: Train<'_, f64>,
    count: f64,
    moments: impl Fn(usize) -> (f64, f64),
) {
    let Train { gamma, beta, bias, saved, sums } = runs;
    let shape = x.shape();
    let samples = shape.n as f64;
    for c in 0..shape.c {
        let (mean, squares) = moments(c);
        let inverse = 1.0 / (squares / count.max(1.0) + f64::from(bn.epsilon)).sqrt();
        (saved[c], saved[shape.c + c]) = (mean, inverse);
        let bias = bias.map_or(0.0, |bias| bias[c]);
        // A single number has no unbiased variance: it counts as 0.
        (sums[c], sums[shape.c + c]) = (samples * (mean + bias), samples * squares / (count - 1.0).max(1.0));
    }
    recompute_forward(bn, x, Saved { gamma, beta, saved }, y);
}

/// Recomputes the output of a training pass, from its saved statistics.
pub(crate) fn recompute_forward(bn: &BatchNorm, x: Input, runs: Saved<'_, f64>, mut y: Output) {
    let Saved { gamma, beta, saved } = runs;
    let (mean, inverse) = saved.split_at(x.shape().c);
    for row in 0..x.shape().rows() {
        for (c, (y, x)) in y.row(row).iter_mut().zip(x.row(row)).enumerate() {
            *y = act(bn.act, gamma[c] * (x - mean[c]) * inverse[c] + beta[c]);
        }
    }
}

pub(crate) fn forward_infer(bn: &BatchNorm, x: Input, runs: Infer<'_, f64>, mut y: Output) {
    for row in 0..x.shape().rows() {
        y.row(row).copy_from_slice(x.row(row));
    }
    normalize(bn, runs, y);
}

/// The gradient of inference's input.
pub(crate) fn infer_backward(
    op: &BatchNormInferGradient,
    dy: Input,
    gamma: &[f64],
    var: &[f64],
    mut dx: Output,
) {
    for row in 0..dy.shape().rows() {
        for (c, (dx, dy)) in dx.row(row).iter_mut().zip(dy.row(row)).enumerate() {
            *dx = dy * gamma[c] / (var[c] + f64::from(op.epsilon)).sqrt();
        }
    }
}

/// Normalizes where the numbers lie, as in inference.
pub(crate) fn normalize(bn: &BatchNorm, runs: Infer<'_, f64>, mut y: Output) {
    let Infer { gamma, beta, mean, var } = runs;
    for row in 0..y.shape().rows() {
        for (c, y) in y.row(row).iter_mut().enumerate() {
            let inverse = 1.0 / (var[c] + f64::from(bn.epsilon)).sqrt();
            *y = act(bn.act, gamma[c] * (*y - mean[c]) * inverse + beta[c]);
        }
    }
}

/// Of each number of a channel `xhat = (x - mean) * inverse`, and `dz`, the gradient before the activation.
fn terms<'a>(
    bn: &BatchNorm,
    x: Input<'a>,
    dy: Input<'a>,
    runs: Saved<'a, f64>,
    c: usize,
) -> impl Iterator<Item = (f64, f64)> + 'a {
    let Saved { gamma, beta, saved } = runs;
    let (mean, inverse, act) = (saved[c], saved[x.shape().c + c], bn.act);
    channel(x, c).zip(channel(dy, c)).map(move |(x, dy)| {
        let xhat = (x - mean) * inverse;
        (xhat, act_gradient(act, gamma[c] * xhat + beta[c], dy))
    })
}

/// `dbeta = sum(dz)`, `dgamma = sum(dz * xhat)`.
pub(crate) fn backward_params(
    bn: &BatchNorm,
    x: Input,
    dy: Input,
    runs: Saved<'_, f64>,
    dgamma: &mut [f64],
    dbeta: &mut [f64],
) {
    for c in 0..x.shape().c {
        dbeta[c] = terms(bn, x, dy, runs, c).map(|(_, dz)| dz).sum();
        dgamma[c] = terms(bn, x, dy, runs, c).map(|(xhat, dz)| dz * xhat).sum();
    }
}

/// With `count` numbers in a channel of the whole batch:
/// `dx = gamma * inverse * (dz - dbeta / count - xhat * dgamma / count)`.
pub(crate) fn backward_data(
    bn: &BatchNorm,
    x: Input,
    dy: Input,
    runs: Saved<'_, f64>,
    [dgamma, dbeta]: [&[f64]; 2],
    count: usize,
    mut dx: Output,
    mode: Write,
) {
    let (channels, count) = (x.shape().c, count as f64);
    for c in 0..channels {
        let inverse = runs.saved[channels + c];
        for (row, (xhat, dz)) in terms(bn, x, dy, runs, c).enumerate() {
            let value = runs.gamma[c] * inverse * (dz - dbeta[c] / count - xhat * dgamma[c] / count);
            put(&mut dx.row(row)[c], value, mode);
        }
    }
}

/// Each sample's groups: their rows and channels, mean and inverse deviation.
fn groups(op: &GroupNorm, x: Input) -> Vec<(Range<usize>, Range<usize>, f64, f64)> {
    let shape = x.shape();
    let (pixels, size) = (shape.h * shape.w, shape.c / op.groups);
    let all = (0..shape.n).flat_map(|sample| (0..op.groups).map(move |group| (sample, group)));
    all.map(|(sample, group)| {
        let (rows, channels) = (sample * pixels..(sample + 1) * pixels, group * size..(group + 1) * size);
        let numbers: Vec<f64> = rows.clone().flat_map(|row| x.row(row)[channels.clone()].to_vec()).collect();
        let count = (numbers.len() as f64).max(1.0);
        let mean = numbers.iter().sum::<f64>() / count;
        let variance = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        (rows, channels, mean, 1.0 / (variance + f64::from(op.epsilon)).sqrt())
    })
    .collect()
}

pub(crate) fn group_forward(op: &GroupNorm, x: Input, [gamma, beta]: [&[f64]; 2], mut y: Output) {
    for (rows, channels, mean, inverse) in groups(op, x) {
        for row in rows {
            for c in channels.clone() {
                y.row(row)[c] = act(op.act, gamma[c] * (x.row(row)[c] - mean) * inverse + beta[c]);
            }
        }
    }
}

/// With `m` numbers in a group: `dx = inverse * (g - sum(g) / m - xhat * sum(g * xhat) / m)`, of `g = gamma * dz`.
pub(crate) fn group_backward(
    op: &GroupNorm,
    x: Input,
    dy: Input,
    [gamma, beta]: [&[f64]; 2],
    mut dx: Output,
    [dgamma, dbeta]: [&mut [f64]; 2],
    mode: Write,
) {
    dgamma.fill(0.0);
    dbeta.fill(0.0);
    for (rows, channels, mean, inverse) in groups(op, x) {
        let places: Vec<_> = rows.flat_map(|row| channels.clone().map(move |c| (row, c))).collect();
        let terms = |(row, c): (usize, usize)| {
            let xhat = (x.row(row)[c] - mean) * inverse;
            (xhat, act_gradient(op.act, gamma[c] * xhat + beta[c], dy.row(row)[c]))
        };
        let (mut sum, mut products) = (0.0, 0.0);
        for &(row, c) in &places {
            let (xhat, dz) = terms((row, c));
            dbeta[c] += dz;
            dgamma[c] += dz * xhat;
            sum += gamma[c] * dz;
            products += gamma[c] * dz * xhat;
        }
        let count = places.len() as f64;
        for &(row, c) in &places {
            let (xhat, dz) = terms((row, c));
            put(&mut dx.row(row)[c], inverse * (gamma[c] * dz - sum / count - xhat * products / count), mode);
        }
    }
}
