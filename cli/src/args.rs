//! The command line, as declared to clap.

use crate::device::{Gpus, SingleArgs, gpus};
use crate::export::ExportArgs;
use crate::flags::{All, Flags, Limit, Pictures, Several, Source, TestData};
use crate::model::ClassifierArgs;
use clap::{Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Train convolutional image classifiers on one or many GPUs, or on the CPU alone.
#[derive(Debug, Parser)]
#[command(name = "towers", version, about)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a network: `towers train --quick` is the two-minute trial
    Train(Box<TrainArgs>),
    /// Measure a trained network on test data
    Evaluate(EvaluateArgs),
    /// Say what pictures show
    Predict(PredictArgs),
    /// Write a trained network for other programs: PyTorch, ONNX; or bring weights of Keras or PyTorch here
    Export(ExportArgs),
    /// Write a page about one or several runs: curves, test results, mistakes, configuration
    Report(ReportArgs),
    /// Get a data set and verify it
    Fetch(FetchArgs),
    /// Draw a grid of augmented training images
    Preview(Box<PreviewArgs>),
    /// List the devices, and say why others can't be used
    Devices,
    /// List the recipes, or print one as TOML, to be changed and given back as --recipe FILE.toml
    Recipes(RecipesArgs),
    /// Print the ops of a training step or an inference pass: shapes, places in memory, costs
    Program(ProgramArgs),
    /// Measure the throughput of a network on random data
    Bench(BenchArgs),
    /// Start several processes of a command on this machine: towers launch -- train ...
    Launch(LaunchArgs),
}

/// The heading of the optimizer's flags.
const OPTIMIZER: &str = "Optimizer";

/// `towers train`.
#[derive(Debug, clap::Args)]
pub struct TrainArgs {
    /// A name of `towers recipes` (minigooglenet by default), a file, or a run's folder, which repeats that run; flags override it
    #[arg(long, value_name = "NAME|FILE.toml|RUN")]
    pub recipe: Option<String>,
    /// The two-minute trial: the recipe `quick`, unless --recipe names another, and synthetic images where CIFAR can't be had
    #[arg(long)]
    pub quick: bool,
    /// The options of a run.
    #[command(flatten)]
    pub options: Flags<All>,
    /// The momentum of SGD
    #[arg(long, help_heading = OPTIMIZER, value_name = "X", allow_hyphen_values = true)]
    pub momentum: Option<f32>,
    /// The power of the poly schedule
    #[arg(long, help_heading = OPTIMIZER, value_name = "X", allow_hyphen_values = true, conflicts_with = "schedule")]
    pub power: Option<f64>,
    /// Keras' time decay: lr / (1 + decay * step)
    #[arg(long, help_heading = OPTIMIZER, value_name = "X", allow_hyphen_values = true, conflicts_with_all = ["schedule", "power"])]
    pub decay: Option<f64>,
    /// Scale the rate with the batch: linear for K times the rate for a batch K times as large as a replica's, or as in linear:base=256
    #[arg(long, help_heading = OPTIMIZER, value_name = "RULE")]
    pub lr_scaling: Option<String>,
    /// With --lr-scaling, the epochs in which the rate rises; 5 by default, or 0 with a schedule that has a warm-up of its own
    #[arg(long, help_heading = OPTIMIZER, value_name = "E", allow_hyphen_values = true)]
    pub warmup_epochs: Option<u64>,
    /// Begin without the random steps of the recipe's augmentation
    #[arg(long, help_heading = "Augmentation")]
    pub no_augmentation: bool,
    /// With --resume, forget the CSV file, TensorBoard files and picture of the run so far; flags of this line name new ones
    #[arg(long, help_heading = "Callbacks")]
    pub forget_outputs: bool,
    /// What is kept.
    #[command(flatten)]
    pub keep: KeepArgs,
}

