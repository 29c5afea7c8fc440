//! From a u8 image to the floats a network sees.

use crate::generator::{ImageDataGenerator, Preprocess};
use crate::resample::Resampler;
use crate::{Draws, Error};

/// Checked options, ready for images of one shape. Made by [`ImageDataGenerator::build`].
///
/// ```
/// use augment::{Draws, ImageDataGenerator, Scratch};
///
/// let pipeline = ImageDataGenerator::new().horizontal_flip(true).rescale(0.5).build([1, 2, 1])?;
/// let (mut out, mut scratch) = ([0.0; 2], Scratch::default());
/// pipeline.apply(&Draws::default(), &[10, 20], &mut out, &mut scratch)?;
/// assert_eq!(out, [5.0, 10.0]);
///
/// let flipped = Draws { horizontal_flip: true, ..Draws::default() };
/// pipeline.apply(&flipped, &[10, 20], &mut out, &mut scratch)?;
/// assert_eq!(out, [10.0, 5.0]);
/// # Ok::<(), augment::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    options: ImageDataGenerator,
    shape: [usize; 3],
    /// One value a pixel, as is `center`: a flat loop is faster than one that knows channels.
    pub(crate) subtract_first: Option<Vec<f32>>,
    pub(crate) center: Option<Vec<f32>>,
}

/// Reusable memory for [`Pipeline::apply`]: it grows with the first sample, the others allocate nothing.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    image: Vec<f32>,
    resampler: Resampler,
}

impl Scratch {
    /// Memory that need not grow for images of this shape.
    pub(crate) fn for_shape([h, w, c]: [usize; 3]) -> Self {
        Scratch { image: vec![0.0; h * w * c], resampler: Resampler::for_width(w, c) }
    }
}

impl Pipeline {
    pub(crate) fn new(options: ImageDataGenerator, shape: [usize; 3]) -> Result<Self, Error> {
        let [h, w, _] = shape;
        if shape.contains(&0) {
            return Err(Error::EmptyImage { shape });
        }
        options.check(h, w)?;
        let subtract_first = match &options.preprocess {
            Preprocess::None => None,
            Preprocess::SubtractMean(mean) => Some(mean.expand(shape, "the mean to subtract first")?),
        };
        let center = match &options.mean {
            _ if !options.featurewise_center => None,
            None => return Err(Error::NotFitted),
            Some(mean) => Some(mean.expand(shape, "the mean of `featurewise_center`")?),
        };
        Ok(Pipeline { options, shape, subtract_first, center })
    }

    /// The options it was built from.
    pub fn options(&self) -> &ImageDataGenerator {
        &self.options
    }

    /// Height, width and channels of the images.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// Values in an image: height times width times channels.
    pub fn image_len(&self) -> usize {
        self.shape.iter().product()
    }

    /// What is drawn for `sample` (its index in the whole training set) in `epoch`: a pure function of the
    /// options and the three numbers.
    pub fn draw(&self, seed: u64, epoch: u64, sample: u32) -> Draws {
        let [h, w, _] = self.shape;
        Draws::new(&self.options, [h, w], seed, epoch, sample)
    }

    /// Makes `out` (HWC) from `image` (HWC) and its draws. [`Draws::default`] is the way for evaluation: all
    /// steps but the random ones.
    ///
    /// # Errors
    /// [`Error::Shape`] if `image` or `out` has another length than the pipeline's images;
    /// [`Error::Option`] if a shift is not finite.
    pub fn apply(
        &self,
        draws: &Draws,
        image: &[u8],
        out: &mut [f32],
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        Error::check_len("the image", image.len(), self.image_len())?;
        Error::check_len("the output", out.len(), self.image_len())?;
        draws.check()?;
        self.place(draws, self.subtract_first.as_deref(), image, out, scratch);
        self.standardize(out);
        self.blank(draws, out);
        Ok(())
    }

    /// The geometric steps alone, on raw pixels in 0..=255: for people to look at.
    pub(crate) fn apply_raw(&self, draws: &Draws, image: &[u8], out: &mut [f32], scratch: &mut Scratch) {
        self.place(draws, None, image, out, scratch);
        self.blank(draws, out);
    }

    /// Every pixel, less `mean`, to its place.
    fn place(
        &self,
        draws: &Draws,
        mean: Option<&[f32]>,
        image: &[u8],
        out: &mut [f32],
        scratch: &mut Scratch,
    ) {
        if draws.keeps_places() {
            return load(image, mean, out);
        }
        scratch.image.resize(image.len(), 0.0);
        load(image, mean, &mut scratch.image);
        let ImageDataGenerator { fill_mode, cval, .. } = self.options;
        scratch.resampler.apply(draws, self.shape, fill_mode, cval, &scratch.image, out);
    }

    /// Keras' `standardize`: rescale, then subtract the mean.
    fn standardize(&self, out: &mut [f32]) {
        if let Some(factor) = self.options.factor() {
            out.iter_mut().for_each(|value| *value *= factor);
        }
        if let Some(mean) = &self.center {
            out.iter_mut().zip(mean).for_each(|(value, mean)| *value -= mean);
        }
    }

    fn blank(&self, draws: &Draws, out: &mut [f32]) {
        let Some(cutout) = draws.cutout else { return };
        let [h, w, c] = self.shape;
        let [rows, columns] = cutout.reach([h, w]);
        for y in rows {
            out[(y * w + columns.start) * c..(y * w + columns.end) * c].fill(0.0);
        }
    }
}

/// Turns bytes into floats, less `mean` where there is one.
fn load(image: &[u8], mean: Option<&[f32]>, out: &mut [f32]) {
    let pixels = out.iter_mut().zip(image);
    match mean {
        None => pixels.for_each(|(out, &byte)| *out = f32::from(byte)),
        Some(mean) => pixels.zip(mean).for_each(|((out, &byte), mean)| *out = f32::from(byte) - mean),
    }
}
