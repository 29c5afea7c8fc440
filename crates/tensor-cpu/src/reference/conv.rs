use super::activation::act;
use super::normalization;
use super::operand::{Input, Output};
use super::window::{Window, pixels};
use crate::norm_operands::Infer;
use program::{Activation, BatchNorm, Conv2d, Write};

/// The weights of one tap and input channel: one for each output channel.
fn weights<'a>(conv: &Conv2d, w: &'a [f64], tap: usize, c: usize) -> &'a [f64] {
    &w[(tap * conv.inputs + c) * conv.outputs..][..conv.outputs]
}

pub(crate) fn forward(
    conv: &Conv2d,
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
            for (c, &x) in x.pixel(n, row, column).iter().enumerate() {
                y.iter_mut().zip(weights(conv, w, tap, c)).for_each(|(y, w)| *y += x * w);
            }
        }
        y.iter_mut().for_each(|y| *y = act(activation, *y));
    }
}

/// A convolution, and a normalization of its output.
pub(crate) fn forward_normalized(
    conv: &Conv2d,
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

pub(crate) fn backward_data(conv: &Conv2d, dy: Input, w: &[f64], mut dx: Output, mode: Write) {
    dx.begin(mode);
    let shape = dx.shape();
    for (n, i, j) in pixels(dy.shape()) {
        let dy = dy.pixel(n, i, j);
        for (tap, row, column) in Window::from(conv).pixels(shape, i, j) {
            for (c, dx) in dx.pixel(n, row, column).iter_mut().enumerate() {
                *dx += dy.iter().zip(weights(conv, w, tap, c)).map(|(dy, w)| dy * w).sum::<f64>();
            }
        }
    }
}

pub(crate) fn backward_filter(conv: &Conv2d, x: Input, dy: Input, dw: &mut [f64]) {
    dw.fill(0.0);
    for (n, i, j) in pixels(dy.shape()) {
        let dy = dy.pixel(n, i, j);
        for (tap, row, column) in Window::from(conv).pixels(x.shape(), i, j) {
            for (c, x) in x.pixel(n, row, column).iter().enumerate() {
                let dw = &mut dw[(tap * conv.inputs + c) * conv.outputs..][..conv.outputs];
                dw.iter_mut().zip(dy).for_each(|(dw, dy)| *dw += x * dy);
            }
        }
    }
}
