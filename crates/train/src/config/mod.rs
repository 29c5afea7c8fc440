//! The configuration of a run, in three parts, and the table of its options.

mod augmentation;
mod device_weights;
mod differences;
mod file;
mod forms;
mod kernels;
mod layers_file;
mod lr_scaling;
mod placement;
mod precision;
mod recipe;
#[cfg(test)]
mod recipe_steps;
#[cfg(test)]
mod reference_page;
mod table;
mod training;

pub use device_weights::DeviceWeights;
pub use differences::{Difference, differences};
pub(crate) use differences::{agreed, hyperparameters};
pub use file::{find_recipe, read_recipe, recipe, recipes, write_recipe};
pub use forms::parse_gpus;
pub use placement::{DataFiles, DeviceKind, Devices, Placement, When};
pub use recipe::RECIPES;
use table::is_training;
pub use table::{table, tables};
pub use training::{Arithmetic, DataSet, Training};

use crate::{Error, ImageSize, Preprocessing, Result};
use callbacks::Outputs;
use optim::{ParamGroup, Per};
use options::hint;
use parallel::Shards;
use program::Precision;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::Path;
use trained::standardization;

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
        table::check_keys(&all).map_err(|error| error.to_string())?;
        let all = Value::Object(all);
        let message = |error: serde_json::Error| error.to_string();
        Ok(Config {
            recipe: all["recipe"].as_str().unwrap_or_default().to_owned(),
            changed: table::known(&all["changed"]),
            training: Training::deserialize(&all).map_err(message)?,
            placement: Placement::deserialize(&all).map_err(message)?,
            outputs: Outputs::deserialize(&all).map_err(message)?,
        })
    }
}

/// The value of an option or a table in a configuration as JSON; null if there is none.
fn value_of<'v>(all: &'v Value, key: &str) -> &'v Value {
    key.split('.').fold(all, |value, part| &value[part])
}

/// The error for a refused value.
fn refuse<T>(option: &'static str, value: impl ToString, accepted: impl Into<String>) -> Result<T> {
    Err(Error::option(option, value, accepted))
}

/// A number with few digits, however large it is.
fn few_digits(number: f64) -> String {
    if number.is_finite() && number.abs() >= 1e16 { format!("{number:e}") } else { number.to_string() }
}

impl Config {
    /// The configuration with a change.
    ///
    /// ```
    /// let short = train::recipe("quick")?.with(|config| config.training.epochs = 1);
    /// assert_eq!(short.training.epochs, 1);
    /// # Ok::<(), train::Error>(())
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
    /// [`Error::Key`] with the key, its value and the accepted values.
    pub fn set(&mut self, key: &str, value: &Value) -> Result<()> {
        *self = options::set(self, tables(), key, value)?;
        Ok(())
    }

    /// Sets one option by its key to a text of the command line. A repeated flag has several texts.
    ///
    /// # Errors
    /// As [`set`](Config::set).
    pub fn set_text(&mut self, key: &str, texts: &[&str]) -> Result<()> {
        *self = options::set_text(self, tables(), key, texts)?;
        Ok(())
    }

    /// The number of stages of each replica, at least 1.
    pub fn stages(&self) -> usize {
        self.placement.devices.stages()
    }

    /// Samples per batch over `replicas` replicas, or over the virtual ones.
    pub fn global_batch(&self, replicas: usize) -> usize {
        let Training { batch_size, global_batch_size, virtual_replicas, .. } = self.training;
        global_batch_size.unwrap_or(batch_size.saturating_mul(virtual_replicas.unwrap_or(replicas)))
    }

    /// The number of micro-batches of a replica.
    pub fn micro_batches(&self) -> usize {
        let stages = self.stages();
        self.training.micro_batches.unwrap_or(if stages > 1 { 2 * stages } else { 1 })
    }

    /// The number of shards per batch over `replicas` replicas; each shard has a separate pass.
    pub fn shards(&self, replicas: usize) -> usize {
        self.training.virtual_replicas.unwrap_or(replicas.saturating_mul(self.micro_batches()))
    }

