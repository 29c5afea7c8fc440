//! Normalizations of each pixel by its own channels.

use super::operand::{Input, Output, put};
use core::ops::Range;
use towers_program::Write;
use towers_program::ops::{LayerNorm, LocalResponseNorm};

/// The normalized channels of a pixel, and one over their deviation.
fn normalized(op: &LayerNorm, x: &[f64]) -> (Vec<f64>, f64) {
    let count = x.len() as f64;
    let mean = x.iter().sum::<f64>() / count;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
    let inverse = 1.0 / (variance + f64::from(op.epsilon)).sqrt();
    (x.iter().map(|x| (x - mean) * inverse).collect(), inverse)
}

pub(crate) fn layer_forward(op: &LayerNorm, x: Input, [gamma, beta]: [&[f64]; 2], mut y: Output) {
    for row in 0..x.shape().rows() {
        let (xhat, _) = normalized(op, x.row(row));
        for (c, xhat) in xhat.into_iter().enumerate() {
            y.row(row)[c] = gamma[c] * xhat + beta[c];
        }
    }
}

/// `dx = inverse * (g - mean(g) - xhat * mean(g * xhat))`, of `g = gamma * dy`.
pub(crate) fn layer_backward(
    op: &LayerNorm,
    x: Input,
    gamma: &[f64],
    dy: Input,
    mut dx: Output,
    [dgamma, dbeta]: [&mut [f64]; 2],
    mode: Write,
) {
    dgamma.fill(0.0);
    dbeta.fill(0.0);
    for row in 0..x.shape().rows() {
        let ((xhat, inverse), dy) = (normalized(op, x.row(row)), dy.row(row));
        let mean = |of: &dyn Fn(usize) -> f64| (0..dy.len()).map(of).sum::<f64>() / dy.len() as f64;
        let (mean_of_g, mean_of_products) =
            (mean(&|c| gamma[c] * dy[c]), mean(&|c| gamma[c] * dy[c] * xhat[c]));
        for c in 0..dy.len() {
            dbeta[c] += dy[c];
            dgamma[c] += dy[c] * xhat[c];
            let gradient = inverse * (gamma[c] * dy[c] - mean_of_g - xhat[c] * mean_of_products);
            put(&mut dx.row(row)[c], gradient, mode);
        }
    }
}

/// The neighbours of a channel, with itself.
fn neighbours(op: &LocalResponseNorm, c: usize, channels: usize) -> Range<usize> {
    c.saturating_sub(op.before())..(c + op.size - op.before()).min(channels)
}

/// What each channel of a pixel is divided by, to the power of beta.
fn scales(op: &LocalResponseNorm, x: &[f64]) -> Vec<f64> {
    let factor = f64::from(op.alpha) / op.size as f64;
    let squares = |c| x[neighbours(op, c, x.len())].iter().map(|x| x * x).sum::<f64>();
    (0..x.len()).map(|c| f64::from(op.bias) + factor * squares(c)).collect()
}

pub(crate) fn response_forward(op: &LocalResponseNorm, x: Input, mut y: Output) {
    for row in 0..x.shape().rows() {
        let (x, scales) = (x.row(row), scales(op, x.row(row)));
        for c in 0..x.len() {
            y.row(row)[c] = x[c] * scales[c].powf(-f64::from(op.beta));
        }
    }
}

pub(crate) fn response_backward(op: &LocalResponseNorm, x: Input, dy: Input, mut dx: Output, mode: Write) {
    let (beta, factor) = (f64::from(op.beta), f64::from(op.alpha) / op.size as f64);
    for row in 0..x.shape().rows() {
        let (x, dy, scales) = (x.row(row), dy.row(row), scales(op, x.row(row)));
        let mut gradients: Vec<f64> = (0..x.len()).map(|c| dy[c] * scales[c].powf(-beta)).collect();
        for c in 0..x.len() {
            // What a neighbour does to the scale of this channel.
            let of_scale = -beta * dy[c] * x[c] * scales[c].powf(-beta - 1.0);
            for k in neighbours(op, c, x.len()) {
                gradients[k] += of_scale * factor * 2.0 * x[k];
            }
        }
        dx.row(row).iter_mut().zip(gradients).for_each(|(dx, gradient)| put(dx, gradient, mode));
    }
}
