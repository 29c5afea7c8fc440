use crate::{Error, Result, Shape, Span};
use core::ops::Range;

/// The most numbers of an image, and the farthest that it is moved: so few that no place beside one overflows 32 bits.
const MOST: usize = 1 << 28;

/// What lies beyond the edge of an image. The pictures show a row `abcd` and what a *whole-pixel* move brings in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// `kkkk|abcd|kkkk`, with this k. A position between the outermost pixel and the outside is outside.
    Constant(f32),
    /// `aaaa|abcd|dddd`.
    Nearest,
    /// `dcba|abcd|dcba`.
    Reflect,
    /// `dcb|abcd|cba`: the edge is not repeated.
    Mirror,
    /// `abcd|abcd|abcd`; in a shift with the period n - 1 of SciPy: the first and the last pixel lie on the same point.
    Wrap,
}

impl Fill {
    /// The value of what lies outside, where that is a constant.
    pub const fn constant(self) -> f32 {
        if let Fill::Constant(value) = self { value } else { 0.0 }
    }

    /// The pixel that stands at a place of an axis with `len` pixels, or `None` for the constant.
    fn pixel(self, at: i64, len: i64) -> Option<i64> {
        match self {
            _ if (0..len).contains(&at) => Some(at),
            Fill::Constant(_) => None,
            Fill::Nearest => Some(at.clamp(0, len - 1)),
            Fill::Reflect => {
                let place = at.rem_euclid(2 * len);
                Some(place.min(2 * len - 1 - place))
            }
            Fill::Mirror if len == 1 => Some(0),
            Fill::Mirror => Some(len - 1 - (at.rem_euclid(2 * (len - 1)) - (len - 1)).abs()),
            Fill::Wrap => Some(at.rem_euclid(len)),
        }
    }

    /// The two pixels between which a position lies, `weight` beyond the place `at`.
    fn neighbours(self, at: i64, weight: f32, len: i64) -> Option<[i64; 2]> {
        let last = len - 1;
        if 0 <= at && (at < last || at == last && weight == 0.0) {
            return Some([at, last.min(at + 1)]);
        }
        match self {
            Fill::Wrap if last == 0 => Some([0, 0]),
            Fill::Wrap => {
                let place = at.rem_euclid(last);
                // Both ends are the same point: from the left the last pixel is come upon.
                let end = at < 0 && place == 0 && weight == 0.0;
                Some(if end { [last, last] } else { [place, place + 1] })
            }
            _ => Some([self.pixel(at, len)?, self.pixel(at + 1, len)?]),
        }
    }
}

/// What happens to an image along one axis: a shift, then a flip, then a crop, then a blank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AxisDraw {
    /// The whole pixels of the shift: place p shows place p + `shift` + `weight` of the image before.
    pub shift: i32,
    /// The rest of the shift, at least 0 and below 1: how much of the next pixel is mixed in.
    pub weight: f32,
    /// Whether the first becomes the last.
    pub flip: bool,
    /// Place p shows place p + `crop` of the image before the crop.
    pub crop: i32,
    /// The places that are blanked, as far as there are such.
    pub blank: Range<u32>,
}

/// Where a place of an axis reads: `(1 - weight) * pixel[low] + weight * pixel[high]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tap {
    /// The pixel at or before the position.
    pub low: usize,
    /// The pixel after it.
    pub high: usize,
    /// How much of the latter.
    pub weight: f32,
}

impl AxisDraw {
    /// Where place `out` of an axis with `len` pixels reads, or `None` for the constant of [`Fill::Constant`]: the
    /// definition that every backend follows, in whole numbers but for the weight.
    #[inline]
    pub fn tap(&self, out: usize, len: usize, fill: Fill) -> Option<Tap> {
        let len = len as i64;
        let place = fill.pixel(out as i64 + i64::from(self.crop), len)?;
        let place = if self.flip { len - 1 - place } else { place };
        let [low, high] = fill.neighbours(place + i64::from(self.shift), self.weight, len)?;
        Some(Tap { low: low as usize, high: high as usize, weight: self.weight })
    }

    fn check(&self, op: &'static str) -> Result<()> {
        for (what, value) in [("a shift", self.shift), ("a crop", self.crop)] {
            if value.unsigned_abs() as usize > MOST {
                let accepted = "at most 2^28 pixels to either side";
                return Err(Error::Value { op, what, value: value.into(), accepted });
            }
        }
        if (0.0..1.0).contains(&self.weight) {
            return Ok(());
        }
        let value = self.weight.into();
        Err(Error::Value { op, what: "the weight of a shift", value, accepted: "at least 0 and below 1" })
    }
}

