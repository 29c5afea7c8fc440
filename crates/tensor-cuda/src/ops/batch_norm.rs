//! Batch normalization with its activation.

use crate::driver::{Geometry, Ptr, args};
use crate::kernels::Source;
use crate::operand::{Place, u32_of};
use crate::{Buffer, Cuda};
use tensor_backend::{Activation, BatchNorm, Error, Result, Span, View, ViewMut, Write};

pub(crate) const SOURCE: Source = Source {
    name: "batch_norm.cu",
    text: include_str!("../../kernels/batch_norm.cu"),
    kernels: &["bn_statistics", "bn_normalize", "bn_gradient_sums", "bn_input_gradient"],
};

/// Bytes of the channels that a block works on: a cache line of every row.
const TILE: u32 = 128;
/// At most so many threads in a block.
const THREADS: u32 = 256;
/// Rows that a thread reads together, and at least as many as make it worth its while.
const BATCH: usize = 4;
/// Blocks of a kernel that sums: two for each multiprocessor of the larger GPUs, so that all run at once. More would only
/// leave more partial sums to be added by the last.
const SUM_BLOCKS: u32 = 256;
/// Blocks of a kernel that maps.
const MAP_BLOCKS: u32 = 1024;

/// How rows of channels are cut into blocks. The shape decides, so that sums have the same bits on every GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tiles {
    rows: u32,
    channels: u32,
    /// Neighbouring channels of a thread.
    vector: u32,
    /// Blocks beside each other.
    across: u32,
    /// Blocks below each other.
    slabs: u32,
    /// Rows of each of these; the last may have fewer.
    slab_rows: u32,
    /// Threads of a block: beside and below each other.
    block: [u32; 2],
}

impl Tiles {
    /// `element` is the size of a number in bytes, `channels` at least 1.
    fn new(rows: u32, channels: u32, vector: u32, element: u32, blocks: u32) -> Tiles {
        let packs = channels / vector;
        let across = packs.div_ceil(TILE / (vector * element));
        // As many in each as can be, so that the last tile is no narrower than need be.
        let beside = packs.div_ceil(across);
        let below = (THREADS / beside).min(rows.max(1));
        let worthwhile = (rows as usize).div_ceil(below as usize * BATCH);
        let slabs = worthwhile.clamp(1, (blocks / across).max(1) as usize) as u32;
        let slab_rows = rows.div_ceil(slabs).max(1);
        let slabs = rows.div_ceil(slab_rows).max(1);
        Tiles { rows, channels, vector, across, slabs, slab_rows, block: [beside, below] }
    }

    fn geometry(&self) -> Geometry {
        let [beside, below] = self.block;
        Geometry { grid: [self.across, self.slabs, 1], block: [beside, below, 1], shared: 0 }
    }
}

impl Cuda {
    pub(crate) fn op_bn_act_fwd_train(
        &self,
        bn: &BatchNorm,
        x: View<Buffer>,
        params: &Buffer,
        gamma: Span,
        beta: Span,
        bias: Option<Span>,
        y: ViewMut<Buffer>,
        saved: &mut Buffer,
        grads: &mut Buffer,
        sums: Span,
    ) -> Result<()> {
        let op = "bn_act_fwd_train";
        let c = x.layout.shape.c;
        bn.check(op, x.layout.shape, y.layout.shape, &[("gamma", gamma), ("beta", beta)])?;
        Error::check_len(op, "the sums", sums, 2 * c)?;
        let (gamma, beta) = (self.run(op, "gamma", params, gamma)?, self.run(op, "beta", params, beta)?);
        let bias = bias.map(|bias| {
            Error::check_len(op, "the bias", bias, c)?;
            self.run(op, "the bias", params, bias)
        });
        let bias = bias.transpose()?.unwrap_or(Ptr::NULL);
        let saved = self.run(op, "the saved statistics", saved, Span::new(0, 2 * c))?;
        let sums = self.run(op, "the sums", grads, sums)?;
        let (x, y) = (self.read(op, "the input", x)?, self.write(op, "the output", y)?);
        if c == 0 {
            return Ok(());
        }
        let tiles = self.tiles(op, &[&x], SUM_BLOCKS)?;
        let (partials, counters) = self.sums(op, &tiles)?;
        let args = args![
            x.ptr,
            x.stride as u32,
            tiles.rows,
            tiles.channels,
            tiles.slab_rows,
            x.shape.n as f32,
            bn.epsilon,
            bias,
            partials,
            counters,
            saved,
            sums,
            tiles.vector,
        ];
        self.launch("bn_statistics", tiles.geometry(), args)?;
        let inverse = saved.offset(c * size_of::<f32>());
        self.normalize(op, bn, &x, &y, [gamma, beta, saved, inverse], false)
    }

    pub(crate) fn op_bn_act_fwd_infer(
        &self,
        bn: &BatchNorm,
        x: View<Buffer>,
        params: &Buffer,
        gamma: Span,
        beta: Span,
        running: &Buffer,
        mean: Span,
        var: Span,
        y: ViewMut<Buffer>,
    ) -> Result<()> {
        let op = "bn_act_fwd_infer";
        let spans = [("gamma", gamma), ("beta", beta), ("the mean", mean), ("the variance", var)];
        bn.check(op, x.layout.shape, y.layout.shape, &spans)?;
        let (gamma, beta) = (self.run(op, "gamma", params, gamma)?, self.run(op, "beta", params, beta)?);
        let mean = self.run(op, "the mean", running, mean)?;
        let var = self.run(op, "the variance", running, var)?;
        let (x, y) = (self.read(op, "the input", x)?, self.write(op, "the output", y)?);
        self.normalize(op, bn, &x, &y, [gamma, beta, mean, var], true)
    }

