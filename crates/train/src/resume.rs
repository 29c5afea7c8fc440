use crate::data::compare;
use crate::{Config, Error, Result, fingerprint};
use std::fs;
use std::path::{Path, PathBuf};
use towers_augment::ImageDataGenerator;
use towers_callbacks::SAVED;
use towers_callbacks::{CHECKPOINTS, TrainState};
use towers_checkpoint::{Checkpoint, Listing, Store, Tensors, load_tensors};
use towers_config::Saved;
use towers_dataset::Dataset;
use towers_options::{Message, message};
use towers_trained::Input;

/// A checkpoint to resume from.
pub struct Resume {
    /// The checkpoint's folder.
    pub path: PathBuf,
    /// The run's configuration.
    pub config: Config,
    /// The command after every epoch that the run had. `config` lacks it, since a checkpoint may be of somebody else.
    pub command: Option<String>,
    /// The state of the run.
    pub state: TrainState,
    /// Checkpoints that were skipped, with the reasons.
    pub skipped: Vec<String>,
    tensors: Tensors,
}

impl Resume {
    /// The newest valid checkpoint of the run directory `run`.
    ///
    /// # Errors
    /// [`towers_config::Error::Run`] if there is none.
    pub fn newest(run: &Path) -> Result<Self> {
        let folder = run.join(CHECKPOINTS);
        if !folder.is_dir() {
            let around = run.ancestors().skip(1).find(|above| above.join(CHECKPOINTS).is_dir());
            let reason: Message = match around.filter(|_| run.exists()) {
                Some(around) => {
                    let around = towers_callbacks::shell_word(&around.to_string_lossy());
                    message!("this is inside of a run's folder; name that: ", ["resume"], " {around}")
                }
                None if run.join("config.json").is_file() => {
                    "the run has no checkpoint: it ended before its first one, or they were deleted; start it again".into()
                }
                None => message!("no run to resume here; name the run's folder, as in ", ["resume"], " runs/a"),
            };
            return Err(Error::run(run, reason));
        }
        let search = Store::open(folder)?.newest_valid::<Saved>()?;
        let skipped: Vec<String> = search.skipped.iter().map(|skipped| skipped.why.to_string()).collect();
        let Some(found) = search.found else {
            let why = if skipped.is_empty() { String::new() } else { format!(" ({})", skipped.join("; ")) };
            let reason = format!("the run has no valid checkpoint to resume from{why}");
            return Err(Error::run(run, reason));
        };
        Ok(Resume { skipped, ..found.into() })
    }

    /// The checkpoint `name` of the run directory `run`.
    ///
    /// # Errors
    /// [`towers_config::Error::File`] if it is not there, or can't be read.
    pub fn checkpoint(run: &Path, name: &str) -> Result<Self> {
        Ok(Store::open(run.join(CHECKPOINTS))?.load::<Saved>(name)?.into())
    }

    /// As [`newest`](Resume::newest); `None` if the run has no checkpoint at all.
    ///
    /// # Errors
    /// [`towers_config::Error::Run`] if there are checkpoints, but none that can be read.
    pub fn newest_if_any(run: &Path) -> Result<Option<Self>> {
        let folder = run.join(CHECKPOINTS);
        if !folder.is_dir() {
            return Ok(None);
        }
        let Listing { entries, skipped, .. } = Store::open(folder)?.list()?;
        // A checkpoint is renamed when all its files are complete. So an empty folder never was one.
        let empty = |path: &Path| fs::read_dir(path).is_ok_and(|mut files| files.next().is_none());
        if entries.is_empty() && skipped.iter().all(|skipped| empty(&skipped.path)) {
            return Ok(None);
        }
        Self::newest(run).map(Some)
    }

    /// The state of a run in a `file` of [`ModelCheckpoint`](towers_callbacks::ModelCheckpoint).
    ///
    /// # Errors
    /// [`towers_config::Error::File`] if it can't be read; [`towers_config::Error::Run`] if it holds only weights.
    pub fn read(file: &Path) -> Result<Self> {
        let mut tensors = load_tensors(file)?;
        let refuse = |reason: Message| Error::run(file, reason);
        let text = tensors.metadata_mut().remove(SAVED).ok_or_else(|| {
            refuse(message!(
                "it holds only weights, not the state of the run; files of ",
                ["model_checkpoint.path"],
                " without ",
                ["model_checkpoint.save_weights_only"],
                " do"
            ))
        })?;
        let saved = serde_json::from_str(&text);
        let Saved { mut config, state, .. } =
            saved.map_err(|_| refuse("its state of the run can't be read by this version".into()))?;
        let command = config.outputs.take_command();
        Ok(Resume { path: file.to_owned(), config, command, state, skipped: Vec::new(), tensors })
    }

    /// Refuses data other than the training data of the run, if the checkpoint has their fingerprint.
    ///
    /// # Errors
    /// [`Error::OtherData`] with the difference.
    pub fn check_data(&self, data: &Dataset) -> Result<()> {
        self.state.data.as_ref().map_or(Ok(()), |trained_on| compare(trained_on, &fingerprint(data)?))
    }

    /// Whether observers may have ended the run here, so that they must be asked: an epoch is done, and
    /// `config` has neither more epochs nor other early stopping.
    pub(crate) fn may_have_ended(&self, config: &Config) -> bool {
        let Resume { config: saved, state, .. } = self;
        let left = state.partial.steps == 0 && state.epochs_done < config.training.epochs;
        left && config.training.epochs <= saved.training.epochs
            && config.outputs.early_stop == saved.outputs.early_stop
    }

    /// The preprocessing of pixels with its measurements, and the standardization after it.
    pub(crate) fn preprocessing(&self) -> Result<(Input, ImageDataGenerator)> {
        Ok(towers_trained::described_preprocessing(&self.path, &self.tensors)?)
    }

    /// The state of a run in memory.
    pub(crate) fn of(config: &Config, state: &TrainState, tensors: Tensors) -> Self {
        let path = PathBuf::from("the memory of another process");
        let (config, state) = (config.clone(), state.clone());
        Resume { path, config, command: None, state, skipped: Vec::new(), tensors }
    }

    /// The tensors.
    pub(crate) fn tensors(&self) -> &Tensors {
        &self.tensors
    }

    /// The values of a tensor of this name and shape.
    pub(crate) fn values(&self, name: &str, shape: &[usize]) -> Result<&[f32]> {
        Ok(towers_trained::values(&self.tensors, &self.path, name, shape)?)
    }
}

impl From<Checkpoint<Saved>> for Resume {
    fn from(found: Checkpoint<Saved>) -> Self {
        let Checkpoint { path, mut tensors, state: Saved { mut config, state, model }, .. } = found;
        *tensors.metadata_mut() = model;
        let command = config.outputs.take_command();
        Resume { path, config, command, state, skipped: Vec::new(), tensors }
    }
}
