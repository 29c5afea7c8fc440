//! A whole batch in one call, for programs that have pictures at hand.

use crate::{Error, Layout, Pipeline, Pixel, Scratch};

impl Pipeline {
    /// Augments a batch: picture k of `pictures` (HWC, one after the other) is sample `indices[k]` of the
    /// training set. `out` gets as many values, in the order of `layout`.
    ///
    /// The numbers are those of a [`Loader`](crate::Loader), and of [`draw`](Self::draw) and
    /// [`apply`](Self::apply), for the same seed, epoch and indices. So batches may be of any size, and made
    /// on any number of threads. For evaluation build a pipeline of
    /// [`ImageDataGenerator::evaluation`](crate::ImageDataGenerator::evaluation): it draws nothing.
    ///
    /// ```
    /// use towers_augment::{ImageDataGenerator, Layout};
    ///
    /// let generator = ImageDataGenerator::new().horizontal_flip(true).rescale(1.0 / 255.0);
    /// let pipeline = generator.build([32, 32, 3])?;
    /// let (indices, pictures) = ([7, 3, 12, 4], vec![128_u8; 4 * 32 * 32 * 3]);
    /// let mut x = vec![0.0; pictures.len()]; // (4, 3, 32, 32)
    /// pipeline.apply_batch(1, 0, &indices, &pictures, Layout::Nchw, &mut x)?;
    /// assert_eq!(x[0], 128.0 / 255.0);
    /// # Ok::<(), towers_augment::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if `pictures` or `out` are not as long as `indices` says; [`Error::Option`] with
    /// `mixup` or `cutmix`, which need pictures of other batches: [`mix`](Self::mix) says which.
    pub fn apply_batch<P: Pixel>(
        &self,
        seed: u64,
        epoch: u64,
        indices: &[u32],
        pictures: &[P],
        layout: Layout,
        out: &mut [f32],
    ) -> Result<(), Error> {
        for (option, alpha) in [("mixup", self.options().mixup), ("cutmix", self.options().cutmix)] {
            if alpha > 0.0 {
                let accepted = "0 for `apply_batch`, which has no picture of another batch: use a loader";
                return Err(Error::option(option, alpha, accepted));
            }
        }
        let len = self.image_len();
        Error::check_len("the batch of pictures", pictures.len(), indices.len().saturating_mul(len))?;
        Error::check_len("the output", out.len(), pictures.len())?;
        let mut scratch = Scratch::for_shape(self.shape());
        let images = pictures.chunks_exact(len).zip(out.chunks_exact_mut(len));
        for (&sample, (picture, out)) in indices.iter().zip(images) {
            self.apply_pixels(&self.draw(seed, epoch, sample), picture, out, &mut scratch)?;
            scratch.arrange(layout, self.shape(), out);
        }
        Ok(())
    }
}
