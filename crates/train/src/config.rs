use crate::callbacks::check_metric;
use crate::devices::MOST;
use crate::spelling::unknown_network;
use crate::standardization;
use crate::{
    CsvLogOptions, DeviceWeights, EarlyStop, Error, ImageSize, ModelCheckpointOptions, Preprocessing,
    ReduceLrOnPlateau, Result, TensorBoardOptions,
};
use augment::ImageDataGenerator;
use optim::{Ema, LinearScaling, Optimizer, ParamGroup, Per, Schedule};
use program::Precision;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Everything about a run: what `config.json` holds, enough to repeat it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The recipe it began as.
    pub recipe: String,
    /// The network, one of [`models::NAMES`].
    pub model: String,
    /// Passes over the training data.
    pub epochs: u64,
    /// Samples of a batch for each replica, as in the tutorials.
    pub batch_size: usize,
    /// Samples of a batch over all replicas; takes the place of `batch_size`.
    pub global_batch_size: Option<usize>,
    /// Cuts every batch into so many fixed shards, each with a pass of its own, so that the results don't depend on the number
    /// of replicas; `None` for one shard a replica.
    pub virtual_replicas: Option<usize>,
    /// Whether batch normalization takes the statistics of the whole batch of all replicas, so that they compute what one
    /// would, up to rounding. Otherwise each replica normalizes with its own samples.
    #[serde(default)]
    pub sync_batch_norm: bool,
    /// Cuts the batch of every replica into so many micro-batches, each with a pass of its own: what keeps the stages of a
    /// pipeline busy at the same time. `None` for two a stage, or one where there are no stages. With `virtual_replicas` their
    /// shards are the micro-batches.
    pub micro_batches: Option<usize>,
    /// How much of every batch each tower computes; with `virtual_replicas`, how many of the shards.
    #[serde(default)]
    pub device_weights: DeviceWeights,
    /// Whether the short batch at the end of an epoch is left out (`steps_per_epoch = n // batch`).
    pub drop_last: bool,
    /// The base learning rate.
    pub lr: f64,
    /// How the learning rate changes.
    pub schedule: Schedule,
    /// Scales the rate with the size of the batch; `None` to leave it alone, as the tutorials do.
    #[serde(default)]
    pub lr_scaling: Option<LinearScaling>,
    /// What turns gradients into steps.
    pub optimizer: Optimizer,
    /// Parameters that it treats in other ways, by their names; the first group that takes one counts.
    #[serde(default)]
    pub param_groups: Vec<ParamGroup>,
    /// A moving average of the weights, and of the normalizations' running statistics; `None` for none.
    #[serde(default)]
    pub ema: Option<Ema>,
    /// Between 0 and 1; 0 for one-hot targets.
    #[serde(serialize_with = "shortest")]
    pub label_smoothing: f32,
    /// What happens to pixels first, in training and in evaluation.
    pub preprocessing: Preprocessing,
    /// What happens to training images.
    pub augmentation: ImageDataGenerator,
    /// Everything random is a function of this.
    pub seed: u64,
    /// Where the data come from.
    pub data: DataOptions,
    /// Where the run happens.
    pub devices: DeviceOptions,
    /// What is kept of the run.
    pub checkpoints: CheckpointOptions,
    /// Files of the network besides the run's own. Those who write them and what follows, and the checkpoints, are
    /// [`observers::from_config`](crate::observers::from_config).
    pub model_checkpoint: Option<ModelCheckpointOptions>,
    /// When to stop before the last epoch; [`train`](crate::train()) sees to it.
    pub early_stop: Option<EarlyStop>,
    /// When to reduce the learning rate that the schedule says.
    pub reduce_lr_on_plateau: Option<ReduceLrOnPlateau>,
    /// Whether a loss that is not a number only stops the run, instead of being an error.
    #[serde(default)]
    pub terminate_on_nan: bool,
    /// A CSV file of the epochs' figures, as Keras writes it.
    pub csv_log: Option<CsvLogOptions>,
    /// Files for TensorBoard.
    pub tensorboard: Option<TensorBoardOptions>,
    /// One more file for the curves, a `.png` or a `.svg`, besides those in the run's folder.
    pub plot: Option<PathBuf>,
}

