use crate::{Bytes, Error, Ints, Result, Shape, Span, Storage};

/// The most numbers of an image: so few that the numbers of its pixels leave a bit free.
const MOST: usize = 1 << 28;

/// The source of one row or one column of an image in a batch.
///
/// It travels to a device as two words. A table has an image's number and 0, then the places of its rows from top to
/// bottom and of its columns from left to right; and so for each image of an epoch.
///
/// ```
/// use towers_program::Place;
///
/// let place = Place { position: Some((7, 0.25)), blank: false };
/// assert_eq!(Place::from_words(place.to_words()), place);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// The pixel of the image in the set at or before the position, and how much of the next pixel is mixed in, from 0 to 1.
    /// `None` beyond the edge.
    pub position: Option<(u32, f32)>,
    /// A pixel becomes 0 where its row and its column are both blank.
    pub blank: bool,
}

impl Place {
    /// The bit of a place that is blank.
    const BLANK: u32 = 1 << 31;
    /// The pixel of a place beyond the edge.
    const OUTSIDE: u32 = Place::BLANK - 1;

    /// The two words in a table: the pixel, with a bit for blank; the weight of the next pixel.
    pub const fn to_words(self) -> [u32; 2] {
        let (pixel, weight) =
            if let Some(position) = self.position { position } else { (Place::OUTSIDE, 0.0) };
        [pixel | if self.blank { Place::BLANK } else { 0 }, weight.to_bits()]
    }

    /// The place that [`to_words`](Place::to_words) gave.
    #[inline]
    pub const fn from_words([word, weight]: [u32; 2]) -> Self {
        let pixel = word & !Place::BLANK;
        let position = if pixel == Place::OUTSIDE { None } else { Some((pixel, f32::from_bits(weight))) };
        Place { position, blank: word & Place::BLANK != 0 }
    }

    /// Both pixels and the weight of the second.
    #[inline]
    pub fn taps(self) -> Option<([usize; 2], f32)> {
        let (pixel, weight) = self.position?;
        Some(([pixel as usize, pixel as usize + usize::from(weight != 0.0)], weight))
    }

    fn check(self, op: &'static str, len: usize) -> Result<()> {
        let Some(([_, high], weight)) = self.taps() else { return Ok(()) };
        if high >= len {
            let what = "the pixel that a place shows";
            return Err(Error::Value { op, what, value: high as f64, accepted: "inside of the image" });
        }
        if (0.0..=1.0).contains(&weight) {
            return Ok(());
        }
        Err(Error::Value { op, what: "the weight of a pixel", value: weight.into(), accepted: "from 0 to 1" })
    }
}

/// A row of a table: which image stands at a place of a batch, and what its rows and columns show.
#[derive(Clone, Copy, Debug)]
pub struct ImageDraw<'a> {
    /// The image's number in the set.
    pub image: usize,
    /// From top to bottom, two words each.
    rows: &'a [[u32; 2]],
    /// From left to right, two words each.
    columns: &'a [[u32; 2]],
}

impl ImageDraw<'_> {
    /// The source of row `row` of the image.
    #[inline]
    pub fn row(&self, row: usize) -> Place {
        Place::from_words(self.rows[row])
    }

    /// The source of column `column` of the image.
    #[inline]
    pub fn column(&self, column: usize) -> Place {
        Place::from_words(self.columns[column])
    }

    fn check(&self, op: &'static str, images: usize) -> Result<()> {
        if self.image >= images {
            let (what, value) = ("the number of an image", self.image as f64);
            return Err(Error::Value { op, what, value, accepted: "below the number of images in the set" });
        }
        [self.rows, self.columns].into_iter().try_for_each(|axis| {
            axis.iter().try_for_each(|&words| Place::from_words(words).check(op, axis.len()))
        })
    }
}

/// A set of images on a device.
#[derive(Debug)]
pub struct ImageSet<'a> {
    /// The images (N, H, W, C).
    pub images: &'a Bytes,
    /// [`LoadImages::label`] integers for each image.
    pub labels: &'a Ints,
    /// Three planes of (H, W, C) numbers. The first is subtracted first, the second after the scale, and the third
    /// divides at the end.
    pub planes: &'a Storage,
}

