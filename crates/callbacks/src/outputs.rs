use crate::{
    CheckpointOptions, Checkpoints, CsvLogOptions, CsvLogger, Curves, EarlyStop, EarlyStopping, Environment,
    Error, History, LearningRateLogger, LrLogOptions, MaxTime, ModelCheckpoint, ModelCheckpointOptions,
    Observer, Result, StepHistory, TensorBoard, TensorBoardOptions, checkpoints, csv_logger, early_stopping,
    learning_rate_logger, max_time, model_checkpoint, read_history, tensorboard,
};
use options::{Kind, Refused, Table, options};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

options! {
    /// The outputs of a run: the options of all callbacks. None of them changes a bit of the network.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Outputs {
        ["Callbacks"]
        /// Stop when METRIC no longer improves: val_loss:patience=10,restore_best_weights; also min_delta, mode, baseline, start_from_epoch
        early_stop: Option<EarlyStop> = None, Kind::form(read_early_stop, "METRIC[:OPTIONS]"), "--early-stop METRIC[:OPTIONS]";
        /// End the run without an error when the loss is NaN or infinite
        terminate_on_nan: bool = false, Kind::Switch, "--terminate-on-nan";
        /// Stop at the end of the epoch in which the run reaches this time: 90m, 1h30m or 20s
        max_time: Option<u64> = None, Kind::form(max_time::seconds, "a time such as 90m, or a number of seconds"), "--max-time TIME";
        /// Record the mean loss and accuracy, the learning rate and the throughput of every N steps; 0 for never
        log_every: u64 = 50, Kind::Whole(0), "--log-every N";
        /// Another file for the curves, a .png or a .svg, besides those in the run's folder
        plot: Option<PathBuf> = None, Kind::form(options::path, "a path in quotes");
        +
        /// The checkpoints to keep.
        checkpoints: CheckpointOptions;
        /// Files of the network besides the run's own.
        model_checkpoint: Option<ModelCheckpointOptions>;
        /// A CSV file of the metrics of every epoch, as Keras writes it.
        csv_log: Option<CsvLogOptions>;
        /// A CSV file of the learning rate of every step.
        lr_log: Option<LrLogOptions>;
        /// Files for TensorBoard.
        tensorboard: Option<TensorBoardOptions>;
    }
}

/// The keys of a configuration that [`Outputs`] holds.
pub const TABLES: [Table; 7] = [
    Table { key: "", options: Outputs::OPTIONS, begins: None },
    checkpoints::TABLE,
    early_stopping::TABLE,
    model_checkpoint::TABLE,
    csv_logger::TABLE,
    learning_rate_logger::TABLE,
    tensorboard::TABLE,
];

fn read_early_stop(text: &str) -> Result<Value, Refused> {
    EarlyStop::parse(text).map(|stop| json!(stop))
}

/// A file or folder that a run writes outside of its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside<'a> {
    /// The key of the option that names it.
    pub key: &'static str,
    /// The file or folder.
    pub path: &'a Path,
    /// Whether it is a folder.
    pub is_folder: bool,
}

