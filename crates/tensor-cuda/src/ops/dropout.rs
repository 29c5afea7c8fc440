//! Dropout.

use crate::driver::{Geometry, args, u32_of};
use crate::place::Place;
use crate::source::Source;
use crate::{Buffer, Cuda};
use towers_program::{DropoutMask, Noise, Result, View, Write};

pub(crate) const SOURCE: Source =
    Source { name: "dropout.cu", text: include_str!("../../kernels/dropout.cu"), kernels: &["dropout"] };

const THREADS: u32 = 256;

impl Cuda {
    pub(crate) fn op_dropout(
        &self,
        mask: &DropoutMask,
        x: View<Buffer>,
        y: View<Buffer>,
        write: Write,
    ) -> Result<()> {
        let op = "dropout";
        let (mut x, mut y) = (self.read(op, "the input", x)?, self.write(op, "the output", y)?);
        // Rounding elements up to groups of four does not overflow either.
        let per_sample = x.shape.per_sample();
        u32_of(op, "the size of a sample", per_sample.saturating_add(3))?;
        if mask.noise == Noise::Element && x.is_contiguous() && y.is_contiguous() {
            (x, y) = (one_pixel(x), one_pixel(y));
        }
        self.set_step(mask.step)?;
        if x.shape.is_empty() {
            return Ok(());
        }
        let vector = self.vector(&[&x, &y]);
        let groups = x.shape.n * per_sample.div_ceil(vector.max(4) as usize);
        let (n, pixels, c) = (x.shape.n as u32, (x.shape.h * x.shape.w) as u32, x.shape.c as u32);
        let ([key0, key1], add) = (mask.key, u32::from(write == Write::Add));
        let args = args![
            self.step_state(),
            x.ptr,
            x.stride as u32,
            y.ptr,
            y.stride as u32,
            n,
            pixels,
            c,
            key0,
            key1,
            mask.first_sample,
            mask.threshold(),
            mask.scale(),
            mask.noise as u32,
            add,
            vector,
        ];
        self.launch("dropout", Geometry::line(self.blocks(groups, THREADS), THREADS), args)
    }
}

/// A sample as one pixel: its elements lie back to back.
fn one_pixel(x: Place) -> Place {
    let shape = x.shape.flatten();
    Place { shape, stride: shape.c, ..x }
}
