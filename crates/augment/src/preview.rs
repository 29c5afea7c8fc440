//! Augmented images laid out for people to look at.

use crate::erased::Show;
use crate::{Draws, Error, ImageDataGenerator, Pipeline, Samples, Scratch};
use ndarray::Array3;

/// White pixels between the cells of a preview.
const GAP: usize = 2;

impl Pipeline {
    /// A grid of augmented images as one RGB image (height, width, 3).
    ///
    /// Row i belongs to the sample `rows[i]` of the set. The first of the `columns` columns shows the sample
    /// unchanged. The next ones show it after the pipeline, in epoch 0 under `seed`, epoch 1, and so on.
    /// Rescaling and mean subtraction are left out, `cval` is on the scale of 0..=255, cutout leaves a
    /// black square, and random erasing a black rectangle or noise. With normalized deviations, ZCA or a preprocessing function, every image is shown as the
    /// network reads it, with its values stretched to 0..=255.
    ///
    /// ```
    /// use towers_augment::{ImageDataGenerator, Samples};
    /// use ndarray::Array4;
    ///
    /// let samples = Samples::new(Array4::from_elem((2, 8, 8, 3), 100), vec![0; 2])?;
    /// let pipeline = ImageDataGenerator::new().width_shift_range(0.2).build([8, 8, 3])?;
    /// let grid = pipeline.preview(&samples, &[0, 1], 5, 42)?;
    /// assert_eq!(grid.dim(), (2 * (8 + 2) + 2, 5 * (8 + 2) + 2, 3));
    /// # Ok::<(), towers_augment::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if the images are not those of the pipeline; [`Error::Option`] for a sample that the
    /// set lacks, 0 columns, or images that have neither 1 nor 3 channels.
    pub fn preview(
        &self,
        samples: &Samples,
        rows: &[u32],
        columns: usize,
        seed: u64,
    ) -> Result<Array3<u8>, Error> {
        let (n, [h, w, c]) = (samples.len(), samples.shape());
        if [h, w, c] != self.shape() {
            let (got, expected) = (vec![h, w, c], self.shape().to_vec());
            return Err(Error::Shape { what: "the images of the preview", got, expected });
        }
        if let Some(sample) = rows.iter().find(|sample| **sample as usize >= n) {
            return Err(Error::option("rows", sample, format!("below the number of images, {n}")));
        }
        if columns == 0 {
            return Err(Error::option("columns", 0, "at least 1"));
        }
        if c != 1 && c != 3 {
            return Err(Error::option("channels", c, "1 (grey) or 3 (RGB) for a preview"));
        }
        let mut grid = Array3::from_elem((rows.len() * (h + GAP) + GAP, columns * (w + GAP) + GAP, 3), 255);
        let mut cells = Cells { pipeline: self, samples, seed, scratch: Scratch::default() };
        for (row, &sample) in rows.iter().enumerate() {
            for column in 0..columns {
                let cell = match column.checked_sub(1) {
                    None => cells.original(sample)?,
                    Some(epoch) => cells.augmented(sample, epoch as u64)?,
                };
                let (top, left) = (GAP + row * (h + GAP), GAP + column * (w + GAP));
                for (y, x, channel) in ndarray::indices((h, w, 3)) {
                    grid[[top + y, left + x, channel]] = cell[(y * w + x) * c + channel.min(c - 1)];
                }
            }
        }
        Ok(grid)
    }
}

/// Makes single cells.
struct Cells<'a> {
    pipeline: &'a Pipeline,
    samples: &'a Samples,
    seed: u64,
    scratch: Scratch,
}

impl Cells<'_> {
    fn original(&self, sample: u32) -> Result<Vec<u8>, Error> {
        Ok(self.samples.image(sample as usize, &mut Vec::new())?.to_vec())
    }

    fn augmented(&mut self, sample: u32, epoch: u64) -> Result<Vec<u8>, Error> {
        let mut out = self.one(sample, epoch)?;
        if let Some(mix) = self.pipeline.mix(self.seed, epoch, sample, self.samples.len() as u32) {
            let partner = self.one(mix.partner, epoch)?;
            mix.apply(self.pipeline.shape(), &mut out, &partner);
        }
        if self.pipeline.options().changes_values() {
            return Ok(stretch(&out));
        }
        // `as` clamps to 0..=255.
        Ok(out.iter().map(|value| value.round() as u8).collect())
    }

    fn one(&mut self, sample: u32, epoch: u64) -> Result<Vec<f32>, Error> {
        let image = self.original(sample)?;
        let draws: Draws = self.pipeline.draw(self.seed, epoch, sample);
        let mut out = vec![0.0; image.len()];
        if self.pipeline.options().changes_values() {
            self.pipeline.apply(&draws, &image, &mut out, &mut self.scratch)?;
        } else {
            self.pipeline.check(&draws)?;
            self.pipeline.apply_raw(&draws, &image, &mut out, &mut self.scratch);
            draws.erase(self.pipeline.shape(), &mut out, Show::Picture);
        }
        Ok(out)
    }
}

impl ImageDataGenerator {
    /// Whether standardization does more than rescale and subtract the set's mean.
    fn changes_values(&self) -> bool {
        self.samplewise_center
            || self.samplewise_std_normalization
            || self.featurewise_std_normalization
            || self.zca_whitening
            || self.preprocessing_function.is_some()
    }
}

/// The values as bytes, stretched so that the smallest is 0 and the largest 255.
pub(crate) fn stretch(image: &[f32]) -> Vec<u8> {
    let low = image.iter().copied().fold(f32::INFINITY, f32::min);
    let high = image.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let range = if high > low { high - low } else { 1.0 };
    // `as` clamps to 0..=255.
    image.iter().map(|value| ((value - low) / range * 255.0) as u8).collect()
}
