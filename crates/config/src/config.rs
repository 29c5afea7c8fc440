//! The configuration of a run, in three parts, and the table of its options.

use crate::{DeviceWeights, Placement, Training, tables};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt::Display;
use std::path::Path;
use towers_callbacks::Outputs;
use towers_options::Message;
use towers_parallel::Shards;

/// All options of a run: the content of `config.json`, enough to repeat the run.
///
/// The keys in files are those of [`tables`], whatever the part: `epochs`, `devices.replicas`,
/// `checkpoints.save_best`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "Map<String, Value>", try_from = "Map<String, Value>")]
pub struct Config {
    /// The recipe that it is based on.
    pub recipe: String,
    /// The keys that differ from the recipe, for users and for a resume.
    pub changed: Vec<String>,
    /// The options that decide the bits of the run.
    pub training: Training,
    /// The devices and the location of the data.
    pub placement: Placement,
    /// The outputs of the run.
    pub outputs: Outputs,
}

impl Default for Config {
    /// The recipe `minigooglenet` without augmentation.
    fn default() -> Self {
        Config {
            recipe: "minigooglenet".to_owned(),
            changed: Vec::new(),
            training: Training::default(),
            placement: Placement::default(),
            outputs: Outputs::default(),
        }
    }
}

impl From<Config> for Map<String, Value> {
    fn from(config: Config) -> Self {
        let mut all = Map::new();
        all.insert("recipe".to_owned(), config.recipe.into());
        all.insert("changed".to_owned(), config.changed.into());
        let parts = [
            serde_json::to_value(config.training),
            serde_json::to_value(config.placement),
            serde_json::to_value(config.outputs),
        ];
        parts.into_iter().flatten().for_each(|part| merge(&mut all, part));
        all
    }
}

/// Adds the keys of `part` to `all`, and merges tables.
fn merge(all: &mut Map<String, Value>, part: Value) {
    let Value::Object(part) = part else { return };
    for (key, value) in part {
        match (all.get_mut(&key), value) {
            (Some(Value::Object(table)), value @ Value::Object(_)) => merge(table, value),
            (_, value) => {
                all.insert(key, value);
            }
        }
    }
}

impl TryFrom<Map<String, Value>> for Config {
    type Error = String;

    fn try_from(all: Map<String, Value>) -> Result<Self, String> {
        crate::table::check_keys(&all).map_err(|error| error.to_string())?;
        let all = Value::Object(all);
        let message = |error: serde_json::Error| error.to_string();
        Ok(Config {
            recipe: all["recipe"].as_str().unwrap_or_default().to_owned(),
            changed: crate::table::known(&all["changed"]),
            training: Training::deserialize(&all).map_err(message)?,
            placement: Placement::deserialize(&all).map_err(message)?,
            outputs: Outputs::deserialize(&all).map_err(message)?,
        })
    }
}

/// The value of an option or a table in a configuration as JSON; null if there is none.
pub(crate) fn value_of<'v>(all: &'v Value, key: &str) -> &'v Value {
    key.split('.').fold(all, |value, part| &value[part])
}

/// The error for a refused value.
pub(crate) fn refuse<T>(key: &'static str, value: impl Display, accepted: impl Into<Message>) -> Result<T> {
    Err(Error::option(key, value, accepted))
}

impl Config {
    /// The configuration with a change.
    ///
    /// ```
    /// let short = towers_config::recipe("quick")?.with(|config| config.training.epochs = 1);
    /// assert_eq!(short.training.epochs, 1);
    /// # Ok::<(), towers_config::Error>(())
    /// ```
    #[must_use]
    pub fn with(&self, change: impl FnOnce(&mut Config)) -> Self {
        let mut changed = self.clone();
        change(&mut changed);
        changed
    }

    /// The value of an option or a table, by its key, such as `devices.replicas`; null if there is none.
    pub fn get(&self, key: &str) -> Value {
        value_of(&serde_json::to_value(self).unwrap_or_default(), key).clone()
    }