/// Where the data come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataOptions {
    /// `auto` (CIFAR-10), `cifar10`, `cifar100`, `synthetic`, or a folder of class folders with pictures.
    pub dataset: String,
    /// Where the files are or go.
    pub data_dir: Option<PathBuf>,
    /// Archives to fetch instead of the official ones.
    pub data_url: Vec<String>,
    /// Never fetch.
    pub offline: bool,
    /// Height and width that the pictures of class folders are scaled to; CIFAR's and synthetic images have 32x32.
    pub image_size: ImageSize,
    /// Only the first so many training samples; of class folders, as many of each class as can be.
    pub limit_train: Option<usize>,
    /// Only so many test samples, likewise.
    pub limit_test: Option<usize>,
}

impl Default for DataOptions {
    fn default() -> Self {
        DataOptions {
            dataset: "auto".to_owned(),
            data_dir: None,
            data_url: Vec::new(),
            offline: false,
            image_size: ImageSize::default(),
            limit_train: None,
            limit_test: None,
        }
    }
}

/// The kind of device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// CUDA where a GPU works, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
}

/// Where a run happens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceOptions {
    /// The kind of device.
    pub device: DeviceKind,
    /// The GPUs' numbers, one for each tower; `None` for the first one.
    pub gpus: Option<Vec<usize>>,
    /// Towers; 0 for one a device, or a pipeline's devices. More than there are devices share them.
    pub replicas: usize,
    /// How many stages each tower's network is cut into, each with a device of its own; 0 or 1 for none.
    pub pipeline_stages: usize,
    /// The last layer of each stage but the last; empty to have all do about as much.
    pub split_at: Vec<String>,
    /// Host threads in all; 0 for one a core.
    pub threads: usize,
    /// The arithmetic.
    #[serde(with = "precision")]
    pub precision: Precision,
    /// Only algorithms that give the same bits every time.
    pub deterministic: bool,
    /// On the CPU, convolutions as direct sums alone, without Winograd's transforms: other bits, a digit more exact.
    pub no_winograd: bool,
}

impl DeviceOptions {
    /// Stages of each tower: at least 1.
    pub fn stages(&self) -> usize {
        self.pipeline_stages.max(1)
    }

    fn check(&self) -> Result<()> {
        let stages = self.stages();
        let refuse = |option, value, accepted: String| Err(Error::Option { option, value, accepted });
        if stages > MOST {
            return refuse("--pipeline-stages", stages.to_string(), format!("at most {MOST}"));
        }
        if stages == 1 && !self.split_at.is_empty() {
            let accepted = "left out, or given with --pipeline-stages".to_owned();
            return refuse("--split-at", self.split_at.join(","), accepted);
        }
        if stages > 1 && self.precision == Precision::Fp16 {
            let accepted =
                "left out with --precision fp16, whose loss scale stages don't agree on; use bf16".to_owned();
            return refuse("--pipeline-stages", stages.to_string(), accepted);
        }
        Ok(())
    }
}

/// A number in few digits, however large it is.
pub(crate) fn few_digits(number: f64) -> String {
    if number.is_finite() && number.abs() >= 1e16 { format!("{number:e}") } else { number.to_string() }
}

/// Writes the shortest number that is read as the same: 0.2, where an f64 would be 0.20000000298023224.
fn shortest<S: serde::Serializer>(number: &f32, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_f64(number.to_string().parse().unwrap_or(f64::from(*number)))
}

