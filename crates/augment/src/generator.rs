//! The options, with the names and defaults of Keras' ImageDataGenerator.

use crate::{Error, FillMode, Mean, Pipeline, ShiftRange};
use ndarray::ArrayView4;

/// What happens to every image before it is augmented, in training and in evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Preprocess {
    /// Pixels go into the augmentation as they are, 0 to 255.
    #[default]
    None,
    /// A mean (in units of 0..=255) is subtracted first. What a shift then repeats at the edge is a pixel less
    /// *its own* mean, and `cval` 0 is the mean image: the data flow of scripts that run `x -= mean` on
    /// the whole set before they give it to a generator.
    SubtractMean(Mean),
}

/// The options of an augmentation: Keras' ImageDataGenerator.
///
/// Every option is off by default. A sample passes these steps, in this order:
///
/// 1. [`Preprocess`];
/// 2. shift (bilinear), with `fill_mode` and `cval` beyond the edge;
/// 3. horizontal flip, vertical flip;
/// 4. random crop (not in Keras);
/// 5. `rescale`, then the mean of `featurewise_center`;
/// 6. cutout (not in Keras).
///
/// ```
/// use augment::{FillMode, ImageDataGenerator};
///
/// let options = ImageDataGenerator::new()
///     .width_shift_range(0.1)
///     .height_shift_range(0.1)
///     .horizontal_flip(true)
///     .rescale(1.0 / 255.0);
/// assert_eq!(options.fill_mode, FillMode::Nearest);
/// let pipeline = options.build([32, 32, 3])?;
/// # Ok::<(), augment::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
#[non_exhaustive]
pub struct ImageDataGenerator {
    /// What happens before the augmentation.
    pub preprocess: Preprocess,
    /// Subtract the mean of each channel, as the last step of standardization.
    pub featurewise_center: bool,
    /// What `featurewise_center` subtracts, in units after `rescale`.
    pub mean: Option<Mean>,
    /// Horizontal shifts.
    pub width_shift_range: ShiftRange,
    /// Vertical shifts.
    pub height_shift_range: ShiftRange,
    /// Where points beyond the edge get their value.
    pub fill_mode: FillMode,
    /// The value beyond the edge for [`FillMode::Constant`], in units before `rescale`.
    pub cval: f32,
    /// Mirror half of the images left to right.
    pub horizontal_flip: bool,
    /// Mirror half of the images top to bottom.
    pub vertical_flip: bool,
    /// Pad by this many pixels on each side and cut out an image of the old size anywhere; 0 is off.
    pub random_crop: usize,
    /// The side of the square that is blanked; 0 is off.
    pub cutout: usize,
    /// Multiply every value; `None` and 0 are off.
    pub rescale: Option<f32>,
}

impl ImageDataGenerator {
    /// All options at Keras' defaults: images pass through unchanged.
    pub fn new() -> Self {
        Self::default()
    }

    /// What happens before the augmentation (default: nothing).
    pub fn preprocess(self, preprocess: Preprocess) -> Self {
        Self { preprocess, ..self }
    }

    /// Subtracts `mean` (in units of 0..=255) before the augmentation: [`Preprocess::SubtractMean`].
    pub fn subtract_mean_first(self, mean: Mean) -> Self {
        self.preprocess(Preprocess::SubtractMean(mean))
    }

    /// Subtracts the data set's mean of each channel after the augmentation (default: off). Needs
    /// [`fit`](Self::fit) or [`mean`](Self::mean).
    pub fn featurewise_center(self, featurewise_center: bool) -> Self {
        Self { featurewise_center, ..self }
    }

    /// Switches `featurewise_center` on with a given mean, per channel or per pixel, in units after `rescale`.
    pub fn mean(self, mean: Mean) -> Self {
        Self { featurewise_center: true, mean: Some(mean), ..self }
    }

