//! The flags of the callbacks, spelled as Keras spells them.

use crate::error::usage;
use crate::output::{Other, shown};
use std::path::{Path, PathBuf};
use train::{
    Config, CsvLogOptions, EarlyStop, ModelCheckpointOptions, ReduceLrOnPlateau, SaveFreq, TensorBoardOptions,
};

/// What else watches a run.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Callbacks")]
pub struct CallbackArgs {
    /// Stop when METRIC no longer improves: val_loss:patience=10,restore_best_weights; also min_delta, mode, baseline, start_from_epoch
    #[arg(long, alias = "early-stopping", value_name = "METRIC[:OPTIONS]")]
    pub early_stop: Option<String>,
    /// Epochs without improvement before --early-stop stops; by default 5
    #[arg(long, value_name = "N", allow_hyphen_values = true, requires = "early_stop")]
    pub patience: Option<u64>,
    /// Reduce the learning rate when METRIC no longer improves: val_loss:factor=0.5,patience=3; also min_delta, mode, cooldown, min_lr
    #[arg(long, value_name = "METRIC[:OPTIONS]")]
    pub reduce_lr_on_plateau: Option<String>,
    /// Stop, with what was saved before, when the loss is not a number any more; without, that is an error
    #[arg(long)]
    pub terminate_on_nan: bool,
    /// Also write the network into files inside the run's folder: 'w-{epoch:02d}-{val_acc:.2f}.safetensors'
    #[arg(long, value_name = "PATTERN")]
    pub checkpoint_path: Option<String>,
    /// What makes a file of --checkpoint-path the best: loss, acc, val_loss (default) or val_acc
    #[arg(long, value_name = "METRIC")]
    pub monitor: Option<String>,
    /// Whether the least or the most of --monitor is the best: min, max, or auto by the metric's name
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// Write a file of --checkpoint-path only when --monitor is better than ever
    #[arg(long)]
    pub save_best_only: bool,
    /// Leave out of the files of --checkpoint-path what --resume-from needs
    #[arg(long)]
    pub save_weights_only: bool,
    /// Write a file of --checkpoint-path after every epoch, or after every N batches
    #[arg(long, value_name = "epoch|N", allow_hyphen_values = true)]
    pub save_freq: Option<String>,
    /// What --monitor must beat in the first place to be the best
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub initial_value_threshold: Option<f64>,
    /// Write the epochs' figures to FILE as Keras' CSVLogger does
    #[arg(long, value_name = "FILE")]
    pub csv_log: Option<PathBuf>,
    /// What stands between the figures of a line of --csv-log; by default a comma
    #[arg(long, value_name = "CHAR", allow_hyphen_values = true, requires = "csv_log")]
    pub csv_separator: Option<String>,
    /// Add to the file of --csv-log instead of beginning it anew; a run that goes on adds in any case
    #[arg(long, requires = "csv_log")]
    pub csv_append: bool,
    /// Write TensorBoard event files into DIR
    #[arg(long, value_name = "DIR")]
    pub tensorboard: Option<PathBuf>,
    /// With --tensorboard, histograms of the weights after every N epochs
    #[arg(long, value_name = "N", allow_hyphen_values = true, requires = "tensorboard")]
    pub histogram_freq: Option<u64>,
    /// With --tensorboard, the first N augmented images of every epoch
    #[arg(long, value_name = "N", allow_hyphen_values = true, requires = "tensorboard")]
    pub tensorboard_images: Option<usize>,
    /// With --resume, write no CSV file, TensorBoard files or picture that the run wrote before, but those that this line names
    #[arg(long)]
    pub forget_outputs: bool,
}

impl CallbackArgs {
    /// Overrides whatever the flags name.
    pub fn apply(&self, config: &mut Config) -> anyhow::Result<()> {
        if let Some(text) = &self.early_stop {
            // The text is refused if it has a patience of its own.
            let text = match (self.patience, text.contains(':')) {
                (None, _) => text.clone(),
                (Some(patience), true) => format!("{text},patience={patience}"),
                (Some(patience), false) => format!("{text}:patience={patience}"),
            };
            config.outputs.early_stop = Some(EarlyStop::parse(&text)?);
        }
        if let Some(text) = &self.reduce_lr_on_plateau {
            config.training.reduce_lr_on_plateau = Some(ReduceLrOnPlateau::parse(text)?);
        }
        config.outputs.terminate_on_nan |= self.terminate_on_nan;
        self.apply_logs(config)?;
        self.apply_checkpoint(config)
    }

