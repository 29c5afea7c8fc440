//! Convolutions with operands of 16 bits (bf16) and sums of 32, in tiles that a unit of the processor multiplies.
//!
//! Tensors stay as they are, in 32 bits. Tasks round what they read to bf16 as they lay it out, small enough to stay in the
//! core's second cache: pixels such that the neighbours in a tile are neighbours in memory whatever the tap is (`grid`).
//! As for the direct sums in 32 bits, there are sums over taps and channels (`sums`) and over pixels (`grads`). Sums are
//! those of exact products, a step of 32 at a time, and the same bits at every level.

#[cfg(target_arch = "x86_64")]
mod amx;
mod grads;
mod grid;
mod peak;
mod portable;
mod sums;
#[cfg(test)]
mod tests;
mod tiles;

pub(super) use grads::{run as backward_filter, scratch_len as grads_scratch_len};
pub(crate) use peak::trial;
pub(super) use sums::{run, scratch_len};
pub(crate) use tiles::Level;

use super::problem::FEW_CHANNELS;
use crate::Cpu;
use tensor_backend::Conv2d;

/// Elements of a kernel at most: their places are kept on the stack.
const MOST_TAPS: usize = 64;

/// The level that computes the passes of a convolution, if tiles do: images of few channels would leave them empty.
pub(super) fn choose(cpu: &Cpu, conv: &Conv2d) -> Option<Level> {
    let [height, width] = conv.kernel;
    let taps = height.saturating_mul(width);
    cpu.bf16().filter(|_| conv.weights() > 0 && conv.inputs > FEW_CHANNELS && taps <= MOST_TAPS)
}
