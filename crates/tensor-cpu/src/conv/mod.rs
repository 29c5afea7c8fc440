//! Convolutions: forward and both backward passes. Dense layers are convolutions of one pixel.
//!
//! Two kinds of sums do all of the work, each in tiles that live in vector registers (`kernels`):
//!
//! - Sums over taps and channels for every output pixel (`problem`, `plan`, `sums`): the forward pass, and the gradient
//!   of the input, which is the same with the weights transposed, once for every phase of the stride. The source is
//!   packed piece by piece into blocks of 16 channels with its padding (`pack`), small enough to stay in the core's
//!   second cache, and no patch is ever copied out of it.
//! - Sums over pixels for every weight (`grads`), straight from both tensors.
//!
//! Kernels of 3x3 may go through transforms instead (`winograd`), and where operands are rounded to bf16 both kinds of sums
//! are those of a matrix unit (`bf16`).
//!
//! How the work is cut up depends on the shapes and the vectors' width, and never on the number of threads.

mod bf16;
mod cut;
mod grads;
mod kernels;
mod pack;
mod plan;
mod problem;
mod sums;
#[cfg(test)]
mod tests;
mod winograd;

pub(crate) use bf16::{Level as Bf16Level, trial as bf16_trial};

use crate::norm_operands::Infer;
use crate::{Cpu, activation, batch_norm};
use kernels::Kernels;
use problem::Problem;
use sums::Finish;
use tensor_backend::{Activation, BatchNorm, Conv2d, Layout, Shape, View, ViewMut, Write};

/// Reserves the scratch memory that the passes of a convolution need, for every number of samples up to `x`'s: a
/// smaller batch is cut up in another way and may need more.
pub(crate) fn prepare(cpu: &Cpu, conv: &Conv2d, x: Shape, y: Shape, training: bool) {
    let lens = (1..=x.n).map(|n| scratch_len(cpu, conv, x.with_n(n), y.with_n(n), training));
    drop(cpu.scratch(lens.max().unwrap_or(0)));
    drop(cpu.channels(2 * conv.outputs));
}

/// Elements of scratch memory for the passes of a convolution.
fn scratch_len(cpu: &Cpu, conv: &Conv2d, x: Shape, y: Shape, training: bool) -> usize {
    let (x, y) = (Layout::contiguous(x), Layout::contiguous(y));
    let winograd = winograd::choose(cpu, conv, y.shape);
    let forward = match winograd {
        Some(size) => winograd::Pass::forward(size, conv, x, y).scratch_len(cpu),
        None => sum_scratch_len(cpu, conv, &Problem::forward(conv, x, y)),
    };
    if !training {
        return forward;
    }
    let data = match winograd {
        Some(size) => winograd::Pass::backward(size, conv, y, x).scratch_len(cpu),
        None => {
            let data = phases(conv, x.shape).map(|phase| Problem::backward(conv, y, x, phase));
            data.map(|problem| sum_scratch_len(cpu, conv, &problem)).max().unwrap_or(0)
        }
    };
    let filter = match (winograd, bf16::choose(cpu, conv)) {
        (Some(size), _) => winograd::grads_scratch_len(cpu, size, conv, x, y),
        (None, Some(_)) => bf16::grads_scratch_len(conv, x, y, cpu.threads()),
        (None, None) => grads::scratch_len(conv, x, y, Kernels::of(cpu.simd())),
    };
    forward.max(data).max(filter)
}

fn sum_scratch_len(cpu: &Cpu, conv: &Conv2d, p: &Problem) -> usize {
    match bf16::choose(cpu, conv) {
        Some(_) if p.taps() > 0 => bf16::scratch_len(p, cpu.threads()),
        _ => sums::scratch_len(&p.merged(), Kernels::of(cpu.simd()), cpu.threads()),
    }
}

