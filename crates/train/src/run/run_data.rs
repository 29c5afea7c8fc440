use crate::Result;
use crate::data::Labelling;
use towers_augment::{Draws, ImageDataGenerator, Samples, Scratch};
use towers_callbacks::Fingerprint;
use towers_trained::Input;

/// The data of a run, shared by its replicas.
pub(crate) struct RunData {
    pub(crate) train: Samples,
    pub(crate) val: Samples,
    pub(crate) input: Input,
    /// The augmentation with the steps of `input`, and with the measured values for the others.
    pub(crate) augmentation: ImageDataGenerator,
    pub(crate) classes: Vec<String>,
    /// The targets of training samples.
    pub(crate) labelling: Labelling,
    /// The targets of validation samples.
    pub(crate) val_labelling: Labelling,
    pub(crate) dataset: String,
    pub(crate) fingerprint: Fingerprint,
    /// SHA-256 of the labels and pixels to validate on.
    pub(crate) val_sha256: String,
}

impl RunData {
    /// Calls `see` with each of the first `count` training images, preprocessed as in evaluation.
    pub(crate) fn preprocessed(&self, count: usize, mut see: impl FnMut(&[f32]) -> Result<()>) -> Result<()> {
        let pipeline = self.augmentation.evaluation().build(self.train.shape())?;
        let (mut image, mut pixels) = (vec![0.0; pipeline.image_len()], Vec::new());
        let mut scratch = Scratch::default();
        for sample in 0..count.min(self.train.len()) {
            let sample = self.train.image(sample, &mut pixels)?;
            pipeline.apply(&Draws::default(), sample, &mut image, &mut scratch)?;
            see(&image)?;
        }
        Ok(())
    }
}
