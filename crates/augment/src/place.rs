//! Where the pixels of an augmented image come from, for a device that holds the images.

use crate::fill::Tap;
use crate::resample::Axis;
use crate::{Draws, Error, Pipeline};

/// What one row or one column of an augmented image shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// The row or column of the image before, as a rule between two of them; `None` beyond the edge, where the value is `cval`.
    pub tap: Option<Tap>,
    /// A pixel becomes 0 where its row and its column are both blank.
    pub blank: bool,
}

impl Pipeline {
    /// What the rows of an augmented image show, from top to bottom, and then its columns, from left to right: the taps
    /// that [`apply`](Self::apply) reads.
    ///
    /// ```
    /// use towers_augment::{Draws, ImageDataGenerator};
    ///
    /// let pipeline = ImageDataGenerator::new().width_shift_range(0.1).horizontal_flip(true).build([32, 32, 3])?;
    /// let draws = Draws { width_shift: -1.25, horizontal_flip: true, ..Draws::default() };
    /// let places: Vec<_> = pipeline.places(&draws)?.collect();
    /// let (row, column) = (places[5].tap.unwrap(), places[32 + 5].tap.unwrap());
    /// assert_eq!((row.low, row.weight), (5, 0.0));
    /// // Flipped, column 5 shows column 26, and that was shifted from 24.75.
    /// assert_eq!((column.low, column.high, column.weight), (24, 25, 0.75));
    /// # Ok::<(), towers_augment::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] if a shift is not finite; [`Error::NoPlacement`] where [`unplaceable`](Self::unplaceable) names an option.
    #[inline]
    pub fn places(&self, draws: &Draws) -> Result<impl Iterator<Item = Place>, Error> {
        let [h, w, _] = self.shape();
        self.check(draws)?;
        if let Some(option) = self.unplaceable() {
            return Err(Error::NoPlacement { option });
        }
        let sampling = self.options().sampling();
        let blank = draws.cutout.map_or([0..0, 0..0], |cutout| cutout.reach([h, w]));
        let axes = Axis::of(draws, [h, w]).into_iter().zip(blank);
        Ok(axes.flat_map(move |(axis, blank)| {
            (0..axis.len).map(move |out| Place { tap: axis.tap(out, &sampling), blank: blank.contains(&out) })
        }))
    }

    /// The first option that is on and can't be said as [`places`](Self::places), if there is one: then a loader has to make the
    /// batches. Shifts, flips, crops, cutout, `rescale`, means and deviations of the set can be said.
    pub fn unplaceable(&self) -> Option<&'static str> {
        let o = self.options();
        [
            ("rotation_range", o.rotation_range != 0.0),
            ("shear_range", o.shear_range != 0.0),
            ("zoom_range", !o.zoom_range.is_off()),
            ("channel_shift_range", o.channel_shift_range != 0.0),
            ("brightness_range", o.brightness_range.is_some()),
            ("reverse_channels", o.reverse_channels),
            ("preprocessing_function", o.preprocessing_function.is_some()),
            ("samplewise_center", o.samplewise_center),
            ("samplewise_std_normalization", o.samplewise_std_normalization),
            ("zca_whitening", o.zca_whitening),
            ("random_resized_crop", o.random_resized_crop.is_some()),
            ("compose", o.compose.as_ref().is_some_and(|compose| compose.steps().next().is_some())),
            ("rand_augment", o.rand_augment.is_some()),
            ("mixup", o.mixup > 0.0),
            ("cutmix", o.cutmix > 0.0),
        ]
        .into_iter()
        .find_map(|(option, on)| on.then_some(option))
    }

    /// Three planes of (H, W, C) numbers, one behind the other. The first is subtracted from an image before
    /// anything else, the second after it was moved and multiplied by [`scale`](Self::scale). The third divides
    /// it at the end. They are 0, 0 and 1 where the pipeline has no such step.
    ///
    /// ```
    /// use towers_augment::{ImageDataGenerator, Mean};
    ///
    /// let options = ImageDataGenerator::new().mean(Mean::PerChannel(vec![0.25])).std(vec![0.5]);
    /// let planes = options.build([1, 2, 1])?.planes();
    /// assert_eq!(planes[..4], [0.0, 0.0, 0.25, 0.25]);
    /// assert!((planes[4] - 0.5).abs() < 1e-5);
    /// # Ok::<(), towers_augment::Error>(())
    /// ```
    pub fn planes(&self) -> Vec<f32> {
        let [h, w, c] = self.shape();
        let (first, center, divisor) =
            (&self.subtract_first, &self.standardizer.center, &self.standardizer.divisor);
        [(first, 0.0), (center, 0.0), (divisor, 1.0)]
            .into_iter()
            .flat_map(|(plane, none)| plane.clone().unwrap_or_else(|| vec![none; h * w * c]))
            .collect()
    }

    /// The factor after an image was moved; 1 where there is none.
    pub fn scale(&self) -> f32 {
        self.options().factor().unwrap_or(1.0)
    }
}
