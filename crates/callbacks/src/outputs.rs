use crate::callback::{Callback, Outside, Run};
use crate::monitor::MEASURED;
use crate::{
    CheckpointOptions, Checkpoints, CsvLogOptions, Curves, EarlyStop, EarlyStopping, Environment,
    EpochCommandOptions, Error, History, LrLogOptions, MaxTime, MlflowOptions, ModelCheckpointOptions,
    Observer, Result, StepHistory, TensorBoardOptions, checkpoints, early_stopping, max_time,
};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use towers_metrics::ALWAYS;
use towers_options::{Kind, Refused, Table, message, options};

/// Declares [`Outputs`] with a table for each callback of the list, and the functions that go through them.
macro_rules! outputs {
    ($( $(#[doc = $doc:literal])+ $name:ident: $options:ty; )+) => {
        options! {
            /// The outputs of a run: the options of all callbacks. None of them changes a bit of the network.
            #[derive(Clone, Debug, PartialEq)]
            pub struct Outputs {
                ["Callbacks"]
                /// Stop when METRIC no longer improves: val_loss:patience=10,restore_best_weights; also min_delta, mode, baseline, start_from_epoch
                early_stop: Option<EarlyStop> = None, Kind::form(read_early_stop, "METRIC[:OPTIONS]"), "--early-stop METRIC[:OPTIONS]", with alias("early-stopping"), with brief("Stop when METRIC no longer improves");
                /// End the run without an error when the loss is NaN or infinite
                terminate_on_nan: bool = false, Kind::Switch, "--terminate-on-nan";
                /// Stop after the step in which the run reaches this time, and save it: 90m, 1h30m or 20s
                max_time: Option<u64> = None, Kind::form(max_time::seconds, "a time such as 90m, or a number of seconds"), "--max-time TIME";
                /// Stop after N steps in all, within an epoch too, and save the run
                max_steps: Option<u64> = None, Kind::Whole(1), "--max-steps N";
                /// No warnings of unbalanced classes, of images in both sets, and of losses that show that a run goes wrong
                no_warnings: bool = false, Kind::Switch, "--no-warnings";
                /// Also measure these metrics on the validation data
                metrics: Vec<String> = Vec::new(), MEASURED, "--metrics NAME,...";
                /// Record the mean loss and accuracy, the learning rate and the throughput of every N steps; 0 for never
                log_every: u64 = 50, Kind::Whole(0), "--log-every N";
                /// Another file for the curves, a .png or a .svg, besides those in the run's folder
                plot: Option<PathBuf> = None, Kind::form(towers_options::path, "a path in quotes");
                +
                /// The checkpoints to keep.
                checkpoints: CheckpointOptions;
                $( $(#[doc = $doc])+ $name: Option<$options>; )+
            }
        }

        /// The keys of a configuration that [`Outputs`] holds.
        pub const TABLES: [Table; 3 + [$(stringify!($name)),+].len()] = [
            Table { key: "", options: Outputs::OPTIONS, begins: None },
            checkpoints::TABLE,
            early_stopping::TABLE,
            $( <$options as Callback>::TABLE, )+
        ];

        impl Outputs {
            fn check_callbacks(&self) -> Result<()> {
                $( if let Some(callback) = &self.$name {
                    callback.check()?;
                    let needed = callback.metrics();
                    needed.iter().try_for_each(|(key, metric)| self.check_metric(key, metric))?;
                } )+
                Ok(())
            }

            /// The files and folders outside of the run's folder.
            pub fn outside(&self) -> Vec<Outside<'_>> {
                let plot = self.plot.as_deref().map(|path| Outside { key: "plot", path, is_folder: false });
                let all = [plot, $( self.$name.as_ref().and_then(Callback::outside) ),+];
                all.into_iter().flatten().collect()
            }

            /// Turns off all outputs outside of the run's folder.
            pub fn forget_outside(&mut self) {
                self.plot = None;
                $( self.$name.take_if(|callback| callback.outside().is_some()); )+
            }

            fn outside_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
                let all = [self.plot.as_mut(), $( self.$name.as_mut().and_then(Callback::outside_mut) ),+];
                all.into_iter().flatten()
            }

            /// The observers of the list that come before the checkpoints, or those after them.
            fn build(&self, run: &Run<'_>, before_checkpoints: bool) -> Result<Vec<Box<dyn Observer>>> {
                let mut observers = Vec::new();
                $( if let Some(callback) = &self.$name
                    && <$options as Callback>::BEFORE_CHECKPOINTS == before_checkpoints
                {
                    observers.push(callback.build(run)?);
                } )+
                Ok(observers)
            }
        }
    };
}

// The callbacks with a table of options: a line each, in the order in which they are called.
outputs! {
    /// Files of the network besides the run's own.
    model_checkpoint: ModelCheckpointOptions;
    /// A CSV file of the metrics of every epoch, as Keras writes it.
    csv_log: CsvLogOptions;
    /// A CSV file of the learning rate of every step.
    lr_log: LrLogOptions;
    /// Files for TensorBoard.
    tensorboard: TensorBoardOptions;
    /// Files of MLflow.
    mlflow: MlflowOptions;
    /// A command after every epoch.
    epoch_command: EpochCommandOptions;
}

fn read_early_stop(text: &str) -> Result<Value, Refused> {
    EarlyStop::parse(text).map(|stop| json!(stop))
}

impl Outputs {
    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::Option`] with the option, its value and the accepted values.
    pub fn check(&self) -> Result<()> {
        towers_options::check(&self.checkpoints, &checkpoints::TABLE)?;
        if let Some(best) = &self.checkpoints.save_best {
            self.check_metric("checkpoints.save_best", best)?;
        }
        if let Some(stop) = &self.early_stop {
            towers_options::check(stop, &early_stopping::TABLE)?;
            self.check_metric("early_stop.monitor", &stop.monitor)?;
        }
        self.check_callbacks()?;
        match (&self.checkpoints.save_best, &self.early_stop) {
            (Some(_), Some(stop)) if stop.restore_best_weights => {
                let accepted = message!(
                    "given without restore_best_weights where ",
                    ["checkpoints.save_best"],
                    " says which network is kept"
                );
                Err(Error::option("early_stop", format_args!("`{}`", stop.monitor), accepted))
            }
            _ => Ok(()),
        }
    }

    /// Takes the command after every epoch out. Whoever reads options from a file does so: a recipe or a checkpoint of
    /// somebody else must not choose a program to run.
    pub fn take_command(&mut self) -> Option<String> {
        self.epoch_command.take().map(|options| options.command)
    }

    /// The names of the metrics of every epoch.
    pub fn metric_names(&self) -> Vec<String> {
        let measured = self.metrics.iter().map(|name| format!("val_{name}"));
        ALWAYS.map(str::to_owned).into_iter().chain(measured).collect()
    }

    /// Checks that the run measures the metric which the option `key` names.
    ///
    /// # Errors
    /// [`Error::Option`] if it doesn't.
    pub fn check_metric(&self, key: &'static str, metric: &str) -> Result<()> {
        let name = towers_metrics::canonical(metric);
        let measured = self.metric_names();
        if measured.iter().any(|own| *own == name) {
            return Ok(());
        }
        let add = name.strip_prefix("val_").unwrap_or(&name);
        let known = measured.join(", ");
        let accepted = message!("a metric of the run: {known}, or {metric} with `{add}` in ", ["metrics"]);
        Err(Error::option(key, format_args!("`{metric}`"), accepted))
    }

    /// Makes the paths outside of the run's folder absolute, so that a resume from elsewhere finds the same
    /// files.
    ///
    /// # Errors
    /// [`Error::File`] if there is no current folder.
    pub fn make_absolute(&mut self) -> Result<()> {
        // `check` refuses an empty path.
        for path in self.outside_mut().filter(|path| !path.as_os_str().is_empty()) {
            *path = std::path::absolute(&*path).map_err(Error::io("find", &*path))?;
        }
        Ok(())
    }
}

/// The callbacks that may stop a run before its last epoch. `towers_train::train` adds them, so that a configuration
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
/// [`ModelCheckpoint`](crate::ModelCheckpoint), which a resume does not write again: after a kill between the two it repeats the epoch.
///
/// ```
/// use towers_callbacks::{Outputs, Run};
///
/// # let folder = tempfile::tempdir()?;
/// let run = Run::new(folder.path(), "minigooglenet on CIFAR-10");
/// assert_eq!(towers_callbacks::from_config(&Outputs::default(), &run)?.len(), 5);
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
    let mut callbacks = outputs.build(run, true)?;
    callbacks.push(Box::new(checkpoints));
    callbacks.push(Box::new(History::new(folder)));
    callbacks.push(Box::new(Environment::new(folder)));
    if outputs.log_every > 0 {
        callbacks.push(Box::new(StepHistory::new(folder)));
    }
    callbacks.push(Box::new(Curves::new(folder, run.title)));
    if let Some(picture) = &outputs.plot {
        callbacks.push(Box::new(Curves::in_file(picture, run.title)?));
    }
    // After the curves, which MLflow's artifacts have.
    callbacks.extend(outputs.build(run, false)?);
    Ok(callbacks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_measures_what_is_watched() {
        let with = |metrics: &[&str], watched: &str| {
            let metrics = metrics.iter().map(|&name| name.to_owned()).collect();
            let early_stop = Some(EarlyStop { monitor: watched.to_owned(), ..EarlyStop::default() });
            Outputs { metrics, early_stop, ..Outputs::default() }.check().map_err(|error| error.to_string())
        };
        assert_eq!(with(&["f1", "top3_acc"], "val_top3_acc"), Ok(()));
        assert_eq!(with(&[], "val_accuracy"), Ok(()));
        let refused = "`early_stop.monitor` is `val_f1`, but must be a metric of the run: loss, acc, val_loss, val_acc, \
                       val_auc, or val_f1 with `f1` in `metrics`";
        assert_eq!(with(&["auc"], "val_f1"), Err(refused.to_owned()));
        let pattern =
            ModelCheckpointOptions { path: "{val_f1:.2f}.safetensors".into(), ..Default::default() };
        let outputs = Outputs { model_checkpoint: Some(pattern), ..Outputs::default() };
        assert!(outputs.check().unwrap_err().to_string().starts_with("`model_checkpoint.path` is `val_f1`"));
        let outputs = Outputs { metrics: vec!["f1".to_owned()], ..outputs };
        assert!(outputs.check().is_ok());
    }

    /// Nothing comes before the checkpoints, and only what the run can't do without ends it.
    #[test]
    fn a_run_needs_its_own_files_alone() {
        let folder = tempfile::tempdir().unwrap();
        let outputs = Outputs {
            csv_log: Some(CsvLogOptions { path: "log.csv".into(), ..CsvLogOptions::default() }),
            lr_log: Some(LrLogOptions { path: "lr.csv".into(), ..LrLogOptions::default() }),
            tensorboard: Some(TensorBoardOptions { path: "logs".into(), ..TensorBoardOptions::default() }),
            mlflow: Some(MlflowOptions { path: "mlruns".into(), ..MlflowOptions::default() }),
            epoch_command: Some(EpochCommandOptions { command: "true".into() }),
            plot: Some("plot.svg".into()),
            ..Outputs::default()
        };
        let run = Run::new(folder.path(), "");
        let callbacks = from_config(&outputs, &run).unwrap();
        let optional: Vec<bool> = callbacks.iter().map(|callback| callback.is_optional()).collect();
        // Checkpoints, history, environment, steps; two times curves, CSV, learning rates, TensorBoard, MLflow, the command.
        assert_eq!(optional, [[false; 4].as_slice(), &[true; 7]].concat());
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
