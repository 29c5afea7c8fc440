//! The options' setters, which chain.

use crate::preprocess::{Preprocess, PreprocessingFunction};
use crate::{
    Compose, FillMode, ImageDataGenerator, Mean, RandAugment, RandomResizedCrop, ShiftRange, ZoomRange,
};
use ndarray::ArrayViewMut3;

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

    /// Subtracts each image's own mean, over all pixels and channels (default: off).
    pub fn samplewise_center(self, samplewise_center: bool) -> Self {
        Self { samplewise_center, ..self }
    }

    /// Divides by the data set's deviation of each channel plus 1e-6, after its mean was subtracted (default: off). Needs
    /// [`fit`](Self::fit), or [`mean`](Self::mean) and [`std`](Self::std).
    pub fn featurewise_std_normalization(self, featurewise_std_normalization: bool) -> Self {
        Self { featurewise_std_normalization, ..self }
    }

    /// Divides each image by its own deviation plus 1e-6, after its mean was subtracted (default: off).
    pub fn samplewise_std_normalization(self, samplewise_std_normalization: bool) -> Self {
        Self { samplewise_std_normalization, ..self }
    }

    /// Decorrelates all values of an image, after the set's mean was subtracted: [`Whitening`](crate::parts::Whitening) (default: off).
    /// Needs [`fit`](Self::fit), which takes minutes for images of 32 x 32 x 3.
    pub fn zca_whitening(self, zca_whitening: bool) -> Self {
        Self { zca_whitening, ..self }
    }

    /// What is added to the eigenvalues of the covariance (default 1e-6): the larger, the less directions that hardly vary are
    /// blown up.
    pub fn zca_epsilon(self, zca_epsilon: f64) -> Self {
        Self { zca_epsilon, ..self }
    }

    /// Switches `featurewise_center` on with a given mean, per channel or per pixel, in units after `rescale`.
    pub fn mean(self, mean: Mean) -> Self {
        Self { featurewise_center: true, mean: Some(mean), ..self }
    }

    /// Switches `featurewise_std_normalization` on with given deviations of the channels, in units after `rescale`.
    pub fn std(self, std: impl Into<Vec<f32>>) -> Self {
        Self { featurewise_std_normalization: true, std: Some(std.into()), ..self }
    }

    /// Rotations by up to so many degrees to either side (default 0.0).
    pub fn rotation_range(self, rotation_range: f64) -> Self {
        Self { rotation_range, ..self }
    }

    /// Shifts to the left and right (default 0.0). See [`ShiftRange`] for floats, ints and arrays.
    pub fn width_shift_range(self, range: impl Into<ShiftRange>) -> Self {
        Self { width_shift_range: range.into(), ..self }
    }

    /// Shifts up and down (default 0.0). See [`ShiftRange`] for floats, ints and arrays.
    pub fn height_shift_range(self, range: impl Into<ShiftRange>) -> Self {
        Self { height_shift_range: range.into(), ..self }
    }

    /// Shears by up to so many degrees to either side (default 0.0).
    pub fn shear_range(self, shear_range: f64) -> Self {
        Self { shear_range, ..self }
    }

    /// Zooms rows and columns by independent factors (default 0.0): a number or two bounds, see
    /// [`ZoomRange`].
    pub fn zoom_range(self, range: impl Into<ZoomRange>) -> Self {
        Self { zoom_range: range.into(), ..self }
    }

    /// Adds a number of up to so much to either side to all values of an image, and clips at the image's own range (default 0.0).
    /// In units before `rescale`.
    pub fn channel_shift_range(self, channel_shift_range: f64) -> Self {
        Self { channel_shift_range, ..self }
    }

    /// Multiplies an image by a factor between these bounds (default: off). As in Keras it is first stretched to whole numbers of
    /// 0..=255, whatever its range was, and stays on that scale.
    pub fn brightness_range(self, bounds: [f64; 2]) -> Self {
        Self { brightness_range: Some(bounds), ..self }
    }

    /// Where points beyond the edge get their value (default: nearest).
    pub fn fill_mode(self, fill_mode: FillMode) -> Self {
        Self { fill_mode, ..self }
    }

    /// The value beyond the edge for [`FillMode::Constant`] (default 0), in units before `rescale`.
    pub fn cval(self, cval: f32) -> Self {
        Self { cval, ..self }
    }

    /// How values between pixels are found (default 1): 0 for the nearest pixel, 1 for a bilinear mixture of four.
    pub fn interpolation_order(self, interpolation_order: u8) -> Self {
        Self { interpolation_order, ..self }
    }

    /// Mirrors half of the images left to right (default: off).
    pub fn horizontal_flip(self, horizontal_flip: bool) -> Self {
        Self { horizontal_flip, ..self }
    }

    /// Mirrors half of the images top to bottom (default: off).
    pub fn vertical_flip(self, vertical_flip: bool) -> Self {
        Self { vertical_flip, ..self }
    }

    /// Mirrors every image left to right in exactly every second epoch (default: off), half of them beginning with the first one:
    /// K. Jordan, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU" (2024). It takes the place of `horizontal_flip`.
    pub fn alternating_flip(self, alternating_flip: bool) -> Self {
        Self { alternating_flip, ..self }
    }

    /// Multiplies every value (default: off), e.g. by 1/255.
    pub fn rescale(self, factor: f32) -> Self {
        Self { rescale: Some(factor), ..self }
    }

    /// Makes blue, green, red of red, green, blue (default: off), after the augmentation and before `rescale`, in training and in
    /// evaluation. Networks that were trained with Caffe take pictures so.
    ///
    /// ```
    /// use towers_augment::{Draws, ImageDataGenerator, Scratch};
    ///
    /// let pipeline = ImageDataGenerator::new().reverse_channels(true).build([1, 1, 3])?;
    /// let mut image = [0.0; 3];
    /// pipeline.apply(&Draws::default(), &[10, 20, 30], &mut image, &mut Scratch::default())?;
    /// assert_eq!(image, [30.0, 20.0, 10.0]);
    /// # Ok::<(), towers_augment::Error>(())
    /// ```
    pub fn reverse_channels(self, reverse_channels: bool) -> Self {
        Self { reverse_channels, ..self }
    }

    /// Calls `function` on every image (height, width, channels) after its augmentation and before `rescale` (default: none), in
    /// training and in evaluation. See [`PreprocessingFunction`].
    pub fn preprocessing_function(
        self,
        function: impl Fn(ArrayViewMut3<'_, f32>) + Send + Sync + 'static,
    ) -> Self {
        Self { preprocessing_function: Some(PreprocessingFunction::new(function)), ..self }
    }

    /// Keeps this share of a set, its first samples, for validation (default 0.0): see [`Subset`](crate::parts::Subset).
    pub fn validation_split(self, validation_split: f64) -> Self {
        Self { validation_split, ..self }
    }

    /// Pads by `padding` pixels on each side, with `fill_mode` and `cval`, and cuts out an image of the old
    /// size at a random place (default 0: off). The usual zero padding is [`FillMode::Constant`].
    pub fn random_crop(self, padding: usize) -> Self {
        Self { random_crop: padding, ..self }
    }

    /// Cuts out a part of random area and shape and brings it to the size of the image (default: off).
    pub fn random_resized_crop(self, crop: RandomResizedCrop) -> Self {
        Self { random_resized_crop: Some(crop), ..self }
    }

    /// Sets a square of `side` pixels of the network's input to 0, centred on a random pixel and clipped at
    /// the edges (default 0: off). T. DeVries and G. W. Taylor, "Improved Regularization of Convolutional
    /// Neural Networks with Cutout" (2017): after the standardization, so that 0 is the mean where one is
    /// subtracted.
    pub fn cutout(self, side: usize) -> Self {
        Self { cutout: side, ..self }
    }

    /// Applies these random steps first, in their order (default: none): see [`Compose`].
    pub fn compose(self, compose: Compose) -> Self {
        Self { compose: Some(compose), ..self }
    }

    /// Applies some operations of a list of 14 to the bytes of an image (default: off): see [`RandAugment`].
    pub fn rand_augment(self, policy: RandAugment) -> Self {
        Self { rand_augment: Some(policy), ..self }
    }

    /// Mixes every image with another one, and their labels alike, in shares from the distribution Beta(alpha, alpha) (default 0:
    /// off). H. Zhang et al., "mixup: Beyond Empirical Risk Minimization" (2018). See [`Mix`](crate::parts::Mix).
    pub fn mixup(self, alpha: f64) -> Self {
        Self { mixup: alpha, ..self }
    }

    /// Puts a rectangle of another image into every image, its share of the area from Beta(alpha, alpha), and mixes their labels
    /// alike (default 0: off). S. Yun et al., "CutMix" (2019). With `mixup` as well a coin decides for each sample.
    pub fn cutmix(self, alpha: f64) -> Self {
        Self { cutmix: alpha, ..self }
    }
}
