use crate::monitor::{METRIC, MODE};
use crate::{EpochRecord, Flow, Monitor, Observer, Result, RunInfo, Snapshot, TrainState, figure};
use towers_checkpoint::Mode;
use towers_options::{Kind, Refused, Table, options};

options! {
    /// The options of early stopping, as in Keras' `EarlyStopping`. The default patience is 5; Keras has 0,
    /// which ends a run at the first worse epoch. [`EarlyStopping`] is the callback.
    #[derive(Clone, Debug, PartialEq)]
    pub struct EarlyStop {
        ["Callbacks"]
        /// The metric to watch
        monitor: String = "val_loss".to_owned(), METRIC;
        /// The direction of improvement: min, max, or auto by the metric's name
        mode: Mode = Mode::Auto, MODE;
        /// A change of this much or less is no improvement
        min_delta: f64 = 0.0, Kind::Number;
        /// Epochs with the metric, and without improvement, before the run stops
        patience: u64 = 5, Kind::Whole(0), "--patience N";
        /// A value that the metric must also beat to reset the patience
        baseline: Option<f64> = None, Kind::Number;
        /// Write the network of the best epoch to model.safetensors, instead of the last one
        restore_best_weights: bool = false, Kind::Switch;
        /// Epochs at the beginning that are ignored
        start_from_epoch: u64 = 0, Kind::Whole(0);
    }
}

/// The options in a configuration.
pub(crate) const TABLE: Table = Table {
    key: "early_stop",
    options: EarlyStop::OPTIONS,
    begins: Some(|| serde_json::json!(EarlyStop::default())),
};

impl EarlyStop {
    /// Reads `METRIC[:OPTION=VALUE,...]`, with Keras' names for the options.
    ///
    /// ```
    /// let stop = towers_callbacks::EarlyStop::parse("val_acc:patience=10,min_delta=0.001,restore_best_weights").unwrap();
    /// assert_eq!((stop.patience, stop.min_delta, stop.restore_best_weights), (10, 0.001, true));
    /// assert!(towers_callbacks::EarlyStop::parse("val_acc:patient=10").is_err());
    /// ```
    ///
    /// # Errors
    /// The value and the accepted values.
    pub fn parse(text: &str) -> Result<Self, Refused> {
        towers_options::parse_table(Self::OPTIONS, "monitor", text)
    }
}

/// Stops a run when a metric has stopped improving: Keras' `EarlyStopping`, with its names and defaults.
///
/// An epoch is an improvement if it beats the best one by more than `min_delta`. The run stops after
/// `patience` epochs in a row without improvement; with 0, after the first one. With a `baseline`, only
/// improvements that also beat the baseline reset the patience. Epochs without the metric are not counted, as in
/// Keras: after those no validation data were measured. After a resume the previous epochs count as
/// if there had been no pause.
///
/// As in Keras 3, the first epoch never stops a run. Unlike in Keras, a value that is not finite is never an
/// improvement: nothing could beat a best value of NaN. An observer can't change a network, so the best
/// weights are a file: [`Checkpoints`](crate::Checkpoints) writes it with `restore_best_weights`.
///
/// ```
/// use towers_callbacks::{EarlyStop, EarlyStopping};
///
/// let observer = EarlyStopping::new(EarlyStop { patience: 10, min_delta: 0.001, ..EarlyStop::default() })?;
/// assert!(EarlyStopping::new(EarlyStop { monitor: "val_los".into(), ..EarlyStop::default() }).is_err());
/// # Ok::<(), towers_callbacks::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct EarlyStopping {
    options: EarlyStop,
    monitor: Monitor,
    /// The value and the number of the best epoch.
    best: Option<(f64, u64)>,
    /// Epochs since the patience was reset.
    wait: u64,
    /// Whether the last epoch was one to stop after.
    stopped: bool,
    /// Whether an epoch had no such metric.
    skips: bool,
}

/// The decision about an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// It is the best so far.
    pub(crate) best: bool,
    /// The patience is used up.
    pub(crate) stop: bool,
}

impl EarlyStopping {
    /// Early stopping with these options.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) for options that make no sense.
    pub fn new(options: EarlyStop) -> Result<Self> {
        towers_options::check(&options, &TABLE)?;
        let monitor = Monitor::new(&options.monitor, options.mode, options.min_delta);
        Ok(EarlyStopping { options, monitor, best: None, wait: 0, stopped: false, skips: false })
    }

