use super::activation::act;
use super::normalization;
use super::operand::{Input, Output};
use super::window::{Window, pixels};
use crate::norm_operands::Infer;
use towers_program::ops::Depthwise;
use towers_program::{Activation, BatchNorm, Write};

/// The weights of one tap: one for each output channel.
fn weights<'a>(conv: &Depthwise, w: &'a [f64], tap: usize) -> &'a [f64] {
    &w[tap * conv.outputs()..][..conv.outputs()]
}

pub(crate) fn forward(
    conv: &Depthwise,
    activation: Activation,
    x: Input,
    w: &[f64],
    b: Option<&[f64]>,
    mut y: Output,
) {
    for (n, i, j) in pixels(y.shape()) {
        let y = y.pixel(n, i, j);
        match b {
            Some(b) => y.copy_from_slice(b),
            None => y.fill(0.0),
        }
        for (tap, row, column) in Window::from(conv).pixels(x.shape(), i, j) {
            let (x, w) = (x.pixel(n, row, column), weights(conv, w, tap));
            y.iter_mut().zip(w).enumerate().for_each(|(k, (y, w))| *y += x[k / conv.multiplier] * w);
        }
        y.iter_mut().for_each(|y| *y = act(activation, *y));
    }
}

/// A convolution, and a normalization of its output.
pub(crate) fn forward_normalized(
    conv: &Depthwise,
    bn: &BatchNorm,
    x: Input,
    w: &[f64],
    b: Option<&[f64]>,
    runs: Infer<'_, f64>,
    mut y: Output,
) {
    forward(conv, Activation::None, x, w, b, y.reborrow());
    normalization::normalize(bn, runs, y);
}

pub(crate) fn backward_data(conv: &Depthwise, dy: Input, w: &[f64], mut dx: Output, mode: Write) {
    dx.begin(mode);
    let shape = dx.shape();
    for (n, i, j) in pixels(dy.shape()) {
        for (tap, row, column) in Window::from(conv).pixels(shape, i, j) {
            let (dx, w) = (dx.pixel(n, row, column), weights(conv, w, tap));
            let products = dy.pixel(n, i, j).iter().zip(w).map(|(dy, w)| dy * w);
            products.enumerate().for_each(|(k, product)| dx[k / conv.multiplier] += product);
        }
    }
}

pub(crate) fn backward_filter(conv: &Depthwise, x: Input, dy: Input, dw: &mut [f64]) {
    dw.fill(0.0);
    for (n, i, j) in pixels(dy.shape()) {
        for (tap, row, column) in Window::from(conv).pixels(x.shape(), i, j) {
            let (x, dw) = (x.pixel(n, row, column), &mut dw[tap * conv.outputs()..][..conv.outputs()]);
            let dy = dy.pixel(n, i, j);
            dw.iter_mut().zip(dy).enumerate().for_each(|(k, (dw, dy))| *dw += x[k / conv.multiplier] * dy);
        }
    }
}
