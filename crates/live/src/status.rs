use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use towers_callbacks::{
    EpochRecord, Flow, Monitor, Observer, Result, RunInfo, RunTime, Snapshot, StepInfo, StepRecord,
    TrainState, metric_names, metric_panels, points_by_epoch, printable, speed_panels,
};
use towers_plot::{Axis, Panel};

/// The seconds between two values of the throughput.
const RATE_EVERY: f64 = 0.5;

/// The number of throughput values that are kept.
const RATES: usize = 240;

/// The most records of steps; of more, two neighbours become one.
const RECORDS: usize = 512;

/// The most warnings that are kept.
const WARNINGS: usize = 20;

/// What a live view shows of a run: numbers and texts, no terminal and no page. Texts have no control characters.
#[derive(Clone, Debug, Default)]
pub struct RunStatus {
    /// The recipe.
    pub recipe: String,
    /// The network.
    pub model: String,
    /// The devices, in words.
    pub devices: String,
    /// The number of replicas.
    pub replicas: usize,
    /// Epochs of the run.
    pub epochs: u64,
    /// Steps of an epoch.
    pub steps_per_epoch: u64,
    /// Training samples of these steps.
    pub samples_per_epoch: u64,
    /// The current epoch, from 1; 0 before the run begins.
    pub epoch: u64,
    /// The newest step, if there was one in this epoch.
    pub step: Option<StepInfo>,
    /// Before the run, while the images in files are read: images done, and all images.
    pub reading: Option<(usize, usize)>,
    /// While the validation data are evaluated: samples done, and all samples.
    pub evaluating: Option<(usize, usize)>,
    /// The finished epochs.
    pub history: Vec<EpochRecord>,
    /// Records within the epochs since the start or the resume.
    pub records: Vec<StepRecord>,
    /// Images per second, the newest last.
    pub rates: Vec<f64>,
    /// Images per second of each replica while it computes, by rank; empty if not known.
    pub replica_rates: Vec<f64>,
    /// The newest warnings.
    pub warnings: Vec<String>,
    /// The time of the run.
    pub time: RunTime,
    /// The seconds and samples of the epoch at the last throughput value.
    last_rate_at: Option<(f64, u64)>,
}

impl RunStatus {
    /// The finished share of the epoch, and a description.
    pub fn progress(&self) -> (f64, String) {
        let (done, all, words) = match (self.reading, self.evaluating, &self.step) {
            (Some((done, all)), ..) => (done as f64, all as f64, format!("reading, {done} of {all} images")),
            (_, Some((done, all)), _) => {
                (done as f64, all as f64, format!("validating, {done} of {all} images"))
            }
            (.., Some(step)) => {
                let (done, all) = (step.steps_done, step.steps_per_epoch);
                let left = self.time.left_in_epoch().map(RunTime::words).unwrap_or_default();
                (done as f64, all as f64, format!("step {done} of {all}, {left} left"))
            }
            _ => (0.0, 0.0, "begins".to_owned()),
        };
        let epochs = self.epochs.max(1);
        let epoch = self.epoch.clamp(1, epochs);
        let share = if all > 0.0 { (done / all).clamp(0.0, 1.0) } else { 0.0 };
        (share, format!("Epoch {epoch} of {epochs}: {words}"))
    }

    /// The newest throughput, or that of the last epoch if there is none yet.
    pub fn rate(&self) -> Option<f64> {
        self.rates.last().copied().or_else(|| Some(self.history.last()?.images_per_second))
    }

    /// The epoch with the highest validation accuracy, and that accuracy.
    pub fn best(&self) -> Option<(u64, f64)> {
        let best = Monitor::default().best_of(&self.history)?;
        Some((best.epoch, best.get("val_acc")?))
    }

    /// The points of a [figure](EpochRecord::get) over the number of epochs. Those of training are within the epochs, with
    /// fractions; epochs without such records, as before a resume, have one value. Values that are not finite are left out.
    pub fn points(&self, figure: &str) -> Vec<(f64, f64)> {
        let all = self.steps_per_epoch.max(1) as f64;
        let within = || self.records.iter().filter_map(|record| Some((record, record.get(figure)?)));
        let first = within().next().map_or(f64::INFINITY, |(record, _)| record.epoch as f64);
        let mut points = points_by_epoch(&self.history, figure);
        points.retain(|(epoch, _)| *epoch < first);
        points.extend(within().map(|(record, value)| (record.step as f64 / all, value)));
        points.retain(|(_, value)| value.is_finite());
        points
    }