    /// Checks that each of `replicas` replicas has work, and that they can share statistics if they should.
    ///
    /// # Errors
    /// [`Error::Option`] if a batch has fewer samples than replicas; if there are fewer virtual replicas, or
    /// more with [`sync_batch_norm`](Training::sync_batch_norm); if the weights are for another number of
    /// replicas; if there are more micro-batches than samples of a replica.
    pub fn check_replicas(&self, replicas: usize) -> Result<()> {
        self.check_weights(replicas)?;
        let Training { global_batch_size, virtual_replicas, sync_batch_norm, .. } = self.training;
        if let Some(batch) = global_batch_size.filter(|batch| *batch < replicas) {
            let accepted = format!("at least {replicas}: a sample for each of the {replicas} replicas");
            return refuse("`global_batch_size`", batch, accepted);
        }
        let each = (self.global_batch(replicas) / replicas.max(1)).max(1);
        if virtual_replicas.is_none() && self.micro_batches() > each {
            let accepted = format!("at most {each}, the number of samples in a replica's batch");
            return refuse("`micro_batches`", self.micro_batches(), accepted);
        }
        match virtual_replicas {
            Some(shards) if sync_batch_norm && shards != replicas => refuse(
                "`virtual_replicas`",
                shards,
                format!(
                    "left out with `sync_batch_norm`, or {replicas}, one a replica: shards that a replica passes one after \
                     the other can't share statistics"
                ),
            ),
            Some(shards) if shards < replicas => refuse(
                "`virtual_replicas`",
                shards,
                format!("at least {replicas}, or some of the {replicas} replicas would have nothing to do"),
            ),
            _ => Ok(()),
        }
    }

    /// Checks that there is one weight for each replica, and that each replica gets samples of a whole batch.
    fn check_weights(&self, replicas: usize) -> Result<()> {
        let DeviceWeights::Given(weights) = &self.placement.device_weights else { return Ok(()) };
        if weights.len() != replicas {
            let accepted = match replicas {
                1 => "auto, even, or one number for the one replica".to_owned(),
                _ => format!("auto, even, or one number for each of the {replicas} replicas"),
            };
            return refuse("`device_weights`", weights, accepted);
        }
        let batch = self.global_batch(replicas);
        let idle = weights.share_out(batch).iter().position(|share| *share == 0);
        match idle.filter(|_| self.training.virtual_replicas.is_none() && batch >= replicas) {
            Some(replica) => {
                let accepted = format!("less uneven: replica {replica} would get none of a batch of {batch}");
                refuse("`device_weights`", weights, accepted)
            }
            None => Ok(()),
        }
    }

    /// The part of every batch that replica `rank` of `world` computes.
    pub(crate) fn shards_of(&self, weights: &DeviceWeights, world: usize, rank: usize) -> Shards {
        let total = self.shards(world);
        match (weights, self.training.virtual_replicas) {
            (DeviceWeights::Given(weights), Some(_)) => Shards::shared_out(total, weights, rank),
            (DeviceWeights::Given(weights), None) => Shards::weighted(self.micro_batches(), weights, rank),
            _ => Shards::new(total, world, rank),
        }
    }

    /// Checks options against each other.
    ///
    /// # Errors
    /// [`Error::Option`] with the option, its value and the accepted values.
    pub fn check(&self) -> Result<()> {
        self.check_name()?;
        let image_size = self.training.data.image_size;
        image_size.check()?;
        match self.network(image_size.shape(), 10) {
            Err(Error::Network(layers::Error::Images { network, given, smallest })) => refuse(
                "`data.image_size`",
                given,
                format!("at least {smallest} (height x width) with the network {network}"),
            ),
            Err(error) => Err(error),
            Ok(_) => self.check_for(image_size.shape()),
        }
    }

    /// As [`check`](Self::check), for data with images of this height, width and channels, which override the
    /// options.
    pub(crate) fn check_for(&self, image: [usize; 3]) -> Result<()> {
        self.check_name()?;
        self.check_options(image)?;
        // Reported before a run's folder is created. The number of classes affects neither the possible cuts
        // of a network nor the names of its parameters.
        let Training { param_groups, freeze, .. } = &self.training;
        if self.stages() == 1 && param_groups.is_empty() && freeze.is_empty() {
            return Ok(());
        }
        let model = self.frozen(self.network(image, 10)?)?;
        if self.stages() > 1 {
            crate::run::pipeline::check_cuts(self.stages(), &self.placement.devices.split_at, &model)?;
        }
        self.check_groups(model.graph())
    }

    /// Checks that the network is a built-in one, or one with layers and any name.
    fn check_name(&self) -> Result<()> {
        let Training { model, layer, .. } = &self.training;
        match models::NAMES.contains(&model.as_str()) {
            true => Ok(()),
            false if layer.is_empty() => Err(unknown_network("`model`", model)),
            false if is_plain(model) => Ok(()),
            false => refuse(
                "`model`",
                format!("`{}`", callbacks::shortened(model)),
                "a name of at most 100 characters",
            ),
        }
    }

