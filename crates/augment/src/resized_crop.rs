//! Random resized crops: a part of the image, of another shape, fills it.

use crate::Error;
use crate::draws::between;
use philox::Philox;
use std::str::FromStr;

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

/// Where an output place reads along one axis.
#[derive(Clone, Copy, Debug)]
struct Tap {
    low: usize,
    high: usize,
    weight: f32,
}

/// The tap of place `out` of `len`, which show `part` places from `first` on; pixels are squares with centres.
fn tap(out: usize, len: usize, first: usize, part: usize) -> Tap {
    let at = ((out as f64 + 0.5) * part as f64 / len as f64 - 0.5).clamp(0.0, (part - 1) as f64);
    let low = at as usize;
    Tap { low: first + low, high: first + (low + 1).min(part - 1), weight: (at - low as f64) as f32 }
}

impl ResizedCrop {
    pub(crate) fn fits(&self, [h, w]: [usize; 2]) -> bool {
        let inside = |first: usize, part: usize, len| {
            part > 0 && first.checked_add(part).is_some_and(|end| end <= len)
        };
        inside(self.row, self.rows, h) && inside(self.column, self.columns, w)
    }

    /// Fills `out` with this part of `image` (both HWC of `shape`).
    pub(crate) fn apply(&self, [h, w, c]: [usize; 3], image: &[f32], out: &mut [f32]) {
        for (y, row) in out.chunks_exact_mut(w * c).enumerate() {
            let down = tap(y, h, self.row, self.rows);
            let [top, bottom] = [down.low, down.high].map(|y| &image[y * w * c..][..w * c]);
            for (x, out) in row.chunks_exact_mut(c).enumerate() {
                let across = tap(x, w, self.column, self.columns);
                let [left, right] = [across.low, across.high].map(|x| x * c..x * c + c);
                let corners = top[left.clone()].iter().zip(&top[right.clone()]);
                let corners = corners.zip(bottom[left].iter().zip(&bottom[right]));
                for (out, ((a, b), (c, d))) in out.iter_mut().zip(corners) {
                    let (above, below) = (a + across.weight * (b - a), c + across.weight * (d - c));
                    *out = above + down.weight * (below - above);
                }
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
        let mut out = vec![f32::NAN; 24];
        ResizedCrop { row: 0, column: 0, rows: 4, columns: 3 }.apply([4, 3, 2], &image, &mut out);
        assert_eq!(out, image);
        ResizedCrop { row: 2, column: 1, rows: 1, columns: 1 }.apply([4, 3, 2], &image, &mut out);
        assert_eq!(out, image[14..16].repeat(12));
    }
}