/// A precision by its name.
mod precision {
    use program::Precision;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(precision: &Precision, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(precision.name())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Precision, D::Error> {
        let name = String::deserialize(deserializer)?;
        let near = || crate::spelling::hint(&name, Precision::ALL.map(Precision::name));
        name.parse().map_err(|error| D::Error::custom(format!("the precision {error}{}", near())))
    }
}

/// What is kept of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointOptions {
    /// A checkpoint after every so many epochs; 0 for the best and the last only.
    pub every_epochs: u64,
    /// Also after every so many steps, counted over the whole run; 0 for none.
    pub every_steps: u64,
    /// How many of them to keep, the best not counted; `None` for all.
    pub keep_last: Option<usize>,
    /// Keep the best by this metric.
    pub save_best: Option<String>,
}

impl Default for CheckpointOptions {
    fn default() -> Self {
        CheckpointOptions { every_epochs: 1, every_steps: 0, keep_last: Some(3), save_best: None }
    }
}

impl Config {
    /// Samples of a batch over `replicas` replicas, or over the virtual ones.
    pub fn global_batch(&self, replicas: usize) -> usize {
        let parts = self.virtual_replicas.unwrap_or(replicas);
        self.global_batch_size.unwrap_or(self.batch_size.saturating_mul(parts))
    }

    /// Micro-batches of a replica.
    pub fn micro_batches(&self) -> usize {
        let stages = self.devices.stages();
        self.micro_batches.unwrap_or(if stages > 1 { 2 * stages } else { 1 })
    }

    /// How many shards every batch is cut into over `replicas` replicas, each with a pass of its own.
    pub fn shards(&self, replicas: usize) -> usize {
        self.virtual_replicas.unwrap_or(replicas.saturating_mul(self.micro_batches()))
    }

    /// Whether results are promised to be the same on other devices, so that only algorithms that repeat will do.
    pub(crate) fn repeats(&self) -> bool {
        self.virtual_replicas.is_some() || self.devices.stages() > 1
    }

    /// Checks that `towers` replicas all have something to do, and that those whose batch normalization is to meet can.
    ///
    /// # Errors
    /// [`Error::Option`] if a batch has fewer samples, or there are fewer virtual replicas, or with
    /// [`sync_batch_norm`](Config::sync_batch_norm) more, or weights for another number, or more micro-batches than a replica has
    /// samples.
    pub fn check_towers(&self, towers: usize) -> Result<()> {
        self.device_weights.check(self, towers)?;
        if let Some(batch) = self.global_batch_size.filter(|batch| *batch < towers) {
            return Err(Error::Option {
                option: "--global-batch-size",
                value: batch.to_string(),
                accepted: format!("at least {towers}: a sample for each of the {towers} towers"),
            });
        }
        let each = (self.global_batch(towers) / towers.max(1)).max(1);
        if self.virtual_replicas.is_none() && self.micro_batches() > each {
            return Err(Error::Option {
                option: "--micro-batches",
                value: self.micro_batches().to_string(),
                accepted: format!("at most {each}, the number of samples in a tower's batch"),
            });
        }
        match self.virtual_replicas {
            Some(shards) if self.sync_batch_norm && shards != towers => Err(Error::Option {
                option: "--virtual-replicas",
                value: shards.to_string(),
                accepted: format!(
                    "left out with --sync-batch-norm, or {towers}, one a tower: shards that a tower passes one after the \
                     other can't share statistics"
                ),
            }),
            Some(shards) if shards < towers => Err(Error::Option {
                option: "--virtual-replicas",
                value: shards.to_string(),
                accepted: format!(
                    "at least {towers}, or some of the {towers} towers would have nothing to do"
                ),
            }),
            _ => Ok(()),
        }
    }

