//! From a u8 image to the floats a network sees.

use crate::erased::Show;
use crate::preprocess::Preprocess;
use crate::rand_augment::Canvas;
use crate::resample::Resampler;
use crate::resized_crop::Stretched;
use crate::standardize::Standardizer;
use crate::warp::Warper;
use crate::{Draws, Error, ImageDataGenerator, Layout, Pixel, photometric};
use core::mem::{swap, take};

/// Checked options, ready for images of one shape. Made by [`ImageDataGenerator::build`].
///
/// ```
/// use towers_augment::{Draws, ImageDataGenerator, Scratch};
///
/// let pipeline = ImageDataGenerator::new().horizontal_flip(true).rescale(0.5).build([1, 2, 1])?;
/// let (mut out, mut scratch) = ([0.0; 2], Scratch::default());
/// pipeline.apply(&Draws::default(), &[10, 20], &mut out, &mut scratch)?;
/// assert_eq!(out, [5.0, 10.0]);
///
/// let flipped = Draws { horizontal_flip: true, ..Draws::default() };
/// pipeline.apply(&flipped, &[10, 20], &mut out, &mut scratch)?;
/// assert_eq!(out, [10.0, 5.0]);
/// # Ok::<(), towers_augment::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    options: ImageDataGenerator,
    shape: [usize; 3],
    /// One value a pixel: a flat loop is faster than one that knows channels.
    pub(crate) subtract_first: Option<Vec<f32>>,
    pub(crate) standardizer: Standardizer,
    /// The pipelines that apply the steps of a [`Compose`](crate::Compose).
    composed: Vec<Pipeline>,
}

/// Reusable memory for [`Pipeline::apply`]: it grows with the first sample, the others allocate nothing.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// An image that is read on demand.
    pub(crate) pixels: Vec<u8>,
    image: Vec<f32>,
    moved: Vec<f32>,
    stretched: Stretched,
    resampler: Resampler,
    warper: Warper,
    canvas: Canvas,
    /// An image between the steps of a `Compose`, before and after one.
    composed: [Vec<f32>; 2],
}

impl Scratch {
    /// Memory that need not grow for images of this shape.
    pub(crate) fn for_shape([h, w, c]: [usize; 3]) -> Self {
        let image = || vec![0.0; h * w * c];
        Scratch {
            pixels: Vec::new(),
            image: image(),
            moved: image(),
            stretched: Stretched::for_width(w, c),
            resampler: Resampler::for_width(w, c),
            warper: Warper::for_size(h, w),
            canvas: Canvas::for_len(h * w * c),
            composed: Default::default(),
        }
    }

    pub(crate) fn arrange(&mut self, layout: Layout, shape: [usize; 3], image: &mut [f32]) {
        layout.arrange(shape, image, &mut self.moved);
    }
}

impl ImageDataGenerator {
    /// Checks the options and makes them ready for images of `shape` (height, width, channels).
    ///
    /// # Errors
    /// [`Error::Option`] for a value that makes no sense, [`Error::Shape`] for a mean of another shape,
    /// [`Error::NotFitted`] for a missing mean, [`Error::EmptyImage`] for a shape without pixels.
    pub fn build(&self, shape: [usize; 3]) -> Result<Pipeline, Error> {
        Pipeline::new(self.clone(), shape)
    }
}