/// Which image stands at a place of a batch, and what was drawn for it. The default is the set's first image as it is.
///
/// Draws travel to a device as a table of [`WORDS`](ImageDraw::WORDS) integers a place, for a whole epoch at once.
///
/// ```
/// use program::{AxisDraw, ImageDraw};
///
/// let flipped = AxisDraw { flip: true, ..AxisDraw::default() };
/// let draw = ImageDraw { image: 41, columns: flipped, ..ImageDraw::default() };
/// assert_eq!(ImageDraw::from_words(&draw.to_words()), draw);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageDraw {
    /// The image's number in the set.
    pub image: u32,
    /// What happens from top to bottom.
    pub rows: AxisDraw,
    /// What happens from left to right. A pixel is blanked that both axes blank.
    pub columns: AxisDraw,
}

impl ImageDraw {
    /// Integers of a draw in a table: whole loads of 16 bytes.
    pub const WORDS: usize = 12;

    /// The draw as integers: the image; bit 0 for flipped rows and bit 1 for flipped columns; then of rows and columns
    /// shift, weight, crop, start and end of the blank.
    pub fn to_words(&self) -> [u32; Self::WORDS] {
        let [rows, columns] = [&self.rows, &self.columns].map(|axis| {
            let AxisDraw { shift, weight, crop, ref blank, .. } = *axis;
            [shift as u32, weight.to_bits(), crop as u32, blank.start, blank.end]
        });
        let mut words = [0; Self::WORDS];
        words[0] = self.image;
        words[1] = u32::from(self.rows.flip) | u32::from(self.columns.flip) << 1;
        words[2..7].copy_from_slice(&rows);
        words[7..].copy_from_slice(&columns);
        words
    }

    /// The draw that [`to_words`](ImageDraw::to_words) gave.
    #[inline]
    pub fn from_words(words: &[u32; Self::WORDS]) -> Self {
        let [image, flips, ..] = *words;
        let axis = |at: usize, bit: u32| AxisDraw {
            shift: words[at] as i32,
            weight: f32::from_bits(words[at + 1]),
            flip: flips & bit != 0,
            crop: words[at + 2] as i32,
            blank: words[at + 3]..words[at + 4],
        };
        ImageDraw { image, rows: axis(2, 1), columns: axis(7, 2) }
    }

    /// The draw of a place in a table that has it.
    #[inline]
    pub fn at(table: &[u32], place: usize) -> Self {
        ImageDraw::from_words(&table.as_chunks().0[place])
    }

    /// Checks the draws of `n` places from `first` on, in a table that has them: what backends whose host sees the table
    /// do first.
    ///
    /// # Errors
    /// [`Error::Value`] for an image that a set of `images` lacks, or a draw that makes no sense.
    pub fn check(op: &'static str, table: &[u32], first: usize, n: usize, images: usize) -> Result<()> {
        (first..first + n).try_for_each(|place| ImageDraw::at(table, place).check_one(op, images))
    }

    fn check_one(&self, op: &'static str, images: usize) -> Result<()> {
        if self.image as usize >= images {
            let (what, value) = ("the number of an image", self.image.into());
            return Err(Error::Value { op, what, value, accepted: "below the number of images in the set" });
        }
        self.rows.check(op)?;
        self.columns.check(op)
    }
}

/// A set of images on a device.
#[derive(Debug)]
pub struct ImageSet<'a, Bytes, Ints, Buffer> {
    /// The images (N, H, W, C).
    pub images: &'a Bytes,
    /// One integer an image.
    pub labels: &'a Ints,
    /// What is subtracted first (H, W, C), then what is subtracted after the scale (H, W, C).
    pub means: &'a Buffer,
}

/// How a batch is made of a set of images: each is cut out of the set, moved, and brought to the scale of the network.
///
/// An image passes these steps: the first mean is subtracted; it is shifted, bilinearly between pixels; flipped; cropped;
/// multiplied by `scale`; the second mean is subtracted; blanked pixels become 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadImages {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Channels.
    pub channels: usize,
    /// What lies beyond the edge, in units after the first mean and before the scale.
    pub fill: Fill,
    /// The factor on every value.
    pub scale: f32,
}

impl LoadImages {
    /// Numbers in an image.
    pub const fn image_len(&self) -> usize {
        self.shape(1).len()
    }

    /// The shape of a batch of `n`.
    pub const fn shape(&self, n: usize) -> Shape {
        Shape::new(n, self.height, self.width, self.channels)
    }

    /// Checks how much an [`ImageSet`] holds: what every backend calls first.
    ///
    /// # Errors
    /// [`Error::Value`] for images without pixels or too large ones, [`Error::Length`] and [`Error::OutOfBounds`] for the others.
    pub fn check_set(&self, op: &'static str, images: usize, labels: usize, means: usize) -> Result<()> {
        let len = self.image_len();
        if !(1..=MOST).contains(&len) {
            let what = "the numbers of an image";
            return Err(Error::Value {
                op,
                what,
                value: len as f64,
                accepted: "at least 1 and at most 2^28",
            });
        }
        Error::check_len(op, "the set of images", Span::new(0, images), labels.saturating_mul(len))?;
        Span::new(0, 2 * len).check(op, "the means", means)
    }

