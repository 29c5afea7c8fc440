use crate::{BenchMode, BenchOptions};
use serde::Serialize;
use towers_config::Config;
use towers_program::Device;

/// What was measured, and on what: the first keys of each measurement as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Setup {
    /// `towers`.
    pub peer: &'static str,
    /// The version.
    pub version: &'static str,
    /// The network.
    pub model: String,
    /// Training or inference.
    pub mode: BenchMode,
    /// Height, width and channels of the images.
    pub image: [usize; 3],
    /// Samples of a batch; of several replicas, of each one's.
    pub batch: usize,
    /// The kind of device.
    pub device: String,
    /// Host threads; of several replicas, of each one.
    pub threads: usize,
    /// Of the arithmetic.
    pub precision: &'static str,
}

impl Setup {
    pub(crate) fn of(config: &Config, options: &BenchOptions, batch: usize, device: &Device) -> Self {
        Setup {
            peer: "towers",
            version: env!("CARGO_PKG_VERSION"),
            model: config.training.model.clone(),
            mode: options.mode,
            image: config.training.data.image(),
            batch,
            device: device.kind().to_owned(),
            threads: device.threads(),
            precision: device.precision().name(),
        }
    }
}
