//! The options, with the names and defaults of Keras' ImageDataGenerator.

use crate::preprocess::{Preprocess, PreprocessingFunction};
use crate::warp::Sampling;
use crate::whitening::Whitening;
use crate::{Compose, Draws, Error, FillMode, Mean, RandAugment, RandomResizedCrop, ShiftRange, ZoomRange};

/// The options of an augmentation: Keras' ImageDataGenerator, and more.
///
/// Every option is off by default. A sample passes these steps, in this order; those marked with a star are not in Keras:
///
/// 1. the steps of a [`Compose`]*; RandAugment*, on the bytes; then [`Preprocess`]*;
/// 2. rotation, shift, shear and zoom as one map, with `interpolation_order` between pixels, `fill_mode` and `cval` beyond the edge;
/// 3. channel shift; horizontal flip, vertical flip; brightness;
/// 4. random crop* or random resized crop*;
/// 5. the preprocessing function, the reversal of channels*, `rescale`, the sample's own mean and deviation, those of the set, ZCA whitening;
/// 6. cutout*;
/// 7. random erasing* of a `Compose`;
/// 8. mixup* or cutmix* with another sample that passed 1 to 7: a [`Loader`](crate::Loader) does that.
///
/// ```
/// use towers_augment::{FillMode, ImageDataGenerator};
///
/// let options = ImageDataGenerator::new()
///     .rotation_range(15.0)
///     .width_shift_range(0.1)
///     .height_shift_range(0.1)
///     .zoom_range(0.2)
///     .horizontal_flip(true)
///     .rescale(1.0 / 255.0);
/// assert_eq!(options.fill_mode, FillMode::Nearest);
/// let pipeline = options.build([32, 32, 3])?;
/// # Ok::<(), towers_augment::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
#[non_exhaustive]
pub struct ImageDataGenerator {
    /// What happens before the augmentation.
    pub preprocess: Preprocess,
    /// Subtract the mean of each channel over the set.
    pub featurewise_center: bool,
    /// Subtract the image's own mean.
    pub samplewise_center: bool,
    /// Divide by the deviation of each channel over the set; implies `featurewise_center`.
    pub featurewise_std_normalization: bool,
    /// Divide by the image's own deviation; implies `samplewise_center`.
    pub samplewise_std_normalization: bool,
    /// Decorrelate all values of an image; implies `featurewise_center`, and takes the place of `featurewise_std_normalization`.
    pub zca_whitening: bool,
    /// What is added to the eigenvalues of the covariance.
    pub zca_epsilon: f64,
    /// What `featurewise_center` subtracts, in units after `rescale`.
    pub mean: Option<Mean>,
    /// What `featurewise_std_normalization` divides by, for each channel, in units after `rescale`.
    pub std: Option<Vec<f32>>,
    /// The matrix of `zca_whitening`.
    pub whitening: Option<Whitening>,
    /// Rotations, in degrees to either side.
    pub rotation_range: f64,
    /// Horizontal shifts.
    pub width_shift_range: ShiftRange,
    /// Vertical shifts.
    pub height_shift_range: ShiftRange,
    /// Shears, in degrees to either side.
    pub shear_range: f64,
    /// Zooms of rows and columns.
    pub zoom_range: ZoomRange,
    /// What is added to all values, to either side, in units of the image.
    pub channel_shift_range: f64,
    /// The smallest and the largest factor of brightness.
    pub brightness_range: Option<[f64; 2]>,
    /// Where points beyond the edge get their value.
    pub fill_mode: FillMode,
    /// The value beyond the edge for [`FillMode::Constant`], in units before `rescale`.
    pub cval: f32,
    /// 0 for the nearest pixel, 1 for a bilinear mixture.
    pub interpolation_order: u8,
    /// Mirror half of the images left to right.
    pub horizontal_flip: bool,
    /// Mirror half of the images top to bottom.
    pub vertical_flip: bool,
    /// Mirror every image left to right in exactly every second epoch; takes the place of `horizontal_flip`.
    pub alternating_flip: bool,
    /// Multiply every value; `None` and 0 are off.
    pub rescale: Option<f32>,
    /// Reverse the channels: blue, green, red.
    pub reverse_channels: bool,
    /// A caller's own step. It is not saved with the other options.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub preprocessing_function: Option<PreprocessingFunction>,
    /// The share of the set that is kept for validation: its first samples.
    pub validation_split: f64,
    /// Pad by this many pixels on each side and cut out an image of the old size anywhere; 0 is off.
    pub random_crop: usize,
    /// Cut out a part and bring it to the old size.
    pub random_resized_crop: Option<RandomResizedCrop>,
    /// The side of the square that is blanked; 0 is off.
    pub cutout: usize,
    /// Random steps in an order of the caller's choice, before all others. They are saved with the other options if each of
    /// them has a text.
    pub compose: Option<Compose>,
    /// Some operations of a list, each with the same strength.
    pub rand_augment: Option<RandAugment>,
    /// The alpha of mixup; 0 is off.
    pub mixup: f64,
    /// The alpha of cutmix; 0 is off.
    pub cutmix: f64,
}

