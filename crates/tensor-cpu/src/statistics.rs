//! Means and variances of columns in one pass over memory.
//!
//! Tasks reduce blocks of at most 512 rows in f32. A pilot mean, of up to 16 rows spread over the block, is subtracted
//! first, so that a mean far from 0 costs no digits. One row would not do: if it is an outlier, as the corner of a
//! padded picture may be, its distance from the mean of `m` rows is up to `sqrt(m)` deviations. A pilot mean of `p` rows
//! is closer by the factor `p`. The blocks are then joined in f64 and in order (T. F. Chan, G. H. Golub, R. J. LeVeque,
//! "Algorithms for computing the sample variance", 1983, which has the bound too).

use crate::Cpu;
use crate::dispatch::multiversion;
use crate::element::Element;
use crate::rows::{Blocks, Rows};
use crate::threads::Shards;
use core::ops::Range;
use program::{BatchNorm, Shape};

/// The most rows of a pilot mean.
const PILOTS: usize = 16;

/// The runs of a block's scratch memory, each of one number a column: means, sums of squares, pilot means.
pub(crate) const RUNS: usize = 3;

/// Columns joined at a time.
const LANES: usize = 16;

/// The scratch elements that [`of_columns`] needs, at most, for `x` or fewer rows.
pub(crate) fn scratch<E: Element>(x: Rows<E>) -> usize {
    Blocks::most_for_sums(x) * RUNS * x.width()
}

/// Calls `each(column, mean, sum of squared differences from the mean)` for every column; both are 0 without rows.
pub(crate) fn of_columns<E: Element>(
    cpu: &Cpu,
    x: Rows<E>,
    scratch: &mut [f32],
    mut each: impl FnMut(usize, f64, f64),
) {
    let (blocks, c) = (Blocks::for_sums(x), x.width());
    let shards = Shards::new(scratch);
    cpu.pool().run(blocks.count(), &|block| {
        // SAFETY: each task has a separate part.
        let part = unsafe { shards.part(block * RUNS * c..(block + 1) * RUNS * c) };
        reduce(x, blocks.range(block), part);
    });
    for start in (0..c).step_by(LANES) {
        let columns = start..(start + LANES).min(c);
        let (means, squares) = join(scratch, blocks, x.count(), c, columns.clone());
        for (lane, column) in columns.enumerate() {
            each(column, means[lane], squares[lane]);
        }
    }
}

multiversion! {
    /// `part` receives the columns' means over `rows`, then their sums of squared differences from those. It has
    /// [`RUNS`] numbers a column.
    pub(crate) fn reduce<E: Element>(x: Rows<E>, rows: Range<usize>, part: &mut [f32]) {
        let c = x.width();
        let count = rows.len() as f32;
        let first = &x.row(rows.start)[..c];
        part.fill(0.0);
        let (sums, rest) = part.split_at_mut(c);
        let (squares, pilot) = rest.split_at_mut(c);
        let (sums, squares, pilot) = (&mut sums[..c], &mut squares[..c], &mut pilot[..c]);
        let step = rows.len().div_ceil(PILOTS).max(1);
        let share = 1.0 / rows.len().div_ceil(step) as f32;
        for row in rows.clone().step_by(step) {
            let x = &x.row(row)[..c];
            for k in 0..c {
                // Equal numbers have exactly that mean.
                pilot[k] += x[k].get() - first[k].get();
            }
        }
        for k in 0..c {
            pilot[k] = first[k].get() + pilot[k] * share;
        }
        for row in rows {
            let x = &x.row(row)[..c];
            for k in 0..c {
                let d = x[k].get() - pilot[k];
                sums[k] += d;
                squares[k] += d * d;
            }
        }
        for k in 0..c {
            let mean = sums[k] / count;
            squares[k] -= sums[k] * mean;
            sums[k] = pilot[k] + mean;
        }
    }
}

/// Means and sums of squared differences of at most `LANES` columns of all blocks together.
fn join(
    parts: &[f32],
    blocks: Blocks,
    count: usize,
    c: usize,
    columns: Range<usize>,
) -> ([f64; LANES], [f64; LANES]) {
    let part = |block: usize| {
        let (means, rest) = parts[block * RUNS * c..(block + 1) * RUNS * c].split_at(c);
        (blocks.range(block).len() as f64, &means[columns.clone()], &rest[columns.clone()])
    };
    let (mut mean, mut total) = ([0.0; LANES], [0.0; LANES]);
    for block in 0..blocks.count() {
        let (rows, means, _) = part(block);
        mean.iter_mut().zip(means).for_each(|(mean, &part)| *mean += rows / count as f64 * f64::from(part));
    }
    for block in 0..blocks.count() {
        let (rows, means, squares) = part(block);
        for (k, (&of_block, &squares)) in means.iter().zip(squares).enumerate() {
            // What is no number stays none, so that a run that went astray shows it.
            let squares = if squares < 0.0 { 0.0 } else { squares };
            total[k] += f64::from(squares) + rows * (f64::from(of_block) - mean[k]).powi(2);
        }
    }
    (mean, total)
}

/// The statistics of several replicas, each of its part of a batch, as those of the whole: joined like blocks.
#[derive(Clone, Copy)]
pub(crate) struct GatheredStats<'a> {
    stats: &'a [f32],
    /// Of one replica's input.
    shape: Shape,
}

impl<'a> GatheredStats<'a> {
    /// `shape` is that of any replica's input.
    pub(crate) fn of(stats: &'a [f32], shape: Shape) -> Self {
        GatheredStats { stats, shape }
    }

    /// Of each replica: how many numbers a channel has, a channel's mean and its sum of squared differences from that.
    fn parts(self, k: usize) -> impl Iterator<Item = (f64, f64, f64)> + 'a {
        let Shape { h, w, c, .. } = self.shape;
        let parts = self.stats.chunks_exact(BatchNorm::stats_len(c));
        parts.map(move |part| {
            (f64::from(part[2 * c]) * (h * w) as f64, f64::from(part[k]), f64::from(part[c + k]))
        })
    }

    /// How many numbers a channel has in the whole batch.
    pub(crate) fn count(self) -> f64 {
        let samples = self.stats.chunks_exact(BatchNorm::stats_len(self.shape.c));
        samples.map(|part| f64::from(part[2 * self.shape.c])).sum::<f64>()
            * (self.shape.h * self.shape.w) as f64
    }

    /// A channel's mean, and the sum of squared differences from it; both are 0 without samples.
    pub(crate) fn column(self, k: usize) -> (f64, f64) {
        let all = self.count().max(1.0);
        let mean = self.parts(k).map(|(count, mean, _)| count / all * mean).sum::<f64>();
        let squares = self.parts(k).map(|(count, own, squares)| squares + count * (own - mean).powi(2));
        (mean, squares.sum())
    }
}
