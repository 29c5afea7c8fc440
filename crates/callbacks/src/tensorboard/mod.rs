mod event;
mod event_reader;
mod histogram;
mod hparams;

use crate::callback::Callback;
use crate::{EpochRecord, Flow, Observer, Outside, Result, Run, RunInfo, Snapshot, StepRecord, TrainState};
use event::{Event, EventFile};
use event_reader::points;
use histogram::Histogram;
use serde_json::json;
use std::path::PathBuf;
use towers_metrics::keras_name;
use towers_options::{Kind, Table, options};

options! {
    /// The options of TensorBoard's event files. [`TensorBoard`] writes the files. By default the path is
    /// empty, which a run refuses.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct TensorBoardOptions {
        ["Callbacks"]
        /// Write TensorBoard event files into DIR
        path: PathBuf = PathBuf::new(), Kind::form(towers_options::path, "a path in quotes"), "--tensorboard DIR";
        /// With --tensorboard, histograms of the weights after every N epochs
        histogram_freq: u64 = 0, Kind::Whole(0), "--histogram-freq N";
        /// With --tensorboard, the first N augmented images of every epoch
        images: usize = 0, Kind::Between(0, 1024), "--tensorboard-images N";
    }
}

impl Callback for TensorBoardOptions {
    const TABLE: Table = Table {
        key: "tensorboard",
        options: TensorBoardOptions::OPTIONS,
        begins: Some(|| json!(TensorBoardOptions::default())),
    };

    fn outside(&self) -> Option<Outside<'_>> {
        Some(Outside { key: "tensorboard.path", path: &self.path, is_folder: true })
    }

    fn outside_mut(&mut self) -> Option<&mut PathBuf> {
        Some(&mut self.path)
    }

    fn build(&self, _: &Run<'_>) -> Result<Box<dyn Observer>> {
        Ok(Box::new(TensorBoard::new(self.clone())))
    }
}

/// Writes the epochs' figures for TensorBoard: `tensorboard --logdir DIR` shows them.
///
/// The folders and names are those of Keras' callback: `DIR/train` and `DIR/validation`, each with
/// `epoch_loss`, `epoch_accuracy` and other metrics. The former also has `epoch_learning_rate`. Epochs count from 0. With
/// `histogram_freq` the former has the distribution of the weights, as `LAYER/WEIGHT/histogram`. With `images`
/// it has augmented images of the epoch's first batch, as `augmented_batch`.
///
/// `DIR/steps` has the figures of every [`StepRecord`] under Keras' names of batches: `batch_loss`,
/// `batch_accuracy`, and besides `batch_learning_rate` and `batch_images_per_second`. Steps count from 1 over
/// the whole run. In the other folders a mark of a restart
/// counts in epochs, so steps have a separate one.
///
/// `DIR` itself has the hyperparameters of the run for the tab HParams, which compares runs.
///
/// Every start of a run begins new event files. If older files in the folder have the finished epochs, a mark
/// makes their later epochs void. Otherwise it makes all older events void, and the finished epochs are
/// written again, without histograms and images.
///
/// ```
/// use towers_callbacks::{TensorBoard, TensorBoardOptions};
///
/// let options = TensorBoardOptions { path: "runs/a/logs".into(), ..TensorBoardOptions::default() };
/// let observer = TensorBoard::new(options);
/// ```
#[derive(Debug)]
pub struct TensorBoard {
    options: TensorBoardOptions,
    files: Option<[EventFile; 2]>,
    hparams: Option<EventFile>,
    /// The file of the steps, from the first record on, and the steps before this start of the run.
    steps: Option<EventFile>,
    steps_before: u64,
}

impl TensorBoard {
    /// Files in a folder, which need not exist.
    pub fn new(options: TensorBoardOptions) -> Self {
        TensorBoard { options, files: None, hparams: None, steps: None, steps_before: 0 }
    }

