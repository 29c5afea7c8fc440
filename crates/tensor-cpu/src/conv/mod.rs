//! Convolutions: forward and both backward passes.

mod grads;
mod kernels;
mod pack;
mod plan;
mod problem;
mod sums;
#[cfg(test)]
mod tests;

use crate::Cpu;
use kernels::Kernels;
use problem::Problem;
use sums::Finish;
use tensor_backend::{Activation, Conv2d, Layout, Shape, View, ViewMut, Write};

/// Reserves the scratch memory that the passes of a convolution need.
pub(crate) fn prepare(cpu: &Cpu, conv: &Conv2d, x: Shape, y: Shape, training: bool) {
    let (x, y) = (Layout::contiguous(x), Layout::contiguous(y));
    let kernels = Kernels::of(cpu.simd());
    let mut len = sums::scratch_len(&Problem::forward(conv, x, y), kernels, cpu.threads());
    if training {
        len = len.max(grads::scratch_len(conv, x, y, kernels));
        for problem in phases(conv).map(|phase| Problem::backward(conv, y, x, phase)) {
            len = len.max(sums::scratch_len(&problem, kernels, cpu.threads()));
        }
    }
    drop(cpu.scratch(len));
}

/// The places that an input can have under the stride.
fn phases(conv: &Conv2d) -> impl Iterator<Item = [usize; 2]> + use<> {
    let [rows, columns] = conv.stride;
    (0..rows).flat_map(move |row| (0..columns).map(move |column| [row, column]))
}

pub(crate) fn forward(
    cpu: &Cpu,
    conv: &Conv2d,
    act: Activation,
    x: View<[f32]>,
    w: &[f32],
    b: Option<&[f32]>,
    y: ViewMut<[f32]>,
) {
    let problem = Problem::forward(conv, x.layout, y.layout);
    let finish = Finish { bias: b, relu: act == Activation::Relu, add: false };
    sums::run(cpu, &problem, x.data, w, finish, y.data);
}

pub(crate) fn backward_data(
    cpu: &Cpu,
    conv: &Conv2d,
    dy: View<[f32]>,
    w: &[f32],
    dx: ViewMut<[f32]>,
    mode: Write,
) {
    let finish = Finish { bias: None, relu: false, add: mode == Write::Add };
    for phase in phases(conv) {
        let problem = Problem::backward(conv, dy.layout, dx.layout, phase);
        sums::run(cpu, &problem, dy.data, w, finish, dx.data);
    }
}

pub(crate) fn backward_filter(cpu: &Cpu, conv: &Conv2d, x: View<[f32]>, dy: View<[f32]>, dw: &mut [f32]) {
    grads::run(cpu, conv, x, dy, dw);
}