/// What is kept of a run.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct KeepArgs {
    /// The run's folder, or a picture (.png, .svg) for the curves; by default runs/RECIPE-N
    #[arg(long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// Go on from the newest checkpoint of DIR, of --output, or of the newest run
    #[arg(long, value_name = "DIR", num_args = 0..=1)]
    pub resume: Option<Option<PathBuf>>,
    /// Go on in a new folder from where a file of --checkpoint-path was written
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub resume_from: Option<PathBuf>,
    /// Go on with the run in --output where there is one, else begin it; with =N a checkpoint after every N batches too
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, conflicts_with = "resume", requires = "output", value_parser = clap::value_parser!(u64).range(1..))]
    pub backup_and_restore: Option<Option<u64>>,
    /// No progress bars
    #[arg(long)]
    pub no_progress: bool,
    /// A live view of the run: curves, throughput, the log; plain lines where standard output is no terminal
    #[arg(long, conflicts_with = "no_progress")]
    pub tui: bool,
    /// Where several processes train together: give up when one of them does not come for so long
    #[arg(long, value_name = "SECONDS", env = "TOWERS_COLLECTIVE_TIMEOUT", default_value_t = 300, value_parser = seconds)]
    pub collective_timeout: u64,
}

/// `towers evaluate`.
#[derive(Debug, clap::Args)]
pub struct EvaluateArgs {
    /// A run's folder, a model.safetensors, a checkpoint's folder, or weights of Keras or PyTorch; by default the newest run
    pub run: Option<PathBuf>,
    /// The same as RUN
    #[arg(long, value_name = "RUN", conflicts_with = "run")]
    pub model: Option<PathBuf>,
    /// Samples of a batch
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 250)]
    pub batch_size: usize,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// The network.
    #[command(flatten)]
    pub network: ClassifierArgs,
    /// How many test images.
    #[command(flatten)]
    pub limit: Flags<Limit>,
}

/// `towers predict`.
#[derive(Debug, clap::Args)]
pub struct PredictArgs {
    /// Pictures, PNG or JPEG of any size; of a folder all that are in it and in folders below
    #[arg(required = true, value_name = "IMAGE|DIR")]
    pub images: Vec<PathBuf>,
    /// A run's folder, a model.safetensors, a checkpoint's folder, or weights of Keras or PyTorch; by default the newest run
    #[arg(long, value_name = "RUN")]
    pub model: Option<PathBuf>,
    /// Print the K likeliest classes
    #[arg(long, value_name = "K", allow_hyphen_values = true, default_value_t = 3)]
    pub top: usize,
    /// One JSON object a picture, on a line of its own, instead of text
    #[arg(long)]
    pub json: bool,
    /// The network.
    #[command(flatten)]
    pub network: ClassifierArgs,
}

/// `towers report`.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// The folders of the runs; by default the newest in runs/
    #[arg(value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// The page to write; by default report.html in the run's folder or, for several runs, here
    #[arg(long, value_name = "HTML")]
    pub output: Option<PathBuf>,
    /// Test images at a time
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 256)]
    pub batch_size: usize,
    /// Data.
    #[command(flatten)]
    pub data: Flags<TestData>,
    /// Devices.
    #[command(flatten)]
    pub devices: SingleArgs,
}

/// `towers fetch`.
#[derive(Debug, clap::Args)]
pub struct FetchArgs {
    /// Data.
    #[command(flatten)]
    pub data: Flags<Source>,
}

/// `towers preview`.
#[derive(Debug, clap::Args)]
pub struct PreviewArgs {
    /// Whose augmentation to show
    #[arg(long, value_name = "NAME|FILE.toml", default_value = "minigooglenet")]
    pub recipe: String,
    /// The picture to write
    #[arg(long, value_name = "PNG", default_value = "preview.png")]
    pub output: PathBuf,
    /// Training images, a row each
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 8)]
    pub samples: usize,
    /// Pictures in a row, the original first
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 10)]
    pub columns: usize,
    /// Enlarge each pixel so many times
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 3)]
    pub zoom: u32,
    /// The seed of the draws
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 1)]
    pub seed: u64,
    /// Write every augmented picture on its own into DIR as well
    #[arg(long, value_name = "DIR")]
    pub save_to_dir: Option<PathBuf>,
    /// The beginning of those pictures' names
    #[arg(long, value_name = "TEXT", default_value = "aug", requires = "save_to_dir")]
    pub save_prefix: String,
    /// Begin without the random steps of the recipe's augmentation
    #[arg(long, help_heading = "Augmentation")]
    pub no_augmentation: bool,
    /// Augmentation and data.
    #[command(flatten)]
    pub options: Flags<Pictures>,
}

