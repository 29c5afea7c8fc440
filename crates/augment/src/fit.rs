//! Keras' `fit`: the measurements of the training images for standardization.

use crate::whitening::Whitening;
use crate::{Error, ImageDataGenerator, Mean, Pipeline, Scratch};
use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView4, Axis, Slice};

/// Images whose covariance is added up at a time.
const BLOCK: usize = 64;

impl ImageDataGenerator {
    /// Measures `images` (N, H, W, C) for `featurewise_center`, `featurewise_std_normalization` and
    /// `zca_whitening`, as Keras' `fit` does: after [`Preprocess`](crate::parts::Preprocess), `reverse_channels` and `rescale`, without
    /// augmentation and without the preprocessing function. Does nothing where none of them is on.
    ///
    /// ```
    /// use towers_augment::{ImageDataGenerator, Mean};
    /// use ndarray::Array4;
    ///
    /// let images = Array4::from_shape_fn((10, 4, 4, 1), |(n, ..)| if n % 2 == 0 { 50 } else { 150 });
    /// let options = ImageDataGenerator::new().featurewise_std_normalization(true).fit(images.view())?;
    /// assert_eq!(options.mean, Some(Mean::PerChannel(vec![100.0])));
    /// assert_eq!(options.std, Some(vec![50.0]));
    /// # Ok::<(), towers_augment::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::EmptySet`] without images; [`Error::Shape`] if a mean to subtract first doesn't fit them;
    /// [`Error::NoWhitening`] if the covariance can't be taken apart.
    pub fn fit(self, images: ArrayView4<'_, u8>) -> Result<Self, Error> {
        let (_, h, w, c) = images.dim();
        self.fit_shown([h, w, c], |see| show(images, see))
    }

    /// As [`fit`](Self::fit), for a set that need not fit in memory: `show(see)` calls `see` with the pixels of all images
    /// of this height, width and channels in their order, one image or several at a time. It is called up to three times.
    ///
    /// # Errors
    /// As [`fit`](Self::fit), and those of `show`.
    pub fn fit_shown(
        self,
        shape: [usize; 3],
        mut show: impl FnMut(&mut ShowImages<'_>) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        self.measure(shape, &mut show, 1, None)
    }

    /// As [`fit`](Self::fit) on augmented images: `rounds` epochs of them under `seed`. Keras' `fit(x, augment=True, rounds, seed)`.
    ///
    /// # Errors
    /// As [`fit`](Self::fit), and [`Error::Option`] for 0 rounds.
    pub fn fit_augmented(self, images: ArrayView4<'_, u8>, rounds: u64, seed: u64) -> Result<Self, Error> {
        if rounds == 0 {
            return Err(Error::option("rounds", 0, "at least 1"));
        }
        let (_, h, w, c) = images.dim();
        self.measure([h, w, c], &mut |see| show(images, see), rounds, Some(seed))
    }

    fn measure(
        mut self,
        [h, w, c]: [usize; 3],
        show: &mut Show<'_>,
        rounds: u64,
        seed: Option<u64>,
    ) -> Result<Self, Error> {
        if !self.centers() {
            return Ok(self);
        }
        if [h, w, c].contains(&0) {
            return Err(Error::EmptySet { op: "fit" });
        }
        // What comes before the statistics, as a pipeline.
        let before = ImageDataGenerator {
            featurewise_center: false,
            samplewise_center: false,
            featurewise_std_normalization: false,
            samplewise_std_normalization: false,
            zca_whitening: false,
            preprocessing_function: None,
            ..self.clone()
        };
        let mut set = Set { pipeline: before.build([h, w, c])?, show, rounds, seed };
        let (mut images, mut sums) = (0_usize, vec![0.0; c]);
        set.each(|image| {
            images += 1;
            add(&mut sums, image, |value, _| value);
        })?;
        if images == 0 {
            return Err(Error::EmptySet { op: "fit" });
        }
        let count = (images * h * w) as f64;
        let mean: Vec<f32> = sums.iter().map(|sum| (sum / count) as f32).collect();
        if self.divides() {
            let mut sums = vec![0.0; c];
            set.each(|image| add(&mut sums, image, |value, k| (value - f64::from(mean[k])).powi(2)))?;
            self.std = Some(sums.iter().map(|sum| (sum / count).sqrt() as f32).collect());
        }
        if self.zca_whitening {
            let covariance = set.covariance(&mean)?;
            self.whitening = Some(Whitening::of(covariance, self.zca_epsilon)?);
        }
        self.mean = Some(Mean::PerChannel(mean));
        Ok(self)
    }
}

/// A function that takes the pixels (HWC) of one or several images.
pub type ShowImages<'a> = dyn FnMut(&[u8]) -> Result<(), Error> + 'a;

/// A function that shows all images of a set.
type Show<'a> = dyn FnMut(&mut ShowImages<'_>) -> Result<(), Error> + 'a;

