//! Means and variances of columns in one pass over memory.
//!
//! Tasks reduce blocks of at most 512 rows in f32, eight rows at a time: they take the mean of the eight, and the sum of
//! squared differences from it. Both are joined with those of the rows before, and blocks are joined in f64 and in order
//! (T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the sample variance", 1983). Squares are taken
//! around the mean of the same rows. So numbers that stand out cost no digits, such as the corners of padded pictures.
//! Sums are of differences from the mean of the rows before. So a mean far from 0 costs none either.

use crate::Cpu;
use crate::dispatch::multiversion;
use crate::element::Element;
use crate::rows::{Blocks, Rows};
use crate::threads::Shards;
use core::ops::Range;
use towers_program::{BatchNorm, Shape};

/// Rows that are reduced together.
const TOGETHER: usize = 8;

/// The runs of a block's scratch memory, each of one number a column: means, sums of squares, rounding errors of the
/// means, sums of differences.
pub(crate) const RUNS: usize = 4;

/// Columns joined at a time.
const LANES: usize = 16;

/// The scratch elements that [`of_columns`] needs, at most, for so many rows of `width` numbers, or fewer.
pub(crate) fn scratch_len(rows: usize, width: usize) -> usize {
    Blocks::most_for_sums(rows) * RUNS * width
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
        reduce(cpu.simd(), x, blocks.range(block), part);
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
    /// [`RUNS`] numbers a column, at least.
    pub(crate) fn reduce<E: Element>(x: Rows<E>, rows: Range<usize>, part: &mut [f32]) {
        let c = x.width();
        let part = &mut part[..RUNS * c];
        part.fill(0.0);
        let (means, rest) = part.split_at_mut(c);
        let (squares, rest) = rest.split_at_mut(c);
        let (lost, sums) = rest.split_at_mut(c);
        // Equal numbers have exactly that mean.
        means.iter_mut().zip(x.row(rows.start)).for_each(|(mean, x)| *mean = x.get());
        let whole = rows.len() - rows.len() % TOGETHER;
        for before in (0..whole).step_by(TOGETHER) {
            let together: [&[E]; TOGETHER] = core::array::from_fn(|k| x.row(rows.start + before + k));
            // One after the other, as they lie in memory: the processor fetches the next ones meanwhile.
            together.iter().for_each(|row| add_differences(row, means, sums));
            join_rows(together, before, sums, means, lost, squares);
        }
        for before in whole..rows.len() {
            join_row(x.row(rows.start + before), before, means, lost, squares);
        }
    }
}

#[inline(always)]
fn add_differences<E: Element>(row: &[E], means: &[f32], sums: &mut [f32]) {
    let c = sums.len();
    let (row, means) = (&row[..c], &means[..c]);
    for k in 0..c {
        sums[k] += row[k].get() - means[k];
    }
}

/// Joins rows whose differences from `means` have these sums, which become 0, with the `before` rows that came first.
/// These have `means + lost` and sums of squared differences.
#[inline(always)]
fn join_rows<E: Element>(
    rows: [&[E]; TOGETHER],
    before: usize,
    sums: &mut [f32],
    means: &mut [f32],
    lost: &mut [f32],
    squares: &mut [f32],
) {
    let c = means.len();
    let rows = rows.map(|row| &row[..c]);
    let (sums, lost, squares) = (&mut sums[..c], &mut lost[..c], &mut squares[..c]);
    let [share, weight] = weights(before, TOGETHER);
    for k in 0..c {
        let away = sums[k] * (1.0 / TOGETHER as f32);
        sums[k] = 0.0;
        let mean = means[k] + away;
        let of_rows = rows.map(|row| (row[k].get() - mean) * (row[k].get() - mean));
        let apart = away - lost[k];
        squares[k] += sum(of_rows) + apart * apart * weight;
        (means[k], lost[k]) = moved(means[k], lost[k] + apart * share);
    }
}

/// Joins one row in the same way.
#[inline(always)]
fn join_row<E: Element>(row: &[E], before: usize, means: &mut [f32], lost: &mut [f32], squares: &mut [f32]) {
    let c = means.len();
    let (row, lost, squares) = (&row[..c], &mut lost[..c], &mut squares[..c]);
    let [share, weight] = weights(before, 1);
    for k in 0..c {
        let apart = row[k].get() - means[k] - lost[k];
        squares[k] += apart * apart * weight;
        (means[k], lost[k]) = moved(means[k], lost[k] + apart * share);
    }
}

/// `mean + by`, and what the rounded sum lacks.
#[inline(always)]
fn moved(mean: f32, by: f32) -> (f32, f32) {
    let to = mean + by;
    (to, by - (to - mean))
}

/// Of `more` rows that join those `before`: their share of all rows, and the weight of the squared distance between
/// both means.
#[inline(always)]
fn weights(before: usize, more: usize) -> [f32; 2] {
    let (before, more) = (before as f32, more as f32);
    [more / (before + more), before * more / (before + more)]
}

/// In pairs, which rounds less than one after the other.
#[inline(always)]
fn sum(x: [f32; TOGETHER]) -> f32 {
    ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]))
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
