//! Draws as numbers for someone else to carry out, such as a GPU that holds the set.

use crate::{Draws, Error, FillMode, LoaderOptions, Pipeline, ShiftRange};
use std::ops::Range;

/// Where the pixels of an image come from: what [`Draws`] and a [`Pipeline`] say about it, in whole numbers as far as can
/// be, so that another executor reads the very pixels that [`Pipeline::apply`] reads.
///
/// The default leaves everything where it is.
///
/// ```
/// use augment::{AxisPlacement, Draws, ImageDataGenerator};
///
/// let pipeline = ImageDataGenerator::new().width_shift_range(0.1).horizontal_flip(true).build([32, 32, 3])?;
/// let draws = Draws { width_shift: -1.25, horizontal_flip: true, ..Draws::default() };
/// let placement = pipeline.placement(&draws)?;
/// assert_eq!(placement.rows, AxisPlacement::default());
/// assert_eq!((placement.columns.shift, placement.columns.weight), (-2, 0.75));
/// assert!(placement.columns.flip);
/// # Ok::<(), augment::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// From top to bottom.
    pub rows: AxisPlacement,
    /// From left to right. A pixel is blanked that both axes blank.
    pub columns: AxisPlacement,
}

/// What happens along one axis: a shift, then a flip, then a crop, at last a blank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AxisPlacement {
    /// Whole pixels of the shift: place p shows place p + `shift` + `weight` of the image before. It is at most four
    /// times the image's size, also where a longer one was drawn that reads the same.
    pub shift: i32,
    /// The rest of the shift, at least 0 and below 1: how much of the next pixel is mixed in.
    pub weight: f32,
    /// Whether the first becomes the last.
    pub flip: bool,
    /// Place p shows place p + `crop` of the image before the crop.
    pub crop: i32,
    /// The places that are blanked.
    pub blank: Range<u32>,
}

impl Pipeline {
    /// Where the pixels of an image come from, given its draws.
    ///
    /// # Errors
    /// [`Error::Option`] if a shift is not finite; [`Error::NoPlacement`] where [`unplaceable`](Self::unplaceable) names an option.
    pub fn placement(&self, draws: &Draws) -> Result<Placement, Error> {
        draws.check([self.shape()[0], self.shape()[1]])?;
        match self.unplaceable() {
            Some(option) => Err(Error::NoPlacement { option }),
            None => Ok(self.place_axes(draws)),
        }
    }

    /// The first option that is on and does what no [`Placement`] can say, if there is one: then a loader has to make the batches.
    /// Shifts, flips, crops, cutout, `rescale` and means can be said.
    pub fn unplaceable(&self) -> Option<&'static str> {
        let o = self.options();
        let shifts = [&o.width_shift_range, &o.height_shift_range];
        [
            ("rotation_range", o.rotation_range != 0.0),
            ("shear_range", o.shear_range != 0.0),
            ("zoom_range", !o.zoom_range.is_off()),
            ("channel_shift_range", o.channel_shift_range != 0.0),
            ("brightness_range", o.brightness_range.is_some()),
            (
                "interpolation_order",
                o.interpolation_order == 0 && shifts.iter().any(|range| **range != ShiftRange::default()),
            ),
            ("preprocessing_function", o.preprocessing_function.is_some()),
            ("samplewise_center", o.samplewise_center),
            ("samplewise_std_normalization", o.samplewise_std_normalization),
            ("featurewise_std_normalization", o.divides()),
            ("zca_whitening", o.zca_whitening),
            ("random_resized_crop", o.random_resized_crop.is_some()),
            ("rand_augment", o.rand_augment.is_some()),
            ("mixup", o.mixup > 0.0),
            ("cutmix", o.cutmix > 0.0),
        ]
        .into_iter()
        .find_map(|(option, on)| on.then_some(option))
    }

    /// The placements of `samples` in `epoch`, as a [`Loader`](crate::Loader) with these options draws them, as far as they can be
    /// said: see [`unplaceable`](Self::unplaceable).
    ///
    /// ```
    /// use augment::{ImageDataGenerator, LoaderOptions};
    ///
    /// let pipeline = ImageDataGenerator::new().width_shift_range(0.1).build([32, 32, 3])?;
    /// let options = LoaderOptions::new().batch_size(64).seed(1);
    /// // All that the batches of epoch 3 need; batch k is the run `options.batch(k, 1000)` of both.
    /// let order = options.order(3, 1000);
    /// let placements = pipeline.placements(&options, 3, &order);
    /// assert_eq!(placements[17], pipeline.placement(&pipeline.draw(1, 3, order[17]))?);
    /// # Ok::<(), augment::Error>(())
    /// ```
    pub fn placements(&self, options: &LoaderOptions, epoch: u64, samples: &[u32]) -> Vec<Placement> {
        let draw = |&sample: &u32| self.place_axes(&self.draw(options.seed, epoch, sample));
        if options.augment {
            samples.iter().map(draw).collect()
        } else {
            vec![Placement::default(); samples.len()]
        }
    }

    /// What is subtracted from an image before anything else (HWC), if something is.
    pub fn mean_before(&self) -> Option<&[f32]> {
        self.subtract_first.as_deref()
    }

    /// What is subtracted from an image after it was moved and rescaled (HWC), if something is.
    pub fn mean_after(&self) -> Option<&[f32]> {
        self.standardizer.center.as_deref()
    }

    /// The factor between the two; 1 where there is none.
    pub fn scale(&self) -> f32 {
        self.options().factor().unwrap_or(1.0)
    }

    fn place_axes(&self, draws: &Draws) -> Placement {
        let [h, w, _] = self.shape();
        let mode = self.options().fill_mode;
        let axis = |shift, len, flip, crop, blank: Range<usize>| {
            let (shift, weight) = split(shift, len, mode);
            AxisPlacement { shift, weight, flip, crop, blank: blank.start as u32..blank.end as u32 }
        };
        let [rows, columns] = draws.cutout.map_or([0..0, 0..0], |cutout| cutout.reach([h, w]));
        Placement {
            rows: axis(draws.height_shift, h, draws.vertical_flip, draws.crop[0], rows),
            columns: axis(draws.width_shift, w, draws.horizontal_flip, draws.crop[1], columns),
        }
    }
}