    /// Checks the sizes of the other arguments of [`load_images`](crate::Backend::load_images): what every backend calls next.
    ///
    /// # Errors
    /// [`Error::Shape`] for the batch, and [`Error::OutOfBounds`] for the others.
    pub fn check_batch(
        &self,
        op: &'static str,
        draws: usize,
        first: usize,
        x: Shape,
        to: usize,
    ) -> Result<()> {
        Error::check_shape(op, "the batch", x, self.shape(x.n))?;
        let end = first.saturating_add(x.n).saturating_mul(ImageDraw::WORDS);
        Span::new(0, end).check(op, "the table of draws", draws)?;
        Span::new(0, x.n).check(op, "the labels of the batch", to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the places of `abcd` show.
    fn shown(draw: &AxisDraw, fill: Fill) -> String {
        let letter = |out| draw.tap(out, 4, fill).map_or('k', |tap| ['a', 'b', 'c', 'd'][tap.low]);
        (0..4).map(letter).collect()
    }

    const FILLS: [Fill; 5] = [Fill::Constant(0.0), Fill::Nearest, Fill::Reflect, Fill::Wrap, Fill::Mirror];

    #[test]
    fn crops_follow_the_pictures_and_shifts_wrap_earlier() {
        let all = |draw: AxisDraw| FILLS.map(|fill| shown(&draw, fill));
        let crop = |crop| all(AxisDraw { crop, ..AxisDraw::default() });
        assert_eq!(crop(-2), ["kkab", "aaab", "baab", "cdab", "cbab"]);
        assert_eq!(crop(3), ["dkkk", "dddd", "ddcb", "dabc", "dcba"]);
        let shift = |shift| all(AxisDraw { shift, ..AxisDraw::default() });
        assert_eq!(shift(-1), ["kabc", "aabc", "aabc", "cabc", "babc"]);
        assert_eq!(shift(0), ["abcd"; 5]);
        assert_eq!(shift(-3), ["kkka", "aaaa", "cbaa", "dbca", "dcba"]);
    }

    #[test]
    fn a_flip_comes_between_shift_and_crop() {
        let draw = AxisDraw { shift: 1, flip: true, crop: -1, ..AxisDraw::default() };
        assert_eq!(shown(&draw, Fill::Constant(0.0)), "kkdc");
    }

    #[test]
    fn taps_stay_inside() {
        for len in [1, 2, 3, 32] {
            for place in [-(MOST as i32), -1000, -33, -3, -1, 0, 1, 31, 32, 99, MOST as i32] {
                for (weight, flip, fill) in
                    [0.0, 0.5].iter().flat_map(|&w| FILLS.map(|fill| (w, w == 0.5, fill)))
                {
                    let shifted = AxisDraw { shift: place, weight, flip, ..AxisDraw::default() };
                    let cropped = AxisDraw { crop: place, shift: -1, weight, ..AxisDraw::default() };
                    let taps =
                        (0..len).flat_map(|out| [shifted.tap(out, len, fill), cropped.tap(out, len, fill)]);
                    assert!(taps.flatten().all(|tap| tap.low < len && tap.high < len));
                }
            }
        }
    }

    #[test]
    fn words_round_trip() {
        let axis = |k: i32| AxisDraw {
            shift: -3 * k,
            weight: 0.25 * k as f32,
            flip: k == 2,
            crop: 7 - 9 * k,
            blank: 5..9 + k as u32,
        };
        let draw = ImageDraw { image: 77, rows: axis(1), columns: axis(2) };
        assert_eq!(ImageDraw::from_words(&draw.to_words()), draw);
    }

    #[test]
    fn draws_that_make_no_sense_are_refused() {
        let check = |draw: ImageDraw| ImageDraw::check("op", &draw.to_words(), 0, 1, 3);
        let columns = |columns| check(ImageDraw { columns, ..ImageDraw::default() });
        assert!(check(ImageDraw { image: 2, ..ImageDraw::default() }).is_ok());
        assert!(check(ImageDraw { image: 3, ..ImageDraw::default() }).is_err());
        for weight in [1.0, -0.5, f32::NAN] {
            assert!(columns(AxisDraw { weight, ..AxisDraw::default() }).is_err());
        }
        assert!(columns(AxisDraw { shift: i32::MIN, ..AxisDraw::default() }).is_err());
        assert!(columns(AxisDraw { crop: i32::MAX, ..AxisDraw::default() }).is_err());
    }
}
