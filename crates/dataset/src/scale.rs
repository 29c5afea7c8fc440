//! Scaling of pictures, with the pixels of Pillow's `resize(size, Image.BILINEAR)`.
//!
//! The filter is a triangle: bilinear, or an average where a picture becomes smaller. Rows are filtered
//! first, then columns. Weights are whole numbers, so every machine computes the same pixels.

/// Bits of a weight after the point. Pillow has as many: a sum of 8-bit values and a sign fit in 32 bits.
const BITS: u32 = 32 - 8 - 2;

/// What one side of a picture is scaled by: each new pixel is a mean of the same number of old ones.
struct Axis {
    /// How many.
    taps: usize,
    /// The first old pixel of every new one.
    starts: Vec<usize>,
    /// The weights, those of a new pixel in a row. The last of them are 0 where it has fewer old ones.
    weights: Vec<u32>,
}

impl Axis {
    /// The weights of a triangle filter that is as wide as two pixels, of the larger kind.
    fn new(from: usize, to: usize) -> Axis {
        let scale = from as f64 / to as f64;
        let support = scale.max(1.0);
        let center = |k: usize| (k as f64 + 0.5) * scale;
        // `as` cuts off below 0.
        let start = |k| (center(k) - support + 0.5) as usize;
        let end = |k| ((center(k) + support + 0.5) as usize).min(from);
        let most = (0..to).map(|k| end(k) - start(k)).max().unwrap_or_default();
        // In pairs, as they are added.
        let taps = most.next_multiple_of(2);
        let starts = (0..to).map(start).collect();
        let mut weights = vec![0; to * taps];
        let mut row = Vec::with_capacity(taps);
        for (k, whole) in weights.chunks_exact_mut(taps).enumerate() {
            let weight = |old: usize| 1.0 - ((old as f64 - center(k) + 0.5) / support).abs();
            row.clear();
            row.extend((start(k)..end(k)).map(|old| weight(old).max(0.0)));
            let sum: f64 = row.iter().sum();
            for (whole, weight) in whole.iter_mut().zip(&row) {
                *whole = (weight / sum * f64::from(1 << BITS) + 0.5) as u32;
            }
        }
        Axis { taps, starts, weights }
    }

    /// The first old pixel and the weights of every new one.
    fn taps(&self) -> impl Iterator<Item = (usize, &[u32])> {
        self.starts.iter().copied().zip(self.weights.chunks_exact(self.taps))
    }
}

/// Half of a value, so that a sum is rounded. A sum shifted by [`BITS`] is below 256: the rounded weights of the widest picture, of 16,384
/// pixels, add up to less than 1 + 1/510.
const HALF: u32 = 1 << (BITS - 1);

/// Scales the pixels `from` of `old` height and width into `to`, of `new` height and width. A pixel has `CHANNELS` bytes.
pub(crate) fn scale<const CHANNELS: usize>(from: &[u8], old: [usize; 2], new: [usize; 2], to: &mut [u8]) {
    scale_part::<CHANNELS>(from, old, Part { scaled: new, at: [0; 2], size: new }, to);
}

/// A part of a scaled picture. Each has rows and columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// The size of the whole.
    pub(crate) scaled: [usize; 2],
    /// Where the part begins in it.
    pub(crate) at: [usize; 2],
    /// The size of the part.
    pub(crate) size: [usize; 2],
}

/// As [`scale`], but only a part of the result. Nothing else is computed, so a long and narrow picture takes no more memory.
pub(crate) fn scale_part<const CHANNELS: usize>(from: &[u8], old: [usize; 2], part: Part, to: &mut [u8]) {
    let Part { scaled, at, size } = part;
    let mut narrow = Vec::new();
    let rows = if old[1] == scaled[1] && old[1] == size[1] {
        from
    } else if old[1] == scaled[1] {
        let kept = at[1] * CHANNELS..(at[1] + size[1]) * CHANNELS;
        let old_rows = from.chunks_exact(old[1] * CHANNELS);
        narrow.extend(old_rows.flat_map(|row| &row[kept.clone()]).copied());
        &narrow
    } else {
        narrow.resize(old[0] * size[1] * CHANNELS, 0);
        rows::<CHANNELS>(from, old[1], scaled[1], at[1], size[1], &mut narrow);
        &narrow
    };
    if old[0] == scaled[0] {
        let first = at[0] * size[1] * CHANNELS;
        return to.copy_from_slice(&rows[first..first + to.len()]);
    }
    columns::<CHANNELS>(rows, old[0], part, to);
}