    /// Sets one option by its key, such as `devices.replicas`, to a value of a file.
    ///
    /// # Errors
    /// [`Error::Option`] with the key, its value and the accepted values.
    pub fn set(&mut self, key: &str, value: &Value) -> Result<()> {
        *self = towers_options::set(self, tables(), key, value)?;
        self.spell_model();
        Ok(())
    }

    /// Sets one option by its key to a text of the command line. A repeated flag has several texts.
    ///
    /// # Errors
    /// As [`set`](Config::set).
    pub fn set_text(&mut self, key: &str, texts: &[&str]) -> Result<()> {
        // A rule depends on the batch size and the schedule.
        if let ("lr_scaling", Some(rule)) = (key, texts.last()) {
            return self.set_lr_scaling(rule);
        }
        *self = towers_options::set_text(self, tables(), key, texts)?;
        self.spell_model();
        Ok(())
    }

    /// Gives a built-in network the name that files have, where it was given that of a recipe: `keras-cnn`.
    fn spell_model(&mut self) {
        let Training { model, layer, .. } = &mut self.training;
        if let Some(name) = towers_models::built_in(model).filter(|_| layer.is_empty()) {
            *model = name.to_owned();
        }
    }

    /// The number of stages of each replica, at least 1.
    pub fn stages(&self) -> usize {
        self.placement.devices.stages()
    }

    /// Samples per step of the optimizer, over `replicas` replicas, or over the virtual ones.
    pub fn global_batch(&self, replicas: usize) -> usize {
        let Training { batch_size, global_batch_size, virtual_replicas, gradient_accumulation, .. } =
            self.training;
        let each = batch_size.saturating_mul(gradient_accumulation);
        global_batch_size.unwrap_or(each.saturating_mul(virtual_replicas.unwrap_or(replicas)))
    }

    /// The number of micro-batches of a replica in a step of the optimizer.
    pub fn micro_batches(&self) -> usize {
        self.batch_parts().saturating_mul(self.training.gradient_accumulation)
    }

    /// The number of micro-batches that each accumulated batch of a replica is split into: the option, or its default.
    pub fn batch_parts(&self) -> usize {
        let stages = self.stages();
        self.training.micro_batches.unwrap_or(if stages > 1 { 2 * stages } else { 1 })
    }

    /// The number of shards per batch over `replicas` replicas; each shard has a separate pass.
    pub fn shards(&self, replicas: usize) -> usize {
        self.training.virtual_replicas.unwrap_or(replicas.saturating_mul(self.micro_batches()))
    }

    /// The part of every batch that replica `rank` of `world` computes.
    pub fn shards_of(&self, weights: &DeviceWeights, world: usize, rank: usize) -> Shards {
        let total = self.shards(world);
        match (weights, self.training.virtual_replicas) {
            (DeviceWeights::Given(weights), Some(_)) => Shards::shared_out(total, weights, rank),
            (DeviceWeights::Given(weights), None) => Shards::weighted(self.micro_batches(), weights, rank),
            _ => Shards::new(total, world, rank),
        }
    }

    /// The network, for images of `[height, width, channels]` and this number of classes.
    ///
    /// ```
    /// let network = towers_config::recipe("quick")?.network([32, 32, 3], 10)?;
    /// assert_eq!(network.graph().name(), "small_cnn");
    /// # Ok::<(), towers_config::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] if there is none with this name; [`Error::Network`] if its layers don't fit the images.
    pub fn network(&self, image: [usize; 3], classes: usize) -> Result<towers_models::Model> {
        self.check_name()?;
        let Training { model, layer, .. } = &self.training;
        let built_in = towers_models::by_name_for(model, image, classes).filter(|_| layer.is_empty());
        Ok(built_in.unwrap_or_else(|| layer.build(model, image, classes))?)
    }
}

/// Writes `config.json` into a run directory, atomically.
///
/// # Errors
/// [`Error::File`] if it can't be written.
pub fn save_config(config: &Config, run: &Path) -> Result<()> {
    let path = run.join("config.json");
    let text =
        serde_json::to_string_pretty(config).map_err(|error| Error::io("write", &path)(error.into()))?;
    Ok(towers_files::write(&path, (text + "\n").as_bytes())?)
}
