//! Convolutions: forward and both backward passes. Dense layers are convolutions of one pixel.
//!
//! Two kinds of sums do all of the work, each in tiles that live in vector registers (`kernels`):
//!
//! - Sums over taps and channels for every output pixel (`problem`, `plan`, `sums`): the forward pass, and
//!   the gradient of the input. That is the same with transposed weights, once for every phase of the stride.
//!   The source is packed piece by piece into blocks of 16 channels with its padding (`pack`). A piece stays
//!   in the core's L2 cache, and no patch is copied.
//! - Sums over pixels for every weight (`grads`), straight from both tensors.
//!
//! Kernels of 3x3 may go through transforms instead (`winograd`). All of this is `single`, for tensors of f32; for those of
//! bf16 both kinds of sums are those of a matrix unit (`bf16`).
//!
//! How the work is cut up depends on the shapes and the vectors' width, and never on the number of threads.

mod bf16;
mod convolved;
mod cut;
mod grads;
mod grouped;
mod kernels;
mod pack;
mod plan;
mod problem;
mod single;
mod sums;
#[cfg(test)]
mod tests;
mod winograd;

pub(crate) use bf16::{Level as Bf16Level, trial as bf16_trial};
pub(crate) use convolved::{Convolved, Pass};
pub(crate) use grouped::weights_len;

use crate::element::Bf16;
use crate::norm_operands::Infer;
use crate::{Cpu, activation, normalization};
use sums::Finish;
use towers_program::{Activation, BatchNorm, Conv2d, Layout, Shape, View, ViewMut, Write};

/// Elements of scratch memory for a pass. `x` and `y` are where the input or its gradient lies, and the output or its.
pub(crate) fn scratch_len(cpu: &Cpu, pass: Pass, conv: &Conv2d, x: Layout, y: Layout) -> usize {
    let len = if cpu.is_bf16() { Bf16::scratch_len } else { f32::scratch_len };
    grouped::scratch_len(pass, conv, x, y, |pass, conv, x, y| len(cpu, pass, conv, x, y))
}

/// The places that a pixel of `x` can have under the stride.
fn phases(conv: &Conv2d, x: Shape) -> impl Iterator<Item = [usize; 2]> + use<> {
    let [rows, columns] = [conv.stride[0].min(x.h), conv.stride[1].min(x.w)];
    (0..rows).flat_map(move |row| (0..columns).map(move |column| [row, column]))
}

pub(crate) fn forward<E: Convolved>(
    cpu: &Cpu,
    conv: &Conv2d,
    act: Activation,
    x: View<[E]>,
    w: &[f32],
    b: Option<&[f32]>,
    y: ViewMut<[E]>,
) {
    let finish = Finish { bias: b, add: false, affine: None, relu: act.ceiling() };
    forward_finished(cpu, conv, act, x, w, finish, y);
}

/// A convolution and the normalization after it, as in inference: applied to the sums before they are stored.
pub(crate) fn forward_normalized<E: Convolved>(
    cpu: &Cpu,
    conv: &Conv2d,
    bn: &BatchNorm,
    x: View<[E]>,
    w: &[f32],
    b: Option<&[f32]>,
    runs: Infer<'_, f32>,
    y: ViewMut<[E]>,
) {
    let mut numbers = cpu.channels(2 * conv.outputs);
    let (offset, scale) = numbers[..2 * conv.outputs].split_at_mut(conv.outputs);
    normalization::fold(bn, runs, b, offset, scale);
    let (affine, relu) = (Some([&*scale, runs.beta]), bn.act.ceiling());
    let finish = Finish { bias: Some(offset), add: false, affine, relu };
    forward_finished(cpu, conv, bn.act, x, w, finish, y);
}

fn forward_finished<E: Convolved>(
    cpu: &Cpu,
    conv: &Conv2d,
    act: Activation,
    x: View<[E]>,
    w: &[f32],
    finish: Finish,
    mut y: ViewMut<[E]>,
) {
    if conv.groups == 1 {
        E::sums(cpu, conv, x, w, finish, y.reborrow());
    } else {
        grouped::sums(cpu, conv, x, w, finish, y.reborrow());
    }
    // A ReLU is done to the sums before they are stored.
    if act != Activation::None && act.ceiling().is_none() {
        activation::forward_in_place(cpu, act, y);
    }
}

pub(crate) fn backward_data<E: Convolved>(
    cpu: &Cpu,
    conv: &Conv2d,
    dy: View<[E]>,
    w: &[f32],
    dx: ViewMut<[E]>,
    mode: Write,
) {
    let run = if conv.groups == 1 { E::backward_data } else { grouped::backward_data };
    run(cpu, conv, dy, w, dx, mode);
}

pub(crate) fn backward_filter<E: Convolved>(
    cpu: &Cpu,
    conv: &Conv2d,
    x: View<[E]>,
    dy: View<[E]>,
    dw: &mut [f32],
) {
    let run = if conv.groups == 1 { E::backward_filter } else { grouped::backward_filter };
    run(cpu, conv, x, dy, dw);
}