/// Filters every row. Two rows are one: a number holds a value of the upper and one of the lower, and half as many
/// products are computed. A sum of weighted values has less than 31 bits, so none runs over. The result has `new` pixels a row of
/// `scaled` ones, from `at` on.
fn rows<const CHANNELS: usize>(from: &[u8], old: usize, scaled: usize, at: usize, new: usize, to: &mut [u8]) {
    let axis = Axis::new(old, scaled);
    let (old, new) = (old * CHANNELS, new * CHANNELS);
    // Weights of 0 may reach beyond a row.
    let mut pairs = vec![0_u64; old + axis.taps * CHANNELS];
    for (from, to) in from.chunks(2 * old).zip(to.chunks_mut(2 * new)) {
        let (upper, lower) = from.split_at(old);
        // The last of an odd number of rows.
        let lower = if lower.is_empty() { upper } else { lower };
        for ((pair, &upper), &lower) in pairs.iter_mut().zip(upper).zip(lower) {
            *pair = u64::from(upper) | u64::from(lower) << 32;
        }
        let (upper, lower) = to.split_at_mut(new);
        let mut lower = lower.as_chunks_mut::<CHANNELS>().0.iter_mut();
        for ((start, weights), upper) in axis.taps().skip(at).zip(upper.as_chunks_mut::<CHANNELS>().0) {
            let mut sums = [u64::from(HALF) | u64::from(HALF) << 32; CHANNELS];
            let pixels = pairs[start * CHANNELS..].as_chunks::<CHANNELS>().0.as_chunks::<2>().0;
            for (weights, pixels) in weights.as_chunks::<2>().0.iter().zip(pixels) {
                for (pixel, &weight) in pixels.iter().zip(weights) {
                    for (sum, values) in sums.iter_mut().zip(pixel) {
                        *sum += u64::from(weight) * values;
                    }
                }
            }
            *upper = sums.map(|sum| (sum >> BITS) as u8);
            if let Some(lower) = lower.next() {
                *lower = sums.map(|sum| (sum >> (32 + BITS)) as u8);
            }
        }
    }
}

/// Filters every column.
fn columns<const CHANNELS: usize>(from: &[u8], old: usize, part: Part, to: &mut [u8]) {
    let (axis, len) = (Axis::new(old, part.scaled[0]), part.size[1] * CHANNELS);
    let mut sums = vec![HALF; len];
    for ((start, weights), to) in axis.taps().skip(part.at[0]).zip(to.chunks_exact_mut(len)) {
        sums.fill(HALF);
        let weighted = weights.iter().zip(from[start * len..].chunks_exact(len));
        for (&weight, row) in weighted.filter(|(weight, _)| **weight > 0) {
            for (sum, &value) in sums.iter_mut().zip(row) {
                *sum += weight * u32::from(value);
            }
        }
        to.iter_mut().zip(&sums).for_each(|(to, &sum)| *to = (sum >> BITS) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A channel has the same values alone and beside others.
    #[test]
    fn channels_are_scaled_by_themselves() {
        let (old, new) = ([7, 10], [5, 12]);
        let colours: Vec<u8> = (0..old[0] * old[1] * 3).map(|k| (k * k % 251) as u8).collect();
        let mut all = vec![0; new[0] * new[1] * 3];
        scale::<3>(&colours, old, new, &mut all);
        for c in 0..3 {
            let of = |values: &[u8]| values.iter().skip(c).step_by(3).copied().collect::<Vec<u8>>();
            let mut alone = vec![0; new[0] * new[1]];
            scale::<1>(&of(&colours), old, new, &mut alone);
            assert_eq!(alone, of(&all), "channel {c}");
        }
    }

    /// Rounded weights may add up to more than 1, but never to so much that a value runs over.
    #[test]
    fn white_stays_white() {
        for (old, new) in [(16_384, 1), (16_384, 3), (10_000, 7), (500, 224), (7, 5), (3, 8)] {
            for turn in [[1, 0], [0, 1]] {
                let side = |len: usize| turn.map(|along| if along == 1 { len } else { 1 });
                let mut to = vec![0; new * 3];
                scale::<3>(&vec![255; old * 3], side(old), side(new), &mut to);
                assert!(to.iter().all(|&value| value == 255), "{old} to {new}: {to:?}");
            }
        }
    }
}