impl Default for ImageDataGenerator {
    fn default() -> Self {
        ImageDataGenerator {
            preprocess: Preprocess::None,
            featurewise_center: false,
            samplewise_center: false,
            featurewise_std_normalization: false,
            samplewise_std_normalization: false,
            zca_whitening: false,
            zca_epsilon: 1e-6,
            mean: None,
            std: None,
            whitening: None,
            rotation_range: 0.0,
            width_shift_range: ShiftRange::default(),
            height_shift_range: ShiftRange::default(),
            shear_range: 0.0,
            zoom_range: ZoomRange::default(),
            channel_shift_range: 0.0,
            brightness_range: None,
            fill_mode: FillMode::Nearest,
            cval: 0.0,
            interpolation_order: 1,
            horizontal_flip: false,
            vertical_flip: false,
            alternating_flip: false,
            rescale: None,
            reverse_channels: false,
            preprocessing_function: None,
            validation_split: 0.0,
            random_crop: 0,
            random_resized_crop: None,
            cutout: 0,
            compose: None,
            rand_augment: None,
            mixup: 0.0,
            cutmix: 0.0,
        }
    }
}

impl ImageDataGenerator {
    /// The steps of evaluation: those that are not random, with their fitted values.
    pub fn evaluation(&self) -> Self {
        Self::default().evaluated_as(self)
    }

    /// The random steps of this augmentation, with the steps of evaluation of another one.
    ///
    /// ```
    /// use towers_augment::ImageDataGenerator;
    ///
    /// let flips = ImageDataGenerator::new().horizontal_flip(true).rescale(0.5);
    /// let other = ImageDataGenerator::new().rotation_range(9.0).rescale(1.0 / 255.0);
    /// let both = flips.evaluated_as(&other);
    /// assert!(both.horizontal_flip && both.rotation_range == 0.0 && both.rescale == Some(1.0 / 255.0));
    /// ```
    #[must_use]
    pub fn evaluated_as(self, other: &Self) -> Self {
        let Self { preprocess, mean, std, whitening, preprocessing_function, .. } = other.clone();
        ImageDataGenerator {
            preprocess,
            featurewise_center: other.featurewise_center,
            samplewise_center: other.samplewise_center,
            featurewise_std_normalization: other.featurewise_std_normalization,
            samplewise_std_normalization: other.samplewise_std_normalization,
            zca_whitening: other.zca_whitening,
            zca_epsilon: other.zca_epsilon,
            mean,
            std,
            whitening,
            rescale: other.rescale,
            reverse_channels: other.reverse_channels,
            preprocessing_function,
            ..self
        }
    }

    /// Whether the mean of the set is subtracted.
    pub fn centers(&self) -> bool {
        self.featurewise_center || self.featurewise_std_normalization || self.zca_whitening
    }

