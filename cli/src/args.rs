//! The command line, as declared to clap.

use crate::device::{Gpus, SingleArgs, gpus};
use crate::export::ExportArgs;
use crate::flags::{All, Flags, Limit, Origin, Pictures, Several, TestData, one_of};
use crate::interrupt::SignalAction;
use crate::model::ClassifierArgs;
use crate::network::NetworkArgs;
use crate::summary::SummaryArgs;
use clap::{Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use towers_bench::BenchMode;
use towers_callbacks::LogFormat;
use towers_runs::SortKey;

/// Train convolutional image classifiers on one or many GPUs, or on the CPU alone.
#[derive(Debug, Parser)]
#[command(name = "towers", version, about)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a network: `towers train --quick` is a two-minute trial
    Train(Box<TrainArgs>),
    /// Measure a trained network on test data
    Evaluate(EvaluateArgs),
    /// Classify pictures
    Predict(PredictArgs),
    /// Export a trained network to PyTorch or ONNX, or convert weights of Keras or PyTorch for towers
    Export(ExportArgs),
    /// Write an HTML page about one or several runs: curves, test results, mistakes, configuration
    Report(ReportArgs),
    /// Download a data set and verify it
    Fetch(FetchArgs),
    /// Draw a grid of augmented training images
    Preview(Box<PreviewArgs>),
    /// List the devices, and why others can't be used
    Devices,
    /// List the recipes, or print one as TOML, to edit and use as --recipe FILE.toml
    Recipes(RecipesArgs),
    /// Print the layers of a network, with shapes, parameters, FLOPs and memory
    Summary(SummaryArgs),
    /// List runs: recipe, what differs, epochs, best accuracy, start, end
    Runs(RunsArgs),
    /// Print the ops of a training step or an inference pass: shapes, memory offsets, costs
    Program(ProgramArgs),
    /// Measure the throughput of a network on random data
    Bench(BenchArgs),
    /// Find a learning rate: a short training with rising rates, its picture, and a suggestion
    LrFind(Box<LrFindArgs>),
    /// Compare the results of a device with the CPU's, and write a report for an issue
    Selftest(SelfTestArgs),
    /// Start several processes of a command on this machine: towers launch -- train ...
    Launch(LaunchArgs),
    /// Print a script for a shell, which completes commands, flags and their values
    Completions(CompletionsArgs),
    /// Print a manual page
    Man(ManArgs),
}

/// The heading of the optimizer's flags.
const OPTIMIZER: &str = "Optimizer";

/// `towers train`.
#[derive(Debug, clap::Args)]
pub struct TrainArgs {
    /// A name of `towers recipes`, a file, or the folder of a run to repeat; by default minigooglenet, or adam for a network or pictures of your own; flags override it
    #[arg(long, value_name = "NAME|FILE.toml|RUN")]
    pub recipe: Option<String>,
    /// A two-minute trial: the recipe `quick`, unless --recipe names another, with synthetic images if CIFAR is not available
    #[arg(long)]
    pub quick: bool,
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
    /// With --lr-scaling, the epochs of warm-up; by default 5, or 0 if the schedule has its own warm-up
    #[arg(long, help_heading = OPTIMIZER, value_name = "E", allow_hyphen_values = true)]
    pub warmup_epochs: Option<u64>,
    /// Leave out the random steps of the recipe's augmentation
    #[arg(long, help_heading = "Augmentation")]
    pub no_augmentation: bool,
    /// With --resume, stop writing the run's CSV files, files of TensorBoard and MLflow, and picture; flags may name new ones
    #[arg(long, help_heading = "Callbacks")]
    pub forget_outputs: bool,
    #[command(flatten)]
    pub keep: KeepArgs,
}

