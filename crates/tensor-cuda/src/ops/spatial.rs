//! Zeros around images, images without their borders, larger images.

use crate::driver::{Geometry, args, u32_of};
use crate::place::Place;
use crate::source::Source;
use crate::{Buffer, Cuda};
use towers_program::ops::{Upsample, ZeroPad};
use towers_program::{Error, Result, View, Write};

pub(crate) const SOURCE: Source = Source {
    name: "spatial.cu",
    text: include_str!("../../kernels/spatial.cu"),
    kernels: &["zero_pad", "upsample_fwd", "upsample_bwd"],
};

const THREADS: u32 = 256;

impl Cuda {
    pub(crate) fn op_zero_pad(
        &self,
        pad: &ZeroPad,
        x: View<Buffer>,
        y: View<Buffer>,
        write: Write,
    ) -> Result<()> {
        let op = "zero_pad";
        let (x, y) = (self.read(op, "the input", x)?, self.write(op, "the output", y)?);
        let ([n, c, h, w], [_, _, oh, ow]) = (sizes(op, &x)?, sizes(op, &y)?);
        let (top, left) = (pad.top as i32, pad.left as i32);
        let (vector, add) = (self.vector(&[&x, &y]), u32::from(write == Write::Add));
        let args =
            args![x.ptr, x.stride as u32, y.ptr, y.stride as u32, n, c, h, w, oh, ow, top, left, add, vector];
        self.over_pixels("zero_pad", &y, vector, args)
    }

    pub(crate) fn op_upsample(&self, op: &Upsample, x: View<Buffer>, y: View<Buffer>) -> Result<()> {
        let name = "upsample";
        let (x, y) = (self.read(name, "the input", x)?, self.write(name, "the output", y)?);
        let ([n, c, h, w], _) = (sizes(name, &x)?, sizes(name, &y)?);
        let ([down, across], bilinear) = (op.by.map(|by| by as u32), u32::from(op.bilinear));
        let vector = self.vector(&[&x, &y]);
        let (x_stride, y_stride) = (x.stride as u32, y.stride as u32);
        let args = args![x.ptr, x_stride, y.ptr, y_stride, n, c, h, w, down, across, bilinear, vector];
        self.over_pixels("upsample_fwd", &y, vector, args)
    }

    pub(crate) fn op_upsample_gradient(
        &self,
        op: &Upsample,
        dy: View<Buffer>,
        dx: View<Buffer>,
        write: Write,
    ) -> Result<()> {
        let name = "upsample_gradient";
        let (dy, dx) = (self.read(name, "dy", dy)?, self.write(name, "dx", dx)?);
        let ([n, c, h, w], _) = (sizes(name, &dx)?, sizes(name, &dy)?);
        let ([down, across], bilinear) = (op.by.map(|by| by as u32), u32::from(op.bilinear));
        let (vector, add) = (self.vector(&[&dy, &dx]), u32::from(write == Write::Add));
        let (dy_stride, dx_stride) = (dy.stride as u32, dx.stride as u32);
        let args =
            args![dy.ptr, dy_stride, dx.ptr, dx_stride, n, c, h, w, down, across, bilinear, add, vector];
        self.over_pixels("upsample_bwd", &dx, vector, args)
    }

    /// Launches a kernel whose threads take `vector` channels of a pixel of this tensor at a time.
    fn over_pixels(
        &self,
        kernel: &'static str,
        y: &Place,
        vector: u32,
        args: &[crate::driver::Arg],
    ) -> Result<()> {
        if y.shape.is_empty() {
            return Ok(());
        }
        let blocks = self.blocks(y.shape.len() / vector as usize, THREADS);
        self.launch(kernel, Geometry::line(blocks, THREADS), args)
    }
}

/// Samples, channels, rows and columns, of which kernels compute twice as many in 32 bits.
fn sizes(op: &'static str, x: &Place) -> Result<[u32; 4]> {
    let shape = x.shape;
    for (what, value) in [("the height", shape.h), ("the width", shape.w)] {
        if value >= 1 << 30 {
            return Err(Error::Value { op, what, value: value as f64, accepted: "below 2^30" });
        }
    }
    Ok([
        u32_of(op, "the number of samples", shape.n)?,
        u32_of(op, "the number of channels", shape.c)?,
        shape.h as u32,
        shape.w as u32,
    ])
}