    /// The number of epochs that the curves span: what has run, in whole epochs, and at least one.
    pub fn epochs_shown(&self) -> u64 {
        let ends = ["loss", "val_loss"].map(|figure| self.points(figure));
        let last = ends.iter().filter_map(|points| points.last()).fold(1.0_f64, |last, (x, _)| x.max(last));
        last.ceil() as u64
    }

    /// A chart of each metric. The first two are those of loss and accuracy.
    pub fn metric_panels(&self) -> Vec<Panel> {
        let panels =
            metric_panels(&metric_names(&self.history), &[("", &|figure: &str| self.points(figure))]);
        panels.into_iter().map(|panel| self.spanned(panel)).collect()
    }

    /// Charts of the learning rate and of the throughput.
    pub fn speed_panels(&self) -> [Panel; 2] {
        speed_panels(&[("", &|figure: &str| self.points(figure))]).map(|panel| self.spanned(panel))
    }

    fn spanned(&self, mut panel: Panel) -> Panel {
        panel.x = Axis::epochs(0..=self.epochs_shown());
        panel
    }
}

/// Makes one record of each pair.
fn halve(records: &mut Vec<StepRecord>) {
    let joined = records.chunks(2).map(|pair| {
        let last = &pair[pair.len() - 1];
        let mean =
            |name: &str| pair.iter().filter_map(|record| record.get(name)).sum::<f64>() / pair.len() as f64;
        let metrics = last.metrics.names().map(|name| (name.to_owned(), mean(name))).collect();
        let mut joined = last.clone();
        (joined.metrics, joined.images_per_second) = (metrics, mean("images_per_second"));
        joined
    });
    *records = joined.collect();
}

/// An [`Observer`] that keeps a [`RunStatus`], for the threads with a clone of it to show.
#[derive(Clone, Debug, Default)]
pub struct LiveStatus(Arc<Mutex<RunStatus>>);