    /// Sets the momentum of SGD.
    ///
    /// # Errors
    /// [`Error::Option`] for another optimizer, or a value outside of [0, 1).
    pub fn set_momentum(&mut self, momentum: f32) -> Result<()> {
        let refuse = |accepted: String| {
            Err(Error::Option { option: "--momentum", value: momentum.to_string(), accepted })
        };
        match &mut self.optimizer {
            Optimizer::Sgd(_) if !(0.0..1.0).contains(&momentum) => refuse("at least 0 and below 1".into()),
            Optimizer::Sgd(sgd) => {
                sgd.momentum = momentum;
                Ok(())
            }
            other => refuse(format!("left out with {}, which has none", other.name())),
        }
    }

    /// Checks what the parts can't check on their own.
    ///
    /// # Errors
    /// [`Error::Option`] naming the option, its value and what is accepted.
    pub fn check(&self) -> Result<()> {
        self.check_name()?;
        self.data.image_size.check()?;
        match self.model(10) {
            Some(Err(layers::Error::Images { network, given, smallest })) => Err(Error::Option {
                option: "--image-size",
                value: given,
                accepted: format!("at least {smallest} (height x width) with the network {network}"),
            }),
            Some(Err(error)) => Err(error.into()),
            _ => self.check_for(self.data.image_size.shape()),
        }
    }

    /// As [`check`](Self::check), for data with images of this height, width and channels: theirs counts, not what the options say.
    pub(crate) fn check_for(&self, image: [usize; 3]) -> Result<()> {
        self.check_name()?;
        self.check_options(image)?;
        // Told before a run's folder is made. The number of classes makes no difference to where a network can be cut, nor to the names
        // of its parameters.
        if self.devices.stages() == 1 && self.param_groups.is_empty() {
            return Ok(());
        }
        let Some(model) = models::by_name_for(&self.model, image, 10) else { return Ok(()) };
        let model = model?;
        if self.devices.stages() > 1 {
            crate::pipeline::check(self, &model)?;
        }
        self.check_groups(model.graph())
    }

    fn check_name(&self) -> Result<()> {
        match models::NAMES.contains(&self.model.as_str()) {
            true => Ok(()),
            false => Err(unknown_network("the model", &self.model)),
        }
    }

    /// The network that it names, for its images and so many classes; `None` if there is no such network.
    pub(crate) fn model(&self, classes: usize) -> Option<layers::Result<models::Model>> {
        models::by_name_for(&self.model, self.data.image_size.shape(), classes)
    }

    /// As [`check_for`](Self::check_for) but for the name of the network, which may be one's own.
    pub(crate) fn check_options(&self, image: [usize; 3]) -> Result<()> {
        ImageSize::of(image).check()?;
        let refuse = |option, value: String, accepted: &str| {
            Err(Error::Option { option, value, accepted: accepted.to_owned() })
        };
        // Model files say nothing of channels, and reports show colours.
        if image[2] != cifar::CHANNELS {
            let remedy = "3: red, green and blue; repeat the one of grey images";
            return refuse("the number of channels of the images", image[2].to_string(), remedy);
        }
        if self.epochs == 0 {
            return refuse("--epochs", "0".into(), "at least 1");
        }
        if !(0.0..1.0).contains(&self.label_smoothing) {
            return refuse("--label-smoothing", self.label_smoothing.to_string(), "at least 0 and below 1");
        }
        if self.batch_size == 0 {
            return refuse("--batch-size", "0".into(), "at least 1");
        }
        if self.global_batch_size == Some(0) {
            return refuse("--global-batch-size", "0".into(), "at least 1");
        }
        if let Some(shards) = self.virtual_replicas.filter(|shards| !(1..=MOST).contains(shards)) {
            return refuse("--virtual-replicas", shards.to_string(), &format!("from 1 to {MOST}"));
        }
        self.data.check_limits()?;
        self.devices.check()?;
        self.check_sync()?;
        self.augmentation.validate(image)?;
        standardization::check(&self.augmentation, image)?;
        if let (Some(factor), Preprocessing::Standardize) = (self.augmentation.rescale, self.preprocessing) {
            let accepted = "left out with this recipe, which standardizes values whatever their scale";
            return refuse("--rescale", factor.to_string(), accepted);
        }
        if let Some(micro) = self.micro_batches {
            if !(1..=MOST).contains(&micro) {
                return refuse("--micro-batches", micro.to_string(), &format!("from 1 to {MOST}"));
            }
            if self.virtual_replicas.is_some() {
                let accepted = "left out with --virtual-replicas, whose shards are the micro-batches";
                return refuse("--micro-batches", micro.to_string(), accepted);
            }
        }
        // Steps are computed in f32.
        if !((self.lr as f32).is_finite() && self.lr >= 0.0) {
            return refuse("--lr", few_digits(self.lr), "from 0 to 3.4e38");
        }
        self.schedule.validate()?;
        self.check_lr_scaling()?;
        self.optimizer.validate()?;
        self.param_groups.iter().try_for_each(ParamGroup::validate)?;
        self.ema.map_or(Ok(()), |ema| ema.validate())?;
        self.check_callbacks()
    }
}

