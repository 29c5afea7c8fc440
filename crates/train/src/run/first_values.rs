//! The weights that a new run begins with, in place of random ones.

use crate::{Config, Result};
use towers_augment::ImageDataGenerator;
use towers_checkpoint::Tensors;
use towers_config::{first_weights, skipped_checkpoints};
use towers_layers::Network;
use towers_models::Model;
use towers_options::{Message, message};
use towers_trained::{Input, Preprocessing, head_of};

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
    pub(crate) warnings: Vec<Message>,
}

impl FirstValues {
    /// The values of the configured file for a network and the classes of its data; `None` if the run begins with random
    /// ones.
    pub(crate) fn read(config: &Config, model: &Model, classes: &[String]) -> Result<Option<Self>> {
        let Some((weights, sha256)) = first_weights(config)? else { return Ok(None) };
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
        let skipped = config.training.weights.as_deref().map_or_else(Vec::new, skipped_checkpoints);
        let mut warnings: Vec<Message> = skipped.into_iter().map(Message::from).collect();
        warnings.extend(other.map(|names| {
            let (theirs, own) = (names.join(", "), classes.join(", "));
            message!(
                "the weights of {path} are for the classes {theirs}, not {own}; ",
                ["new_head"],
                " begins the last layer anew"
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