    /// Measures the mean that `featurewise_center` subtracts on `images` (N, H, W, C), as Keras' `fit` does:
    /// per channel, after `rescale`. Does nothing if `featurewise_center` is off.
    ///
    /// # Errors
    /// [`Error::EmptySet`] without images; [`Error::Shape`] if a mean to subtract first doesn't fit them.
    pub fn fit(mut self, images: ArrayView4<'_, u8>) -> Result<Self, Error> {
        if !self.featurewise_center {
            return Ok(self);
        }
        let (_, h, w, c) = images.dim();
        let mut mean = Mean::per_channel(images)?.expand([1, 1, c], "the mean")?;
        if let Preprocess::SubtractMean(first) = &self.preprocess {
            let first = first.expand([h, w, c], "the mean to subtract first")?;
            for (channel, value) in mean.iter_mut().enumerate() {
                let sum: f64 = first.iter().skip(channel).step_by(c).copied().map(f64::from).sum();
                *value -= (sum / (h * w) as f64) as f32;
            }
        }
        if let Some(factor) = self.factor() {
            mean.iter_mut().for_each(|value| *value *= factor);
        }
        self.mean = Some(Mean::PerChannel(mean));
        Ok(self)
    }

    /// Shifts to the left and right (default 0.0). See [`ShiftRange`] for floats, ints and arrays.
    pub fn width_shift_range(self, range: impl Into<ShiftRange>) -> Self {
        Self { width_shift_range: range.into(), ..self }
    }

    /// Shifts up and down (default 0.0). See [`ShiftRange`] for floats, ints and arrays.
    pub fn height_shift_range(self, range: impl Into<ShiftRange>) -> Self {
        Self { height_shift_range: range.into(), ..self }
    }

    /// Where points beyond the edge get their value (default: nearest).
    pub fn fill_mode(self, fill_mode: FillMode) -> Self {
        Self { fill_mode, ..self }
    }

    /// The value beyond the edge for [`FillMode::Constant`] (default 0), in units before `rescale`.
    pub fn cval(self, cval: f32) -> Self {
        Self { cval, ..self }
    }

    /// Mirrors half of the images left to right (default: off).
    pub fn horizontal_flip(self, horizontal_flip: bool) -> Self {
        Self { horizontal_flip, ..self }
    }

    /// Mirrors half of the images top to bottom (default: off).
    pub fn vertical_flip(self, vertical_flip: bool) -> Self {
        Self { vertical_flip, ..self }
    }

    /// Pads by `padding` pixels on each side, with `fill_mode` and `cval`, and cuts out an image of the old
    /// size at a random place (default 0: off). The usual zero padding is [`FillMode::Constant`].
    pub fn random_crop(self, padding: usize) -> Self {
        Self { random_crop: padding, ..self }
    }

    /// Sets a square of `side` pixels to 0 in what the network sees, centred on a random pixel and clipped at
    /// the edges (default 0: off). T. DeVries and G. W. Taylor, "Improved Regularization of Convolutional
    /// Neural Networks with Cutout" (2017): after the standardization, so that 0 is the mean where one is
    /// subtracted.
    pub fn cutout(self, side: usize) -> Self {
        Self { cutout: side, ..self }
    }

    /// Multiplies every value (default: off), e.g. by 1/255.
    pub fn rescale(self, factor: f32) -> Self {
        Self { rescale: Some(factor), ..self }
    }

    /// Checks the options and makes them ready for images of `shape` (height, width, channels).
    ///
    /// # Errors
    /// [`Error::Option`] for a value that makes no sense, [`Error::Shape`] for a mean of another shape,
    /// [`Error::NotFitted`] for a missing mean, [`Error::EmptyImage`] for a shape without pixels.
    pub fn build(&self, shape: [usize; 3]) -> Result<Pipeline, Error> {
        Pipeline::new(self.clone(), shape)
    }

    /// The factor of `rescale` where it does something.
    pub(crate) fn factor(&self) -> Option<f32> {
        self.rescale.filter(|&factor| factor != 0.0)
    }

    /// Refuses values that make no sense for images of `h` by `w` pixels.
    pub(crate) fn check(&self, h: usize, w: usize) -> Result<(), Error> {
        let side = h.min(w);
        self.width_shift_range.check("width_shift_range")?;
        self.height_shift_range.check("height_shift_range")?;
        if !self.cval.is_finite() {
            return Err(Error::option("cval", self.cval, "a finite number"));
        }
        if let Some(factor) = self.rescale.filter(|factor| !factor.is_finite()) {
            return Err(Error::option("rescale", factor, "a finite number"));
        }
        if self.random_crop >= side && self.random_crop > 0 {
            let accepted = format!("a padding below the smaller side of the image, {side}");
            return Err(Error::option("random_crop", self.random_crop, accepted));
        }
        if self.cutout > side {
            let accepted = format!("no longer than the smaller side of the image, {side}");
            return Err(Error::option("cutout", self.cutout, accepted));
        }
        Ok(())
    }
}