impl Config {
    fn check_callbacks(&self) -> Result<()> {
        let save_best = self.checkpoints.save_best.as_deref();
        save_best.map_or(Ok(()), |metric| check_metric("--save-best", metric))?;
        self.early_stop.as_ref().map_or(Ok(()), EarlyStop::check)?;
        self.reduce_lr_on_plateau.as_ref().map_or(Ok(()), ReduceLrOnPlateau::check)?;
        self.model_checkpoint.as_ref().map_or(Ok(()), ModelCheckpointOptions::check)?;
        self.csv_log.as_ref().map_or(Ok(()), CsvLogOptions::check)?;
        self.tensorboard.as_ref().map_or(Ok(()), TensorBoardOptions::check)?;
        match (save_best, &self.early_stop) {
            (Some(_), Some(stop)) if stop.restore_best_weights => {
                let accepted =
                    "given without restore_best_weights where --save-best says which network is kept";
                let (option, value) = ("--early-stop", format!("`{}`", stop.monitor));
                Err(Error::Option { option, value, accepted: accepted.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// What of it is allowed, but hardly meant: a sentence each.
    pub(crate) fn oddities(&self) -> Vec<String> {
        let of_schedule =
            self.schedule.warmup.filter(|warmup| warmup.per == Per::Epoch).map(|warmup| warmup.length);
        let of_scaling = self.lr_scaling.map(|scaling| scaling.warmup_epochs);
        let longest = of_schedule.max(of_scaling).filter(|length| *length > self.epochs);
        let told = |length| {
            format!(
                "the warm-up takes {length} epochs of {}: the learning rate never comes to its full value",
                self.epochs
            )
        };
        longest.map(told).into_iter().collect()
    }

    /// Checks that batch normalization can be synchronized, where it is to be.
    fn check_sync(&self) -> Result<()> {
        if !self.sync_batch_norm || self.micro_batches() == 1 {
            return Ok(());
        }
        let option = if self.devices.stages() > 1 { "--pipeline-stages" } else { "--micro-batches" };
        let accepted = format!(
            "left out with {option}: micro-batches pass one after the other, so they can't share statistics"
        );
        Err(Error::Option { option: "--sync-batch-norm", value: "given".to_owned(), accepted })
    }
}

/// Writes `config.json` into a run directory: whole or not at all.
///
/// # Errors
/// [`Error::Io`] if it can't be written.
pub fn save_config(config: &Config, run: &Path) -> Result<()> {
    let path = run.join("config.json");
    let text = serde_json::to_string_pretty(config).map_err(|error| Error::Io {
        action: "write",
        path: path.clone(),
        source: error.into(),
    })?;
    // To write into a pipe is to wait for its reader.
    if std::fs::metadata(&path).is_ok_and(|about| !about.is_file()) {
        let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is not a regular file");
        return Err(Error::Io { action: "write", path, source });
    }
    crate::atomic::replace(&path, (text + "\n").as_bytes())
}
