use crate::conv::Convolved;
use crate::{Cpu, conv};
use program::{Activation, Conv2d, Linear, Pad, Result, Shape, View, ViewMut, Write};

/// A dense layer as a convolution of 1x1 images with a 1x1 kernel: the same memory, the same sums.
fn pointwise(linear: &Linear) -> Conv2d {
    Conv2d { inputs: linear.inputs, outputs: linear.outputs, kernel: [1, 1], stride: [1, 1], pad: Pad::VALID }
}

/// As [`conv::prepare`].
pub(crate) fn prepare(cpu: &Cpu, linear: &Linear, n: usize, training: bool) -> Result<()> {
    let (x, y) = (Shape::vectors(n, linear.inputs), Shape::vectors(n, linear.outputs));
    conv::prepare(cpu, &pointwise(linear), x, y, training)
}

pub(crate) fn forward<E: Convolved>(
    cpu: &Cpu,
    linear: &Linear,
    act: Activation,
    x: View<[E]>,
    w: &[f32],
    b: Option<&[f32]>,
    y: ViewMut<[E]>,
) {
    conv::forward(cpu, &pointwise(linear), act, x, w, b, y);
}

pub(crate) fn backward_data<E: Convolved>(
    cpu: &Cpu,
    linear: &Linear,
    dy: View<[E]>,
    w: &[f32],
    dx: ViewMut<[E]>,
    mode: Write,
) {
    Convolved::backward_data(cpu, &pointwise(linear), dy, w, dx, mode);
}

pub(crate) fn backward_filter<E: Convolved>(
    cpu: &Cpu,
    linear: &Linear,
    x: View<[E]>,
    dy: View<[E]>,
    dw: &mut [f32],
) {
    Convolved::backward_filter(cpu, &pointwise(linear), x, dy, dw);
}