    /// Whether older files have exactly these epochs.
    fn holds(&self, history: &[EpochRecord]) -> bool {
        let in_folder = |name: &str, loss: &str| {
            let points = points(&self.options.path.join(name), "epoch_loss");
            history.iter().all(|record| {
                let step = record.epoch.saturating_sub(1) as i64;
                let mut of_step =
                    points.iter().filter(|(other, _)| *other == step).map(|(_, loss)| loss.to_bits());
                let loss = record.get(loss).map(|loss| (loss as f32).to_bits());
                of_step.next() == loss && of_step.next().is_none()
            })
        };
        in_folder("train", "loss") && in_folder("validation", "val_loss")
    }

    fn draw(&mut self, record: &EpochRecord, snapshot: &dyn Snapshot) -> Result<()> {
        let Some([training, _]) = &mut self.files else { return Ok(()) };
        let step = record.epoch.saturating_sub(1) as i64;
        let TensorBoardOptions { histogram_freq, images, .. } = self.options;
        if histogram_freq > 0 && record.epoch.is_multiple_of(histogram_freq) {
            let tensors = snapshot.model_tensors()?;
            // The measured tensors of the preprocessing do not change.
            for tensor in tensors.iter().filter(|tensor| !tensor.name.starts_with("input/")) {
                if let Some(histogram) = Histogram::of(tensor.data) {
                    let tag = format!("{}/histogram", tensor.name);
                    training.write(&Event::histogram(step, &tag, &histogram))?;
                }
            }
        }
        if images > 0
            && let Some(picture) = snapshot.batch_picture(images)?
        {
            training.write(&Event::image(step, "augmented_batch", &picture))?;
        }
        Ok(())
    }

    fn write(&mut self, record: &EpochRecord) -> Result<()> {
        let Some([training, validation]) = &mut self.files else { return Ok(()) };
        let step = record.epoch.saturating_sub(1) as i64;
        for (name, value) in record.metrics.iter() {
            let name = keras_name(name);
            let (file, name) = match name.strip_prefix("val_") {
                Some(name) => (&mut *validation, name),
                None => (&mut *training, &*name),
            };
            file.write(&Event::scalar(step, &format!("epoch_{name}"), value as f32))?;
        }
        training.write(&Event::scalar(step, "epoch_learning_rate", record.lr as f32))
    }
}

impl Observer for TensorBoard {
    fn is_optional(&self) -> bool {
        true
    }

    fn on_begin(&mut self, run: &RunInfo<'_>) -> Result<()> {
        let history = &run.state.history;
        // A new run has no older files to continue.
        let there = !history.is_empty() && self.holds(history);
        let create = |name| EventFile::create(&self.options.path.join(name));
        let mut files = [create("train")?, create("validation")?];
        if let Some(last) = history.last() {
            for file in &mut files {
                file.write(&Event::start(if there { last.epoch as i64 } else { 0 }))?;
            }
        }
        self.files = Some(files);
        let mut hparams = create("")?;
        hparams.write(&hparams::start(&run.options))?;
        (self.hparams, self.steps, self.steps_before) = (Some(hparams), None, run.state.step);
        let missing = if there { &[] } else { history.as_slice() };
        missing.iter().try_for_each(|record| self.write(record))
    }

    fn on_record(&mut self, record: &StepRecord) -> Result<()> {
        let mut file = match self.steps.take() {
            Some(file) => file,
            None => {
                let mut file = EventFile::create(&self.options.path.join("steps"))?;
                if self.steps_before > 0 {
                    file.write(&Event::start(self.steps_before as i64 + 1))?;
                }
                file
            }
        };
        let StepRecord { step, metrics, lr, images_per_second, .. } = record;
        let others = [("learning_rate".into(), *lr), ("images_per_second".into(), *images_per_second)];
        let figures = metrics.iter().map(|(name, value)| (keras_name(name), value)).chain(others);
        file.write_all(
            figures.map(|(name, value)| Event::scalar(*step as i64, &format!("batch_{name}"), value as f32)),
        )?;
        self.steps = Some(file);
        Ok(())
    }