/// Shows the images of an array.
fn show(images: ArrayView4<'_, u8>, see: &mut ShowImages<'_>) -> Result<(), Error> {
    images.outer_iter().try_for_each(|image| see(image.as_standard_layout().as_slice().unwrap_or_default()))
}

/// Adds `f` of every value and its channel to that channel's sum.
fn add(sums: &mut [f64], image: &[f32], f: impl Fn(f64, usize) -> f64) {
    for pixel in image.chunks_exact(sums.len()) {
        for (channel, (sum, &value)) in sums.iter_mut().zip(pixel).enumerate() {
            *sum += f(value.into(), channel);
        }
    }
}

/// The images that are measured.
struct Set<'a, 'b> {
    pipeline: Pipeline,
    show: &'a mut Show<'b>,
    rounds: u64,
    /// Of the augmentation, if there is one.
    seed: Option<u64>,
}

impl Set<'_, '_> {
    /// Shows `see` every image, the same ones each time.
    fn each(&mut self, mut see: impl FnMut(&[f32])) -> Result<(), Error> {
        let len = self.pipeline.image_len();
        let (mut out, mut scratch) = (vec![0.0; len], Scratch::default());
        for epoch in 0..self.rounds {
            let mut sample = 0;
            (self.show)(&mut |images| {
                for image in images.chunks_exact(len) {
                    let draw = |seed| self.pipeline.draw(seed, epoch, sample);
                    let draws = self.seed.map(draw).unwrap_or_default();
                    self.pipeline.apply(&draws, image, &mut out, &mut scratch)?;
                    see(&out);
                    sample += 1;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The covariance of all values of an image, divided by the number of images.
    fn covariance(&mut self, mean: &[f32]) -> Result<Array2<f64>, Error> {
        let len = self.pipeline.image_len();
        let mut covariance = Array2::zeros((len, len));
        let mut block = Array2::zeros((BLOCK, len));
        let (mut filled, mut count) = (0, 0);
        let mut add_up = |block: &Array2<f64>, filled: usize| {
            let rows = block.slice_axis(Axis(0), Slice::from(..filled));
            general_mat_mul(1.0, &rows.t(), &rows, 1.0, &mut covariance);
        };
        self.each(|image| {
            let row = block.row_mut(filled);
            for (place, (to, value)) in row.into_iter().zip(image).enumerate() {
                *to = f64::from(value - mean[place % mean.len()]);
            }
            (filled, count) = (filled + 1, count + 1);
            if filled == BLOCK {
                add_up(&block, core::mem::take(&mut filled));
            }
        })?;
        add_up(&block, filled);
        Ok(covariance / f64::from(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standardize::EPSILON;

    #[test]
    fn the_divisor_is_never_zero() {
        let flat = ndarray::Array4::from_elem((3, 2, 2, 1), 9);
        let options = ImageDataGenerator::new().featurewise_std_normalization(true).fit(flat.view()).unwrap();
        assert_eq!(options.std, Some(vec![0.0]));
        let pipeline = options.build([2, 2, 1]).unwrap();
        let mut out = [f32::NAN; 4];
        pipeline.apply(&crate::Draws::default(), &[10; 4], &mut out, &mut Scratch::default()).unwrap();
        assert_eq!(out, [1.0 / EPSILON; 4]);
    }
}
