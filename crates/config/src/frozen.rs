//! Frozen parameters: `freeze`.

use crate::{Config, Error, Result};
use towers_models::Model;
use towers_optim::ParamGroup;

/// The most names that an error lists.
const SHOWN: usize = 12;

impl Config {
    /// The network with the parameters frozen that [`freeze`](crate::Training::freeze) names: by `LAYER/PARAMETER`, or by
    /// their layer. With [`freeze_epochs`](crate::Training::freeze_epochs) none is, and their rate is 0 at first.
    ///
    /// ```
    /// let config = towers_config::read_recipe("like = 'quick'\nfreeze = ['conv*', '*/beta']", "mine")?;
    /// let model = config.frozen(towers_models::small_cnn(10)?)?;
    /// assert_eq!(model.graph().trained()[..2], ["batch_normalization/gamma", "batch_normalization_1/gamma"]);
    /// # Ok::<(), towers_config::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] for a pattern without parameters, and if none is left to train.
    pub fn frozen(&self, model: Model) -> Result<Model> {
        let names = model.graph().freezable();
        let refuse =
            |value: &str, accepted: String| Err(Error::option("freeze", format!("`{value}`"), accepted));
        let freeze = &self.training.freeze;
        if let Some(pattern) = freeze.iter().find(|pattern| !names.iter().any(|name| takes(pattern, name))) {
            let mut layers: Vec<String> = names.iter().map(|name| layer_of(name).to_owned()).collect();
            layers.dedup();
            let more = if layers.len() > SHOWN { ", ..." } else { "" };
            layers.truncate(SHOWN);
            return refuse(
                pattern,
                format!(
                    "the name of a layer or of its parameter, with * for anything: of {}{more}",
                    layers.join(", ")
                ),
            );
        }
        let frozen = model.clone().frozen(|name| freeze.iter().any(|pattern| takes(pattern, name)));
        match (frozen.graph().trained().is_empty() && !names.is_empty(), self.training.freeze_epochs) {
            (true, _) => refuse(&freeze.join(" "), "such that some layers are left to train".to_owned()),
            (false, Some(_)) => Ok(model),
            (false, None) => Ok(frozen),
        }
    }
}

fn layer_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(layer, _)| layer)
}

/// Whether a pattern takes a parameter, or its layer.
pub(crate) fn takes(pattern: &str, name: &str) -> bool {
    let pattern = ParamGroup::new(pattern);
    pattern.takes(name) || pattern.takes(layer_of(name))
}
