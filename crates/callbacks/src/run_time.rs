use crate::{EpochRecord, RunInfo, StepInfo, TrainState};

/// With fewer steps or seconds of an epoch than these, the last epoch tells better how long a step takes.
const STEPS: u64 = 10;
const SECONDS: f64 = 5.0;

/// The time of a forward pass in a training step: the backward pass has two products for each one of the
/// forward pass. It estimates the time of the first evaluation.
const FORWARD: f64 = 1.0 / 3.0;

/// The time of a whole run: how long it has trained, and how long it still will.
///
/// Both are known right after a resume, from the finished epochs. The time left is that of all epochs, without
/// an early stop.
///
/// ```
/// use towers_callbacks::{RunTime, testing};
///
/// let state = testing::state(vec![testing::record(1, [0.5; 4]), testing::record(2, [0.5; 4])]);
/// let time = RunTime::new(&testing::run(12, &state));
/// assert_eq!((time.elapsed(), time.left().map(f64::round)), (126.4, Some(632.0)));
/// assert_eq!(time.to_string(), "2m elapsed, 11m left");
/// ```
#[derive(Clone, Debug, Default)]
pub struct RunTime {
    epochs: u64,
    steps_per_epoch: u64,
    validate_every: u64,
    /// Validation samples per training sample.
    val_share: f64,
    samples: f64,
    /// Finished epochs, and their seconds.
    done: u64,
    seconds_done: f64,
    /// The unfinished epoch at the resume: the epochs done before it, its steps and seconds.
    resumed: (u64, u64, f64),
    last: Option<EpochRecord>,
    /// The last epoch that was validated.
    validated: Option<EpochRecord>,
    step: Option<StepInfo>,
}

impl RunTime {
    /// At the beginning of a run, or at its resume.
    pub fn new(run: &RunInfo<'_>) -> Self {
        let TrainState { epochs_done, partial, history, .. } = run.state;
        RunTime {
            epochs: run.epochs,
            steps_per_epoch: run.steps_per_epoch,
            validate_every: run.validate_every.max(1),
            val_share: run.val_samples as f64 / run.train_samples.max(1) as f64,
            samples: run.train_samples as f64,
            done: *epochs_done,
            seconds_done: history.iter().map(|record| record.seconds).sum(),
            resumed: (*epochs_done, partial.steps, partial.seconds),
            last: history.last().cloned(),
            validated: history.iter().rfind(|record| record.is_validated()).cloned(),
            step: None,
        }
    }

    /// After a step.
    pub fn step(&mut self, step: &StepInfo) {
        self.step = Some(step.clone());
    }

    /// After an epoch.
    pub fn epoch(&mut self, record: &EpochRecord) {
        (self.done, self.step) = (record.epoch, None);
        self.seconds_done += record.seconds;
        self.last = Some(record.clone());
        if record.is_validated() {
            self.validated.clone_from(&self.last);
        }
    }

    /// The steps and seconds of the current epoch before this process.
    fn before(&self) -> (u64, f64) {
        let (done, steps, seconds) = self.resumed;
        if done == self.done { (steps, seconds) } else { (0, 0.0) }
    }

    /// Seconds spent on training and evaluation, those before a resume included.
    pub fn elapsed(&self) -> f64 {
        self.seconds_done + self.before().1 + self.step.as_ref().map_or(0.0, |step| step.seconds)
    }

    /// The seconds of a step in this epoch, and whether there were enough steps.
    fn measured(&self) -> Option<(f64, bool)> {
        let step = self.step.as_ref()?;
        let steps = step.steps_done.saturating_sub(self.before().0);
        (steps > 0)
            .then(|| (step.seconds / steps as f64, steps >= STEPS || (steps > 1 && step.seconds >= SECONDS)))
    }

    /// The seconds of a step and of an evaluation.
    fn rates(&self) -> Option<(f64, f64)> {
        let all = self.steps_per_epoch as f64;
        let training = |epoch: &EpochRecord| (self.samples / epoch.images_per_second).min(epoch.seconds);
        let last = self.last.as_ref().map(|last| training(last) / all);
        let step = match (self.measured(), last) {
            (Some((step, true)), _) | (Some((step, false)), None) => step,
            (_, last) => last?,
        };
        let evaluation = match &self.validated {
            Some(epoch) => epoch.seconds - training(epoch),
            None => FORWARD * self.val_share * step * all,
        };
        Some((step, evaluation)).filter(|(step, evaluation)| (step + evaluation).is_finite())
    }

    /// The seconds that are left of the current epoch's steps.
    pub fn left_in_epoch(&self) -> Option<f64> {
        let done = self.step.as_ref().map_or(self.before().0, |step| step.steps_done);
        Some(self.rates()?.0 * self.steps_per_epoch.saturating_sub(done) as f64)
    }

    /// The seconds that are left of the run; `None` before anything is measured.
    pub fn left(&self) -> Option<f64> {
        let Some(after) = self.epochs.checked_sub(self.done + 1) else { return Some(0.0) };
        let (step, evaluation) = self.rates()?;
        let training = after as f64 * step * self.steps_per_epoch as f64;
        Some(self.left_in_epoch()? + training + self.validations_left() as f64 * evaluation)
    }

