//! Keras' `flow`: batches without end.

use crate::{Batch, Error, ImageDataGenerator, Loader, LoaderOptions, Samples};

/// The batches of one epoch after the other, without end; made by [`ImageDataGenerator::flow`]. Ends after an error.
#[derive(Debug)]
pub struct Flow {
    loader: Loader,
    epoch: u64,
    ended: bool,
}

impl ImageDataGenerator {
    /// Batches of `samples` without end, epoch by epoch: Keras' `flow`. [`LoaderOptions`] has Keras' `batch_size`, `shuffle`, `seed`,
    /// `subset`, `save_to_dir` and `save_prefix`, with Keras' defaults.
    ///
    /// ```
    /// use towers_augment::{ImageDataGenerator, LoaderOptions, Samples, parts::Subset};
    /// use ndarray::Array4;
    ///
    /// let samples = Samples::new(Array4::zeros((100, 8, 8, 3)), vec![0; 100])?;
    /// let generator = ImageDataGenerator::new().rotation_range(15.0).validation_split(0.2);
    /// let options = LoaderOptions::new().batch_size(32).seed(1).subset(Subset::Training);
    /// for (step, batch) in generator.flow(samples, options)?.enumerate() {
    ///     let batch = batch?;
    ///     assert_eq!(batch.images().dim(), (if step % 3 == 2 { 16 } else { 32 }, 8, 8, 3));
    ///     if step == 10 {
    ///         break; // in the fourth epoch
    ///     }
    /// }
    /// # Ok::<(), towers_augment::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`build`](Self::build) and [`Loader::new`]; [`Error::Option`] if an epoch would have no batch.
    pub fn flow(&self, samples: Samples, options: LoaderOptions) -> Result<Flow, Error> {
        let mut loader = Loader::new(samples.clone(), self.build(samples.shape())?, options)?;
        if loader.begin(0, 0)? == 0 {
            let size = loader.options().batch_size;
            return Err(Error::option(
                "batch_size",
                size,
                "at most the samples, where short batches are left out",
            ));
        }
        Ok(Flow { loader, epoch: 0, ended: false })
    }
}

impl Flow {
    /// Batches in an epoch: Keras' `len(flow)`.
    pub fn steps_per_epoch(&self) -> usize {
        self.loader.steps_per_epoch()
    }
}

impl Iterator for Flow {
    type Item = Result<Batch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let batch = self.loader.take(self.epoch).or_else(|| {
            self.epoch += 1;
            let begun = self.loader.begin(self.epoch, 0);
            begun.map_or_else(|error| Some(Err(error)), |_| self.loader.take(self.epoch))
        });
        self.ended = !matches!(batch, Some(Ok(_)));
        batch
    }
}
