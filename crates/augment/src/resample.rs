//! The fast resampler for shifts, flips and crops, which are separable.
//!
//! Each axis gets a table of taps. Rows are mixed two by two into one row buffer; along a row the taps
//! fall into a few spans with one weight each, so that all of the work is loops over contiguous floats.

use crate::Draws;
use crate::fill::Tap;
use crate::warp::Sampling;

/// What happens along one axis: a shift, then a flip, then a crop.
pub(crate) struct Axis {
    pub(crate) len: usize,
    shift: f64,
    flip: bool,
    crop: i32,
}

impl Axis {
    /// The rows, and the columns.
    #[inline]
    pub(crate) fn of(draws: &Draws, [h, w]: [usize; 2]) -> [Axis; 2] {
        let [down, right] = draws.crop;
        [
            Axis { len: h, shift: draws.height_shift, flip: draws.vertical_flip, crop: down },
            Axis { len: w, shift: draws.width_shift, flip: draws.horizontal_flip, crop: right },
        ]
    }

    /// Where output index `out` reads; `None` means `cval`.
    #[inline]
    pub(crate) fn tap(&self, out: usize, sampling: &Sampling) -> Option<Tap> {
        let place = sampling.fill_mode.pixel(out as i64 + i64::from(self.crop), self.len)?;
        let place = if self.flip { self.len - 1 - place } else { place };
        sampling.tap(place as f64 + self.shift, self.len)
    }
}

/// Neighbouring output pixels of a row whose taps move in step.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    len: usize,
    /// The first pixel's tap; `None` means `cval`.
    tap: Option<Tap>,
    /// The taps move to the left.
    backward: bool,
}

impl Span {
    /// Adds the next pixel's tap if it continues this span.
    fn take(&mut self, tap: Option<Tap>) -> bool {
        let goes_on = match (self.tap, tap) {
            (None, None) => true,
            (Some(first), Some(next)) => {
                // Weights of one shift differ by the rounding of the position they come from.
                let same_weight = (first.weight - next.weight).abs() < 1e-6;
                let forward = [first.low + self.len, first.high + self.len] == [next.low, next.high];
                let backward = [next.low + self.len, next.high + self.len] == [first.low, first.high];
                if self.len == 1 {
                    self.backward = backward;
                }
                same_weight && if self.backward { backward } else { forward }
            }
            _ => false,
        };
        self.len += usize::from(goes_on);
        goes_on
    }
}

/// Reusable memory of the resampler.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resampler {
    spans: Vec<Span>,
    row: Vec<f32>,
}

impl Resampler {
    /// Memory for rows of `w` pixels of `c` channels.
    pub(crate) fn for_width(w: usize, c: usize) -> Self {
        Resampler { spans: Vec::with_capacity(w), row: vec![0.0; w * c] }
    }

    /// Resamples `image` (HWC of `shape`) by the geometric part of `draws` into `out`.
    pub(crate) fn apply<P: Copy + Into<f32>>(
        &mut self,
        draws: &Draws,
        [h, w, c]: [usize; 3],
        sampling: &Sampling,
        image: &[P],
        out: &mut [f32],
    ) {
        let [rows, columns] = Axis::of(draws, [h, w]);
        self.find_spans(&columns, sampling);
        self.row.resize(w * c, 0.0);
        for (y, out) in out.chunks_exact_mut(w * c).enumerate() {
            let Some(Tap { low, high, weight }) = rows.tap(y, sampling) else {
                out.fill(sampling.cval);
                continue;
            };
            let row = |y: usize| &image[y * w * c..][..w * c];
            if weight == 0.0 {
                write_row(&self.spans, row(low), c, sampling.cval, out);
            } else {
                mix(row(low), row(high), weight, &mut self.row);
                write_row(&self.spans, &self.row, c, sampling.cval, out);
            }
        }
    }

    fn find_spans(&mut self, columns: &Axis, sampling: &Sampling) {
        self.spans.clear();
        // The most there can be: once reserved, no later sample needs more.
        self.spans.reserve(columns.len);
        for start in 0..columns.len {
            let tap = columns.tap(start, sampling);
            if !self.spans.last_mut().is_some_and(|span| span.take(tap)) {
                self.spans.push(Span { start, len: 1, tap, backward: false });
            }
        }
    }
}

/// Resamples one row of pixels of `c` channels.
fn write_row<P: Copy + Into<f32>>(spans: &[Span], row: &[P], c: usize, cval: f32, out: &mut [f32]) {
    for &Span { start, len, tap, backward } in spans {
        let out = &mut out[start * c..][..len * c];
        let Some(Tap { low, high, weight }) = tap else {
            out.fill(cval);
            continue;
        };
        let pixels = |first: usize| {
            let leftmost = if backward { first + 1 - len } else { first };
            &row[leftmost * c..][..len * c]
        };
        if weight == 0.0 {
            out.iter_mut().zip(pixels(low)).for_each(|(out, &value)| *out = value.into());
        } else {
            mix(pixels(low), pixels(high), weight, out);
        }
        if backward {
            reverse_pixels(out, c);
        }
    }
}

/// `out = (1 - weight) * a + weight * b`.
fn mix<P: Copy + Into<f32>>(a: &[P], b: &[P], weight: f32, out: &mut [f32]) {
    let rest = 1.0 - weight;
    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *out = rest * a.into() + weight * b.into();
    }
}

/// Reverses the order of pixels with `c` channels each.
fn reverse_pixels(pixels: &mut [f32], c: usize) {
    if c == 3 {
        pixels.as_chunks_mut::<3>().0.reverse();
        return;
    }
    pixels.reverse();
    pixels.chunks_exact_mut(c).for_each(<[f32]>::reverse);
}