    /// The epochs to come that are validated, the current one included.
    fn validations_left(&self) -> u64 {
        let every = self.validate_every.max(1);
        self.epochs.div_ceil(every).saturating_sub(self.done / every)
    }

    /// A duration in its largest units: `45s`, `12m`, `2h03m`, `3d04h`.
    pub fn words(seconds: f64) -> String {
        let whole = seconds.round().max(0.0) as u64;
        match whole {
            0..100 => format!("{whole}s"),
            100..6000 => format!("{}m", (whole + 30) / 60),
            6000..172_800 => format!("{}h{:02}m", whole / 3600, whole / 60 % 60),
            _ => format!("{}d{:02}h", whole / 86_400, whole / 3600 % 24),
        }
    }
}

impl std::fmt::Display for RunTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} elapsed", Self::words(self.elapsed()))?;
        self.left().map_or(Ok(()), |left| write!(f, ", {} left", Self::words(left)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, record, run, state, unvalidated};

    fn step(epoch: u64, steps_done: u64, seconds: f64) -> StepInfo {
        StepInfo { seconds, ..testing::step(epoch, steps_done, 100) }
    }

    /// 1000 training samples in 100 steps, 300 validation samples.
    fn begin(epochs: u64, state: &TrainState) -> RunTime {
        let run = run(epochs, state);
        RunTime::new(&RunInfo { train_samples: 1000, val_samples: 300, steps_per_epoch: 100, ..run })
    }

    #[test]
    fn a_new_run_is_timed_by_its_steps_and_then_by_its_epochs() {
        let mut time = begin(3, &state(vec![]));
        assert_eq!((time.elapsed(), time.left(), time.to_string().as_str()), (0.0, None, "0s elapsed"));
        time.step(&step(1, 20, 20.0));
        // An evaluation takes a tenth of an epoch: 0.3 of the samples, a third of the time.
        assert_eq!((time.elapsed(), time.left_in_epoch(), time.left()), (20.0, Some(80.0), Some(310.0)));
        time.epoch(&EpochRecord { seconds: 150.0, images_per_second: 10.0, ..record(1, [1.0; 4]) });
        assert_eq!((time.elapsed(), time.left()), (150.0, Some(300.0)));
        // The first step of an epoch is slow: the last epoch tells better.
        time.step(&step(2, 1, 4.0));
        assert_eq!((time.elapsed(), time.left()), (154.0, Some(99.0 + 50.0 + 150.0)));
        time.step(&step(2, 50, 100.0));
        assert_eq!((time.elapsed(), time.left()), (250.0, Some(100.0 + 50.0 + 250.0)));
        time.epoch(&record(2, [1.0; 4]));
        time.epoch(&record(3, [1.0; 4]));
        assert_eq!(time.left(), Some(0.0));
    }

    #[test]
    fn a_resumed_run_knows_both_at_once() {
        let first = EpochRecord { seconds: 150.0, images_per_second: 10.0, ..record(1, [1.0; 4]) };
        let mut state = state(vec![first]);
        (state.partial.steps, state.partial.seconds) = (40, 30.0);
        let mut time = begin(3, &state);
        assert_eq!((time.elapsed(), time.left()), (180.0, Some(60.0 + 50.0 + 150.0)));
        // The seconds of a step are those since the resume.
        time.step(&step(2, 60, 40.0));
        assert_eq!((time.elapsed(), time.left()), (220.0, Some(80.0 + 50.0 + 250.0)));
    }

    #[test]
    fn only_validated_epochs_count_an_evaluation() {
        let train = |time: &mut RunTime, epoch| {
            let seconds = if epoch % 3 == 0 { 150.0 } else { 100.0 };
            let record = if epoch % 3 == 0 { record(epoch, [1.0; 4]) } else { unvalidated(epoch, 1.0, 1.0) };
            time.epoch(&EpochRecord { seconds, images_per_second: 10.0, ..record });
        };
        let start = state(vec![]);
        let mut time = RunTime::new(&RunInfo {
            train_samples: 1000,
            val_samples: 300,
            steps_per_epoch: 100,
            validate_every: 3,
            ..run(7, &start)
        });
        train(&mut time, 1);
        assert_eq!(time.left(), Some(600.0 + 3.0 * 10.0), "epochs 3, 6 and 7, at a third of a training step");
        (2..=5).for_each(|epoch| train(&mut time, epoch));
        assert_eq!(time.left(), Some(200.0 + 2.0 * 50.0));
        (6..=7).for_each(|epoch| train(&mut time, epoch));
        assert_eq!(time.left(), Some(0.0));
    }

    #[test]
    fn durations_are_short() {
        let words = [0.0, 44.6, 99.0, 100.0, 3600.0, 7380.0, 273_600.0].map(RunTime::words);
        assert_eq!(words, ["0s", "45s", "99s", "2m", "60m", "2h03m", "3d04h"]);
    }
}
