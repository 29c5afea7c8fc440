//! Layer normalization and local response normalization.

use crate::driver::{Geometry, args, u32_of};
use crate::operand::Run;
use crate::place::Place;
use crate::source::Source;
use crate::{Buffer, Cuda};
use towers_program::ops::{LayerNorm, LocalResponseNorm};
use towers_program::{Result, View, Write};

pub(crate) const SOURCE: Source = Source {
    name: "pixel_norm.cu",
    text: include_str!("../../kernels/pixel_norm.cu"),
    kernels: &[
        "layer_norm",
        "layer_norm_gradient",
        "layer_norm_sums",
        "local_response_norm",
        "local_response_norm_gradient",
    ],
};

const THREADS: u32 = 256;
const WARP: u32 = 32;
/// The most parts of the sums over all rows, and the fewest rows of one.
const MOST_PARTS: usize = 256;
const FEWEST_ROWS: usize = 64;

impl Cuda {
    pub(crate) fn op_layer_norm(
        &self,
        norm: &LayerNorm,
        x: View<Buffer>,
        affine: [Run; 2],
        y: View<Buffer>,
    ) -> Result<()> {
        let op = "layer_norm";
        let [gamma, beta] = self.scale(op, affine)?;
        let (x, y) = (self.read(op, "the input", x)?, self.write(op, "the output", y)?);
        if x.shape.is_empty() {
            return Ok(());
        }
        let ([rows, c], vector) = (sizes(op, &x)?, self.vector(&[&x, &y]));
        let (x_stride, y_stride) = (x.stride as u32, y.stride as u32);
        let args = args![x.ptr, x_stride, y.ptr, y_stride, rows, c, gamma, beta, norm.epsilon, vector];
        self.launch("layer_norm", self.warps(&x), args)
    }

    pub(crate) fn op_layer_norm_gradient(
        &self,
        norm: &LayerNorm,
        [x, dy, dx]: [View<Buffer>; 3],
        gamma: Run,
        [dgamma, dbeta]: [Run; 2],
        write: Write,
    ) -> Result<()> {
        let op = "layer_norm_gradient";
        let channels = gamma.at.len;
        let gamma = self.operand(op, "gamma", gamma)?;
        let (dgamma, dbeta) = (self.operand(op, "dgamma", dgamma)?, self.operand(op, "dbeta", dbeta)?);
        let (x, dy) = (self.read(op, "the input", x)?, self.read(op, "dy", dy)?);
        let dx = self.write(op, "dx", dx)?;
        let bytes = channels * size_of::<f32>();
        if channels == 0 {
            return Ok(());
        }
        if x.shape.is_empty() {
            // SAFETY: the spans of both were checked.
            return self.work(|| unsafe {
                self.driver().clear(dgamma, bytes)?;
                self.driver().clear(dbeta, bytes)
            });
        }
        let ([rows, c], vector) = (sizes(op, &x)?, self.vector(&[&x, &dy, &dx]));
        let (x_stride, dy_stride, dx_stride) = (x.stride as u32, dy.stride as u32, dx.stride as u32);
        let each = x.rows().div_ceil(MOST_PARTS).max(FEWEST_ROWS);
        let parts = x.rows().div_ceil(each);
        // Three numbers a row; then the parts of both sums.
        let scratch = self.scratch((3 * x.rows() + 2 * parts * channels) * size_of::<f32>())?;
        let of_gamma = scratch.offset(3 * x.rows() * size_of::<f32>());
        let of_beta = of_gamma.offset(parts * bytes);
        let add = u32::from(write == Write::Add);
        let args = args![
            x.ptr,
            x_stride,
            dy.ptr,
            dy_stride,
            dx.ptr,
            dx_stride,
            rows,
            c,
            gamma,
            norm.epsilon,
            scratch,
            add,
            vector
        ];
        self.launch("layer_norm_gradient", self.warps(&x), args)?;
        let grid = [parts as u32, c.div_ceil(WARP), 1];
        let geometry = Geometry { grid, block: [WARP, THREADS / WARP, 1], shared: 0 };
        let each = u32_of(op, "the number of rows of a part", each)?;
        let args = args![x.ptr, x_stride, dy.ptr, dy_stride, rows, c, each, scratch, of_gamma, of_beta];
        self.launch("layer_norm_sums", geometry, args)?;
        self.sum_parts("sum_parts_f32", op, of_gamma, [parts, channels], dgamma, Write::Set)?;
        self.sum_parts("sum_parts_f32", op, of_beta, [parts, channels], dbeta, Write::Set)
    }

    pub(crate) fn op_local_response_norm(
        &self,
        norm: &LocalResponseNorm,
        x: View<Buffer>,
        y: View<Buffer>,
    ) -> Result<()> {
        let op = "local_response_norm";
        let (x, y) = (self.read(op, "the input", x)?, self.write(op, "the output", y)?);
        if x.shape.is_empty() {
            return Ok(());
        }
        let ([rows, c], [size, before]) = (sizes(op, &x)?, [norm.size as u32, norm.before() as u32]);
        let factor = norm.alpha / norm.size as f32;
        let (x_stride, y_stride) = (x.stride as u32, y.stride as u32);
        let args =
            args![x.ptr, x_stride, y.ptr, y_stride, rows, c, size, before, factor, norm.beta, norm.bias];
        let geometry = Geometry::line(self.blocks(x.shape.len(), THREADS), THREADS);
        self.launch("local_response_norm", geometry, args)
    }

    pub(crate) fn op_local_response_norm_gradient(
        &self,
        norm: &LocalResponseNorm,
        x: View<Buffer>,
        dy: View<Buffer>,
        dx: View<Buffer>,
        write: Write,
    ) -> Result<()> {
        let op = "local_response_norm_gradient";
        let (x, dy) = (self.read(op, "the input", x)?, self.read(op, "dy", dy)?);
        let dx = self.write(op, "dx", dx)?;
        if x.shape.is_empty() {
            return Ok(());
        }
        let ([rows, c], [size, before]) = (sizes(op, &x)?, [norm.size as u32, norm.before() as u32]);
        let (factor, add) = (norm.alpha / norm.size as f32, u32::from(write == Write::Add));
        let (x_stride, dy_stride, dx_stride) = (x.stride as u32, dy.stride as u32, dx.stride as u32);
        let args = args![
            x.ptr, x_stride, dy.ptr, dy_stride, dx.ptr, dx_stride, rows, c, size, before, factor, norm.beta,
            norm.bias, add
        ];
        let geometry = Geometry::line(self.blocks(x.shape.len(), THREADS), THREADS);
        self.launch("local_response_norm_gradient", geometry, args)
    }

    /// A warp for each row.
    fn warps(&self, x: &Place) -> Geometry {
        let blocks = self.blocks(x.rows().saturating_mul(WARP as usize), THREADS);
        Geometry::line(blocks, THREADS)
    }
}

/// Rows and channels.
fn sizes(op: &'static str, x: &Place) -> Result<[u32; 2]> {
    Ok([u32_of(op, "the number of pixels", x.rows())?, u32_of(op, "the number of channels", x.shape.c)?])
}
