//! The training loop of one replica, with the observers of the first replica.

use crate::config::hyperparameters;
use crate::data::{Labelling, Source};
use crate::run::division::Division;
use crate::run::early_warnings::{self, Guess, Labels};
use crate::run::long_run;
use crate::run::observer_group::{ObserverGroup, first_reason};
use crate::run::prepared_run::PreparedRun;
use crate::run::stop_flag::{Request, StopFlag};
use crate::run::training::Observers;
use crate::run::worker::Worker;
use crate::{Error, Result, Resume};
use std::mem::take;
use std::sync::Mutex;
use std::time::Instant;
use towers_callbacks::{EpochRecord, Flow, RunInfo, TrainState};
use towers_callbacks::{RunTime, Snapshot, figure};
use towers_metrics::Values;
use towers_options::{Message, message};
use towers_parallel::{Replica, Stage};

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All epochs are done.
    Done,
    /// An observer stopped it after an epoch, for this reason.
    Stopped(String),
    /// It was interrupted, and can be resumed from its last checkpoint.
    Interrupted,
    /// Processes were lost. The others have saved the run at the end of an epoch, so that a launcher can start
    /// all processes again.
    Incomplete,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// Its final state.
    pub state: TrainState,
}

impl PreparedRun<'_> {
    /// One replica, or a stage of one. The first takes the observers.
    pub(crate) fn start<'o>(
        &'o self,
        resume: Option<&Resume>,
        replica: Replica,
        stage: Stage,
        observers: &Mutex<Option<Observers<'o>>>,
        stop: &'o StopFlag,
    ) -> Result<Run<'o>> {
        let mut group = ObserverGroup::default();
        if replica.rank() == 0 && stage.is_first() {
            let own = observers.lock().ok().and_then(|mut observers| observers.take());
            group = ObserverGroup::new(
                own.unwrap_or_default(),
                towers_callbacks::stopping(&self.config.outputs)?,
                self.spelling,
            );
        }
        stop.mark_watched();
        // A run that continues without a lost process has its own weights.
        let first_values = self.first_values.as_ref().filter(|_| resume.is_none());
        let (worker, train, val) = Worker::new(self, resume, first_values, replica, stage)?;
        let mut notes = self.notes.clone();
        notes.extend(self.config.describe_lr_scaling(worker.state.global_batch).map(Message::from));
        notes.extend(self.config.describe_layer_decay(&self.model)?.map(Message::from));
        notes.extend(self.config.describe_muon(&self.model).map(Message::from));
        let mut warnings = self.config.warnings();
        warnings.extend(self.warnings.clone());
        warnings.extend(resume.into_iter().flat_map(|resume| worker.differs_from(&resume.state)));
        if resume.is_none() && first_values.is_none() {
            let [note, warning] = worker.unsettled_averages();
            notes.extend(note.map(Message::from));
            warnings.extend(warning.map(Message::from));
        }
        warnings.extend(resume.and_then(|resume| worker.moves_rate(resume)));
        if let Some(values) = first_values {
            notes.push(values.note.clone().into());
            warnings.extend(values.warnings.clone());
        }
        let one_label = !matches!(self.data.labelling, Labelling::MultiHot(_));
        let labels = one_label.then(|| Labels::new(self.data.val.labels(), train.steps() as u64));
        Ok(Run {
            labels,
            worker,
            train,
            val,
            observers: group,
            stop,
            may_have_ended: resume.is_some_and(|resume| resume.may_have_ended(self.config)),
            end: None,
            incomplete: false,
            notes,
            warnings,
            warned: Vec::new(),
            unmeasured: None,
        })
    }
}

/// The warning of an epoch whose validation loss is NaN or infinite.
fn not_finite() -> Message {
    message!(
        "the validation loss is not finite, though the training loss is; the run goes on, and the epoch is never the best; ",
        ["terminate_on_nan"],
        " ends such a run"
    )
}

/// Warns the user of what lasts, at the first time.
fn warn_once(observers: &mut ObserverGroup<'_>, warned: &mut Vec<Message>, warning: Message) {
    if !warned.contains(&warning) {
        observers.warn(&warning);
        warned.push(warning);
    }
}

