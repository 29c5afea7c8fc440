//! `towers summary`: the layers of a network, their shapes and parameters, and what a training step costs.

use crate::data::image_size;
use crate::error::at_least_one;
use crate::network::take_network;
use crate::print;
use std::path::PathBuf;
use std::process::ExitCode;
use towers_config::{Config, ImageSize};

/// `towers summary`.
#[derive(Debug, clap::Args)]
pub struct SummaryArgs {
    /// A built-in network; a model of Keras (.keras, .h5, .json), an ONNX graph, a TOML file with layers; or a run
    #[arg(value_name = "NAME|FILE|RUN", default_value = "minigooglenet")]
    pub model: PathBuf,
    /// Height and width of the images, as in 64 or 48x40; by default those of the file, or 32x32
    #[arg(long, value_name = "N|HxW", allow_hyphen_values = true, value_parser = image_size)]
    pub image_size: Option<ImageSize>,
    /// The number of classes; by default that of the file, or 10
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub classes: Option<usize>,
    /// Samples per batch, for the memory of a training step
    #[arg(long, alias = "batch-size", value_name = "N", allow_hyphen_values = true, default_value_t = 64)]
    pub batch: usize,
}

pub fn run(args: SummaryArgs) -> anyhow::Result<ExitCode> {
    at_least_one("--batch", args.batch)?;
    at_least_one("--classes", args.classes.unwrap_or(1))?;
    let mut config = Config::default();
    config.set("model", &args.model.to_string_lossy().into())?;
    let classes = take_network(&mut config, args.image_size)?;
    let model = config.network(config.training.data.image(), args.classes.unwrap_or(classes))?;
    print::text(&towers_bench::summary(&model, args.batch)?)
}
