//! Random resized crops: a part of the image, of another shape, fills it.

use crate::Error;
use crate::fill::Tap;
use crate::text::{Field, Listed};
use crate::uniform::between;
use std::mem::swap;
use std::str::FromStr;
use towers_philox::Philox;

/// Cuts out a part of random area and aspect ratio and brings it to the size of the image, bilinearly: C. Szegedy et al., "Going
/// Deeper with Convolutions" (2015); the defaults and the way to draw are those of torchvision's `RandomResizedCrop`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct RandomResizedCrop {
    /// The smallest and the largest share of the image's area.
    pub scale: [f64; 2],
    /// The smallest and the largest ratio of width to height; between them logarithms are uniform.
    pub ratio: [f64; 2],
}

impl Default for RandomResizedCrop {
    fn default() -> Self {
        RandomResizedCrop { scale: [0.08, 1.0], ratio: [3.0 / 4.0, 4.0 / 3.0] }
    }
}

impl Listed for RandomResizedCrop {
    const NAME: &str = "random-resized-crop";

    fn fields(&mut self) -> Vec<(&'static str, &mut dyn Field)> {
        vec![("scale", &mut self.scale), ("ratio", &mut self.ratio)]
    }
}

/// The part of an image that fills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizedCrop {
    /// The first row.
    pub row: usize,
    /// The first column.
    pub column: usize,
    /// How many rows.
    pub rows: usize,
    /// How many columns.
    pub columns: usize,
}

impl FromStr for RandomResizedCrop {
    type Err = Error;

    /// The two shares of the area and, if they are not to be 3/4 and 4/3, the two ratios: `0.08,1` or `0.2,1,0.5,2`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let accepted = "two shares of the area, or these and two ratios, as in 0.08,1,0.75,1.33";
        match *Error::numbers("random_resized_crop", text, accepted)? {
            [low, high] => Ok(RandomResizedCrop { scale: [low, high], ..RandomResizedCrop::default() }),
            [low, high, narrow, wide] => Ok(RandomResizedCrop { scale: [low, high], ratio: [narrow, wide] }),
            _ => Err(Error::option("random_resized_crop", format!("`{text}`"), accepted)),
        }
    }
}

impl RandomResizedCrop {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let ordered = |[low, high]: [f64; 2]| low > 0.0 && low <= high && high.is_finite();
        if ordered(self.scale) && self.scale[1] <= 1.0 && ordered(self.ratio) {
            return Ok(());
        }
        let accepted =
            "shares of the area above 0 and at most 1, and positive ratios, the smaller ones first";
        Err(Error::option("random_resized_crop", format!("{:?} {:?}", self.scale, self.ratio), accepted))
    }

    /// A part of an image of `h` by `w` pixels: the first of ten tries that fits, else the largest one in the middle.
    pub(crate) fn draw(&self, rng: &mut Philox, [h, w]: [usize; 2]) -> ResizedCrop {
        let logarithms = self.ratio.map(f64::ln);
        for _ in 0..10 {
            let area = between(self.scale, rng) * (h * w) as f64;
            let ratio = between(logarithms, rng).exp();
            let columns = (area * ratio).sqrt().round_ties_even() as usize;
            let rows = (area / ratio).sqrt().round_ties_even() as usize;
            if (1..=w).contains(&columns) && (1..=h).contains(&rows) {
                let row = rng.below((h - rows + 1) as u32) as usize;
                let column = rng.below((w - columns + 1) as u32) as usize;
                return ResizedCrop { row, column, rows, columns };
            }
        }
        let own = w as f64 / h as f64;
        let (rows, columns) = if own < self.ratio[0] {
            (((w as f64 / self.ratio[0]).round_ties_even() as usize).clamp(1, h), w)
        } else if own > self.ratio[1] {
            (h, ((h as f64 * self.ratio[1]).round_ties_even() as usize).clamp(1, w))
        } else {
            (h, w)
        };
        ResizedCrop { row: (h - rows) / 2, column: (w - columns) / 2, rows, columns }
    }
}