/// The outputs of a run.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct KeepArgs {
    /// The run's folder, or a picture (.png, .svg) for the curves; by default runs/RECIPE-N
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// Resume from the newest checkpoint of DIR, of --output, or of the newest run
    #[arg(long, value_name = "DIR", num_args = 0..=1)]
    pub resume: Option<Option<PathBuf>>,
    /// Resume from a file of --checkpoint-path, in a new folder
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub resume_from: Option<PathBuf>,
    /// Resume the run in --output if it has a checkpoint, else start it; with =N, also save a checkpoint every N batches
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, conflicts_with = "resume", requires = "output", value_parser = clap::value_parser!(u64).range(1..))]
    pub backup_and_restore: Option<Option<u64>>,
    /// Try the run: N steps and N batches of validation, 1 without a number. Nothing of it is kept
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1", conflicts_with_all = ["output", "resume", "resume_from", "backup_and_restore", "max-steps", "limit-test"], value_parser = clap::value_parser!(u64).range(1..))]
    pub fast_dev_run: Option<u64>,
    /// No progress bars
    #[arg(long)]
    pub no_progress: bool,
    /// The form of the lines that a run prints: text, or an object a line (json)
    #[arg(
        long,
        value_name = "FORM",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        conflicts_with = "tui"
    )]
    pub log_format: Form,
    /// A live view of the run: curves, throughput, the log; plain lines if standard output is not a terminal
    #[arg(long, conflicts_with = "no_progress")]
    pub tui: bool,
    /// After SIGUSR1 and SIGUSR2, save a checkpoint and continue (save), or stop as after SIGTERM (stop)
    #[arg(long, value_name = "ACTION", value_enum, default_value_t, hide_possible_values = true)]
    pub signal_action: SignalAction,
    /// The live view as a web page, on this machine alone or at ADDR: a port, 0.0.0.0 for every network, or HOST:PORT
    #[arg(long, value_name = "ADDR", num_args = 0..=1)]
    pub serve: Option<Option<String>>,
}

impl KeepArgs {
    /// Whether a run shows no bar.
    pub fn has_no_bar(&self) -> bool {
        self.no_progress || self.log_format == Form::Json
    }
}

/// The form of the lines that a run prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Sentences
    #[default]
    Text,
    /// An object a line
    Json,
}

impl From<Form> for LogFormat {
    fn from(form: Form) -> Self {
        match form {
            Form::Text => LogFormat::Text,
            Form::Json => LogFormat::Json,
        }
    }
}

/// `towers evaluate`.
#[derive(Debug, clap::Args)]
pub struct EvaluateArgs {
    /// A run's folder, a model.safetensors, a checkpoint's folder, or weights of Keras or PyTorch; by default the newest run
    pub run: Option<PathBuf>,
    /// The same as RUN
    #[arg(long, value_name = "RUN", conflicts_with = "run")]
    pub model: Option<PathBuf>,
    /// Samples per batch
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 250)]
    pub batch_size: usize,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Also write a table of the predictions: image, label, prediction, and the probability of each class
    #[arg(long, value_name = "FILE.csv")]
    pub predictions: Option<PathBuf>,
    #[command(flatten)]
    pub network: ClassifierArgs,
    #[command(flatten)]
    pub limit: Flags<Limit>,
}

/// `towers predict`.
#[derive(Debug, clap::Args)]
pub struct PredictArgs {
    /// PNG, JPEG, WebP, BMP or GIF pictures of any size; a folder stands for all pictures in it and its subfolders
    #[arg(required = true, value_name = "IMAGE|DIR")]
    pub images: Vec<PathBuf>,
    /// A run's folder, a model.safetensors, a checkpoint's folder, or weights of Keras or PyTorch; by default the newest run
    #[arg(long, value_name = "RUN")]
    pub model: Option<PathBuf>,
    /// Print the K most likely classes; by default 3, and of a network for several labels a picture all above the threshold
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub top: Option<usize>,
    /// The probability above which a picture has a class, of a network for several labels a picture; by default 0.5
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub threshold: Option<f32>,
    /// One JSON object per line and picture, instead of text
    #[arg(long)]
    pub json: bool,
    /// A table of comma-separated values instead of text: image, class, probability, class_2, probability_2, ...; of several labels
    /// a picture image, labels, probabilities, each a list with | between
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    #[command(flatten)]
    pub network: ClassifierArgs,
}

/// `towers report`.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// The folders of the runs; by default the newest in runs/
    #[arg(value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// The page to write; by default report.html in the run's folder or, for several runs, in the current folder
    #[arg(short, long, value_name = "HTML")]
    pub output: Option<PathBuf>,
    /// Test images per batch
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 256)]
    pub batch_size: usize,
    #[command(flatten)]
    pub data: Flags<TestData>,
    #[command(flatten)]
    pub devices: SingleArgs,
}

/// `towers fetch`.
#[derive(Debug, clap::Args)]
pub struct FetchArgs {
    #[command(flatten)]
    pub data: Flags<Origin>,
}

