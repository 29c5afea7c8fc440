use crate::Fingerprint;
use augment::{ImageDataGenerator, Samples};
use trained::Input;

/// The data of a run, shared by its replicas.
pub(crate) struct RunData {
    pub(crate) train: Samples,
    pub(crate) val: Samples,
    pub(crate) input: Input,
    /// The augmentation with the steps of `input`, and with the measured values for the others.
    pub(crate) augmentation: ImageDataGenerator,
    pub(crate) classes: Vec<String>,
    pub(crate) dataset: String,
    pub(crate) fingerprint: Fingerprint,
    /// SHA-256 of the labels and pixels to validate on.
    pub(crate) val_sha256: String,
}