/// The tap of place `out` of `len`, which show `part` places from `first` on; pixels are squares with centres.
fn tap(out: usize, len: usize, first: usize, part: usize) -> Tap {
    let at = ((out as f64 + 0.5) * part as f64 / len as f64 - 0.5).clamp(0.0, (part - 1) as f64);
    let low = at as usize;
    Tap { low: first + low, high: first + (low + 1).min(part - 1), weight: (at - low as f64) as f32 }
}

/// What [`ResizedCrop::apply`] works with: where each column of the output reads, and two rows of the image as wide as the output.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stretched {
    taps: Vec<Tap>,
    above: Vec<f32>,
    below: Vec<f32>,
}

impl Stretched {
    /// Memory that need not grow for images of this width.
    pub(crate) fn for_width(w: usize, c: usize) -> Self {
        let row = || Vec::with_capacity(w * c);
        Stretched { taps: Vec::with_capacity(w), above: row(), below: row() }
    }
}

impl ResizedCrop {
    pub(crate) fn fits(&self, [h, w]: [usize; 2]) -> bool {
        let inside = |first: usize, part: usize, len| {
            part > 0 && first.checked_add(part).is_some_and(|end| end <= len)
        };
        inside(self.row, self.rows, h) && inside(self.column, self.columns, w)
    }

    /// Fills `out` with this part of `image` (both HWC of `shape`).
    pub(crate) fn apply(
        &self,
        [h, w, c]: [usize; 3],
        image: &[f32],
        out: &mut [f32],
        Stretched { taps, above, below }: &mut Stretched,
    ) {
        taps.clear();
        taps.extend((0..w).map(|x| tap(x, w, self.column, self.columns)));
        let stretch = |y: usize, to: &mut Vec<f32>| {
            let row = &image[y * w * c..][..w * c];
            to.clear();
            for &Tap { low, high, weight } in &*taps {
                let ends = row[low * c..][..c].iter().zip(&row[high * c..][..c]);
                to.extend(ends.map(|(a, b)| a + weight * (b - a)));
            }
        };
        // Neighbours of an enlarged image mostly read the same two rows, or one of them.
        let mut held = None;
        for (y, row) in out.chunks_exact_mut(w * c).enumerate() {
            let Tap { low, high, weight } = tap(y, h, self.row, self.rows);
            if held != Some([low, high]) {
                match held {
                    Some([_, last]) if last == low => swap(above, below),
                    _ => stretch(low, above),
                }
                stretch(high, below);
                held = Some([low, high]);
            }
            for (out, (a, b)) in row.iter_mut().zip(above.iter().zip(&*below)) {
                *out = a + weight * (b - a);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fit_and_have_the_areas_asked_for() {
        let crop = RandomResizedCrop { scale: [0.25, 0.5], ratio: [0.5, 2.0] };
        for sample in 0..2000 {
            let part = crop.draw(&mut Philox::new(1, 2, [0, sample]), [32, 32]);
            assert!(part.fits([32, 32]));
            let (area, ratio) = ((part.rows * part.columns) as f64, part.columns as f64 / part.rows as f64);
            assert!((220.0..550.0).contains(&area) && (0.45..2.2).contains(&ratio), "{part:?}");
        }
    }

    #[test]
    fn a_shape_that_never_fits_takes_the_middle() {
        let crop = RandomResizedCrop { scale: [1.0, 1.0], ..RandomResizedCrop::default() };
        let part = crop.draw(&mut Philox::new(1, 2, [0, 0]), [10, 100]);
        assert_eq!(part, ResizedCrop { row: 0, column: 43, rows: 10, columns: 13 });
        let part = crop.draw(&mut Philox::new(1, 2, [0, 0]), [100, 10]);
        assert_eq!(part, ResizedCrop { row: 43, column: 0, rows: 13, columns: 10 });
    }

    #[test]
    fn the_whole_image_is_itself_and_a_pixel_fills_it() {
        let image: Vec<f32> = (0..24).map(|k| (k * 7 % 11) as f32).collect();
        let (mut out, mut memory) = (vec![f32::NAN; 24], Stretched::default());
        let mut apply = |row, column, rows, columns| {
            let part = ResizedCrop { row, column, rows, columns };
            part.apply([4, 3, 2], &image, &mut out, &mut memory);
            out.clone()
        };
        assert_eq!(apply(0, 0, 4, 3), image);
        assert_eq!(apply(2, 1, 1, 1), image[14..16].repeat(12));
    }
}