/// `towers preview`.
#[derive(Debug, clap::Args)]
pub struct PreviewArgs {
    /// The recipe with the augmentation to show
    #[arg(long, value_name = "NAME|FILE.toml", default_value = "minigooglenet")]
    pub recipe: String,
    /// The picture to write
    #[arg(short, long, value_name = "PNG", default_value = "preview.png")]
    pub output: PathBuf,
    /// Training images, one per row
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 8)]
    pub samples: usize,
    /// Pictures per row, the original first
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 10)]
    pub columns: usize,
    /// Enlarge each pixel N times
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 3)]
    pub zoom: u32,
    /// The random seed
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 1)]
    pub seed: u64,
    /// Also write every augmented picture to its own file in DIR
    #[arg(long, value_name = "DIR")]
    pub save_to_dir: Option<PathBuf>,
    /// The prefix of those files' names
    #[arg(long, value_name = "TEXT", default_value = "aug", requires = "save_to_dir")]
    pub save_prefix: String,
    /// Leave out the random steps of the recipe's augmentation
    #[arg(long, help_heading = "Augmentation")]
    pub no_augmentation: bool,
    #[command(flatten)]
    pub options: Flags<Pictures>,
}

/// `towers recipes`.
#[derive(Debug, clap::Args)]
pub struct RecipesArgs {
    /// The recipe to print: a name, or a file
    #[arg(value_name = "NAME|FILE.toml")]
    pub name: Option<String>,
}

/// `towers runs`.
#[derive(Debug, clap::Args)]
pub struct RunsArgs {
    /// The folder with the runs, or one run; by default runs
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Sort by when (the newest last), run, recipe, epochs, best (the highest first) or end
    #[arg(long, value_name = "KEY", value_parser = one_of::<SortKey>(&SortKey::NAMES), hide_possible_values = true, default_value = "when")]
    pub sort: SortKey,
    /// Compare these runs: a column each, with what differs between them
    #[arg(long, value_name = "RUN", num_args = 2.., conflicts_with_all = ["folder", "sort", "json"])]
    pub compare: Vec<PathBuf>,
    /// With --compare, the curves of all runs in one picture, .svg or .png
    #[arg(long, value_name = "FILE", requires = "compare")]
    pub picture: Option<PathBuf>,
    /// One JSON object per line and run, instead of the table
    #[arg(long)]
    pub json: bool,
}

/// `towers program`.
#[derive(Debug, clap::Args)]
pub struct ProgramArgs {
    #[command(flatten)]
    pub network: NetworkArgs,
    /// train (forward and backward) or infer (forward)
    #[arg(long, value_name = "MODE", value_parser = one_of::<BenchMode>(&BenchMode::NAMES), hide_possible_values = true, default_value = "train")]
    pub mode: BenchMode,
    /// Samples per batch; by default as in `towers bench`
    #[arg(long, alias = "batch-size", value_name = "N", allow_hyphen_values = true)]
    pub batch: Option<usize>,
    /// With --replicas, normalize batches with the statistics of all replicas' samples
    #[arg(long)]
    pub sync_batch_norm: bool,
    /// Split the network into S stages, and print a program for each
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub pipeline_stages: Option<usize>,
    /// Instead, run some training steps and write the time of each op of each replica, as trace events for Perfetto or Chrome
    #[arg(long, value_name = "JSON", conflicts_with_all = ["pipeline_stages", "sync_batch_norm"])]
    pub timeline: Option<PathBuf>,
    #[command(flatten)]
    pub devices: Flags<Several>,
}

/// `towers bench`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub other: Option<OtherBench>,
    #[command(flatten)]
    pub throughput: ThroughputArgs,
}

/// The commands of `towers bench`.
#[derive(Debug, Subcommand)]
pub enum OtherBench {
    /// Measure each layer instead: forward, backward, share of the step
    Profile(ProfileArgs),
    /// Measure the limits of the processor instead: multiply-adds and memory traffic, on one thread and on all
    Roofline(RooflineArgs),
    /// Measure the time from the start of the process to its first training step instead
    FirstStep(StepArgs),
}

/// The throughput of `towers bench`.
#[derive(Debug, clap::Args)]
pub struct ThroughputArgs {
    /// train (forward, backward, optimizer) or infer (forward)
    #[arg(long, value_name = "MODE", value_parser = one_of::<BenchMode>(&BenchMode::NAMES), hide_possible_values = true, default_value = "train")]
    pub mode: BenchMode,
    /// The minimum duration of each repeat, in seconds
    #[arg(long, value_name = "S", allow_hyphen_values = true, default_value_t = 10.0)]
    pub seconds: f64,
    /// The number of repeats; the result is their median
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 3)]
    pub repeats: usize,
    #[command(flatten)]
    pub step: StepArgs,
}