    /// `y = act(gamma * (x - mean) * deviation + beta)`; `numbers` are gamma, beta, the mean, and the inverse deviation or
    /// if so said the variance.
    fn normalize(
        &self,
        op: &'static str,
        bn: &BatchNorm,
        x: &Place,
        y: &Place,
        numbers: [Ptr; 4],
        is_variance: bool,
    ) -> Result<()> {
        if x.shape.is_empty() {
            return Ok(());
        }
        let tiles = self.tiles(op, &[x, y], MAP_BLOCKS)?;
        let [gamma, beta, mean, deviation] = numbers;
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
            bn.epsilon,
            relu(bn),
            tiles.vector,
        ];
        self.launch("bn_normalize", tiles.geometry(), args)
    }

    pub(crate) fn op_bn_act_bwd(
        &self,
        bn: &BatchNorm,
        x: View<Buffer>,
        dy: View<Buffer>,
        params: &Buffer,
        gamma: Span,
        beta: Span,
        saved: &Buffer,
        grads: &mut Buffer,
        dgamma: Span,
        dbeta: Span,
        dx: ViewMut<Buffer>,
        write: Write,
    ) -> Result<()> {
        let op = "bn_act_bwd";
        let shape = x.layout.shape;
        let spans = [("gamma", gamma), ("beta", beta), ("dgamma", dgamma), ("dbeta", dbeta)];
        bn.check(op, shape, dx.layout.shape, &spans)?;
        Error::check_shape(op, "dy", dy.layout.shape, shape)?;
        apart(op, dgamma, dbeta)?;
        let numbers = [
            self.run(op, "gamma", params, gamma)?,
            self.run(op, "beta", params, beta)?,
            self.run(op, "the saved statistics", saved, Span::new(0, 2 * shape.c))?,
            self.run(op, "dgamma", grads, dgamma)?,
            self.run(op, "dbeta", grads, dbeta)?,
        ];
        let (x, dy) = (self.read(op, "the input", x)?, self.read(op, "dy", dy)?);
        let dx = self.write(op, "dx", dx)?;
        if shape.c == 0 {
            return Ok(());
        }
        self.gradient_sums(op, bn, &x, &dy, numbers)?;
        self.input_gradient(op, bn, [&x, &dy, &dx], numbers, write)
    }

    /// dgamma and dbeta. `numbers` are gamma, beta, what was saved, dgamma, dbeta.
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
            relu(bn),
            partials,
            counters,
            dgamma,
            dbeta,
            tiles.vector,
        ];
        self.launch("bn_gradient_sums", tiles.geometry(), args)
    }

    /// dx, from dgamma and dbeta.
    fn input_gradient(
        &self,
        op: &'static str,
        bn: &BatchNorm,
        [x, dy, dx]: [&Place; 3],
        numbers: [Ptr; 5],
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
            relu(bn),
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
        Ok(Tiles::new(shape.rows() as u32, channels, self.vector(places), element, blocks))
    }

    /// Where blocks leave two sums a channel, and where they count who is done.
    fn sums(&self, op: &'static str, tiles: &Tiles) -> Result<(Ptr, Ptr)> {
        let counters = self.counters(op, tiles.across)?;
        let sums = 2 * tiles.channels as usize * tiles.slabs as usize;
        Ok((self.scratch(sums * size_of::<f32>())?, counters))
    }
}

/// What a kernel calls an activation.
fn relu(bn: &BatchNorm) -> u32 {
    u32::from(bn.act == Activation::Relu)
}

/// Refuses gradients that overlap.
fn apart(op: &'static str, a: Span, b: Span) -> Result<()> {
    if a.end() <= b.offset || b.end() <= a.offset {
        return Ok(());
    }
    let (what, accepted) = ("the start of a run of gradients", "outside of the other run");
    Err(Error::Value { op, what, value: b.offset as f64, accepted })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row belongs to one slab, none is empty, and the threads of a block have the channels of a line.
    #[test]
    fn every_row_and_channel_has_a_thread() {
        for rows in [0, 1, 2, 3, 64, 511, 3136, 65536, 3_211_264] {
            for (channels, vector, element) in
                [(1, 1, 4), (3, 1, 2), (10, 1, 4), (96, 8, 2), (336, 4, 4), (2048, 8, 2)]
            {
                let tiles = Tiles::new(rows, channels, vector, element, SUM_BLOCKS);
                let [beside, below] = tiles.block;
                assert!(beside * vector * element <= TILE && beside * below <= THREADS, "{tiles:?}");
                assert!(tiles.across * beside * vector >= channels, "{tiles:?}");
                assert!((tiles.across - 1) * beside * vector < channels, "{tiles:?}");
                assert!(tiles.slabs * tiles.slab_rows >= rows && tiles.slabs >= 1, "{tiles:?}");
                assert!(rows == 0 || (tiles.slabs - 1) * tiles.slab_rows < rows, "{tiles:?}");
                assert!(tiles.slabs * tiles.across <= SUM_BLOCKS.max(tiles.across), "{tiles:?}");
            }
        }
    }
}
