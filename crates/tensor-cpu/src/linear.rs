use crate::conv::{Convolved, Pass};
use crate::{Cpu, conv};
use towers_program::{Activation, Conv2d, Layout, Linear, View, ViewMut, Write};

/// A dense layer as a convolution of 1x1 images with a 1x1 kernel: the same memory, the same sums.
fn pointwise(linear: &Linear) -> Conv2d {
    Conv2d::new(linear.inputs, linear.outputs, [1, 1])
}

/// As [`conv::scratch_len`].
pub(crate) fn scratch_len(cpu: &Cpu, pass: Pass, linear: &Linear, x: Layout, y: Layout) -> usize {
    conv::scratch_len(cpu, pass, &pointwise(linear), x, y)
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