/// `towers recipes`.
#[derive(Debug, clap::Args)]
pub struct RecipesArgs {
    /// The one to print: a name, or a file
    #[arg(value_name = "NAME|FILE.toml")]
    pub name: Option<String>,
}

/// `towers program`.
#[derive(Debug, clap::Args)]
pub struct ProgramArgs {
    /// Whose network
    #[arg(long, value_name = "NAME|FILE.toml", default_value = "minigooglenet")]
    pub recipe: String,
    /// train (forward and backward) or infer (forward)
    #[arg(long, value_name = "MODE", value_enum, hide_possible_values = true, default_value_t = Mode::Train)]
    pub mode: Mode,
    /// Samples of a batch; by default as many as `towers bench` takes
    #[arg(long, alias = "batch-size", value_name = "N", allow_hyphen_values = true)]
    pub batch: Option<usize>,
    /// With --replicas, normalize batches with the statistics of all replicas' samples
    #[arg(long)]
    pub sync_batch_norm: bool,
    /// Cut the network into S stages, and print a program for each
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub pipeline_stages: Option<usize>,
    /// Take some training steps instead, and write when each op of each replica ran: trace events, for Perfetto or Chrome
    #[arg(long, value_name = "JSON", conflicts_with_all = ["pipeline_stages", "sync_batch_norm"])]
    pub timeline: Option<PathBuf>,
    /// Devices.
    #[command(flatten)]
    pub devices: Flags<Several>,
}

/// `towers bench`.
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    /// Whose network
    #[arg(long, value_name = "NAME|FILE.toml", default_value = "minigooglenet")]
    pub recipe: String,
    /// train (forward, backward, optimizer) or infer (forward)
    #[arg(long, value_name = "MODE", value_enum, hide_possible_values = true, default_value_t = Mode::Train)]
    pub mode: Mode,
    /// Samples of a batch, of each tower; by default 128 (keras-cnn) or 64 in training, 256 in inference
    #[arg(long, alias = "batch-size", value_name = "N", allow_hyphen_values = true)]
    pub batch: Option<usize>,
    /// Each repeat takes at least so long
    #[arg(long, value_name = "S", allow_hyphen_values = true, default_value_t = 10.0)]
    pub seconds: f64,
    /// The median over so many repeats counts
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 3)]
    pub repeats: usize,
    /// The time of each layer instead: forward, backward, share of the step
    #[arg(long)]
    pub profile: bool,
    /// What the processor can do at most instead: multiply-adds and memory traffic, on one thread and on all
    #[arg(long, conflicts_with_all = ["recipe", "mode", "batch", "seconds", "repeats", "profile"])]
    pub roofline: bool,
    /// When this process came to its first training step instead, and what it did before
    #[arg(long, conflicts_with_all = ["seconds", "repeats", "profile", "roofline"])]
    pub first_step: bool,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Devices.
    #[command(flatten)]
    pub devices: Flags<Several>,
}

/// `towers launch`.
#[derive(Debug, clap::Args)]
pub struct LaunchArgs {
    /// So many processes; by default one on each GPU
    #[arg(long, value_name = "N", allow_hyphen_values = true, conflicts_with = "gpus")]
    pub processes: Option<usize>,
    /// One process on each of that many GPUs, or of those ids
    #[arg(long, value_name = "N|IDS", allow_negative_numbers = true, value_parser = gpus)]
    pub gpus: Option<Gpus>,
    /// When one fails, start all anew, so many times
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 0)]
    pub max_restarts: u32,
    /// The port of rank 0 (MASTER_PORT), which keeps the next one free as well; by default any
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub master_port: Option<u16>,
    /// When one fails, the others have so many seconds to end by themselves
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true, default_value_t = 30)]
    pub grace: u64,
    /// Show what all processes say, not the first alone
    #[arg(long)]
    pub verbose: bool,
    /// The command and its flags, after --
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}

/// `--mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Forward, backward, optimizer
    Train,
    /// Forward
    Infer,
}

impl From<Mode> for bench::BenchMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Train => bench::BenchMode::Train,
            Mode::Infer => bench::BenchMode::Infer,
        }
    }
}

/// A time in whole seconds.
fn seconds(text: &str) -> Result<u64, &'static str> {
    text.parse().ok().filter(|seconds| *seconds > 0).ok_or("it takes a whole number of seconds, 1 or more")
}
