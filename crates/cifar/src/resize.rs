//! Scaling of pictures, with the pixels of Pillow's `resize(size, Image.BILINEAR)`.
//!
//! The filter is a triangle: bilinear, or an average where a picture becomes smaller. Rows are filtered
//! first, then columns. Weights are whole numbers, so every machine computes the same pixels.

use crate::sizes::CHANNELS;

/// Bits of a weight after the point. Pillow has as many: a sum of 8-bit values and a sign fit in 32 bits.
const BITS: u32 = 32 - 8 - 2;

/// What one side of a picture is scaled by: for each new pixel the old ones that it is a mean of.
struct Axis {
    /// The first old pixel, and the place of the first weight.
    starts: Vec<(usize, usize)>,
    /// The weights of all new pixels, each one's in a row.
    weights: Vec<i32>,
}

impl Axis {
    /// The weights of a triangle filter that is as wide as two pixels, of the larger kind.
    fn new(from: usize, to: usize) -> Axis {
        let scale = from as f64 / to as f64;
        let support = scale.max(1.0);
        let mut axis = Axis { starts: Vec::with_capacity(to + 1), weights: Vec::new() };
        let mut row = Vec::new();
        for k in 0..to {
            let center = (k as f64 + 0.5) * scale;
            // `as` cuts off below 0.
            let start = (center - support + 0.5) as usize;
            let end = ((center + support + 0.5) as usize).min(from);
            let weight = |old: usize| 1.0 - ((old as f64 - center + 0.5) / support).abs();
            row.clear();
            row.extend((start..end).map(|old| weight(old).max(0.0)));
            let sum: f64 = row.iter().sum();
            axis.starts.push((start, axis.weights.len()));
            let whole = |weight: &f64| (weight / sum * f64::from(1 << BITS) + 0.5) as i32;
            axis.weights.extend(row.iter().map(whole));
        }
        axis.starts.push((from, axis.weights.len()));
        axis
    }

    /// The first old pixel and the weights of every new one.
    fn taps(&self) -> impl Iterator<Item = (usize, &[i32])> {
        self.starts.windows(2).map(|pair| (pair[0].0, &self.weights[pair[0].1..pair[1].1]))
    }
}

/// A sum of weighted values as a value.
fn value(sum: i32) -> u8 {
    (sum >> BITS).clamp(0, 255) as u8
}

/// Half of a value, so that a sum is rounded.
const HALF: i32 = 1 << (BITS - 1);

/// Scales the RGB pixels `from` of `old` height and width into `to`, of `new` height and width.
pub(crate) fn resize(from: &[u8], old: [usize; 2], new: [usize; 2], to: &mut [u8]) {
    if old == new {
        return to.copy_from_slice(from);
    }
    let mut narrow = Vec::new();
    let rows = if old[1] == new[1] {
        from
    } else {
        narrow.resize(old[0] * new[1] * CHANNELS, 0);
        rows(from, old[1], new[1], &mut narrow);
        &narrow
    };
    if old[0] == new[0] {
        return to.copy_from_slice(rows);
    }
    columns(rows, old[0], new, to);
}

/// Filters every row. Two rows are one: a number holds a value of the upper and one of the lower, and half as many
/// products are computed. A sum of weighted values has less than 31 bits, so none runs over.
fn rows(from: &[u8], old: usize, new: usize, to: &mut [u8]) {
    let axis = Axis::new(old, new);
    let (old, new) = (old * CHANNELS, new * CHANNELS);
    let mut pairs = vec![[0_u64; CHANNELS]; old / CHANNELS];
    for (from, to) in from.chunks(2 * old).zip(to.chunks_mut(2 * new)) {
        let (upper, lower) = from.split_at(old);
        // The last of an odd number of rows.
        let lower = if lower.is_empty() { upper } else { lower };
        let values = upper.chunks_exact(CHANNELS).zip(lower.chunks_exact(CHANNELS));
        for (pair, (upper, lower)) in pairs.iter_mut().zip(values) {
            for (pair, (&upper, &lower)) in pair.iter_mut().zip(upper.iter().zip(lower)) {
                *pair = u64::from(upper) | u64::from(lower) << 32;
            }
        }
        let (upper, lower) = to.split_at_mut(new);
        let mut lower = lower.chunks_exact_mut(CHANNELS);
        for ((start, weights), upper) in axis.taps().zip(upper.chunks_exact_mut(CHANNELS)) {
            let mut sums = [HALF as u64 | (HALF as u64) << 32; CHANNELS];
            for (&weight, pair) in weights.iter().zip(&pairs[start..]) {
                for (sum, &values) in sums.iter_mut().zip(pair) {
                    *sum += weight as u64 * values;
                }
            }
            upper.iter_mut().zip(sums).for_each(|(to, sum)| *to = value(sum as i32));
            let lower = lower.next().unwrap_or_default();
            lower.iter_mut().zip(sums).for_each(|(to, sum)| *to = value((sum >> 32) as i32));
        }
    }
}

/// Filters every column.
fn columns(from: &[u8], old: usize, new: [usize; 2], to: &mut [u8]) {
    let (axis, len) = (Axis::new(old, new[0]), new[1] * CHANNELS);
    let mut sums = vec![HALF; len];
    for ((start, weights), to) in axis.taps().zip(to.chunks_exact_mut(len)) {
        sums.fill(HALF);
        for (&weight, row) in weights.iter().zip(from[start * len..].chunks_exact(len)) {
            for (sum, &value) in sums.iter_mut().zip(row) {
                *sum += weight * i32::from(value);
            }
        }
        to.iter_mut().zip(&sums).for_each(|(to, &sum)| *to = value(sum));
    }
}
