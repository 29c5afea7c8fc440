//! Batch normalization, with its activation.

use crate::activation;
use crate::driver::{Geometry, Ptr, args, u32_of};
use crate::operand::Run;
use crate::ops::tiles::{THREADS, Tiles};
use crate::place::Place;
use crate::source::Source;
use crate::{Buffer, Cuda};
use towers_program::ops::BatchNormInferGradient;
use towers_program::{Activation, BatchNorm, Result, View, Write};

pub(crate) const SOURCE: Source = Source {
    name: "normalization.cu",
    text: include_str!("../../kernels/normalization.cu"),
    kernels: &["bn_statistics", "bn_join", "bn_normalize", "bn_gradient_sums", "bn_input_gradient"],
};

/// Adjacent channels of a thread, where they fit.
const QUAD: usize = 4;
/// Blocks of a kernel that sums: two for each multiprocessor of the larger GPUs (132). More would only give the
/// last one more partial sums to add.
const SUM_BLOCKS: u32 = 2 * 132;
/// Blocks of a kernel that maps: three times as many, twice what runs at once.
const MAP_BLOCKS: u32 = 3 * SUM_BLOCKS;

impl Cuda {
    pub(crate) fn op_bn_act_fwd_train(
        &self,
        bn: &BatchNorm,
        x: View<Buffer>,
        norm: Training,
        y: View<Buffer>,
    ) -> Result<()> {
        let (op, shape) = ("bn_act_fwd_train", x.layout.shape);
        let (scale, results) = (self.scale(op, norm.affine)?, self.results(op, norm)?);
        let (x, y) = (self.read(op, "the input", x)?, self.write(op, "the output", y)?);
        if shape.c == 0 {
            return Ok(());
        }
        self.statistics(op, &x, bn.epsilon, results, Ptr::NULL)?;
        self.normalize_batch(op, bn, &x, &y, scale, results.saved)
    }

    pub(crate) fn op_bn_statistics(&self, x: View<Buffer>, stats: Run) -> Result<()> {
        let (op, c) = ("bn_statistics", x.layout.shape.c);
        let stats = self.operand(op, "the statistics", stats)?;
        let x = self.read(op, "the input", x)?;
        if c == 0 {
            return Ok(());
        }
        let nowhere = Results { bias: Ptr::NULL, saved: Ptr::NULL, sums: Ptr::NULL };
        self.statistics(op, &x, 0.0, nowhere, stats)
    }

    pub(crate) fn op_bn_act_fwd_synchronized(
        &self,
        bn: &BatchNorm,
        x: View<Buffer>,
        stats: Run,
        norm: Training,
        y: View<Buffer>,
    ) -> Result<()> {
        let (op, shape) = ("bn_act_fwd_synchronized", x.layout.shape);
        let (scale, results) = (self.scale(op, norm.affine)?, self.results(op, norm)?);
        let replicas = stats.at.len / BatchNorm::stats_len(shape.c);
        let stats = self.operand(op, "the replicas' statistics", stats)?;
        let (x, y) = (self.read(op, "the input", x)?, self.write(op, "the output", y)?);
        if shape.c == 0 {
            return Ok(());
        }
        let channels = u32_of(op, "the number of channels", shape.c)?;
        let args = args![
            stats,
            u32_of(op, "the number of replicas", replicas)?,
            channels,
            (shape.h * shape.w) as f32,
            shape.n as f32,
            bn.epsilon,
            results.bias,
            results.saved,
            results.sums,
        ];
        self.launch("bn_join", Geometry::line(channels.div_ceil(THREADS), THREADS), args)?;
        self.normalize_batch(op, bn, &x, &y, scale, results.saved)
    }

    pub(crate) fn op_bn_act_fwd_recompute(&self, bn: &BatchNorm, norm: Saved, y: View<Buffer>) -> Result<()> {
        let op = "bn_act_fwd_recompute";
        let (scale, saved) =
            (self.scale(op, norm.affine)?, self.operand(op, "the saved statistics", norm.saved)?);
        let (x, y) = (self.read(op, "the input", norm.x)?, self.write(op, "the output", y)?);
        self.normalize_batch(op, bn, &x, &y, scale, saved)
    }

    /// gamma and beta.
    pub(super) fn scale(&self, op: &'static str, [gamma, beta]: [Run; 2]) -> Result<[Ptr; 2]> {
        Ok([self.operand(op, "gamma", gamma)?, self.operand(op, "beta", beta)?])
    }

    /// The places of the statistics of a training pass.
    fn results(&self, op: &'static str, norm: Training) -> Result<Results> {
        let bias = norm.bias.map(|bias| self.operand(op, "the bias", bias)).transpose()?;
        Ok(Results {
            bias: bias.unwrap_or(Ptr::NULL),
            saved: self.operand(op, "the saved statistics", norm.saved)?,
            sums: self.operand(op, "the sums", norm.sums)?,
        })
    }

