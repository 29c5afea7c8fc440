//! Data with a progress bar.

use crate::print::note;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use train::cifar::{Dataset, Progress};
use train::{DataOptions, ImageSize};

/// Without a terminal, a download tells how far it is this often.
const REPORT: Duration = Duration::from_secs(10);

/// Where the data come from.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Data")]
pub struct SourceArgs {
    /// auto (CIFAR-10), cifar10, cifar100, synthetic, or a folder of class folders with pictures
    #[arg(long, value_name = "NAME|DIR")]
    pub dataset: Option<String>,
    /// Where the data are or go; by default data/ in the workspace of towers, elsewhere the user's cache
    #[arg(long, value_name = "DIR", env = "TOWERS_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// An archive to fetch instead of the official one; may be given several times
    #[arg(long, value_name = "URL")]
    pub data_url: Vec<String>,
    /// Never fetch anything
    #[arg(long)]
    pub offline: bool,
}

/// The size of the pictures of class folders.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Data")]
pub struct ImageSizeArgs {
    /// Scale the pictures of class folders to N x N, or to height x width, as in 48x40; 32 by default
    #[arg(long, value_name = "N|HxW", allow_hyphen_values = true, value_parser = image_size)]
    pub image_size: Option<ImageSize>,
}

/// Reads the value of `--image-size`.
pub fn image_size(text: &str) -> Result<ImageSize, String> {
    text.parse().map_err(|error| match error {
        trained::Error::Option { accepted, .. } => format!("must be {accepted}"),
        other => other.to_string(),
    })
}

/// How many samples to train on.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Data")]
pub struct LimitTrainArgs {
    /// Only the first N training samples; of class folders, as many of each class
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub limit_train: Option<usize>,
}

/// How many samples to test on.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Data")]
pub struct LimitTestArgs {
    /// Only the first N test samples, likewise
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub limit_test: Option<usize>,
}

/// All about the data of a run.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct DataArgs {
    /// Where they come from.
    #[command(flatten)]
    pub source: SourceArgs,
    /// The size of pictures.
    #[command(flatten)]
    pub size: ImageSizeArgs,
    /// How many to train on.
    #[command(flatten)]
    pub train: LimitTrainArgs,
    /// How many to test on.
    #[command(flatten)]
    pub test: LimitTestArgs,
}

impl SourceArgs {
    /// The data that the flags ask for, on top of `options`.
    pub fn apply(&self, options: &mut DataOptions) {
        if let Some(dataset) = &self.dataset {
            // A run may be resumed from another folder.
            let folder = Path::new(dataset).is_dir().then(|| std::path::absolute(dataset).ok()).flatten();
            options.dataset =
                folder.map_or_else(|| dataset.clone(), |dir| dir.to_string_lossy().into_owned());
        }
        if let Some(dir) = &self.data_dir {
            options.data_dir = Some(std::path::absolute(dir).unwrap_or_else(|_| dir.clone()));
        }
        if !self.data_url.is_empty() {
            options.data_url.clone_from(&self.data_url);
        }
        options.offline |= self.offline;
        options.data_dir.get_or_insert_with(default_dir);
    }

    /// The data that the flags ask for.
    pub fn options(&self) -> DataOptions {
        let mut options = DataOptions::default();
        self.apply(&mut options);
        options
    }
}

impl DataArgs {
    /// The data that the flags ask for, on top of `options`.
    pub fn apply(&self, options: &mut DataOptions) {
        self.source.apply(options);
        options.image_size = self.size.image_size.unwrap_or(options.image_size);
        options.limit_train = self.train.limit_train.or(options.limit_train);
        options.limit_test = self.test.limit_test.or(options.limit_test);
    }
}

/// Where data are if nobody names a folder: `data/` in the workspace, the user's cache otherwise.
pub fn default_dir() -> PathBuf {
    let workspace = |dir: &Path| dir.join("data").is_dir() && dir.join("crates/cifar").is_dir();
    if let Some(dir) = std::env::current_dir()
        .ok()
        .and_then(|cwd| cwd.ancestors().find(|dir| workspace(dir)).map(Path::to_owned))
    {
        return dir.join("data");
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").or_else(|| std::env::var_os("USERPROFILE")).map(PathBuf::from);
    let cache = cache.or_else(|| Some(home()?.join(".cache")));
    cache.map_or_else(|| PathBuf::from("data"), |cache| cache.join("towers"))
}

/// Loads the data, showing what a download does.
pub fn load(options: &DataOptions, no_progress: bool) -> train::Result<Dataset> {
    let mut shown = Shown::new(no_progress);
    let data = train::load_data(options, |progress| shown.report(&progress));
    shown.finish();
    data
}

/// The same for what is measured on test images: those to train on are not decoded. With them comes how many the data set has,
/// where that is known: a limit spares decoding pictures of folders.
pub fn load_test(mut options: DataOptions) -> train::Result<(Dataset, Option<usize>)> {
    let is_folder = Path::new(&options.dataset).is_dir();
    let limit = if is_folder { None } else { options.limit_test.take() };
    let mut shown = Shown::new(true);
    let mut data = train::load_test_data(&options, |progress| shown.report(&progress))?;
    let all = data.test.len();
    if let Some(limit) = limit.filter(|&limit| limit < all) {
        data.test = data.test.take(limit);
    }
    Ok((data, options.limit_test.is_none().then_some(all)))
}

/// A download, or the decoding of a folder, on stderr: a bar on a terminal, lines otherwise.
pub struct Shown {
    bar: Option<ProgressBar>,
    terminal: bool,
    last: Option<Instant>,
}

impl Shown {
    pub fn new(no_progress: bool) -> Self {
        Shown { bar: None, terminal: !no_progress && stderr().is_terminal(), last: None }
    }

    pub fn report(&mut self, progress: &Progress<'_>) {
        match progress {
            Progress::Downloading { bytes, total, .. } if self.terminal => {
                let bar = self.bar.get_or_insert_with(|| bar(BYTES));
                bar.set_length(total.unwrap_or(0));
                bar.set_position(*bytes);
            }
            Progress::Decoding { done, total } if self.terminal => {
                let bar = self.bar.get_or_insert_with(|| bar(PICTURES));
                bar.set_length(*total as u64);
                bar.set_position(*done as u64);
            }
            // Most folders are decoded before that is worth a line.
            Progress::Decoding { .. } if self.last.get_or_insert_with(Instant::now).elapsed() < REPORT => {}
            Progress::Downloading { .. } if self.last.is_some_and(|last| last.elapsed() < REPORT) => {}
            // Where the data are is no news when they were there all along.
            Progress::Ready { .. } if self.last.is_none() && self.bar.is_none() => {}
            other => {
                self.finish();
                self.last = Some(Instant::now());
                note(other);
            }
        }
    }

    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

const BYTES: &str = "{bar:30} {bytes}/{total_bytes} - {bytes_per_sec} - ETA: {eta}";
const PICTURES: &str = "{bar:30} {pos}/{len} pictures decoded - ETA: {eta}";

fn bar(template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style)
}