/// Values with their names.
fn figures(values: &Values) -> String {
    Vec::from_iter(values.iter().map(|(name, value)| format!("{name} {}", figure(value)))).join(", ")
}

/// How the steps of an epoch ended.
enum Steps {
    Done,
    Interrupted,
    /// The run ends in the epoch, for this reason.
    Ended(String),
    /// Shards are to move before the next step.
    Divided(Division),
}

/// One replica's run and, on the first replica, its observers.
pub(crate) struct Run<'o> {
    worker: Worker<'o>,
    train: Source,
    val: Source,
    observers: ObserverGroup<'o>,
    stop: &'o StopFlag,
    /// Whether observers may have ended the run at the point of the resume.
    may_have_ended: bool,
    /// How the run ended, once that is decided.
    pub(crate) end: Option<End>,
    /// Whether the run stops at the end of an epoch, because processes were lost.
    pub(crate) incomplete: bool,
    /// Sentences about the start of the run.
    notes: Vec<Message>,
    /// What the user should know before the first step.
    pub(crate) warnings: Vec<Message>,
    /// The accuracy of guessing, unless an image has several labels.
    labels: Option<Labels>,
    /// The warnings so far that came after a step.
    warned: Vec<Message>,
    /// The time of a run on a CPU, until it is known.
    unmeasured: Option<RunTime>,
}