    /// The network, for images of `[height, width, channels]` and this number of classes.
    ///
    /// ```
    /// let network = train::recipe("quick")?.network([32, 32, 3], 10)?;
    /// assert_eq!(network.graph().name(), "small_cnn");
    /// # Ok::<(), train::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] if there is none with this name; [`Error::Network`] if its layers don't fit the images.
    pub fn network(&self, image: [usize; 3], classes: usize) -> Result<models::Model> {
        self.check_name()?;
        let Training { model, layer, .. } = &self.training;
        let built_in = models::by_name_for(model, image, classes).filter(|_| layer.is_empty());
        Ok(built_in.unwrap_or_else(|| layer.build(model, image, classes))?)
    }

    /// As [`check_for`](Self::check_for), except for the name of the network, which may be a custom one.
    pub(crate) fn check_options(&self, image: [usize; 3]) -> Result<()> {
        ImageSize::of(image).check()?;
        // Model files have no number of channels, and reports need colours.
        if image[2] != cifar::CHANNELS {
            let remedy = "3: red, green and blue; repeat the one of grey images";
            return refuse("the number of channels of the images", image[2], remedy);
        }
        self.check_values()?;
        let Training { augmentation, preprocessing, schedule, optimizer, ema, .. } = &self.training;
        augmentation.validate(image)?;
        standardization::check(augmentation, image)?;
        if let (Some(factor), Preprocessing::Standardize) = (augmentation.rescale, preprocessing) {
            let accepted = "left out with this recipe, which standardizes values whatever their scale";
            return refuse("`augmentation.rescale`", factor, accepted);
        }
        self.check_stages()?;
        self.check_sync()?;
        if let (Some(micro), Some(_)) = (self.training.micro_batches, self.training.virtual_replicas) {
            let accepted = "left out with `virtual_replicas`, whose shards are the micro-batches";
            return refuse("`micro_batches`", micro, accepted);
        }
        if self.training.new_head && self.training.weights.is_none() {
            return refuse(
                "`new_head`",
                "given",
                "left out without `weights`: a new network begins anew as a whole",
            );
        }
        schedule.validate()?;
        self.check_lr_scaling()?;
        optimizer.validate()?;
        self.training.param_groups.iter().try_for_each(ParamGroup::validate)?;
        ema.map_or(Ok(()), |ema| ema.validate())?;
        Ok(self.outputs.check()?)
    }

    /// Checks each value against the table of options.
    fn check_values(&self) -> Result<()> {
        let Config { training, placement, .. } = self;
        let [root, _, data, arithmetic, plateau] = &training::TABLES;
        options::check(training, root)?;
        options::check(&training.data, data)?;
        options::check(&training.arithmetic, arithmetic)?;
        training.reduce_lr_on_plateau.as_ref().map_or(Ok(()), |options| options::check(options, plateau))?;
        let [root, files, devices] = &placement::TABLES;
        options::check(placement, root)?;
        options::check(&placement.files, files)?;
        Ok(options::check(&placement.devices, devices)?)
    }

    fn check_stages(&self) -> Result<()> {
        let devices = &self.placement.devices;
        if devices.stages() == 1 && !devices.split_at.is_empty() {
            let accepted = "left out, or given with `devices.pipeline_stages`";
            return refuse("`devices.split_at`", devices.split_at.join(","), accepted);
        }
        if devices.stages() > 1 && self.training.arithmetic.precision == Precision::Fp16 {
            let accepted =
                "left out with `devices.precision` fp16, whose loss scale stages don't agree on; use bf16";
            return refuse("`devices.pipeline_stages`", devices.stages(), accepted);
        }
        Ok(())
    }

    /// Checks whether batch normalization can be synchronized, if it should be.
    fn check_sync(&self) -> Result<()> {
        if !self.training.sync_batch_norm || self.micro_batches() == 1 {
            return Ok(());
        }
        let option = if self.stages() > 1 { "devices.pipeline_stages" } else { "micro_batches" };
        let accepted = format!(
            "left out with `{option}`: micro-batches pass one after the other, so they can't share statistics"
        );
        refuse("`sync_batch_norm`", "given", accepted)
    }

    /// Warnings about options that are allowed, but hardly meant.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let Training { schedule, lr_scaling, epochs, .. } = &self.training;
        let of_schedule =
            schedule.warmup.filter(|warmup| warmup.per == Per::Epoch).map(|warmup| warmup.length);
        let of_scaling = lr_scaling.map(|scaling| scaling.warmup_epochs);
        let longest = of_schedule.max(of_scaling).filter(|length| length > epochs);
        let message = |length| {
            format!(
                "the warm-up takes {length} epochs of {epochs}: the learning rate never reaches its full value"
            )
        };
        longest.map(message).into_iter().collect()
    }
}