    /// The statistics of these samples, written to the place of a whole batch's, or else to `stats`.
    fn statistics(&self, op: &'static str, x: &Place, epsilon: f32, to: Results, stats: Ptr) -> Result<()> {
        let tiles = self.tiles(op, &[x], SUM_BLOCKS)?;
        let (partials, counters) = self.sums(op, &tiles)?;
        let args = args![
            x.ptr,
            x.stride as u32,
            tiles.rows,
            tiles.channels,
            tiles.slab_rows,
            x.shape.n as f32,
            epsilon,
            to.bias,
            partials,
            counters,
            to.saved,
            to.sums,
            stats,
            tiles.vector,
        ];
        self.launch("bn_statistics", tiles.geometry(), args)
    }

    /// Normalizes with the statistics of a batch.
    fn normalize_batch(
        &self,
        op: &'static str,
        bn: &BatchNorm,
        x: &Place,
        y: &Place,
        [gamma, beta]: [Ptr; 2],
        saved: Ptr,
    ) -> Result<()> {
        let inverse = saved.offset(x.shape.c * size_of::<f32>());
        self.normalize(op, bn, x, y, [gamma, beta, saved, inverse, Ptr::NULL], false)
    }

    pub(crate) fn op_bn_act_fwd_infer(
        &self,
        bn: &BatchNorm,
        x: View<Buffer>,
        norm: [Run; 4],
        y: View<Buffer>,
    ) -> Result<()> {
        let op = "bn_act_fwd_infer";
        let (x, y) = (self.read(op, "the input", x)?, self.write(op, "the output", y)?);
        self.normalize_infer(op, bn, &x, None, norm, &y)
    }

    /// Inference, of `x + bias`; `y` may be `x`.
    pub(crate) fn normalize_infer(
        &self,
        op: &'static str,
        bn: &BatchNorm,
        x: &Place,
        bias: Option<Run>,
        [gamma, beta, mean, var]: [Run; 4],
        y: &Place,
    ) -> Result<()> {
        let [gamma, beta] = self.scale(op, [gamma, beta])?;
        let (mean, var) = (self.operand(op, "the mean", mean)?, self.operand(op, "the variance", var)?);
        let bias = bias.map_or(Ok(Ptr::NULL), |bias| self.operand(op, "the bias", bias))?;
        self.normalize(op, bn, x, y, [gamma, beta, mean, var, bias], true)
    }

    /// `dx = dy * gamma / sqrt(var + epsilon)`.
    pub(crate) fn op_bn_infer_bwd(
        &self,
        gradient: &BatchNormInferGradient,
        dy: View<Buffer>,
        gamma: Run,
        var: Run,
        dx: View<Buffer>,
    ) -> Result<()> {
        let op = "bn_infer_bwd";
        let bn = BatchNorm { epsilon: gradient.epsilon, act: Activation::None };
        let (dy, dx) = (self.read(op, "dy", dy)?, self.write(op, "dx", dx)?);
        let (gamma, var) = (self.operand(op, "gamma", gamma)?, self.operand(op, "the variance", var)?);
        self.normalize(op, &bn, &dy, &dx, [gamma, Ptr::NULL, Ptr::NULL, var, Ptr::NULL], true)
    }

    /// `y = act(gamma * (x + bias - mean) * deviation + beta)`. `numbers` are gamma, beta, the mean, the inverse
    /// deviation or, with the flag, the variance, and the bias. Beta, mean and bias may be null: zeros.
    fn normalize(
        &self,
        op: &'static str,
        bn: &BatchNorm,
        x: &Place,
        y: &Place,
        numbers: [Ptr; 5],
        is_variance: bool,
    ) -> Result<()> {
        if x.shape.is_empty() {
            return Ok(());
        }
        let tiles = self.tiles(op, &[x, y], MAP_BLOCKS)?;
        let [gamma, beta, mean, deviation, bias] = numbers;
        let args = args![
            x.ptr,
            x.stride as u32,
            y.ptr,
            y.stride as u32,
            tiles.rows,
            tiles.channels,
            tiles.slab_rows,
            gamma,
            beta,
            mean,
            deviation,
            u32::from(is_variance),
            bias,
            bn.epsilon,
            activation::packed(bn.act),
            tiles.vector,
        ];
        self.launch("bn_normalize", tiles.geometry(), args)
    }

    pub(crate) fn op_bn_act_bwd_params(
        &self,
        bn: &BatchNorm,
        norm: Saved,
        dy: View<Buffer>,
        grads: [Run; 2],
    ) -> Result<()> {
        let op = "bn_act_bwd_params";
        let (numbers, x, dy) = self.norm_gradient(op, norm, dy, grads)?;
        if x.shape.c == 0 { Ok(()) } else { self.gradient_sums(op, bn, &x, &dy, numbers) }
    }

    pub(crate) fn op_bn_act_bwd_data(
        &self,
        bn: &BatchNorm,
        norm: Saved,
        dy: View<Buffer>,
        grads: [Run; 2],
        count: usize,
        dx: View<Buffer>,
        write: Write,
    ) -> Result<()> {
        let op = "bn_act_bwd_data";
        let (numbers, x, dy) = self.norm_gradient(op, norm, dy, grads)?;
        let dx = self.write(op, "dx", dx)?;
        self.input_gradient(op, bn, [&x, &dy, &dx], numbers, count, write)
    }

