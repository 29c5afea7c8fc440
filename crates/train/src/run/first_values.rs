//! The weights that a new run begins with, in place of random ones.

use crate::data::digest_file;
use crate::{Config, Error, Result, open_weights, skipped_checkpoints};
use augment::ImageDataGenerator;
use checkpoint::Tensors;
use layers::Network;
use models::Model;
use trained::{Input, Preprocessing, Weights, head_of};

/// The first values of a network's parameters and running averages, by name. Those of a new last layer are not among
/// them.
pub(crate) struct FirstValues {
    tensors: Tensors,
    /// SHA-256 of the file.
    pub(crate) sha256: String,
    pub(crate) kind: Option<Preprocessing>,
    /// The preprocessing with its measurements, if the file has them for the images of the run.
    pub(crate) preprocessing: Option<(Input, ImageDataGenerator)>,
    /// A sentence about them for people.
    pub(crate) note: String,
    /// Warnings: they are for other classes, or those of an older checkpoint.
    pub(crate) warnings: Vec<String>,
}

impl FirstValues {
    /// The values of the configured file for a network and the classes of its data; `None` if the run begins with random
    /// ones.
    pub(crate) fn read(config: &Config, model: &Model, classes: &[String]) -> Result<Option<Self>> {
        let Some((weights, sha256)) = read(config)? else { return Ok(None) };
        let new_head = config.training.new_head;
        let tensors = weights.fit(model, new_head)?;
        let head = head_of(model).filter(|_| new_head);
        let anew = head.map_or(String::new(), |head| format!(", except for {head}, which begins anew"));
        let kind = weights.preprocessing();
        let preprocessing = weights.preprocessing_for(model.image());
        let pixels = match (kind, &preprocessing) {
            (Some(kind), Some(_)) => format!("; pixels are preprocessed as for them: {}", kind.name()),
            (Some(kind), None) => {
                format!("; pixels are preprocessed by {}, measured on the new images", kind.name())
            }
            (None, _) => {
                let own = config.training.preprocessing;
                let known = weights.assumed_preprocessing().filter(|(kind, _)| *kind == own);
                let why = known.map_or_else(String::new, |(_, why)| format!(", {why}"));
                format!("; the file does not tell how pixels were preprocessed; here by {}{why}", own.name())
            }
        };
        let path = weights.path.display();
        let told: String = weights.notes.iter().map(|told| format!("; {told}")).collect();
        let note = format!("beginning with the weights of {path}{anew}{pixels}{told}");
        let other = weights.names.as_ref().filter(|names| !new_head && names.as_slice() != classes);
        let mut warnings = config.training.weights.as_deref().map_or_else(Vec::new, skipped_checkpoints);
        warnings.extend(other.map(|names| {
            format!(
                "the weights of {path} are for the classes {}, not {}; `new_head` begins the last layer anew",
                names.join(", "),
                classes.join(", ")
            )
        }));
        let preprocessing = preprocessing.map(|(input, options)| (input.clone(), options.clone()));
        Ok(Some(FirstValues { tensors, sha256, kind, preprocessing, note, warnings }))
    }

    /// Copies the values that a network, or a stage of one, has to its device.
    pub(crate) fn load(&self, network: &mut Network) -> Result<()> {
        let device = network.device().clone();
        for slot in network.arena().slots().to_vec() {
            if let Some(values) = self.tensors.get(&slot.name) {
                network.arena_mut().load(&device, &slot, values.data())?;
            }
        }
        Ok(())
    }
}

/// The configured weights, and SHA-256 of their file.
fn read(config: &Config) -> Result<Option<(Weights, String)>> {
    let Some(path) = &config.training.weights else { return Ok(None) };
    let (weights, file) = open_weights(path, config)?;
    let sha256 = digest_file(&file)?;
    Ok(Some((weights, sha256)))
}

impl Config {
    /// Reads the weights that a new run begins with, if [`weights`](crate::Training::weights) names some. Then
    /// `weights_sha256` and the preprocessing become those of the file, so that the configuration tells the whole run.
    /// Returns a warning if the file is not the one with the configured digest. [`train`](crate::train()) reads the file by
    /// itself.
    ///
    /// A new run on a file without a preprocessing gets that which its network [is known
    /// for](Weights::assumed_preprocessing), unless somebody `named` the one of the configuration.
    ///
    /// # Errors
    /// If the file can't be read, or holds no weights; [`Error::Option`] if the file has another preprocessing than the named one.
    pub fn take_weights(&mut self, named: bool) -> Result<Option<String>> {
        let Some((weights, sha256)) = read(self)? else { return Ok(None) };
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
                return Err(Error::option("`preprocessing`", own.name(), accepted));
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