    fn on_epoch_end(
        &mut self,
        record: &EpochRecord,
        _: &TrainState,
        snapshot: &dyn Snapshot,
    ) -> Result<Flow> {
        self.write(record)?;
        self.draw(record, snapshot)?;
        Ok(Flow::Continue)
    }

    fn on_end(&mut self, _: &TrainState, _: &dyn Snapshot) -> Result<()> {
        self.hparams.as_mut().map_or(Ok(()), |file| file.write(&hparams::end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fake, record, run, state, step_record};
    use std::fs;
    use std::path::Path;

    fn into(folder: &Path) -> TensorBoard {
        let path = folder.to_owned();
        TensorBoard::new(TensorBoardOptions { path, histogram_freq: 1, ..TensorBoardOptions::default() })
    }

    #[test]
    fn a_resumed_run_adds_to_its_own_files() {
        let folder = tempfile::tempdir().unwrap();
        let all: Vec<EpochRecord> =
            (1..=4).map(|k| record(k, [1.0 / k as f64, 0.5, 2.0 / k as f64, 0.25])).collect();
        let epochs = 9;
        let go = |done: usize, to: usize| {
            let mut observer = into(folder.path());
            observer.on_begin(&run(epochs, &state(all[..done].to_vec()))).unwrap();
            for record in &all[done..to] {
                observer.on_epoch_end(record, &state(vec![]), &Fake(0.0)).unwrap();
            }
            let shown = |name| points(&folder.path().join(name), "epoch_loss");
            assert_eq!((shown("train").len(), shown("validation").len()), (to, to));
            assert!(
                shown("train").iter().map(|(step, _)| *step).eq(0..to as i64),
                "in their order, once each"
            );
        };
        let count = || fs::read_dir(folder.path().join("train")).unwrap().count();
        let last = || {
            let entries = fs::read_dir(folder.path().join("train")).unwrap();
            let path = entries.map(|entry| entry.unwrap().path()).max().unwrap();
            let bytes = fs::read(path).unwrap();
            bytes.windows(10).filter(|window| window == b"epoch_loss").count()
        };
        go(0, 3);
        // Killed before the checkpoint of the third epoch.
        go(2, 4);
        assert_eq!((count(), last()), (2, 2), "only what is new");
        go(4, 4);
        assert_eq!(last(), 0);
        // Files of another run, or no files.
        fs::remove_dir_all(folder.path().join("validation")).unwrap();
        go(3, 4);
        assert_eq!(last(), 4, "all is written again");
    }

    #[test]
    fn a_resumed_run_replaces_the_steps_that_it_repeats() {
        let folder = tempfile::tempdir().unwrap();
        let go = |done: u64, steps: std::ops::RangeInclusive<u64>| {
            let mut observer = into(folder.path());
            observer.on_begin(&run(9, &TrainState { step: done, ..state(vec![]) })).unwrap();
            for step in steps {
                observer.on_record(&step_record(step, step as f64, 0.5)).unwrap();
            }
            observer.on_end(&state(vec![]), &Fake(0.0)).unwrap();
        };
        go(0, 1..=3);
        go(2, 3..=4);
        let shown = points(&folder.path().join("steps"), "batch_loss");
        assert_eq!(shown, [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]);
    }

    #[test]
    fn training_and_validation_have_folders_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let (epochs, start) = (2, state(vec![record(1, [2.0, 0.25, 2.5, 0.125])]));
        let mut observer = into(folder.path());
        observer.on_begin(&run(epochs, &start)).unwrap();
        observer.on_epoch_end(&record(2, [1.0, 0.5, 1.5, 0.375]), &start, &Fake(0.0)).unwrap();
        for (name, scalars) in [("train", 6), ("validation", 4)] {
            let entry = fs::read_dir(folder.path().join(name)).unwrap().last().unwrap().unwrap();
            assert!(entry.file_name().to_str().unwrap().starts_with("events.out.tfevents."));
            let bytes = fs::read(entry.path()).unwrap();
            let count = bytes.windows(6).filter(|window| window == b"epoch_").count();
            assert_eq!(count, scalars, "{name}");
        }
    }
}
