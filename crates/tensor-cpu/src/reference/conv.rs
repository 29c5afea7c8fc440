use super::activation::act;
use super::normalization;
use super::operand::{Input, Output};
use super::window::{Window, pixels};
use crate::norm_operands::Infer;
use core::ops::Range;
use program::{Activation, BatchNorm, Conv2d, Write};

/// The output channels that read input channel `c`: those of its group.
fn outputs(conv: &Conv2d, c: usize) -> Range<usize> {
    let (group, outputs) = (c / conv.group_inputs(), conv.outputs / conv.groups);
    group * outputs..(group + 1) * outputs
}

/// Where the weights of one tap and input channel lie: one for each output channel that reads it.
fn weights(conv: &Conv2d, tap: usize, c: usize) -> Range<usize> {
    let (row, outputs) = (tap * conv.group_inputs() + c % conv.group_inputs(), outputs(conv, c));
    row * conv.outputs + outputs.start..row * conv.outputs + outputs.end
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
                let (y, w) = (&mut y[outputs(conv, c)], &w[weights(conv, tap, c)]);
                y.iter_mut().zip(w).for_each(|(y, w)| *y += x * w);
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
                let (dy, w) = (&dy[outputs(conv, c)], &w[weights(conv, tap, c)]);
                *dx += dy.iter().zip(w).map(|(dy, w)| dy * w).sum::<f64>();
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
                let (dw, dy) = (&mut dw[weights(conv, tap, c)], &dy[outputs(conv, c)]);
                dw.iter_mut().zip(dy).for_each(|(dw, dy)| *dw += x * dy);
            }
        }
    }
}
