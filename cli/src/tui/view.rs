//! The content of the view: numbers only, no terminal.

use callbacks::Monitor;
use train::{EpochRecord, RunInfo, StepInfo, printable};

/// The seconds between two values of the throughput.
const RATE_EVERY: f64 = 0.5;

/// The number of throughput values that are kept.
const RATES: usize = 240;

/// All content of the screen.
#[derive(Default)]
pub struct View {
    /// The run's folder.
    pub run: String,
    /// The network.
    pub model: String,
    /// The devices, in words.
    pub devices: String,
    /// The number of replicas.
    pub replicas: usize,
    /// Epochs of the run.
    pub epochs: u64,
    /// The current epoch, from 0.
    pub epoch: u64,
    /// The newest step, if there was one in this epoch.
    pub step: Option<StepInfo>,
    /// While the validation data are evaluated: samples done, and all samples.
    pub evaluating: Option<(usize, usize)>,
    /// The finished epochs.
    pub history: Vec<EpochRecord>,
    /// Images per second, the newest last.
    pub rates: Vec<f64>,
    /// Images per second of each replica while it computes, by rank; empty if not known.
    pub replica_rates: Vec<f64>,
    /// The lines that a run without the view would print.
    pub log: Vec<String>,
    /// Whether the run was asked to stop.
    pub stopping: bool,
    /// The seconds and samples of the epoch at the last throughput value.
    last_rate_at: Option<(f64, u64)>,
    /// The epoch at which the run resumed, and its steps done before.
    resumed: (u64, u64),
}

impl View {
    pub fn new(run: &str) -> Self {
        View { run: printable(run), ..View::default() }
    }

    pub fn begin(&mut self, run: &RunInfo<'_>) {
        self.model = printable(run.model);
        self.devices = printable(&run.devices);
        self.replicas = run.replicas;
        self.epochs = run.epochs;
        self.history = run.state.history.clone();
        self.resumed = (run.state.epoch, run.state.partial.steps);
    }

    pub fn begin_epoch(&mut self, epoch: u64) {
        (self.epoch, self.step, self.evaluating, self.last_rate_at) = (epoch, None, None, None);
    }

    pub fn step(&mut self, step: &StepInfo) {
        self.step = Some(*step);
        let Some((seconds, samples)) = self.last_rate_at else {
            // The first step of an epoch includes the start of loading.
            self.last_rate_at = Some((step.seconds, step.samples));
            return;
        };
        if step.seconds - seconds >= RATE_EVERY {
            self.rates.push((step.samples - samples) as f64 / (step.seconds - seconds));
            self.rates.drain(..self.rates.len().saturating_sub(RATES));
            self.last_rate_at = Some((step.seconds, step.samples));
        }
    }

    pub fn epoch(&mut self, record: &EpochRecord) {
        self.history.push(record.clone());
        self.evaluating = None;
    }

    /// The finished share of the epoch, and a description.
    pub fn progress(&self) -> (f64, String) {
        if let Some((done, all)) = self.evaluating {
            return (share(done as f64, all as f64), format!("validating, {done} of {all} images"));
        }
        match &self.step {
            Some(step) => {
                let (done, all) = (step.steps_done as f64, step.steps_per_epoch as f64);
                // The seconds count from the resume.
                let before = if self.resumed.0 == step.epoch { self.resumed.1 as f64 } else { 0.0 };
                let left = step.seconds / (done - before).max(1.0) * (all - done);
                let words = format!("step {} of {}, {left:.0} s left", step.steps_done, step.steps_per_epoch);
                (share(done, all), words)
            }
            None => (0.0, "begins".to_owned()),
        }
    }

    /// The newest throughput, or that of the last epoch if there is none yet.
    pub fn rate(&self) -> Option<f64> {
        self.rates.last().copied().or_else(|| Some(self.history.last()?.images_per_second))
    }

    /// The epoch, from 1, with the highest validation accuracy, and that accuracy.
    pub fn best(&self) -> Option<(u64, f64)> {
        let best = Monitor::default().best_of(&self.history)?;
        Some((best.epoch, best.val_acc))
    }

    /// A value of each epoch over the epoch's number; values that are not finite are left out.
    pub fn curve(&self, value: impl Fn(&EpochRecord) -> f64) -> Vec<(f64, f64)> {
        let points = self.history.iter().map(|record| (record.epoch as f64, value(record)));
        points.filter(|(_, y)| y.is_finite()).collect()
    }
}

fn share(done: f64, all: f64) -> f64 {
    if all > 0.0 { (done / all).clamp(0.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbacks::testing;
    use train::TrainState;

    fn step(steps_done: u64, seconds: f64) -> StepInfo {
        StepInfo { samples: steps_done * 100, seconds, ..testing::step(1, steps_done, 10) }
    }

    #[test]
    fn throughput_is_that_of_the_newest_half_second() {
        let mut view = View::new("run");
        view.begin_epoch(1);
        for (done, seconds) in [(1, 2.0), (2, 2.25), (3, 2.5), (4, 2.75), (5, 3.5)] {
            view.step(&step(done, seconds));
        }
        assert_eq!(view.rates, [400.0, 200.0]);
        assert_eq!(view.progress(), (0.5, "step 5 of 10, 4 s left".to_owned()));
        // The earlier steps of a resumed epoch took none of these seconds.
        view.resumed = (1, 3);
        assert_eq!(view.progress(), (0.5, "step 5 of 10, 9 s left".to_owned()));
        // Another epoch counts from its beginning.
        view.begin_epoch(2);
        view.step(&step(1, 0.1));
        assert_eq!(view.rate(), Some(200.0));
    }

    #[test]
    fn the_best_epoch_is_the_first_of_the_highest() {
        let record = |epoch, val_acc| EpochRecord {
            images_per_second: 50.0,
            ..testing::record(epoch, [1.0, 0.5, f64::NAN, val_acc])
        };
        let mut view = View::new("run");
        assert_eq!((view.best(), view.rate()), (None, None));
        [record(1, 0.3), record(2, 0.7), record(3, 0.7), record(4, f64::NAN)]
            .iter()
            .for_each(|r| view.epoch(r));
        assert_eq!((view.best(), view.rate()), (Some((2, 0.7)), Some(50.0)));
        assert_eq!(view.curve(|record| record.val_loss), []);
        assert_eq!(view.curve(|record| record.val_acc).len(), 3);
    }

    #[test]
    fn what_a_run_says_at_its_beginning_is_kept() {
        let (state, devices) = (TrainState::default(), "3 replicas, each on the CPU (1 thread)".to_owned());
        let mut view = View::new("run");
        view.begin(&RunInfo { replicas: 3, devices: devices.clone(), ..testing::run(7, &state) });
        assert_eq!((view.replicas, view.epochs, view.devices), (3, 7, devices));
    }
}