impl Pipeline {
    pub(crate) fn new(options: ImageDataGenerator, shape: [usize; 3]) -> Result<Self, Error> {
        if shape.contains(&0) {
            return Err(Error::EmptyImage { shape });
        }
        options.check(shape)?;
        let subtract_first = match &options.preprocess {
            Preprocess::None => None,
            Preprocess::SubtractMean(mean) => Some(mean.expand(shape, "the mean to subtract first")?),
        };
        let standardizer = Standardizer::new(&options, shape)?;
        let composed = options.compose.as_ref().map_or(Ok(vec![]), |compose| compose.pipelines(shape))?;
        Ok(Pipeline { options, shape, subtract_first, standardizer, composed })
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

    /// What is drawn for `sample` (its index in the whole training set) after `epoch` whole epochs: a pure
    /// function of the options and the three numbers.
    pub fn draw(&self, seed: u64, epoch: u64, sample: u32) -> Draws {
        Draws::new(&self.options, self.shape, seed, epoch, sample)
    }

    /// Makes `out` (HWC) from `image` (HWC) and its draws. [`Draws::default`] is the way for evaluation: all
    /// steps but the random ones.
    ///
    /// # Errors
    /// [`Error::Shape`] if `image` or `out` has another length than the pipeline's images;
    /// [`Error::Option`] if a draw is not finite, or a crop outside of the image.
    pub fn apply(
        &self,
        draws: &Draws,
        image: &[u8],
        out: &mut [f32],
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        self.apply_pixels(draws, image, out, scratch)
    }

    /// [`apply`](Self::apply) to bytes or floats.
    pub(crate) fn apply_pixels<P: Pixel>(
        &self,
        draws: &Draws,
        image: &[P],
        out: &mut [f32],
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        Error::check_len("the image", image.len(), self.image_len())?;
        Error::check_len("the output", out.len(), self.image_len())?;
        self.check(draws)?;
        self.augment(draws, self.subtract_first.as_deref(), image, out, scratch);
        self.standardizer.apply(out, &mut scratch.image);
        self.blank(draws, out);
        draws.erase(self.shape, out, Show::Input);
        Ok(())
    }

    /// Refuses draws that can't be applied. Only draws that a caller made can be such.
    pub(crate) fn check(&self, draws: &Draws) -> Result<(), Error> {
        draws.check([self.shape[0], self.shape[1]])?;
        if draws.composed.len() != self.composed.len() && !draws.composed.is_empty() {
            let accepted = format!("those of none or of all {} steps of `compose`", self.composed.len());
            return Err(Error::option("draws", draws, accepted));
        }
        self.composed.iter().zip(&draws.composed).try_for_each(|(step, draws)| step.check(draws))
    }

    /// The part that shows on a picture: without the standardization and the mean before it.
    pub(crate) fn apply_raw<P: Pixel>(
        &self,
        draws: &Draws,
        image: &[P],
        out: &mut [f32],
        scratch: &mut Scratch,
    ) {
        self.augment(draws, None, image, out, scratch);
        self.blank(draws, out);
    }

    /// The random steps but cutout.
    fn augment<P: Pixel>(
        &self,
        draws: &Draws,
        mean: Option<&[f32]>,
        image: &[P],
        out: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let mut steps = self.composed.iter().zip(&draws.composed).filter(|(_, draws)| draws.change());
        let Some((first, drawn)) = steps.next() else {
            return self.augment_composed(draws, mean, image, out, scratch);
        };
        // Lent apart, so that the rest of the scratch can be used meanwhile.
        let [mut before, mut after] = take(&mut scratch.composed);
        before.resize(image.len(), 0.0);
        after.resize(image.len(), 0.0);
        first.apply_raw(drawn, image, &mut after, scratch);
        for (step, drawn) in steps {
            swap(&mut before, &mut after);
            step.apply_raw(drawn, &before, &mut after, scratch);
        }
        self.augment_composed(draws, mean, &after, out, scratch);
        scratch.composed = [before, after];
    }

    /// The random steps behind those of a `Compose`, but cutout.
    fn augment_composed<P: Pixel>(
        &self,
        draws: &Draws,
        mean: Option<&[f32]>,
        image: &[P],
        out: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let mut canvas = take(&mut scratch.canvas);
        match canvas.paint(draws, self.shape, image) {
            Some(painted) => self.move_and_recolor(draws, mean, painted, out, scratch),
            None => self.move_and_recolor(draws, mean, image, out, scratch),
        }
        scratch.canvas = canvas;
    }

    /// The random steps on floats, but cutout.
    fn move_and_recolor<P: Pixel>(
        &self,
        draws: &Draws,
        mean: Option<&[f32]>,
        image: &[P],
        out: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let cropped = draws.crop != [0, 0];
        if draws.resized_crop.is_some() || cropped && (draws.warps() || draws.recolors()) {
            let mut moved = take(&mut scratch.moved);
            moved.resize(image.len(), 0.0);
            let uncropped = Draws { crop: [0, 0], ..draws.clone() };
            self.place(&uncropped, mean, image, &mut moved, scratch);
            self.recolor(draws, &mut moved);
            match draws.resized_crop {
                Some(part) => part.apply(self.shape, &moved, out, &mut scratch.stretched),
                None => {
                    let crop = Draws { crop: draws.crop, ..Draws::default() };
                    scratch.resampler.apply(&crop, self.shape, &self.options.sampling(), &moved, out);
                }
            }
            scratch.moved = moved;
        } else {
            self.place(draws, mean, image, out, scratch);
            self.recolor(draws, out);
        }
    }

    /// Every pixel, less `mean`, to its place.
    fn place<P: Pixel>(
        &self,
        draws: &Draws,
        mean: Option<&[f32]>,
        image: &[P],
        out: &mut [f32],
        scratch: &mut Scratch,
    ) {
        if draws.keeps_places() && draws.crop == [0, 0] {
            return load(image, mean, out);
        }
        let Scratch { image: floats, resampler, warper, .. } = scratch;
        match mean {
            None => self.resample(draws, resampler, warper, image, out),
            Some(mean) => {
                floats.resize(image.len(), 0.0);
                load(image, Some(mean), floats);
                self.resample(draws, resampler, warper, floats, out);
            }
        }
    }

    fn resample<P: Copy + Into<f32>>(
        &self,
        draws: &Draws,
        resampler: &mut Resampler,
        warper: &mut Warper,
        image: &[P],
        out: &mut [f32],
    ) {
        let ([h, w, _], sampling) = (self.shape, self.options.sampling());
        if !draws.warps() {
            return resampler.apply(draws, self.shape, &sampling, image, out);
        }
        let mut affine = draws.affine([h, w]);
        for (axis, len, flip) in [(0, h, draws.vertical_flip), (1, w, draws.horizontal_flip)] {
            affine = if flip { affine.mirrored(axis, len) } else { affine };
        }
        warper.apply(image, self.shape, &affine, &sampling, out);
    }

    fn recolor(&self, draws: &Draws, image: &mut [f32]) {
        // Flips, which Keras has in between, move values and change none.
        if draws.channel_shift != 0.0 {
            photometric::shift_channels(image, draws.channel_shift as f32);
        }
        if let Some(factor) = draws.brightness {
            photometric::brighten(image, self.shape[2], factor as f32);
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

/// Turns pixels into floats, less `mean` where there is one.
fn load<P: Pixel>(image: &[P], mean: Option<&[f32]>, out: &mut [f32]) {
    let pixels = out.iter_mut().zip(image);
    match mean {
        None => pixels.for_each(|(out, &pixel)| *out = pixel.into()),
        Some(mean) => pixels.zip(mean).for_each(|((out, &pixel), mean)| *out = pixel.into() - mean),
    }
}
