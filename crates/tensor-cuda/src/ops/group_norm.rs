//! Group normalization, with its activation.

use crate::activation;
use crate::driver::{Geometry, args, u32_of};
use crate::operand::Run;
use crate::ops::tiles::THREADS;
use crate::place::Place;
use crate::source::Source;
use crate::{Buffer, Cuda};
use towers_program::ops::GroupNorm;
use towers_program::{Result, View, Write};

pub(crate) const SOURCE: Source = Source {
    name: "group_norm.cu",
    text: include_str!("../../kernels/group_norm.cu"),
    kernels: &["group_norm", "group_norm_gradient", "group_norm_sums"],
};

impl Cuda {
    pub(crate) fn op_group_norm(
        &self,
        norm: &GroupNorm,
        x: View<Buffer>,
        affine: [Run; 2],
        y: View<Buffer>,
    ) -> Result<()> {
        let op = "group_norm";
        let [gamma, beta] = self.scale(op, affine)?;
        let (x, y) = (self.read(op, "the input", x)?, self.write(op, "the output", y)?);
        let Some(blocks) = Blocks::of(op, norm, &x)? else { return Ok(()) };
        let args = args![
            x.ptr,
            x.stride as u32,
            y.ptr,
            y.stride as u32,
            blocks.pixels,
            blocks.channels,
            blocks.groups,
            gamma,
            beta,
            norm.epsilon,
            activation::packed(norm.act),
        ];
        self.launch("group_norm", blocks.geometry(), args)
    }

    pub(crate) fn op_group_norm_gradient(
        &self,
        norm: &GroupNorm,
        [x, dy, dx]: [View<Buffer>; 3],
        affine: [Run; 2],
        [dgamma, dbeta]: [Run; 2],
        write: Write,
    ) -> Result<()> {
        let op = "group_norm_gradient";
        let ([gamma, beta], channels) = (self.scale(op, affine)?, dgamma.at.len);
        let (dgamma, dbeta) = (self.operand(op, "dgamma", dgamma)?, self.operand(op, "dbeta", dbeta)?);
        let (x, dy) = (self.read(op, "the input", x)?, self.read(op, "dy", dy)?);
        let dx = self.write(op, "dx", dx)?;
        if channels == 0 {
            return Ok(());
        }
        let blocks = Blocks::of(op, norm, &x)?;
        let samples = if blocks.is_some() { x.shape.n } else { 0 };
        let partials = self.scratch((samples * 2 * channels).max(1) * size_of::<f32>())?;
        if let Some(blocks) = blocks {
            let args = args![
                x.ptr,
                x.stride as u32,
                dy.ptr,
                dy.stride as u32,
                dx.ptr,
                dx.stride as u32,
                blocks.pixels,
                blocks.channels,
                blocks.groups,
                gamma,
                beta,
                norm.epsilon,
                activation::packed(norm.act),
                partials,
                u32::from(write == Write::Add),
            ];
            self.launch("group_norm_gradient", blocks.geometry(), args)?;
        }
        let channels = u32_of(op, "the number of channels", channels)?;
        let geometry = Geometry::line(channels.div_ceil(THREADS), THREADS);
        self.launch("group_norm_sums", geometry, args![partials, samples as u32, channels, dgamma, dbeta])
    }
}

/// A block for each group of each sample.
struct Blocks {
    count: u32,
    pixels: u32,
    channels: u32,
    groups: u32,
}

impl Blocks {
    /// `None` for empty tensors.
    fn of(op: &'static str, norm: &GroupNorm, x: &Place) -> Result<Option<Blocks>> {
        let shape = x.shape;
        u32_of(op, "the size of a sample", shape.per_sample())?;
        let count = u32_of(op, "the number of groups", shape.n.saturating_mul(norm.groups))?;
        let (pixels, channels, groups) = ((shape.h * shape.w) as u32, shape.c as u32, norm.groups as u32);
        Ok((!shape.is_empty()).then_some(Blocks { count, pixels, channels, groups }))
    }

    fn geometry(&self) -> Geometry {
        Geometry::line(self.count, THREADS)
    }
}
