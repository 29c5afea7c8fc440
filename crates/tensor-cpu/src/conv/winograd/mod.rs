//! Convolutions of 3x3 kernels without stride by Winograd's minimal filtering: fewer products, for sums before and after.
//!
//! Outputs are computed in tiles of 2x2 or 4x4. The pixels under a tile are transformed to 16 or 36 positions
//! (`form`, `kernels`). At each position remain sums over channels, which are products of small matrices:
//! 2.25 or 4 times fewer multiplications than the convolution itself. Transforms work on vectors of channels.
//! A task keeps its transformed pixels in the core's L2 cache.

mod form;
mod grads;
mod kernels;
mod sums;
#[cfg(test)]
mod tests;
mod tiles;

use super::sums::Finish;
use crate::Cpu;
use program::{Conv2d, Layout, Shape, View};

/// With fewer channels in or out than this there is little to gain, and vectors are half empty.
const LEAST_CHANNELS: usize = 16;

/// What transforming a channel of a tile, or a weight, costs at each position, in multiplications of a product: loads, stores
/// and a few additions, in vectors as wide as those of the products.
const TRANSFORM: usize = 12;

/// Outputs of a tile, along each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Two,
    Four,
}

impl Size {
    fn outputs(self) -> usize {
        match self {
            Size::Two => 2,
            Size::Four => 4,
        }
    }

    /// Inputs under a tile, along each side.
    fn inputs(self) -> usize {
        self.outputs() + 2
    }

    /// Numbers that a tile's inputs are transformed to, for each channel.
    fn positions(self) -> usize {
        self.inputs() * self.inputs()
    }

    /// What a pass costs with tiles of this size, in multiplications of a product.
    fn cost(self, conv: &Conv2d, y: Shape) -> usize {
        let along = |pixels: usize| pixels.div_ceil(self.outputs());
        let (tiles, weights) = (y.n * along(y.h) * along(y.w), conv.inputs * conv.outputs);
        let transforms = tiles * (conv.inputs + conv.outputs) + weights;
        self.positions() * (tiles * weights + TRANSFORM * transforms)
    }
}

/// A pass over a convolution: its outputs from its inputs, or, with the kernel turned around, its inputs' gradients from its
/// outputs'.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    size: Size,
    source: Layout,
    out: Layout,
    channels: usize,
    columns: usize,
    /// Zeros above and left of the source.
    pad: [usize; 2],
    turned: bool,
}

impl Pass {
    pub fn forward(size: Size, conv: &Conv2d, x: Layout, y: Layout) -> Pass {
        let pad = [conv.pad.top, conv.pad.left];
        Pass { size, source: x, out: y, channels: conv.inputs, columns: conv.outputs, pad, turned: false }
    }

    pub fn backward(size: Size, conv: &Conv2d, dy: Layout, dx: Layout) -> Pass {
        let pad = [2 - conv.pad.top, 2 - conv.pad.left];
        Pass { size, source: dy, out: dx, channels: conv.outputs, columns: conv.inputs, pad, turned: true }
    }

    pub fn scratch_len(&self, cpu: &Cpu) -> usize {
        sums::scratch_len(cpu, self)
    }

    pub fn run(&self, cpu: &Cpu, source: &[f32], w: &[f32], finish: Finish, out: &mut [f32]) {
        sums::run(cpu, self, source, w, finish, out);
    }
}

/// The size of tiles for all passes over a convolution with outputs of this shape, by the shapes alone: so it neither changes
/// from run to run nor with the number of threads. `None` for the direct sums.
pub(super) fn choose(cpu: &Cpu, conv: &Conv2d, y: Shape) -> Option<Size> {
    let fits = conv.kernel == [3, 3] && conv.stride == [1, 1] && conv.pad.top.max(conv.pad.left) <= 2;
    if !fits || !cpu.winograd() || conv.inputs.min(conv.outputs) < LEAST_CHANNELS {
        return None;
    }
    let direct = 9 * conv.inputs * conv.outputs * y.rows();
    let cost = |size: &Size| size.cost(conv, y);
    [Size::Two, Size::Four].into_iter().min_by_key(cost).filter(|size| cost(size) < direct)
}

pub(super) fn grads_scratch_len(cpu: &Cpu, size: Size, conv: &Conv2d, x: Layout, dy: Layout) -> usize {
    grads::scratch_len(cpu, size, conv, x, dy)
}

pub(super) fn backward_filter(
    cpu: &Cpu,
    size: Size,
    conv: &Conv2d,
    x: View<[f32]>,
    dy: View<[f32]>,
    dw: &mut [f32],
) {
    grads::run(cpu, size, conv, x, dy, dw);
}
