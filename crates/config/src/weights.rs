//! The weights that a new run begins with: the option `weights`.

use crate::{Config, Error, Result, digest_file, open_weights};
use towers_augment::ImageDataGenerator;
use towers_trained::Weights;

/// The weights that a run begins with, and SHA-256 of their file.
///
/// # Errors
/// As [`open_weights`].
pub fn first_weights(config: &Config) -> Result<Option<(Weights, String)>> {
    let Some(path) = &config.training.weights else { return Ok(None) };
    let (weights, file) = open_weights(path, config)?;
    let sha256 = digest_file(&file)?;
    Ok(Some((weights, sha256)))
}

impl Config {
    /// Reads the weights that a new run begins with, if [`weights`](crate::Training::weights) names some. Then
    /// `weights_sha256` and the preprocessing become those of the file, so that the configuration tells the whole run.
    /// Returns a warning if the file is not the one with the configured digest. A training reads the file by
    /// itself.
    ///
    /// A new run on a file without a preprocessing gets the one that its network [is known
    /// for](Weights::assumed_preprocessing), unless somebody `named` the one of the configuration.
    ///
    /// # Errors
    /// If the file can't be read, or holds no weights; [`Error::Option`] if the file has another preprocessing than the named one.
    pub fn take_weights(&mut self, named: bool) -> Result<Option<String>> {
        let Some((weights, sha256)) = first_weights(self)? else { return Ok(None) };
        let before = self.clone();
        let own = self.training.preprocessing;
        let known =
            weights.assumed_preprocessing().filter(|_| !named && self.training.weights_sha256.is_none());
        if let Some((kind, _)) = known {
            self.training.preprocessing = kind;
        }
        if let Some(kind) = weights.preprocessing() {
            if named && own != kind {
                let accepted =
                    format!("left out: {} was trained with {}", weights.path.display(), kind.name());
                return Err(Error::option("preprocessing", own.name(), accepted));
            }
            let training = &mut self.training;
            training.preprocessing = kind;
            // Standardizations of the recipe make room for those of the weights.
            training.augmentation = training.augmentation.clone().evaluated_as(&ImageDataGenerator::new());
        }
        let expected = self.training.weights_sha256.replace(sha256);
        self.note_changes(&before);
        let other = expected.is_some() && expected != self.training.weights_sha256;
        Ok(other.then(|| {
            format!(
                "{} is not the file that the repeated run began with: its SHA-256 is another",
                weights.path.display()
            )
        }))
    }
}
