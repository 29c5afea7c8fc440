//! `towers export`.

use crate::flags::{Flags, Source};
use crate::model::{WeightsArgs, newest_network};
use crate::{model, print};
use std::path::PathBuf;
use std::process::ExitCode;
use towers_runs::folder_must_exist;
use towers_trained::Format;

/// `towers export`.
#[derive(Debug, clap::Args)]
pub struct ExportArgs {
    /// A run's folder, a model.safetensors, a checkpoint's folder, or weights of Keras or PyTorch; by default the newest run
    #[arg(value_name = "RUN")]
    pub model: Option<PathBuf>,
    /// The file to write: .onnx, .py for PyTorch (its weights beside it as .safetensors), or .safetensors for towers
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub weights: WeightsArgs,
    #[command(flatten)]
    pub data: Flags<Source>,
}

pub fn run(args: ExportArgs) -> anyhow::Result<ExitCode> {
    // A wrong file extension is refused before anything is read.
    Format::of(&args.output)?;
    folder_must_exist("output", &args.output)?;
    let path = args.model.clone().map_or_else(newest_network, Ok)?;
    model::refuse_data(&path, &args.data)?;
    let trained = model::open(&path, &args.weights, &args.data)?;
    let files = towers_trained::export(&trained, &args.output)?;
    print::lines(files.iter().map(|file| format!("wrote {}", file.display())).collect())
}
