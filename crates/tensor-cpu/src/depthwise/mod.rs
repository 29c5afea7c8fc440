//! Depthwise convolutions: forward and both backward passes.
//!
//! Each sum has few products, so memory is the limit and not arithmetic. Channels are worked on in blocks of 16. The rows of
//! the source under some output rows are packed once, with the zeros around the image, into a ring of rows in the
//! core's cache (`pack`). From there each tile of outputs (`kernels`) is summed in registers, or for the gradient of
//! the weights each tile of taps. The gradient of the input is the same sum with other taps, one set for each phase
//! of the stride (`axis`).
//!
//! How the work is cut up (`plan`) depends on the shapes, and never on the number of threads or the vectors' width.

mod axis;
mod grads;
mod kernels;
mod pack;
mod plan;
mod sums;
#[cfg(test)]
mod tests;

use crate::conv::Pass;
use crate::element::Element;
use crate::norm_operands::Infer;
use crate::{Cpu, normalization};
use plan::Plan;
use sums::Finish;
use towers_program::ops::Depthwise;
use towers_program::{Activation, BatchNorm, Layout, View, ViewMut, Write};

/// Elements of scratch memory for a pass. `x` and `y` are where the input or its gradient lies, and the output or its.
pub(crate) fn scratch_len(cpu: &Cpu, pass: Pass, conv: &Depthwise, x: Layout, y: Layout) -> usize {
    match pass {
        Pass::Forward => sums::scratch_len(cpu, &Plan::forward(conv, x, y)),
        Pass::InputGradient => sums::scratch_len(cpu, &Plan::backward(conv, y, x)),
        Pass::WeightGradient => grads::scratch_len(cpu, &Plan::forward(conv, x, y)),
    }
}

pub(crate) fn forward<E: Element>(
    cpu: &Cpu,
    conv: &Depthwise,
    act: Activation,
    x: View<[E]>,
    w: &[f32],
    bias: Option<&[f32]>,
    y: ViewMut<[E]>,
) {
    let plan = Plan::forward(conv, x.layout, y.layout);
    sums::run(cpu, &plan, x, w, Finish { bias, affine: None, act, mode: Write::Set }, y);
}

/// A convolution and the normalization after it, as in inference: applied to the sums before they are stored.
pub(crate) fn forward_normalized<E: Element>(
    cpu: &Cpu,
    conv: &Depthwise,
    bn: &BatchNorm,
    x: View<[E]>,
    w: &[f32],
    b: Option<&[f32]>,
    runs: Infer<'_, f32>,
    y: ViewMut<[E]>,
) {
    let outputs = conv.outputs();
    let mut numbers = cpu.channels(2 * outputs);
    let (offset, scale) = numbers[..2 * outputs].split_at_mut(outputs);
    normalization::fold(bn, runs, b, offset, scale);
    let affine = Some([&*scale, runs.beta]);
    let plan = Plan::forward(conv, x.layout, y.layout);
    sums::run(cpu, &plan, x, w, Finish { bias: Some(offset), affine, act: bn.act, mode: Write::Set }, y);
}

pub(crate) fn backward_data<E: Element>(
    cpu: &Cpu,
    conv: &Depthwise,
    dy: View<[E]>,
    w: &[f32],
    dx: ViewMut<[E]>,
    mode: Write,
) {
    let plan = Plan::backward(conv, dy.layout, dx.layout);
    sums::run(cpu, &plan, dy, w, Finish { bias: None, affine: None, act: Activation::None, mode }, dx);
}

/// The gradients of the weights and, unless it is empty, of the bias.
pub(crate) fn backward_filter<E: Element>(
    cpu: &Cpu,
    conv: &Depthwise,
    x: View<[E]>,
    dy: View<[E]>,
    dw: &mut [f32],
    db: &mut [f32],
) {
    grads::run(cpu, &Plan::forward(conv, x.layout, dy.layout), x, dy, dw, db);
}
