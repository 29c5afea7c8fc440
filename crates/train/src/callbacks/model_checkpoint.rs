use super::{Pattern, metric};
use crate::{Error, Result};
use checkpoint::Mode;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

/// Which files of the network a run writes besides its own: Keras' `ModelCheckpoint`, with its names and defaults.
/// [`observers::ModelCheckpoint`](crate::observers::ModelCheckpoint) does it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelCheckpointOptions {
    /// The files' names inside of the run's folder, as in `w-{epoch:02d}-{val_acc:.2f}.safetensors`: Keras' `filepath`.
    pub path: String,
    /// The metric that says which is the best.
    pub monitor: String,
    /// Which way it gets better.
    pub mode: Mode,
    /// Write only when the metric is better than ever.
    pub save_best_only: bool,
    /// Leave out what the optimizer remembers.
    pub save_weights_only: bool,
    /// When to write.
    pub save_freq: SaveFreq,
    /// What the metric must beat in the first place.
    pub initial_value_threshold: Option<f64>,
}

impl Default for ModelCheckpointOptions {
    /// As in Keras; the path is missing, which a run refuses.
    fn default() -> Self {
        ModelCheckpointOptions {
            path: String::new(),
            monitor: "val_loss".to_owned(),
            mode: Mode::Auto,
            save_best_only: false,
            save_weights_only: false,
            save_freq: SaveFreq::Epoch,
            initial_value_threshold: None,
        }
    }
}

/// When [`ModelCheckpointOptions`] writes: `"epoch"` or a number of batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum SaveFreq {
    /// After every epoch.
    #[default]
    Epoch,
    /// After every so many batches, counted over the whole run.
    Batches(u64),
}

/// As it stands in JSON and TOML.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Batches(u64),
    Name(String),
}

impl From<SaveFreq> for Written {
    fn from(freq: SaveFreq) -> Self {
        match freq {
            SaveFreq::Epoch => Written::Name("epoch".to_owned()),
            SaveFreq::Batches(batches) => Written::Batches(batches),
        }
    }
}

impl TryFrom<Written> for SaveFreq {
    type Error = Error;

    fn try_from(written: Written) -> Result<Self> {
        match written {
            Written::Batches(batches) => batches.to_string().parse(),
            Written::Name(name) => name.parse(),
        }
    }
}

impl FromStr for SaveFreq {
    type Err = Error;

    /// Reads `epoch` or a number of batches.
    fn from_str(text: &str) -> Result<Self> {
        let batches = text.parse().ok().filter(|batches| *batches > 0);
        match (text, batches) {
            ("epoch", _) => Ok(SaveFreq::Epoch),
            (_, Some(batches)) => Ok(SaveFreq::Batches(batches)),
            _ => {
                let near = crate::spelling::hint(text, ["epoch"]);
                let accepted = format!("epoch or a number of batches, at least 1{near}");
                Err(Error::Option { option: "--save-freq", value: format!("`{text}`"), accepted })
            }
        }
    }
}

impl ModelCheckpointOptions {
    pub(crate) fn pattern(&self) -> Result<Pattern> {
        Pattern::parse(&self.path, self.save_freq != SaveFreq::Epoch)
    }

    pub(crate) fn check(&self) -> Result<()> {
        metric::check("--monitor", &self.monitor)?;
        if let (SaveFreq::Batches(batches), true) = (self.save_freq, self.save_best_only) {
            let accepted = "epoch with --save-best-only: only whole epochs are evaluated".to_owned();
            return Err(Error::Option { option: "--save-freq", value: batches.to_string(), accepted });
        }
        if let Some(threshold) = self.initial_value_threshold.filter(|threshold| !threshold.is_finite()) {
            let (value, accepted) = (threshold.to_string(), "a finite number".to_owned());
            return Err(Error::Option { option: "--initial-value-threshold", value, accepted });
        }
        self.pattern().map(|_| ())
    }
}