/// Whether a network may have this name, which is shown and written into files.
pub(super) fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.len() <= 100 && !name.contains(char::is_control)
}

/// The error for an `option` that is not one of [`models::NAMES`].
pub(crate) fn unknown_network(option: &'static str, name: &str) -> Error {
    let names = models::NAMES.join(", ");
    let or_file = if option == "`model`" {
        ", or a file with layers (.keras, .h5, .json, .onnx, .toml), or a run"
    } else {
        ""
    };
    let accepted = format!("one of {names}{or_file}{}", hint(name, models::NAMES));
    Error::option(option, format!("`{}`", callbacks::shortened(name)), accepted)
}

/// Writes `config.json` into a run directory, atomically.
///
/// # Errors
/// [`Error::File`] if it can't be written.
pub fn save_config(config: &Config, run: &Path) -> Result<()> {
    let path = run.join("config.json");
    // Writing to a pipe would wait for a reader.
    if std::fs::metadata(&path).is_ok_and(|about| !about.is_file()) {
        let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is not a regular file");
        return Err(Error::io("write", &path)(source));
    }
    Ok(checkpoint::write_json(&path, config)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What options say together, on so many replicas.
    #[test]
    fn contradictions_are_refused() {
        let checked = |options: &str, replicas| {
            let mut config = recipe("minigooglenet").unwrap();
            config.set_text("model_checkpoint.path", &["w.safetensors"]).unwrap();
            for (key, value) in options.split(' ').map(|option| option.split_once('=').unwrap()) {
                config.set_text(key, &[value]).unwrap();
            }
            config.check().and_then(|()| config.check_replicas(replicas))
        };
        for (options, replicas, says) in [
            ("virtual_replicas=4", 5, "`virtual_replicas` is 4, but must be at least 5, or some of"),
            ("virtual_replicas=4 sync_batch_norm=true", 2, "`virtual_replicas` is 4, but must be left out"),
            ("micro_batches=2 sync_batch_norm=true", 2, "`sync_batch_norm` is given, but must be left out"),
            ("devices.pipeline_stages=2 sync_batch_norm=true", 2, "left out with `devices.pipeline_stages`"),
            ("micro_batches=2 virtual_replicas=2", 1, "`micro_batches` is 2, but must be left out with `vir"),
            ("micro_batches=65", 1, "`micro_batches` is 65, but must be at most 64, the number of samples"),
            ("devices.split_at=dense", 1, "`devices.split_at` is dense, but must be left out"),
            ("devices.pipeline_stages=2 devices.precision=fp16", 1, "left out with `devices.precision` fp16"),
            ("global_batch_size=2", 3, "`global_batch_size` is 2, but must be at least 3: a sample for each"),
            ("preprocessing=standardize augmentation.rescale=50", 1, "`augmentation.rescale` is 50, but"),
            ("checkpoints.save_best=acc early_stop=loss:restore_best_weights", 1, "must be given without"),
            ("model_checkpoint.save_freq=5 model_checkpoint.save_best_only=true", 1, "must be epoch with"),
        ] {
            let error = checked(options, replicas).unwrap_err().to_string();
            assert!(error.contains(says), "{options}: {error}");
        }
        for (options, replicas) in [
            ("virtual_replicas=4 sync_batch_norm=true", 4),
            ("virtual_replicas=4", 3),
            ("micro_batches=64", 2),
        ] {
            checked(options, replicas).unwrap();
        }
    }

    #[test]
    fn weights_must_suit_the_replicas() {
        let mut config = recipe("quick").unwrap();
        config.training.batch_size = 4;
        let says = |config: &Config, weights: &str, replicas| {
            let config = config.with(|config| config.placement.device_weights = weights.parse().unwrap());
            config.check_weights(replicas).err().map_or(String::new(), |error| error.to_string())
        };
        assert!(says(&config, "2,1", 3).ends_with("auto, even, or one number for each of the 3 replicas"));
        assert!(says(&config, "2,1", 1).ends_with("auto, even, or one number for the one replica"));
        assert!(says(&config, "100,1", 2).contains("replica 1 would get none of a batch of 8"));
        assert_eq!(
            [says(&config, "2,1", 2), says(&config, "auto", 7), says(&config, "even", 7)],
            ["", "", ""]
        );
        // Each replica then has one shard.
        config.training.virtual_replicas = Some(2);
        assert_eq!(says(&config, "100,1", 2), "");
    }
}