/// `towers bench profile`.
#[derive(Debug, clap::Args)]
pub struct ProfileArgs {
    /// train (forward, backward, optimizer) or infer (forward)
    #[arg(long, value_name = "MODE", value_parser = one_of::<BenchMode>(&BenchMode::NAMES), hide_possible_values = true, default_value = "train")]
    pub mode: BenchMode,
    /// The minimum duration, in seconds
    #[arg(long, value_name = "S", allow_hyphen_values = true, default_value_t = 10.0)]
    pub seconds: f64,
    #[command(flatten)]
    pub step: StepArgs,
}

/// `towers bench first-step`, and what other measurements of steps have too.
#[derive(Debug, clap::Args)]
pub struct StepArgs {
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Samples per batch and replica; by default 128 (keras-cnn) or 64 in training, 256 in inference
    #[arg(long, alias = "batch-size", value_name = "N", allow_hyphen_values = true)]
    pub batch: Option<usize>,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub devices: Flags<Several>,
}

/// `towers bench roofline`.
#[derive(Debug, clap::Args)]
pub struct RooflineArgs {
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub devices: Flags<Several>,
}

/// `towers lr-find`.
#[derive(Debug, clap::Args)]
pub struct LrFindArgs {
    /// The rate of the first step
    #[arg(long, value_name = "X", allow_hyphen_values = true, default_value_t = 1e-7)]
    pub min_lr: f64,
    /// The rate of the last step
    #[arg(long, value_name = "X", allow_hyphen_values = true, default_value_t = 10.0)]
    pub max_lr: f64,
    /// The number of steps; an epoch at most
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 100)]
    pub steps: u64,
    /// The picture of the losses, a .png or a .svg
    #[arg(short, long, value_name = "PATH", default_value = "lr-find.png")]
    pub output: PathBuf,
    /// One JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// A name of `towers recipes`, a file, or the folder of a run, as for `towers train`
    #[arg(long, value_name = "NAME|FILE.toml|RUN")]
    pub recipe: Option<String>,
    /// The recipe `quick`, unless --recipe names another, with synthetic images if CIFAR is not available
    #[arg(long)]
    pub quick: bool,
    /// The momentum of SGD
    #[arg(long, help_heading = OPTIMIZER, value_name = "X", allow_hyphen_values = true)]
    pub momentum: Option<f32>,
    /// Leave out the random steps of the recipe's augmentation
    #[arg(long, help_heading = "Augmentation")]
    pub no_augmentation: bool,
    /// The options of a run.
    #[command(flatten)]
    pub options: Flags<All>,
}

/// `towers selftest`.
#[derive(Debug, clap::Args)]
pub struct SelfTestArgs {
    /// The report to write
    #[arg(short, long, value_name = "FILE", default_value = "towers-selftest.md")]
    pub output: PathBuf,
    /// Run these tests alone, named as in the table: pooling,resnet18
    #[arg(long, value_name = "TEST,...", value_delimiter = ',')]
    pub only: Vec<String>,
    #[command(flatten)]
    pub devices: Flags<Several>,
}

/// `towers launch`.
#[derive(Debug, clap::Args)]
pub struct LaunchArgs {
    /// The number of processes; by default one per GPU
    #[arg(long, value_name = "N", allow_hyphen_values = true, conflicts_with = "gpus")]
    pub processes: Option<usize>,
    /// One process on each of N GPUs, or on each of the GPUs with these ids
    #[arg(short, long, value_name = "N|IDS", allow_negative_numbers = true, value_parser = gpus)]
    pub gpus: Option<Gpus>,
    /// When a process fails, restart all of them, at most N times; if the others can continue, at the end of the epoch
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 0)]
    pub max_restarts: u32,
    /// The port of rank 0 (MASTER_PORT); the next port must be free as well; by default any free one
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub master_port: Option<u16>,
    /// Seconds that the other processes have to end by themselves after one fails
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true, default_value_t = 30)]
    pub grace: u64,
    /// Show the output of all processes, not only of the first
    #[arg(long)]
    pub verbose: bool,
    /// The command and its flags, after --
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<std::ffi::OsString>,
}

/// `towers completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell: bash, zsh, fish, powershell or elvish
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// `towers man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// The page of this command, such as train; by default that of towers
    #[arg(value_name = "COMMAND")]
    pub command: Option<String>,
}