    /// The operands of both halves of a backward pass: gamma, beta, the saved statistics, dgamma, dbeta; x;
    /// dy.
    fn norm_gradient(
        &self,
        op: &'static str,
        norm: Saved,
        dy: View<Buffer>,
        [dgamma, dbeta]: [Run; 2],
    ) -> Result<([Ptr; 5], Place, Place)> {
        let [gamma, beta] = self.scale(op, norm.affine)?;
        let numbers = [
            gamma,
            beta,
            self.operand(op, "the saved statistics", norm.saved)?,
            self.operand(op, "dgamma", dgamma)?,
            self.operand(op, "dbeta", dbeta)?,
        ];
        Ok((numbers, self.read(op, "the input", norm.x)?, self.read(op, "dy", dy)?))
    }

    /// dgamma and dbeta. `numbers` are gamma, beta, the saved statistics, dgamma, dbeta.
    fn gradient_sums(
        &self,
        op: &'static str,
        bn: &BatchNorm,
        x: &Place,
        dy: &Place,
        numbers: [Ptr; 5],
    ) -> Result<()> {
        let tiles = self.tiles(op, &[x, dy], SUM_BLOCKS)?;
        let (partials, counters) = self.sums(op, &tiles)?;
        let [gamma, beta, saved, dgamma, dbeta] = numbers;
        let args = args![
            x.ptr,
            x.stride as u32,
            dy.ptr,
            dy.stride as u32,
            tiles.rows,
            tiles.channels,
            tiles.slab_rows,
            gamma,
            beta,
            saved,
            activation::packed(bn.act),
            partials,
            counters,
            dgamma,
            dbeta,
            tiles.vector,
        ];
        self.launch("bn_gradient_sums", tiles.geometry(), args)
    }

    /// dx, from dgamma and dbeta over `count` rows.
    fn input_gradient(
        &self,
        op: &'static str,
        bn: &BatchNorm,
        [x, dy, dx]: [&Place; 3],
        numbers: [Ptr; 5],
        count: usize,
        write: Write,
    ) -> Result<()> {
        if x.shape.is_empty() {
            return Ok(());
        }
        let tiles = self.tiles(op, &[x, dy, dx], MAP_BLOCKS)?;
        let [gamma, beta, saved, dgamma, dbeta] = numbers;
        let args = args![
            x.ptr,
            x.stride as u32,
            dy.ptr,
            dy.stride as u32,
            dx.ptr,
            dx.stride as u32,
            tiles.rows,
            tiles.channels,
            tiles.slab_rows,
            gamma,
            beta,
            saved,
            dgamma,
            dbeta,
            count as f32,
            activation::packed(bn.act),
            u32::from(write == Write::Add),
            tiles.vector,
        ];
        self.launch("bn_input_gradient", tiles.geometry(), args)
    }

    /// The cut of tensors of one shape.
    fn tiles(&self, op: &'static str, places: &[&Place], blocks: u32) -> Result<Tiles> {
        let shape = places[0].shape;
        let channels = u32_of(op, "the number of channels", shape.c)?;
        let element = self.format().bytes() as u32;
        // A place's rows fit, as was checked when it was made.
        Ok(Tiles::new(shape.rows() as u32, channels, self.neighbours(QUAD, places), element, blocks))
    }

    /// The place of the blocks' two sums a channel, and the counters of finished blocks.
    fn sums(&self, op: &'static str, tiles: &Tiles) -> Result<(Ptr, Ptr)> {
        let counters = self.counters(op, tiles.across)?;
        let sums = 2 * tiles.channels as usize * tiles.slabs as usize;
        Ok((self.scratch(sums * size_of::<f32>())?, counters))
    }
}

/// The operands and results of a normalization in training, beside its input and output.
#[derive(Clone, Copy)]
pub(crate) struct Training<'a> {
    /// gamma and beta.
    pub(crate) affine: [Run<'a>; 2],
    /// A bias to add to the input.
    pub(crate) bias: Option<Run<'a>>,
    /// Receives the means and inverse deviations for the backward pass.
    pub(crate) saved: Run<'a>,
    /// Receives the new running averages' values.
    pub(crate) sums: Run<'a>,
}

/// The operands of a normalization in training, for its backward pass.
#[derive(Clone, Copy)]
pub(crate) struct Saved<'a> {
    /// The input.
    pub(crate) x: View<'a, Buffer>,
    /// gamma and beta.
    pub(crate) affine: [Run<'a>; 2],
    /// What [`Training::saved`] received.
    pub(crate) saved: Run<'a>,
}

/// The places of the statistics of a training pass, and the bias of x.
#[derive(Clone, Copy)]
struct Results {
    bias: Ptr,
    saved: Ptr,
    sums: Ptr,
}
