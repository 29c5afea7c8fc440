//! Images of few channels (colours) would leave tiles empty. What an output reads of them, with all taps, is laid out as one
//! pixel of as many channels instead, in the order of the weights.

use super::tile::DEPTH;
use crate::conv::problem::{Axis, FEW_CHANNELS, inside};
use crate::element::Bf16;
use towers_program::Layout;

/// What an output of a forward pass reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patch {
    axes: [Axis; 2],
    channels: usize,
}

impl Patch {
    /// If there are few channels, back to back, and all taps together are at most one step of a product.
    pub fn of([y, x]: [&Axis; 2], channels: usize, source: Layout) -> Option<Patch> {
        let taps = y.taps.saturating_mul(x.taps);
        let fits = channels <= FEW_CHANNELS && taps > 1 && taps.saturating_mul(channels) <= DEPTH;
        let fits = fits && [y, x].iter().all(|axis| axis.dilation == 1);
        let patch = Patch { axes: [*y, *x], channels };
        (fits && !y.down && source.stride == channels).then_some(patch)
    }

    /// Numbers of a patch.
    pub fn len(&self) -> usize {
        self.axes[0].taps * self.row_len()
    }

    fn row_len(&self) -> usize {
        self.axes[1].taps * self.channels
    }

    /// Outputs that read their own patches.
    pub fn axes(&self) -> [Axis; 2] {
        self.axes.map(|axis| Axis::forward(axis.outputs, axis.outputs, 1, 1, 0))
    }

    /// For each row of an output's patch that lies inside of the image: where the patch would begin if it lay there, and which of
    /// its numbers do.
    #[inline(always)]
    pub fn rows(&self, image: *const Bf16, output: [usize; 2]) -> impl Iterator<Item = (*const Bf16, u32)> {
        let [y, x] = &self.axes;
        let from = |axis: &Axis, output: usize| (output * axis.step) as isize + axis.first;
        let (top, left) = (from(y, output[0]), from(x, output[1]));
        let columns = inside(x.taps, x.size, 1, left);
        let mask = (1u64 << (columns.end * self.channels)) - (1u64 << (columns.start * self.channels));
        let (row_len, width) = (self.row_len(), (x.size * self.channels) as isize);
        let start = left * self.channels as isize;
        inside(y.taps, y.size, 1, top).map(move |tap| {
            let from = (top + tap as isize) * width + start - (tap * row_len) as isize;
            (image.wrapping_offset(from), (mask << (tap * row_len)) as u32)
        })
    }
}
