use super::activation::act;
use super::normalization;
use super::operand::{Input, Output};
use super::window::{Window, pixels};
use crate::norm_operands::Infer;
use core::ops::Range;
use towers_program::{Activation, BatchNorm, Conv2d, Write};

/// What a group has: input and output channels, 1 where there are none, so that no pixel has a group.
struct Group {
    inputs: usize,
    outputs: usize,
    /// Output channels of all groups.
    all: usize,
}

impl Group {
    fn of(conv: &Conv2d) -> Group {
        let outputs = (conv.outputs / conv.groups).max(1);
        Group { inputs: conv.group_inputs().max(1), outputs, all: conv.outputs }
    }

    /// Where the weights of one tap and of a group's input channel `c` lie: one for each output channel of the group.
    fn weights(&self, tap: usize, group: usize, c: usize) -> Range<usize> {
        let start = (tap * self.inputs + c) * self.all + group * self.outputs;
        start..start + self.outputs
    }
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
    let of = Group::of(conv);
    for (n, i, j) in pixels(y.shape()) {
        let y = y.pixel(n, i, j);
        match b {
            Some(b) => y.copy_from_slice(b),
            None => y.fill(0.0),
        }
        for (tap, row, column) in Window::from(conv).pixels(x.shape(), i, j) {
            let groups = x.pixel(n, row, column).chunks(of.inputs).zip(y.chunks_mut(of.outputs));
            for (group, (x, y)) in groups.enumerate() {
                for (c, &x) in x.iter().enumerate() {
                    let w = &w[of.weights(tap, group, c)];
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
    let of = Group::of(conv);
    dx.begin(mode);
    let shape = dx.shape();
    for (n, i, j) in pixels(dy.shape()) {
        let dy = dy.pixel(n, i, j);
        for (tap, row, column) in Window::from(conv).pixels(shape, i, j) {
            let groups = dx.pixel(n, row, column).chunks_mut(of.inputs).zip(dy.chunks(of.outputs));
            for (group, (dx, dy)) in groups.enumerate() {
                for (c, dx) in dx.iter_mut().enumerate() {
                    *dx += dot(dy, &w[of.weights(tap, group, c)]);
                }
            }
        }
    }
}

pub(crate) fn backward_filter(conv: &Conv2d, x: Input, dy: Input, dw: &mut [f64]) {
    let of = Group::of(conv);
    dw.fill(0.0);
    for (n, i, j) in pixels(dy.shape()) {
        let dy = dy.pixel(n, i, j);
        for (tap, row, column) in Window::from(conv).pixels(x.shape(), i, j) {
            let groups = x.pixel(n, row, column).chunks(of.inputs).zip(dy.chunks(of.outputs));
            for (group, (x, dy)) in groups.enumerate() {
                for (c, x) in x.iter().enumerate() {
                    let dw = &mut dw[of.weights(tap, group, c)];
                    dw.iter_mut().zip(dy).for_each(|(dw, dy)| *dw += x * dy);
                }
            }
        }
    }
}