impl LiveStatus {
    /// A copy, so that the training thread never waits for the drawing.
    pub fn now(&self) -> RunStatus {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, RunStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for LiveStatus {
    fn on_read(&mut self, done: usize, all: usize) -> Result<()> {
        self.lock().reading = Some((done, all));
        Ok(())
    }

    fn on_begin(&mut self, run: &RunInfo<'_>) -> Result<()> {
        *self.lock() = RunStatus {
            recipe: printable(run.recipe),
            model: printable(run.model),
            devices: printable(&run.devices),
            replicas: run.replicas,
            epochs: run.epochs,
            steps_per_epoch: run.steps_per_epoch,
            samples_per_epoch: match run.state.global_batch as u64 {
                0 => run.train_samples as u64,
                batch => (run.steps_per_epoch * batch).min(run.train_samples as u64),
            },
            epoch: run.state.epochs_done + 1,
            history: run.state.history.clone(),
            time: RunTime::new(run),
            ..RunStatus::default()
        };
        Ok(())
    }

    fn on_epoch_begin(&mut self, epoch: u64) -> Result<()> {
        let mut status = self.lock();
        (status.epoch, status.step, status.evaluating, status.last_rate_at) = (epoch, None, None, None);
        Ok(())
    }

    fn on_step(&mut self, step: &StepInfo) -> Result<()> {
        let status = &mut *self.lock();
        status.step = Some(step.clone());
        status.time.step(step);
        let Some((seconds, samples)) = status.last_rate_at else {
            // The first step of an epoch includes the start of loading.
            status.last_rate_at = Some((step.seconds, step.samples));
            return Ok(());
        };
        if step.seconds - seconds >= RATE_EVERY {
            status.rates.push((step.samples - samples) as f64 / (step.seconds - seconds));
            status.rates.drain(..status.rates.len().saturating_sub(RATES));
            status.last_rate_at = Some((step.seconds, step.samples));
        }
        Ok(())
    }

    fn on_record(&mut self, record: &StepRecord) -> Result<()> {
        let mut status = self.lock();
        let records = &mut status.records;
        records.push(record.clone());
        if records.len() >= RECORDS {
            halve(records);
        }
        Ok(())
    }

    fn on_replica_rates(&mut self, images_per_second: &[f64]) -> Result<()> {
        self.lock().replica_rates = images_per_second.to_vec();
        Ok(())
    }

    fn on_evaluate(&mut self, done: usize, all: usize) -> Result<()> {
        self.lock().evaluating = Some((done, all));
        Ok(())
    }

    fn on_warning(&mut self, warning: &str) -> Result<()> {
        let mut status = self.lock();
        let warnings = &mut status.warnings;
        warnings.push(printable(warning));
        warnings.drain(..warnings.len().saturating_sub(WARNINGS));
        Ok(())
    }

    fn on_epoch_end(&mut self, record: &EpochRecord, _: &TrainState, _: &dyn Snapshot) -> Result<Flow> {
        let mut status = self.lock();
        status.history.push(record.clone());
        status.time.epoch(record);
        (status.step, status.evaluating) = (None, None);
        Ok(Flow::Continue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towers_callbacks::testing::{self, Fake, record, run, state, step_record};

    fn step(steps_done: u64, seconds: f64) -> StepInfo {
        let mut step = testing::step(2, steps_done, 10);
        (step.samples, step.seconds) = (steps_done * 100, seconds);
        step
    }

    /// Ten steps an epoch, after the epochs of `history`.
    fn begun(history: Vec<EpochRecord>) -> LiveStatus {
        let (mut status, state) = (LiveStatus::default(), state(history));
        let mut run = run(9, &state);
        run.steps_per_epoch = 10;
        status.on_begin(&run).unwrap();
        status
    }

    #[test]
    fn throughput_is_that_of_the_newest_half_second() {
        let mut status = begun(vec![record(1, [1.0; 4])]);
        status.on_epoch_begin(2).unwrap();
        for (done, seconds) in [(1, 2.0), (2, 2.25), (3, 2.5), (4, 2.75), (5, 6.5)] {
            status.on_step(&step(done, seconds)).unwrap();
        }
        assert_eq!(status.now().rates, [400.0, 200.0 / 4.0]);
        assert_eq!(status.now().progress(), (0.5, "Epoch 2 of 9: step 5 of 10, 7s left".to_owned()));
        // Another epoch counts from its beginning.
        status.on_epoch_begin(3).unwrap();
        status.on_step(&step(1, 0.1)).unwrap();
        assert_eq!(status.now().rate(), Some(50.0));
    }

    #[test]
    fn images_are_read_before_the_first_step() {
        let (mut status, state) = (LiveStatus::default(), state(vec![]));
        status.on_read(5, 10).unwrap();
        assert_eq!(status.now().progress(), (0.5, "Epoch 1 of 1: reading, 5 of 10 images".to_owned()));
        status.on_begin(&run(9, &state)).unwrap();
        assert_eq!(status.now().progress(), (0.0, "Epoch 1 of 9: begins".to_owned()));
    }

    #[test]
    fn the_best_epoch_is_the_first_of_the_highest() {
        let record = |epoch, val_acc| {
            let mut record = record(epoch, [1.0, 0.5, f64::NAN, val_acc]);
            record.images_per_second = 50.0;
            record
        };
        let mut status = begun(vec![]);
        assert_eq!((status.now().best(), status.now().rate()), (None, None));
        for record in [record(1, 0.3), record(2, 0.7), record(3, 0.7), record(4, f64::NAN)] {
            status.on_epoch_end(&record, &state(vec![]), &Fake(0.0)).unwrap();
        }
        let status = status.now();
        assert_eq!((status.best(), status.rate()), (Some((2, 0.7)), Some(50.0)));
        assert_eq!(status.points("val_loss"), []);
        assert_eq!(status.points("val_acc").len(), 3);
    }

    /// The epochs of before a resume have one point each.
    #[test]
    fn curves_go_on_within_the_epoch() {
        let mut status = begun(vec![record(1, [3.0; 4]), record(2, [2.0; 4])]);
        let record = |step, loss| step_record(step, loss, 0.5);
        for (step, loss) in [(25, 1.5), (30, f64::NAN), (35, 1.0)] {
            status.on_record(&record(step, loss)).unwrap();
        }
        let loss = |status: &LiveStatus| status.now().points("loss");
        assert_eq!(loss(&status), [(1.0, 3.0), (2.0, 2.0), (2.5, 1.5), (3.5, 1.0)]);
        let mut status = begun(vec![]);
        for step in 1..=RECORDS as u64 {
            status.on_record(&record(step, step as f64)).unwrap();
        }
        let halved = loss(&status);
        assert_eq!((halved.len(), halved[0], halved[255]), (RECORDS / 2, (0.2, 1.5), (51.2, 511.5)));
    }

    #[test]
    fn texts_have_no_control_characters() {
        let (state, devices) = (state(vec![]), "3 replicas, each on the CPU (1 thread)\u{1b}".to_owned());
        let mut status = LiveStatus::default();
        let mut run = run(7, &state);
        (run.replicas, run.devices) = (3, devices);
        status.on_begin(&run).unwrap();
        status.on_warning("slow\u{202e}").unwrap();
        let status = status.now();
        assert_eq!((status.replicas, status.epochs, status.warnings[0].as_str()), (3, 7, "slow\\u202e"));
        assert_eq!(status.devices, "3 replicas, each on the CPU (1 thread)\\u001b");
    }
}