    fn apply_checkpoint(&self, config: &mut Config) -> anyhow::Result<()> {
        if let Some(path) = &self.checkpoint_path {
            let before = config.outputs.model_checkpoint.take().unwrap_or_default();
            config.outputs.model_checkpoint = Some(ModelCheckpointOptions { path: path.clone(), ..before });
        }
        let Some(options) = &mut config.outputs.model_checkpoint else {
            let needs_path = [
                ("--monitor", self.monitor.is_some()),
                ("--mode", self.mode.is_some()),
                ("--save-best-only", self.save_best_only),
                ("--save-weights-only", self.save_weights_only),
                ("--save-freq", self.save_freq.is_some()),
                ("--initial-value-threshold", self.initial_value_threshold.is_some()),
            ];
            return match needs_path.iter().find(|(_, given)| *given) {
                Some((option, _)) => Err(usage(format!(
                    "{option} is given, but must be left out without --checkpoint-path PATTERN"
                ))),
                None => Ok(()),
            };
        };
        if let Some(metric) = &self.monitor {
            options.monitor.clone_from(metric);
        }
        if let Some(mode) = &self.mode {
            options.mode = train::mode("--mode", mode)?;
        }
        options.save_best_only |= self.save_best_only;
        options.save_weights_only |= self.save_weights_only;
        if let Some(freq) = &self.save_freq {
            options.save_freq = freq.parse::<SaveFreq>()?;
        }
        options.initial_value_threshold = self.initial_value_threshold.or(options.initial_value_threshold);
        Ok(())
    }

    /// What is written outside of the run's folder. A resumed run goes on with what it wrote.
    fn apply_logs(&self, config: &mut Config) -> anyhow::Result<()> {
        if self.forget_outputs {
            config.forget_outputs();
        }
        if let Some(file) = &self.csv_log {
            let (separator, append) = (self.separator()?, self.csv_append);
            config.outputs.csv_log = Some(CsvLogOptions { path: file.clone(), separator, append });
        }
        if let Some(folder) = &self.tensorboard {
            let (histogram_freq, images) =
                (self.histogram_freq.unwrap_or(0), self.tensorboard_images.unwrap_or(0));
            config.outputs.tensorboard = Some(TensorBoardOptions { path: folder.clone(), histogram_freq, images });
        }
        Ok(())
    }

    fn separator(&self) -> anyhow::Result<char> {
        let Some(text) = &self.csv_separator else { return Ok(',') };
        let mut chars = text.chars();
        match (chars.next(), chars.next()) {
            (Some(separator), None) => Ok(separator),
            _ if text == "\\t" => Ok('\t'),
            _ => Err(usage(format!(
                "--csv-separator is `{}`, but must be one character that is in no number, such as `;`, or \\t",
                text.escape_debug()
            ))),
        }
    }
}

/// The files outside of the run's folder, but for TensorBoard's.
pub fn files(config: &Config) -> impl Iterator<Item = &Path> {
    let csv = config.outputs.csv_log.as_ref().map(|log| log.path.as_path());
    [csv, config.outputs.plot.as_deref()].into_iter().flatten()
}

/// What is written outside of the run's own folder.
pub fn others(config: &Config) -> anyhow::Result<Vec<Other<'_>>> {
    let csv = config.outputs.csv_log.as_ref().map(|log| log.path.as_path());
    if let Some(file) = csv.filter(|file| file.is_dir()) {
        return Err(usage(format!("--csv-log is {}, but must be no folder", shown(file).display())));
    }
    if let Some(plot) = config.outputs.plot.as_deref().filter(|plot| plot.is_dir()) {
        return Err(usage(format!(
            "--output is {}, but must be no folder to be a picture",
            shown(plot).display()
        )));
    }
    let board = config.outputs.tensorboard.as_ref().map(|board| board.path.as_path());
    let others = [
        ("--csv-log", csv, false),
        ("--output", config.outputs.plot.as_deref(), false),
        ("--tensorboard", board, true),
    ];
    let other = |(option, path, is_folder)| Option::map(path, |path| Other { option, path, is_folder });
    Ok(others.into_iter().filter_map(other).collect())
}