    /// Whether values are divided by the deviation of the set.
    pub fn divides(&self) -> bool {
        self.featurewise_std_normalization && !self.zca_whitening
    }

    /// Whether something has to be measured on the set: see [`fit`](Self::fit).
    pub fn needs_fit(&self) -> bool {
        self.centers() && self.mean.is_none()
            || self.divides() && self.std.is_none()
            || self.zca_whitening && self.whitening.is_none()
    }

    /// The factor of `rescale` where it does something.
    pub(crate) fn factor(&self) -> Option<f32> {
        self.rescale.filter(|&factor| factor != 0.0)
    }

    pub(crate) fn sampling(&self) -> Sampling {
        let Self { fill_mode, cval, interpolation_order, .. } = *self;
        Sampling { fill_mode, cval, interpolation_order }
    }

    /// Refuses values that make no sense for images of a shape (height, width, channels); [`build`](Self::build) does so too.
    ///
    /// # Errors [`Error::Option`] with the option, the value, and the accepted values.
    pub fn validate(&self, shape: [usize; 3]) -> Result<(), Error> {
        self.check(shape)?;
        self.compose.iter().try_for_each(|compose| compose.pipelines(shape).map(drop))
    }

    /// Refuses values of all options but `compose`.
    pub(crate) fn check(&self, [h, w, c]: [usize; 3]) -> Result<(), Error> {
        self.width_shift_range.check("width_shift_range")?;
        self.height_shift_range.check("height_shift_range")?;
        self.zoom_range.check()?;
        for (option, range) in [
            ("rotation_range", self.rotation_range),
            ("shear_range", self.shear_range),
            ("channel_shift_range", self.channel_shift_range),
            ("mixup", self.mixup),
            ("cutmix", self.cutmix),
            ("zca_epsilon", self.zca_epsilon),
        ] {
            if !(range.is_finite() && range >= 0.0) {
                return Err(Error::option(option, range, "a finite number from 0 up"));
            }
        }
        if let Some([low, high]) = self.brightness_range
            && !(low >= 0.0 && low <= high && high.is_finite())
        {
            let accepted = "two factors from 0 up, of which the first is not larger";
            return Err(Error::option("brightness_range", format!("[{low}, {high}]"), accepted));
        }
        if self.interpolation_order > 1 {
            let accepted = "0 (the nearest pixel) or 1 (bilinear)";
            return Err(Error::option("interpolation_order", self.interpolation_order, accepted));
        }
        if !self.cval.is_finite() {
            return Err(Error::option("cval", self.cval, "a finite number"));
        }
        if let Some(factor) = self.rescale.filter(|factor| !factor.is_finite()) {
            return Err(Error::option("rescale", factor, "a finite number"));
        }
        if !(0.0..1.0).contains(&self.validation_split) {
            return Err(Error::option("validation_split", self.validation_split, "at least 0 and below 1"));
        }
        if self.reverse_channels && c != 3 {
            let accepted =
                format!("left out for images of {c} channels: it makes blue, green, red of red, green, blue");
            return Err(Error::option("reverse_channels", true, accepted));
        }
        self.check_crops(h.min(w))?;
        if let Some(policy) = self.rand_augment {
            policy.check(Draws::OPERATIONS, c)?;
        }
        Ok(())
    }

    fn check_crops(&self, side: usize) -> Result<(), Error> {
        if self.random_crop >= side && self.random_crop > 0 {
            let accepted = format!("a padding below the smaller side of the image, {side}");
            return Err(Error::option("random_crop", self.random_crop, accepted));
        }
        if let Some(crop) = self.random_resized_crop {
            crop.check()?;
            if self.random_crop > 0 {
                let accepted = "0 with `random_resized_crop`, which crops by itself";
                return Err(Error::option("random_crop", self.random_crop, accepted));
            }
        }
        if self.cutout > side {
            let accepted = format!("no longer than the smaller side of the image, {side}");
            return Err(Error::option("cutout", self.cutout, accepted));
        }
        Ok(())
    }
}