/// The whole pixels of a shift along an axis of `len` pixels, and the rest.
fn split(shift: f64, len: usize, mode: FillMode) -> (i32, f32) {
    let (whole, last) = (shift.floor(), (len - 1) as f64);
    let rest = shift - whole;
    // A rest that the place at the far end swallows must not carry it over the edge; any other must, also where f32 has no
    // number as small, or none as near to 1.
    let swallowed = last + rest == last;
    let weight = if swallowed { 0.0 } else { (rest as f32).clamp(f32::MIN_POSITIVE, 1.0_f32.next_down()) };
    (near(whole, len, mode) as i32, weight)
}

/// A short shift that reads what `whole` reads.
fn near(whole: f64, len: usize, mode: FillMode) -> f64 {
    // So far out that no pixel is inside any more; from here on everything repeats itself.
    let far = (2.0 * len as f64).copysign(whole);
    if whole.abs() <= far.abs() {
        return whole;
    }
    let period = match mode {
        FillMode::Constant | FillMode::Nearest => 1.0,
        FillMode::Reflect => 2.0 * len as f64,
        FillMode::Wrap => (len - 1).max(1) as f64,
        FillMode::Mirror => 2.0 * (len - 1).max(1) as f64,
    };
    far + (whole - far) % period
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shifts_are_split_where_positions_are() {
        let split = |shift| split(shift, 32, FillMode::Constant);
        assert_eq!(split(0.0), (0, 0.0));
        assert_eq!(split(-0.25), (-1, 0.75));
        assert_eq!(split(3.5), (3, 0.5));
        // 31 + 1e-16 is 31, so the last pixel still shows itself; -1e-17 is outside.
        assert_eq!(split(1e-16), (0, 0.0));
        assert_eq!(split(-1e-17), (-1, 1.0_f32.next_down()));
        assert_eq!(super::split(1e-300, 1, FillMode::Constant), (0, f32::MIN_POSITIVE));
    }

    #[test]
    fn long_shifts_read_what_the_short_ones_read() {
        for (mode, len) in FillMode::ALL.into_iter().flat_map(|mode| [1, 2, 3, 7].map(|len| (mode, len))) {
            for shift in (-60..60).map(f64::from).flat_map(|whole| [whole, whole + 0.25]) {
                let (whole, weight) = split(shift, len, mode);
                assert!(whole.unsigned_abs() as usize <= 4 * len);
                for place in 0..len {
                    let tap = |shift: f64| mode.tap(place as f64 + shift, len);
                    assert_eq!(
                        tap(f64::from(whole) + f64::from(weight)),
                        tap(shift),
                        "{mode} {len} {shift} {place}"
                    );
                }
            }
        }
    }
}
