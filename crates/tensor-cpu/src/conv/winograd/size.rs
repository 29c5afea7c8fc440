use crate::Cpu;
use towers_program::{Conv2d, Shape};

/// With fewer channels in or out than this there is little to gain, and vectors are half empty.
const LEAST_CHANNELS: usize = 16;

/// What transforming a channel of a tile, or a weight, costs at each position, in multiplications of a product: loads, stores
/// and a few additions, in vectors as wide as those of the products.
const TRANSFORM: usize = 12;

/// Outputs of a tile, along each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Two,
    Four,
}

impl Size {
    pub fn outputs(self) -> usize {
        match self {
            Size::Two => 2,
            Size::Four => 4,
        }
    }

    /// Inputs under a tile, along each side.
    pub fn inputs(self) -> usize {
        self.outputs() + 2
    }

    /// Numbers that a tile's inputs are transformed to, for each channel.
    pub fn positions(self) -> usize {
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

/// The size of tiles for all passes over a convolution with outputs of this shape, by the shapes alone: so it neither changes
/// from run to run nor with the number of threads. `None` for the direct sums.
pub(crate) fn choose(cpu: &Cpu, conv: &Conv2d, y: Shape) -> Option<Size> {
    let dense = conv.stride == [1, 1] && conv.dilation == [1, 1] && conv.groups == 1;
    let fits = conv.kernel == [3, 3] && dense && conv.pad.top.max(conv.pad.left) <= 2;
    if !fits || !cpu.winograd() || conv.inputs.min(conv.outputs) < LEAST_CHANNELS {
        return None;
    }
    let direct = 9 * conv.inputs * conv.outputs * y.rows();
    let cost = |size: &Size| size.cost(conv, y);
    [Size::Two, Size::Four].into_iter().min_by_key(cost).filter(|size| cost(size) < direct)
}
