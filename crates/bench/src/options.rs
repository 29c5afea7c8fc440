use serde::{Deserialize, Serialize};
use towers_config::Config;
use towers_train::{Error, Result};

/// What a benchmark runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BenchMode {
    /// Forward, backward, optimizer.
    Train,
    /// Forward.
    Infer,
}

impl BenchMode {
    /// All names.
    pub const NAMES: [&'static str; 2] = ["train", "infer"];
}

/// How a benchmark runs.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// What it runs.
    pub mode: BenchMode,
    /// Samples of a batch; `None` for 128 of the network `keras_cnn` and 64 of others in training, 256 in inference.
    pub batch: Option<usize>,
    /// Each repeat takes at least so many seconds.
    pub seconds: f64,
    /// The median over so many repeats counts.
    pub repeats: usize,
    /// Steps before the first repeat. There are at least three.
    pub warmup: usize,
}

impl Default for BenchOptions {
    fn default() -> Self {
        BenchOptions { mode: BenchMode::Train, batch: None, seconds: 10.0, repeats: 3, warmup: 3 }
    }
}

/// A step that runs op by op, one that is recorded, and one that is replayed.
pub(crate) const LEAST_WARMUP: usize = 3;

/// Refuses inference, in which replicas share no work.
pub(crate) fn check_training(options: &BenchOptions) -> Result<()> {
    if options.mode == BenchMode::Train {
        return Ok(());
    }
    let accepted = "train: replicas have nothing to do with each other in inference";
    Err(Error::option("mode", "infer", accepted))
}

/// Samples of a batch.
pub(crate) fn batch_size(config: &Config, options: &BenchOptions) -> usize {
    let paper = if config.training.model == "keras_cnn" { 128 } else { 64 };
    options.batch.unwrap_or(if options.mode == BenchMode::Train { paper } else { 256 })
}