impl Run<'_> {
    /// Trains until all epochs are done, or the run is stopped.
    pub(crate) fn fit(&mut self) -> Result<Outcome> {
        let begun = self.begin()?;
        self.end = self.end.take().or(begun);
        let mut diverged = false;
        let mut end = loop {
            if let Some(end) = &self.end {
                break end.clone();
            }
            self.end = match self.epoch() {
                // All replicas stop after the same step. The saved files remain the run's last state.
                Err(error @ Error::NotFinite { .. }) if self.worker.run.config.outputs.terminate_on_nan => {
                    diverged = true;
                    Some(End::Stopped(error.message().spelled(self.worker.run.spelling)))
                }
                ended => ended?,
            };
            if self.incomplete && self.end.is_none() && self.worker.has_epochs_left() {
                self.end = Some(End::Incomplete);
            }
        };
        let Run { worker, val, observers, stop, .. } = self;
        // The epoch can be continued, so the weights stay.
        let within = worker.state.partial.steps > 0;
        if let End::Stopped(reason) = &mut end
            && !(diverged || within)
        {
            let averaged = worker.take_average()?;
            let is_validated = worker.state.history.last().is_none_or(EpochRecord::is_validated);
            if (averaged || !is_validated)
                && let Some(values) = worker.evaluate(val, stop, |_, _| false)?
            {
                let network = if averaged { "the average of the weights" } else { "the network" };
                *reason += &format!("; {network} has {}", figures(&values));
            }
        }
        worker.meet_for_snapshot()?;
        observers.ask(|observer| match end {
            End::Interrupted | End::Incomplete => observer.on_interrupt(&worker.state, worker),
            End::Stopped(_) if within && !diverged => observer.on_end_within_epoch(&worker.state, worker),
            _ => observer.on_end(&worker.state, worker),
        });
        // If a process is lost before the files are written, another one writes them.
        worker.meet()?;
        if let Some(error) = observers.take_error() {
            return Err(error.into());
        }
        Ok(Outcome { end, state: self.worker.state.clone() })
    }

    /// The state and the tensors after the last whole step, and how the run ended, if it did.
    pub(crate) fn keep(&self) -> Result<(Resume, Option<End>)> {
        let worker = &self.worker;
        Ok((Resume::of(worker.run.config, &worker.state, worker.all_tensors()?), self.end.clone()))
    }

    /// Tells the observers that the run begins. Returns how it ended if it had stopped before the resume.
    fn begin(&mut self) -> Result<Option<End>> {
        let Run { worker, train, observers, .. } = self;
        let PreparedRun { config, data, .. } = worker.run;
        let mut run = RunInfo::new(&worker.state);
        (run.recipe, run.model) = (&config.recipe, &config.training.model);
        (run.epochs, run.steps_per_epoch) = (config.training.epochs, train.steps() as u64);
        (run.train_samples, run.val_samples) = (data.train.len(), data.val.len());
        run.validate_every = config.training.validate_every;
        (run.replicas, run.devices) = (worker.state.replicas, worker.describe());
        (run.simd, run.bf16) = (towers_tensor_cpu::simd_level(), towers_tensor_cpu::bf16_level());
        [run.parameters, run.flops] = worker.run.size();
        run.metrics = config.outputs.metric_names();
        run.options = hyperparameters(config, worker.state.replicas, worker.state.global_batch);
        run.notes = take(&mut self.notes).iter().map(|note| note.spelled(worker.run.spelling)).collect();
        self.unmeasured = (worker.device.kind() == "cpu").then(|| RunTime::new(&run));
        observers.begin(|observer| observer.on_begin(&run))?;
        take(&mut self.warnings).iter().for_each(|warning| observers.warn(warning));
        if !self.may_have_ended {
            return Ok(None);
        }
        let decisions = observers.begin(|observer| observer.on_resume(&worker.state))?;
        Ok(self.agree_on(decisions)?.map(|reason| {
            let more = message!(
                "it had stopped before; to continue, give a larger ",
                ["epochs"],
                " or another ",
                ["early_stop"]
            );
            End::Stopped(format!("{reason}; {}", more.spelled(self.worker.run.spelling)))
        }))
    }

    /// Runs an epoch, or the rest of one. Returns how the run ended, if it did.
    fn epoch(&mut self) -> Result<Option<End>> {
        let Run { worker, observers, .. } = self;
        if !worker.has_epochs_left() {
            return Ok(Some(End::Done));
        }
        if let Some(reason) = worker.steps_are_over() {
            return Ok(Some(End::Stopped(reason)));
        }
        let (epoch, done) = (worker.state.epochs_done + 1, worker.state.partial);
        let began = Instant::now();
        worker.begin_epoch()?;
        observers.ask(|observer| observer.on_epoch_begin(epoch));
        loop {
            match self.steps(began, done.seconds)? {
                Steps::Done => break,
                Steps::Interrupted => return Ok(Some(End::Interrupted)),
                Steps::Ended(reason) => return self.measured(reason),
                Steps::Divided(division) => self.worker.divide(division, [&mut self.train, &mut self.val])?,
            }
        }
        let Run { worker, observers, warned, .. } = self;
        worker.read_losses()?;
        worker.state.partial.seconds = done.seconds + began.elapsed().as_secs_f64();
        for warning in worker.fallbacks() {
            warn_once(observers, warned, warning.into());
        }
        self.end_epoch()
    }

    /// The steps that are left of an epoch, which began at `began` and had taken so many seconds before.
    fn steps(&mut self, began: Instant, seconds_before: f64) -> Result<Steps> {
        let Run { worker, train, observers, stop, unmeasured, .. } = self;
        let (snapshots, last) = (&worker.run.snapshots, train.steps() as u64);
        let (device, done) = (worker.device.clone(), worker.state.partial.steps as usize);
        for batch in train.epoch(&device, worker.state.epochs_done, done)? {
            let over = observers.over();
            let asked = worker.step(&batch?, stop, (observers.have_failed(), over.is_some()))?;
            worker.state.partial.seconds = seconds_before + began.elapsed().as_secs_f64();
            let step = worker.step_info(began.elapsed().as_secs_f64());
            observers.ask(|observer| observer.on_step(&step));
            if let Some(hint) = long_run::hint(unmeasured, &step) {
                observers.warn(&hint);
            }
            if let Some(record) = worker.record_steps() {
                observers.ask(|observer| observer.on_record(&record));
            }
            let rates = worker.replica_rates()?;
            if let Some(rates) = &rates {
                observers.ask(|observer| observer.on_replica_rates(rates));
            }
            let steps = worker.state.step;
            let is_due = |every: &Option<u64>| every.is_some_and(|every| steps.is_multiple_of(every));
            let saves = asked == Request::Save;
            if (saves || snapshots.iter().any(is_due)) && worker.read_losses_in_order()? {
                worker.meet_for_snapshot()?;
                let step = worker.step_info(step.seconds);
                observers.ask_some(|number, observer| {
                    let every = snapshots.get(number).filter(|every| is_due(every));
                    every.map(|_| observer.on_snapshot(&step, &worker.state, worker))
                });
                if saves {
                    observers.ask(|observer| observer.on_save(&worker.state, worker));
                }
            }
            if asked == Request::Stop {
                worker.read_losses()?;
                return Ok(Steps::Interrupted);
            }
            let ended = match (asked == Request::End, worker.steps_are_over()) {
                (true, _) => Some(over.unwrap_or_else(|| "the first replica ended the run".to_owned())),
                (false, reason) => reason,
            };
            if let Some(reason) = ended.filter(|_| worker.state.partial.steps < last) {
                worker.read_losses()?;
                return Ok(Steps::Ended(reason));
            }
            if let Some(division) = rates.and_then(|rates| worker.better_division(&rates)) {
                return Ok(Steps::Divided(division));
            }
        }
        Ok(Steps::Done)
    }

    /// The metrics of the validation data; `None` if the run is interrupted.
    fn evaluate(&mut self) -> Result<Option<Values>> {
        let Run { worker, val, observers, stop, .. } = self;
        worker.evaluate(val, stop, |done, all| {
            observers.ask(|observer| observer.on_evaluate(done, all));
            observers.have_failed()
        })
    }

    /// The end of a run within an epoch, with the metrics of the network. The epoch is not recorded, and a resume continues it.
    fn measured(&mut self, reason: String) -> Result<Option<End>> {
        let Some(values) = self.evaluate()? else { return Ok(Some(End::Interrupted)) };
        let (epoch, step) = (self.worker.state.epochs_done + 1, self.worker.state.step);
        Ok(Some(End::Stopped(format!(
            "{reason}, at step {step} in epoch {epoch}, with {}",
            figures(&values)
        ))))
    }

    /// Validates if that is due, records, and asks the observers whether to stop. If the run is interrupted in between, all
    /// steps of the epoch are done, and a resume begins with the evaluation.
    fn end_epoch(&mut self) -> Result<Option<End>> {
        let began = Instant::now();
        let values = if self.worker.validates() { self.evaluate()? } else { Some(Values::default()) };
        let Some(values) = values else { return Ok(Some(End::Interrupted)) };
        let Run { worker, observers, warned, .. } = self;
        if let Some(val_loss) = values.get("val_loss").filter(|loss| !loss.is_finite()) {
            if worker.run.config.outputs.terminate_on_nan {
                let (epoch, step) = (worker.state.epochs_done + 1, worker.state.partial.steps);
                return Err(Error::NotFinite { loss: val_loss, epoch, step });
            }
            warn_once(observers, warned, not_finite());
        }
        let before = worker.state.clone();
        let partial = worker.end_epoch();
        let mut metrics = partial.means();
        values.iter().for_each(|(name, value)| metrics.set(name.to_owned(), value));
        let mut record = EpochRecord::default();
        (record.epoch, record.metrics, record.lr) = (worker.state.epochs_done, metrics, partial.lr);
        record.seconds = partial.seconds + began.elapsed().as_secs_f64();
        record.images_per_second = partial.samples as f64 / partial.seconds;
        worker.record(record.clone());
        let PreparedRun { config, data, .. } = worker.run;
        if !config.outputs.no_warnings {
            let guess = match data.labelling {
                Labelling::Labels => Some(Guess::Class(data.classes.len())),
                Labelling::Weighted(_) => None,
                Labelling::MultiHot(_) => Some(Guess::EachClass),
            };
            let warning = early_warnings::of_epoch(&worker.state.history, guess, self.labels.as_ref());
            warning.iter().for_each(|warning| observers.warn(warning));
        }
        worker.meet_for_snapshot()?;
        let decisions = observers.ask(|observer| observer.on_epoch_end(&record, &worker.state, worker));
        let agreed = self.agree_on(decisions);
        if agreed.is_err() {
            // The first process may be lost, and with it what its observers have written.
            self.worker.state = before;
        }
        Ok(agreed?.map(End::Stopped))
    }

    /// The common decision of all replicas: a reason to stop, or none. The first observer that stops the run
    /// gives the reason.
    fn agree_on(&mut self, decisions: Vec<Flow>) -> Result<Option<String>> {
        let reason = first_reason(decisions);
        let stop = self.worker.agree(reason.is_some())?;
        Ok(reason.or_else(|| stop.then(|| "the first replica stopped".into())))
    }
}
