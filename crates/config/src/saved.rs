use crate::Config;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use towers_callbacks::TrainState;

/// The content of a checkpoint's `state.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Saved {
    /// The run's configuration.
    pub config: Config,
    /// The state of the run.
    pub state: TrainState,
    /// The metadata of the model file. Its tensors are among those of the checkpoint.
    pub model: BTreeMap<String, String>,
}