    /// The value and the number of the best epoch so far.
    pub fn best(&self) -> Option<(f64, u64)> {
        self.best
    }

    /// Forgets the epochs seen.
    pub(crate) fn reset(&mut self) {
        (self.best, self.wait, self.stopped, self.skips) = (None, 0, false, false);
    }

    /// Takes an epoch into account.
    pub(crate) fn observe(&mut self, record: &EpochRecord) -> Verdict {
        let verdict = self.judge(record);
        self.stopped = verdict.stop;
        verdict
    }

    fn judge(&mut self, record: &EpochRecord) -> Verdict {
        let value = record.get(&self.options.monitor);
        self.skips |= value.is_none();
        // Keras counts epochs from 0.
        let Some(value) = value.filter(|_| record.epoch > self.options.start_from_epoch) else {
            return Verdict { best: false, stop: false };
        };
        self.wait += 1;
        if self.monitor.improves(value, self.best.map(|(value, _)| value)) {
            self.best = Some((value, record.epoch));
            if self.options.baseline.is_none() || self.monitor.improves(value, self.options.baseline) {
                self.wait = 0;
            }
            return Verdict { best: true, stop: false };
        }
        Verdict { best: false, stop: self.wait >= self.options.patience && record.epoch > 1 }
    }

    fn flow(&self) -> Flow {
        if self.stopped { Flow::Stop(self.reason()) } else { Flow::Continue }
    }

    fn reason(&self) -> String {
        let epochs = match (self.skips, self.wait) {
            (true, 1) => "validation",
            (true, _) => "validations",
            (false, 1) => "epoch",
            (false, _) => "epochs",
        };
        let metric = &self.options.monitor;
        match self.best {
            Some((value, epoch)) => {
                format!(
                    "{metric} has not improved for {} {epochs}; its best was {} in epoch {epoch}",
                    self.wait,
                    figure(value)
                )
            }
            None => format!("{metric} has had no finite value for {} {epochs}", self.wait),
        }
    }
}

impl Observer for EarlyStopping {
    fn on_begin(&mut self, run: &RunInfo<'_>) -> Result<()> {
        self.reset();
        for record in &run.state.history {
            self.observe(record);
        }
        Ok(())
    }

    fn on_resume(&mut self, _: &TrainState) -> Result<Flow> {
        Ok(self.flow())
    }

    fn on_epoch_end(&mut self, record: &EpochRecord, _: &TrainState, _: &dyn Snapshot) -> Result<Flow> {
        self.observe(record);
        Ok(self.flow())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fake, record, run, state, unvalidated};
    use serde_json::Value;

    /// The epoch (from 1) after which `observer` stops, and its reason, with `values` as `val_loss` and as
    /// `acc`.
    fn stop(observer: &mut EarlyStopping, values: &[f64]) -> Option<(u64, String)> {
        values.iter().zip(1..).find_map(|(&value, epoch)| {
            let record = record(epoch, [0.0, value, value, 0.0]);
            match observer.on_epoch_end(&record, &state(vec![record.clone()]), &Fake(0.0)).unwrap() {
                Flow::Stop(reason) => Some((epoch, reason)),
                Flow::Continue => None,
            }
        })
    }

    fn watching(monitor: &str, patience: u64) -> EarlyStopping {
        let options = EarlyStop { monitor: monitor.to_owned(), patience, ..EarlyStop::default() };
        EarlyStopping::new(options).unwrap()
    }

    /// Keras' results, written by `tests/golden/early_stopping.py`.
    #[test]
    fn stops_when_keras_stops() {
        let text = include_str!("../../../tests/golden/early_stopping.json");
        let cases: Vec<Value> = serde_json::from_str(text).unwrap();
        assert!(cases.len() > 50);
        for case in &cases {
            let mode = if case["mode"] == "min" { Mode::Min } else { Mode::Max };
            let values: Vec<f64> = serde_json::from_value(case["values"].clone()).unwrap();
            let options = EarlyStop {
                mode,
                patience: case["patience"].as_u64().unwrap(),
                min_delta: case["min_delta"].as_f64().unwrap(),
                start_from_epoch: case["start_from_epoch"].as_u64().unwrap(),
                baseline: case["baseline"].as_f64(),
                ..EarlyStop::default()
            };
            let mut observer = EarlyStopping::new(options).unwrap();
            assert_eq!(stop(&mut observer, &values).map(|stop| stop.0), case["stopped"].as_u64(), "{case}");
            // Without a best epoch Keras keeps the weights.
            let restored = observer.best().map_or(values.len() as u64, |(_, epoch)| epoch);
            assert_eq!(Some(restored), case["restored"].as_u64(), "{case}");
        }
    }

