//! Slices of channels, and channels in another order.

use crate::driver::{Geometry, args, u32_of};
use crate::source::Source;
use crate::{Buffer, Cuda};
use towers_program::ops::{ChannelShuffle, SliceGradient};
use towers_program::{Result, View, Write};

pub(crate) const SOURCE: Source = Source {
    name: "channels.cu",
    text: include_str!("../../kernels/channels.cu"),
    kernels: &["channel_shuffle", "slice_gradient"],
};

/// Threads of a block.
const BLOCK: u32 = 256;

impl Cuda {
    pub(crate) fn op_channel_shuffle(
        &self,
        shuffle: ChannelShuffle,
        x: View<Buffer>,
        y: View<Buffer>,
        write: Write,
    ) -> Result<()> {
        let op = "channel_shuffle";
        let (x, y) = (self.read(op, "the input", x)?, self.write(op, "the output", y)?);
        if y.shape.is_empty() {
            return Ok(());
        }
        let groups = u32_of(op, "the number of groups", shuffle.groups)?;
        let each = u32_of(op, "the channels of a group", y.shape.c / shuffle.groups)?;
        let (rows, add) = (y.shape.rows() as u64, u32::from(write == Write::Add));
        let args = args![x.ptr, x.stride as u32, y.ptr, y.stride as u32, rows, groups, each, add];
        self.launch("channel_shuffle", Geometry::line(self.blocks(y.shape.len(), BLOCK), BLOCK), args)
    }

    pub(crate) fn op_slice_gradient(
        &self,
        gradient: SliceGradient,
        dy: View<Buffer>,
        dx: View<Buffer>,
        write: Write,
    ) -> Result<()> {
        let (op, from) = ("slice_gradient", gradient.slice.from);
        if write == Write::Add {
            let inside = dx.layout.channels(from..from + gradient.slice.channels);
            return self.op_copy(1.0, dy, View::new(dx.data, inside), Write::Add);
        }
        let (dy, dx) = (self.read(op, "dy", dy)?, self.write(op, "dx", dx)?);
        if dx.shape.is_empty() {
            return Ok(());
        }
        let word = |value| u32_of(op, "the number of channels", value);
        let (rows, c, inside) = (dx.shape.rows() as u64, word(dx.shape.c)?, word(dy.shape.c)?);
        let args = args![dy.ptr, dy.stride as u32, dx.ptr, dx.stride as u32, rows, c, word(from)?, inside];
        self.launch("slice_gradient", Geometry::line(self.blocks(dx.shape.len(), BLOCK), BLOCK), args)
    }
}
