use super::activation::act;
use super::normalization;
use super::operand::{Input, Output};
use super::window::{Window, pixels};
use crate::norm_operands::Infer;
use core::ops::Range;
use program::{Activation, BatchNorm, Conv2d, Write};

/// The input and output channels of a group; 1 where there are none, so that no pixel has a group.
fn of_group(conv: &Conv2d) -> (usize, usize) {
    (conv.group_inputs().max(1), (conv.outputs / conv.groups).max(1))
}

/// Where the weights of one tap and of a group's input channel `c` lie: one for each output channel of the group.
fn weights(conv: &Conv2d, tap: usize, group: usize, c: usize) -> Range<usize> {
    let (inputs, outputs) = of_group(conv);
    let start = (tap * inputs + c) * conv.outputs + group * outputs;
    start..start + outputs
}

/// The sum of products, in eight sums that do not wait for each other.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut sums = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        (0..8).for_each(|k| sums[k] += a[k] * b[k]);
    }
    let rest = a_rest.iter().zip(b_rest).map(|(a, b)| a * b);
    sums.into_iter().chain(rest).sum()
}

pub(crate) fn forward(
    conv: &Conv2d,
    activation: Activation,
    x: Input,
    w: &[f64],
    b: Option<&[f64]>,
    mut y: Output,
) {
    let (inputs, outputs) = of_group(conv);
    for (n, i, j) in pixels(y.shape()) {
        let y = y.pixel(n, i, j);
        match b {
            Some(b) => y.copy_from_slice(b),
            None => y.fill(0.0),
        }
        for (tap, row, column) in Window::from(conv).pixels(x.shape(), i, j) {
            let groups = x.pixel(n, row, column).chunks(inputs).zip(y.chunks_mut(outputs));
            for (group, (x, y)) in groups.enumerate() {
                for (c, &x) in x.iter().enumerate() {
                    let w = &w[weights(conv, tap, group, c)];
                    y.iter_mut().zip(w).for_each(|(y, w)| *y += x * w);
                }
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
    let (inputs, outputs) = of_group(conv);
    dx.begin(mode);
    let shape = dx.shape();
    for (n, i, j) in pixels(dy.shape()) {
        let dy = dy.pixel(n, i, j);
        for (tap, row, column) in Window::from(conv).pixels(shape, i, j) {
            let groups = dx.pixel(n, row, column).chunks_mut(inputs).zip(dy.chunks(outputs));
            for (group, (dx, dy)) in groups.enumerate() {
                for (c, dx) in dx.iter_mut().enumerate() {
                    *dx += dot(dy, &w[weights(conv, tap, group, c)]);
                }
            }
        }
    }
}

pub(crate) fn backward_filter(conv: &Conv2d, x: Input, dy: Input, dw: &mut [f64]) {
    let (inputs, outputs) = of_group(conv);
    dw.fill(0.0);
    for (n, i, j) in pixels(dy.shape()) {
        let dy = dy.pixel(n, i, j);
        for (tap, row, column) in Window::from(conv).pixels(x.shape(), i, j) {
            let groups = x.pixel(n, row, column).chunks(inputs).zip(dy.chunks(outputs));
            for (group, (x, dy)) in groups.enumerate() {
                for (c, x) in x.iter().enumerate() {
                    let dw = &mut dw[weights(conv, tap, group, c)];
                    dw.iter_mut().zip(dy).for_each(|(dw, dy)| *dw += x * dy);
                }
            }
        }
    }
}
