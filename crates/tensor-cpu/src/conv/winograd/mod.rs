//! Convolutions of 3x3 kernels without stride by Winograd's minimal filtering: fewer products, for sums before and after.
//!
//! Outputs are computed in tiles of 2x2 or 4x4. The pixels under a tile are transformed to 16 or 36 positions
//! (`form`, `kernels`). At each position remain sums over channels, which are products of small matrices:
//! 2.25 or 4 times fewer multiplications than the convolution itself. Transforms work on vectors of channels.
//! A task keeps its transformed pixels in the core's L2 cache.

mod form;
mod grads;
mod kernels;
mod size;
mod sums;
#[cfg(test)]
mod tests;
mod tiles;

pub(super) use grads::{run as backward_filter, scratch_len as grads_scratch_len};
pub(super) use size::choose;
pub(super) use sums::Pass;
