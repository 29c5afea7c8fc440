use super::activation::{act, act_gradient};
use super::operand::{Input, Output, put};
use tensor_backend::{BatchNorm, Write};

/// The numbers of one channel.
fn channel(x: Input, c: usize) -> impl Iterator<Item = f64> {
    (0..x.shape().rows()).map(move |row| x.row(row)[c])
}

/// `saved` receives means and inverse deviations, `sums` the samples' share of the running statistics.
pub(super) fn forward_train(
    bn: &BatchNorm,
    x: Input,
    gamma: &[f64],
    beta: &[f64],
    bias: Option<&[f64]>,
    mut y: Output,
    saved: &mut [f64],
    sums: &mut [f64],
) {
    let shape = x.shape();
    let (samples, count) = (shape.n as f64, shape.rows() as f64);
    for c in 0..shape.c {
        let mean = channel(x, c).sum::<f64>() / count.max(1.0);
        let squares = channel(x, c).map(|x| (x - mean).powi(2)).sum::<f64>();
        let inverse = 1.0 / (squares / count.max(1.0) + f64::from(bn.epsilon)).sqrt();
        (saved[c], saved[shape.c + c]) = (mean, inverse);
        let bias = bias.map_or(0.0, |bias| bias[c]);
        // A single number has no unbiased variance: it counts as 0.
        (sums[c], sums[shape.c + c]) = (samples * (mean + bias), samples * squares / (count - 1.0).max(1.0));
        for (row, x) in channel(x, c).enumerate() {
            y.row(row)[c] = act(bn.act, gamma[c] * (x - mean) * inverse + beta[c]);
        }
    }
}

pub(super) fn forward_infer(
    bn: &BatchNorm,
    x: Input,
    gamma: &[f64],
    beta: &[f64],
    mean: &[f64],
    var: &[f64],
    mut y: Output,
) {
    for c in 0..x.shape().c {
        let inverse = 1.0 / (var[c] + f64::from(bn.epsilon)).sqrt();
        for (row, x) in channel(x, c).enumerate() {
            y.row(row)[c] = act(bn.act, gamma[c] * (x - mean[c]) * inverse + beta[c]);
        }
    }
}

/// With `m` numbers in a channel, `xhat = (x - mean) * inverse` and `dz` the gradient before the activation:
/// `dx = gamma * inverse * (dz - sum(dz) / m - xhat * sum(dz * xhat) / m)`.
pub(super) fn backward(
    bn: &BatchNorm,
    x: Input,
    dy: Input,
    gamma: &[f64],
    beta: &[f64],
    saved: &[f64],
    dgamma: &mut [f64],
    dbeta: &mut [f64],
    mut dx: Output,
    mode: Write,
) {
    let count = x.shape().rows() as f64;
    for c in 0..x.shape().c {
        let (mean, inverse) = (saved[c], saved[x.shape().c + c]);
        let terms = || {
            channel(x, c).zip(channel(dy, c)).map(|(x, dy)| {
                let xhat = (x - mean) * inverse;
                (xhat, act_gradient(bn.act, gamma[c] * xhat + beta[c], dy))
            })
        };
        dbeta[c] = terms().map(|(_, dz)| dz).sum();
        dgamma[c] = terms().map(|(xhat, dz)| dz * xhat).sum();
        for (row, (xhat, dz)) in terms().enumerate() {
            let value = gamma[c] * inverse * (dz - dbeta[c] / count - xhat * dgamma[c] / count);
            put(&mut dx.row(row)[c], value, mode);
        }
    }
}