    #[test]
    fn the_direction_follows_the_name() {
        let falling = [0.9, 0.8, 0.7];
        assert_eq!(stop(&mut watching("val_loss", 0), &falling), None);
        let (epoch, reason) = stop(&mut watching("acc", 0), &falling).unwrap();
        assert_eq!(
            (epoch, reason.as_str()),
            (2, "acc has not improved for 1 epoch; its best was 0.9000 in epoch 1")
        );
    }

    #[test]
    fn what_is_not_finite_never_improves() {
        let mut observer = watching("val_loss", 2);
        assert_eq!(stop(&mut observer, &[f64::NAN, 2.0, 1.0, 0.5]), None);
        let mut observer = watching("val_loss", 2);
        let (epoch, reason) = stop(&mut observer, &[f64::NAN, f64::NAN, 1.0]).unwrap();
        assert_eq!((epoch, reason.as_str()), (2, "val_loss has had no finite value for 2 epochs"));
    }

    #[test]
    fn patience_counts_validated_epochs() {
        let history: Vec<_> = (1..=8)
            .map(|epoch| match epoch % 2 {
                0 => record(epoch, [1.0, 0.5, 0.5 + epoch as f64, 0.5]),
                _ => unvalidated(epoch, 1.0, 0.5),
            })
            .collect();
        let mut observer = watching("val_loss", 3);
        let mut judge = |record| observer.on_epoch_end(record, &state(vec![]), &Fake(0.0)).unwrap();
        let flows = Vec::from_iter(history.iter().map(&mut judge));
        let reason = "val_loss has not improved for 3 validations; its best was 2.5000 in epoch 2";
        assert_eq!(flows[..7], vec![Flow::Continue; 7]);
        assert_eq!(flows[7], Flow::Stop(reason.to_owned()));
        let mut resumed = watching("val_loss", 3);
        let before = state(history);
        resumed.on_begin(&run(9, &before)).unwrap();
        assert_eq!(resumed.on_resume(&before).unwrap(), Flow::Stop(reason.to_owned()));
    }

    #[test]
    fn a_resume_remembers_the_epochs_before() {
        let values = [1.0, 0.5, 0.6, 0.7, 0.8, 0.9];
        let whole = stop(&mut watching("val_loss", 3), &values);
        assert_eq!(whole.as_ref().unwrap().0, 5);
        let history: Vec<_> = (1..=4).map(|k| record(k, [0.0, 0.0, values[k as usize - 1], 0.0])).collect();
        let mut observer = watching("val_loss", 3);
        let (epochs, before) = (9, state(history));
        observer.on_begin(&run(epochs, &before)).unwrap();
        assert_eq!(observer.on_resume(&before).unwrap(), Flow::Continue);
        let fifth = record(5, [0.0, 0.0, values[4], 0.0]);
        let flow = observer.on_epoch_end(&fifth, &before, &Fake(0.0)).unwrap();
        assert_eq!(flow, Flow::Stop(whole.as_ref().unwrap().1.clone()));
        let stopped = state([before.history, vec![fifth]].concat());
        observer.on_begin(&run(epochs, &stopped)).unwrap();
        assert_eq!(observer.on_resume(&stopped).unwrap(), Flow::Stop(whole.unwrap().1), "it stays stopped");
    }

    #[test]
    fn an_unknown_metric_is_refused() {
        let options = EarlyStop { monitor: "val_los".to_owned(), ..EarlyStop::default() };
        let error = EarlyStopping::new(options).unwrap_err();
        let measured = Vec::from_iter(towers_metrics::names().map(|name| format!("val_{name}"))).join(", ");
        let known = format!("loss, acc, val_loss, val_acc, accuracy, val_accuracy, {measured}");
        assert_eq!(
            error.to_string(),
            format!(
                "`early_stop.monitor` is \"val_los\", but must be one of {known}; did you mean `val_loss`?"
            )
        );
    }
}