/// How a batch is made of a set of images: each is cut out of the set, moved, and brought to the scale of the network.
///
/// An image passes these steps: the first mean is subtracted; each pixel is mixed of the four that its row's and its column's
/// [`Place`] name; multiplied by `scale`; the second mean is subtracted, and divided by the last plane; blank
/// pixels become 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadImages {
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// Channels.
    pub channels: usize,
    /// The value beyond the edge, in units after the first mean and before the scale.
    pub constant: f32,
    /// The factor on every value.
    pub scale: f32,
    /// Integers of a label: 1, or those of a [`Target`](crate::Target).
    pub label: usize,
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

    /// Words of an image in a table of draws.
    pub const fn words(&self) -> usize {
        2 * (1 + self.height + self.width)
    }

    /// Writes a row of a table of draws: an image's number, and the places of its rows and then of its columns.
    ///
    /// ```
    /// use towers_program::{LoadImages, Place};
    ///
    /// let load = LoadImages { height: 2, width: 3, channels: 1, constant: 0.0, scale: 1.0, label: 1 };
    /// let as_it_is = |len| (0..len).map(|k| Place { position: Some((k, 0.0)), blank: false });
    /// let mut table = vec![0; load.words()];
    /// load.write_draw(&mut table, 41, as_it_is(2).chain(as_it_is(3)));
    /// assert_eq!(load.draw(&table, 0).column(1).taps(), Some(([1, 1], 0.0)));
    /// ```
    pub fn write_draw(&self, row: &mut [u32], image: u32, places: impl Iterator<Item = Place>) {
        let [number, axes @ ..] = row.as_chunks_mut().0 else { return };
        *number = [image, 0];
        axes.iter_mut().zip(places).for_each(|(words, place)| *words = place.to_words());
    }

    /// The draw at a place of a table that has it.
    #[inline]
    pub fn draw<'a>(&self, table: &'a [u32], place: usize) -> ImageDraw<'a> {
        let words = table[place * self.words()..][..self.words()].as_chunks().0;
        let (rows, columns) = words[1..].split_at(self.height);
        ImageDraw { image: words[0][0] as usize, rows, columns }
    }

    /// Checks the draws of `n` images from place `first` on, in a table that has them: what backends whose host sees the
    /// table do first.
    ///
    /// # Errors
    /// [`Error::Value`] for an image that a set of `images` lacks, and for places that are not in the image.
    pub fn check_draws(
        &self,
        op: &'static str,
        table: &[u32],
        first: usize,
        n: usize,
        images: usize,
    ) -> Result<()> {
        (first..first + n).try_for_each(|place| self.draw(table, place).check(op, images))
    }

    /// Checks how much an [`ImageSet`] holds, and counts its images: what every backend calls first.
    ///
    /// # Errors
    /// [`Error::Value`] for images without pixels or too large ones, [`Error::Length`] and [`Error::OutOfBounds`] for the others.
    pub fn check_set(&self, op: &'static str, images: usize, labels: usize, planes: usize) -> Result<usize> {
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
        let count = images / len;
        Error::check_len(op, "the set of images", Span::new(0, images), count * len)?;
        Error::check_len(
            op,
            "the labels of the set",
            Span::new(0, labels),
            count.saturating_mul(self.label),
        )?;
        Span::new(0, 3 * len).check(op, "the means and divisors", planes)?;
        Ok(count)
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
        let end = first.saturating_add(x.n).saturating_mul(self.words());
        Span::new(0, end).check(op, "the table of draws", draws)?;
        Span::new(0, x.n.saturating_mul(self.label)).check(op, "the labels of the batch", to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: LoadImages =
        LoadImages { height: 2, width: 3, channels: 1, constant: 0.0, scale: 1.0, label: 1 };

    fn at(pixel: u32, weight: f32) -> Place {
        Place { position: Some((pixel, weight)), blank: false }
    }

    /// Whether a draw of this image passes whose last column shows this.
    fn passes(image: u32, last: Place) -> bool {
        let mut table = vec![0; LOAD.words()];
        LOAD.write_draw(
            &mut table,
            image,
            [at(0, 0.5), at(1, 0.0), at(0, 0.0), at(1, 1.0), last].into_iter(),
        );
        LOAD.check_draws("op", &table, 0, 1, 3).is_ok()
    }

    #[test]
    fn words_round_trip() {
        for blank in [false, true] {
            for position in [None, Some((0, 0.0)), Some((31, 0.25)), Some((MOST as u32, 1.0))] {
                let place = Place { position, blank };
                assert_eq!(Place::from_words(place.to_words()), place);
            }
        }
    }

    #[test]
    fn draws_outside_of_the_set_or_the_image_are_refused() {
        assert!(passes(2, at(2, 0.0)) && passes(2, Place { position: None, blank: true }));
        assert!(!passes(3, at(2, 0.0)));
        for last in [at(3, 0.0), at(2, 0.5), at(u32::MAX >> 2, 0.0), at(1, -0.5), at(1, 1.5), at(1, f32::NAN)]
        {
            assert!(!passes(2, last), "{last:?}");
        }
    }
}