impl Outputs {
    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::Option`] with the option, its value and the accepted values.
    pub fn check(&self) -> Result<()> {
        options::check(&self.checkpoints, &checkpoints::TABLE)?;
        if let Some(stop) = &self.early_stop {
            options::check(stop, &early_stopping::TABLE)?;
        }
        if let Some(files) = &self.model_checkpoint {
            files.check()?;
        }
        if let Some(log) = &self.csv_log {
            options::check(log, &csv_logger::TABLE)?;
        }
        if let Some(log) = &self.lr_log {
            options::check(log, &learning_rate_logger::TABLE)?;
        }
        if let Some(board) = &self.tensorboard {
            options::check(board, &tensorboard::TABLE)?;
        }
        match (&self.checkpoints.save_best, &self.early_stop) {
            (Some(_), Some(stop)) if stop.restore_best_weights => {
                let accepted = "given without restore_best_weights where `checkpoints.save_best` says which network is kept";
                Err(Error::option("early_stop", format_args!("`{}`", stop.monitor), accepted))
            }
            _ => Ok(()),
        }
    }

    /// The files and folders outside of the run's folder.
    pub fn outside(&self) -> Vec<Outside<'_>> {
        let csv = self.csv_log.as_ref().map(|log| log.path.as_path());
        let rates = self.lr_log.as_ref().map(|log| log.path.as_path());
        let board = self.tensorboard.as_ref().map(|board| board.path.as_path());
        let all = [
            ("csv_log.path", csv, false),
            ("lr_log.path", rates, false),
            ("plot", self.plot.as_deref(), false),
            ("tensorboard.path", board, true),
        ];
        let present = |(key, path, is_folder)| Option::map(path, |path| Outside { key, path, is_folder });
        all.into_iter().filter_map(present).collect()
    }

    /// Turns off all outputs outside of the run's folder: CSV files, TensorBoard files and the plot.
    pub fn forget_outside(&mut self) {
        (self.csv_log, self.lr_log, self.tensorboard, self.plot) = (None, None, None, None);
    }

    /// Makes the paths outside of the run's folder absolute, so that a resume from elsewhere finds the same
    /// files.
    ///
    /// # Errors
    /// [`Error::File`] if there is no current folder.
    pub fn make_absolute(&mut self) -> Result<()> {
        let csv = self.csv_log.as_mut().map(|log| &mut log.path);
        let rates = self.lr_log.as_mut().map(|log| &mut log.path);
        let board = self.tensorboard.as_mut().map(|board| &mut board.path);
        // `check` refuses an empty path.
        let given = [csv, rates, board, self.plot.as_mut()].into_iter().flatten();
        for path in given.filter(|path| !path.as_os_str().is_empty()) {
            *path = std::path::absolute(&*path).map_err(Error::io("find", &*path))?;
        }
        Ok(())
    }
}

/// The run whose files the callbacks write.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Its folder.
    pub folder: &'a Path,
    /// The network and the data set, as in `minigooglenet on CIFAR-10`: the title of the curves.
    pub title: &'a str,
    /// Whether the run in the folder is resumed, and its files are continued.
    pub resumed: bool,
}

/// The callbacks that may stop a run before its last epoch. `train::train` adds them, so that a configuration
/// means the same for every caller.
///
/// # Errors
/// [`Error::Option`] for invalid options.
pub fn stopping(outputs: &Outputs) -> Result<Vec<Box<dyn Observer>>> {
    let mut callbacks: Vec<Box<dyn Observer>> = Vec::new();
    if let Some(options) = &outputs.early_stop {
        callbacks.push(Box::new(EarlyStopping::new(options.clone())?));
    }
    if let Some(seconds) = outputs.max_time {
        callbacks.push(Box::new(MaxTime::new(Duration::from_secs(seconds))));
    }
    Ok(callbacks)
}

/// The callbacks that write files of a run: history, environment, checkpoints, curves, and those of
/// `outputs`. The callbacks of [`stopping`] are not included.
///
/// The checkpoints come first, so that no log delays or prevents them. Before them come the files of
/// [`ModelCheckpoint`], which a resume does not write again: after a kill between the two it repeats the epoch.
///
/// ```
/// use callbacks::{Outputs, Run};
///
/// # let folder = tempfile::tempdir()?;
/// let run = Run { folder: folder.path(), title: "minigooglenet on CIFAR-10", resumed: false };
/// assert_eq!(callbacks::from_config(&Outputs::default(), &run)?.len(), 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Option`] for options that make no sense; [`Error::File`] when the folder can't be used.
pub fn from_config(outputs: &Outputs, run: &Run<'_>) -> Result<Vec<Box<dyn Observer>>> {
    outputs.check()?;
    let folder = run.folder;
    let mut checkpoints = Checkpoints::new(folder, &outputs.checkpoints)?;
    if let Some(stop) = outputs.early_stop.as_ref().filter(|stop| stop.restore_best_weights) {
        checkpoints = checkpoints.best_weights(stop)?;
    }
    let mut callbacks: Vec<Box<dyn Observer>> = Vec::new();
    if let Some(options) = &outputs.model_checkpoint {
        callbacks.push(Box::new(ModelCheckpoint::new(folder, options.clone())?));
    }
    callbacks.push(Box::new(checkpoints));
    callbacks.push(Box::new(History::new(folder)));
    callbacks.push(Box::new(Environment::new(folder)));
    if outputs.log_every > 0 {
        callbacks.push(Box::new(StepHistory::new(folder)));
    }
    if let Some(options) = &outputs.csv_log {
        // If the history can't be read, no rows are removed.
        let written = if run.resumed { read_history(folder).unwrap_or_default() } else { Vec::new() };
        callbacks.push(Box::new(CsvLogger::new(options.clone()).written(written)));
    }
    if let Some(options) = &outputs.lr_log {
        callbacks.push(Box::new(LearningRateLogger::new(options.clone())));
    }
    if let Some(options) = &outputs.tensorboard {
        callbacks.push(Box::new(TensorBoard::new(options.clone())));
    }
    callbacks.push(Box::new(Curves::new(folder, run.title)));
    if let Some(picture) = &outputs.plot {
        callbacks.push(Box::new(Curves::in_file(picture, run.title)?));
    }
    Ok(callbacks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing comes before the checkpoints, and only what the run can't do without ends it.
    #[test]
    fn a_run_needs_its_own_files_alone() {
        let folder = tempfile::tempdir().unwrap();
        let outputs = Outputs {
            csv_log: Some(CsvLogOptions { path: "log.csv".into(), ..CsvLogOptions::default() }),
            lr_log: Some(LrLogOptions { path: "lr.csv".into(), ..LrLogOptions::default() }),
            tensorboard: Some(TensorBoardOptions { path: "logs".into(), ..TensorBoardOptions::default() }),
            plot: Some("plot.svg".into()),
            ..Outputs::default()
        };
        let run = Run { folder: folder.path(), title: "", resumed: false };
        let callbacks = from_config(&outputs, &run).unwrap();
        let optional: Vec<bool> = callbacks.iter().map(|callback| callback.is_optional()).collect();
        // Checkpoints, history, environment, steps; CSV, learning rates, TensorBoard, two times curves.
        assert_eq!(optional, [false, false, false, false, true, true, true, true, true]);
        let every = Outputs {
            checkpoints: CheckpointOptions { every_steps: 7, ..CheckpointOptions::default() },
            ..outputs
        };
        assert_eq!(
            from_config(&every, &run).unwrap()[0].snapshot_every(),
            Some(7),
            "the checkpoints are first"
        );
    }
}
