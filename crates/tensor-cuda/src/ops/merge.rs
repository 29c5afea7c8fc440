//! Products and sums of two tensors, the second of which may be spread over pixels or channels.

use crate::driver::{Geometry, Ptr, args, u32_of};
use crate::place::Place;
use crate::source::Source;
use crate::{Buffer, Cuda};
use towers_program::ops::{How, Spread};
use towers_program::{Result, View, Write};

pub(crate) const SOURCE: Source = Source {
    name: "merge.cu",
    text: include_str!("../../kernels/merge.cu"),
    kernels: &["merge", "pixel_sums", "merge_channel_sums"],
};

/// Threads of a block.
const BLOCK: u32 = 256;
/// The most packs of channels that a block of `pixel_sums` adds up.
const PACKS: usize = 32;

/// As `enum Spread` in merge.cu has it.
fn number(spread: Spread) -> u32 {
    match spread {
        Spread::None => 0,
        Spread::Pixels => 1,
        Spread::Channels => 2,
    }
}

impl Cuda {
    /// `y = x * z` or `y = x + z`, where y may be x.
    pub(crate) fn op_merge(
        &self,
        (how, spread): (How, Spread),
        x: View<Buffer>,
        z: View<Buffer>,
        y: View<Buffer>,
        write: Write,
    ) -> Result<()> {
        let op = "merge";
        let (x, z) = (self.read(op, "the first operand", x)?, self.read(op, "the second operand", z)?);
        let y = self.write(op, "the output", y)?;
        if x.shape.is_empty() {
            return Ok(());
        }
        let vector =
            if spread == Spread::Channels { self.vector(&[&x, &y]) } else { self.vector(&[&x, &z, &y]) };
        let (rows, packs) = (x.rows(), x.shape.c / vector as usize);
        let arguments = args![
            x.ptr,
            x.stride as u32,
            z.ptr,
            z.stride as u32,
            y.ptr,
            y.stride as u32,
            rows as u64,
            u32_of(op, "the number of channels", packs)?,
            u32_of(op, "the number of pixels", x.shape.h * x.shape.w)?,
            number(spread),
            u32::from(how == How::Sum),
            u32::from(write == Write::Add),
            vector,
        ];
        self.launch("merge", Geometry::line(self.blocks(rows * packs, BLOCK), BLOCK), arguments)
    }

    /// The sums of dy, or of `dy * x`, over what each number of a spread tensor met.
    pub(crate) fn op_merge_gradient(
        &self,
        spread: Spread,
        dy: View<Buffer>,
        x: Option<View<Buffer>>,
        dz: View<Buffer>,
        write: Write,
    ) -> Result<()> {
        let op = "spread_gradient";
        if spread == Spread::None {
            return match x {
                Some(x) => self.op_merge((How::Product, spread), dy, x, dz, write),
                None => self.op_copy(1.0, dy, dz, write),
            };
        }
        let dy = self.read(op, "dy", dy)?;
        let x = x.map(|x| self.read(op, "the first operand", x)).transpose()?;
        let dz = self.write(op, "the gradient", dz)?;
        if dy.shape.is_empty() {
            return Ok(());
        }
        if spread == Spread::Pixels {
            return self.pixel_sums(op, &dy, x.as_ref(), &dz, 1.0, write);
        }
        let (from, stride) = x.map_or((Ptr::NULL, 0), |x| (x.ptr, x.stride as u32));
        let c = u32_of(op, "the number of channels", dy.shape.c)?;
        let (rows, add) = (dy.rows(), u32::from(write == Write::Add));
        let geometry = Geometry::line(self.blocks(rows * 32, BLOCK), BLOCK);
        let (at, to) = (dy.stride as u32, dz.stride as u32);
        let arguments = args![dy.ptr, at, from, stride, dz.ptr, to, rows as u64, c, add];
        self.launch("merge_channel_sums", geometry, arguments)
    }

    /// `sums = scale * ...`, or `+=`: the sums of dy, or of `dy * x`, over the pixels of each sample.
    pub(super) fn pixel_sums(
        &self,
        op: &'static str,
        dy: &Place,
        x: Option<&Place>,
        sums: &Place,
        scale: f32,
        write: Write,
    ) -> Result<()> {
        let vector = self.vector(&[dy, sums, x.unwrap_or(dy)]);
        let packs = dy.shape.c / vector as usize;
        let across = packs.min(PACKS) as u32;
        let most = BLOCK / across;
        // The largest power of two.
        let lines = 1 << most.ilog2();
        let tiles = u32_of(op, "the number of channels", packs.div_ceil(PACKS))?;
        let samples = u32_of(op, "the number of samples", dy.shape.n)?;
        let (from, stride) = x.map_or((Ptr::NULL, 0), |x| (x.ptr, x.stride as u32));
        let arguments = args![
            dy.ptr,
            dy.stride as u32,
            from,
            stride,
            sums.ptr,
            sums.stride as u32,
            u32_of(op, "the number of pixels", dy.shape.h * dy.shape.w)?,
            u32_of(op, "the number of channels", packs)?,
            scale,
            u32::from(write == Write::Add),
            vector,
        ];
        let geometry = Geometry { grid: [samples, tiles, 1], block: [across, lines, 1], shared: 0 };
        self.launch("pixel_sums", geometry, arguments)
    }
}