/// Computes a problem's outputs. Of no taps (the kernel is smaller than the stride) there are no tiles.
fn sum(cpu: &Cpu, conv: &Conv2d, p: &Problem, source: &[f32], w: &[f32], finish: Finish, out: &mut [f32]) {
    if p.columns == 0 || p.images * p.pixels() == 0 {
        return;
    }
    match bf16::choose(cpu, conv) {
        Some(level) if p.taps() > 0 => bf16::run(cpu, level, p, source, w, finish, out),
        _ => sums::run(cpu, &p.merged(), source, w, finish, out),
    }
}

/// The places that a pixel of `x` can have under the stride.
fn phases(conv: &Conv2d, x: Shape) -> impl Iterator<Item = [usize; 2]> + use<> {
    let [rows, columns] = [conv.stride[0].min(x.h), conv.stride[1].min(x.w)];
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
    let finish = Finish { bias: b, add: false, affine: None, relu: act == Activation::Relu };
    forward_finished(cpu, conv, act, x, w, finish, y);
}

/// A convolution and the normalization behind it, as in inference: done to the sums before they are stored.
pub(crate) fn forward_normalized(
    cpu: &Cpu,
    conv: &Conv2d,
    bn: &BatchNorm,
    x: View<[f32]>,
    w: &[f32],
    b: Option<&[f32]>,
    runs: Infer<'_, f32>,
    y: ViewMut<[f32]>,
) {
    let mut numbers = cpu.channels(2 * conv.outputs);
    let (offset, scale) = numbers[..2 * conv.outputs].split_at_mut(conv.outputs);
    batch_norm::fold(bn, runs, b, offset, scale);
    let (affine, relu) = (Some([&*scale, runs.beta]), bn.act == Activation::Relu);
    let finish = Finish { bias: Some(offset), add: false, affine, relu };
    forward_finished(cpu, conv, bn.act, x, w, finish, y);
}

fn forward_finished(
    cpu: &Cpu,
    conv: &Conv2d,
    act: Activation,
    x: View<[f32]>,
    w: &[f32],
    finish: Finish,
    mut y: ViewMut<[f32]>,
) {
    if let Some(size) = winograd::choose(cpu, conv, y.layout.shape) {
        let pass = winograd::Pass::forward(size, conv, x.layout, y.layout);
        pass.run(cpu, x.data, w, finish, y.reborrow().data);
    } else {
        let problem = Problem::forward(conv, x.layout, y.layout);
        sum(cpu, conv, &problem, x.data, w, finish, y.reborrow().data);
    }
    // ReLU is done to the sums before they are stored.
    if act == Activation::Gelu {
        activation::forward_in_place(cpu, act, y);
    }
}

pub(crate) fn backward_data(
    cpu: &Cpu,
    conv: &Conv2d,
    dy: View<[f32]>,
    w: &[f32],
    dx: ViewMut<[f32]>,
    mode: Write,
) {
    let finish = Finish { bias: None, add: mode == Write::Add, affine: None, relu: false };
    if let Some(size) = winograd::choose(cpu, conv, dy.layout.shape) {
        let pass = winograd::Pass::backward(size, conv, dy.layout, dx.layout);
        return pass.run(cpu, dy.data, w, finish, dx.data);
    }
    for phase in phases(conv, dx.layout.shape) {
        let problem = Problem::backward(conv, dy.layout, dx.layout, phase);
        sum(cpu, conv, &problem, dy.data, w, finish, dx.data);
    }
}

pub(crate) fn backward_filter(cpu: &Cpu, conv: &Conv2d, x: View<[f32]>, dy: View<[f32]>, dw: &mut [f32]) {
    if let Some(size) = winograd::choose(cpu, conv, dy.layout.shape) {
        return winograd::backward_filter(cpu, size, conv, x, dy, dw);
    }
    match bf16::choose(cpu, conv) {
        Some(level) => bf16::backward_filter(cpu, level, conv, x, dy, dw),
        None => grads::run(cpu, conv, x, dy, dw),
    }
}
