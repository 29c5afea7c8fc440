use crate::data::split;
use crate::fingerprint::{compare, fingerprint};
use crate::memory;
use crate::pipeline;
use crate::pipelined::{Pipelined, Shelf};
use crate::share::Source;
use crate::worker::{Prepared, Worker};
use crate::{
    Arithmetic, Config, EpochRecord, Error, Flow, Observer, Result, Resume, RunInfo, TrainState, open_devices,
};
use augment::Samples;
use callbacks::EarlyStopping;
use cifar::{Dataset, Split};
use models::Model;
use parallel::{Replica, Stage, run_stages};
use program::Device;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use trained::standardization::measure;
use trained::{Task, check_labels};

/// A request to stop after the current step. Clones share it; a signal handler may raise it.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    raised: AtomicBool,
    heeded: AtomicBool,
}

impl StopFlag {
    /// Asks the run to stop.
    pub fn raise(&self) {
        self.0.raised.store(true, Ordering::Relaxed);
    }

    /// Whether the run was asked to stop.
    pub fn is_raised(&self) -> bool {
        self.0.raised.load(Ordering::Relaxed)
    }

    /// Whether a run has begun, which looks at the flag. Before that there is nothing to save, and who waits for another
    /// process may wait long.
    pub fn is_heeded(&self) -> bool {
        self.0.heeded.load(Ordering::Relaxed)
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All epochs are done.
    Done,
    /// An observer stopped it after an epoch, for this reason.
    Stopped(String),
    /// It was asked to stop, and can go on from its last checkpoint.
    Interrupted,
}

/// What a run leaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// Where it stands.
    pub state: TrainState,
}

pub(crate) type Observers<'o> = &'o mut [Box<dyn Observer>];

/// Trains a network on `data` as `config` says, one replica a device, from the start or from a checkpoint.
///
/// The observers see the first replica. Every replica reads its own share of every batch; gradients are added in
/// the order of the ranks, so a run repeats bit for bit, whatever the number of threads. With
/// [`virtual_replicas`](Config::virtual_replicas) the number of devices changes no bit either; on GPUs that asks for
/// algorithms that repeat, so they are chosen.
///
/// # Errors
/// Whatever keeps the run from going on; see [`Error`]. Data that the run to go on with was not trained on are
/// [`Error::OtherData`]. A loss that is not a number is [`Error::NotFinite`].
pub fn train(
    config: &Config,
    data: Dataset,
    resume: Option<&Resume>,
    observers: Observers<'_>,
    stop: &StopFlag,
) -> Result<Outcome> {
    config.check_for(data.train.shape())?;
    run(named(config, &data)?, &devices_of(config)?, config, data, resume, observers, stop)
}

/// As [`train`], but a network of your own, whatever name the configuration gives it: replicas, checkpoints, resume and observers all
/// the same. [`Trained::with_model`](trained::Trained::with_model) opens it again; the command line knows the networks of [`models`] alone.
///
/// ```
/// use layers::{Conv2D, Dense, Flatten, Graph, MaxPooling2D};
/// use models::Model;
/// use train::{StopFlag, recipe, train_model};
///
/// let mut graph = Graph::new("mine", [32, 32, 3]);
/// let x = graph.add(Conv2D::new(8, 3).strides(2), graph.input())?;
/// let x = graph.add(MaxPooling2D::new(2), x)?;
/// let x = graph.add(Flatten, x)?;
/// let logits = graph.add(Dense::new(10), x)?;
///
/// let mut config = recipe("quick")?;
/// (config.training.model, config.training.epochs, config.placement.devices.replicas) = ("mine".into(), 1, 2);
/// let data = cifar::synthetic(1, 200, 50);
/// let outcome = train_model(Model::new(graph, logits), &config, data, None, &mut [], &StopFlag::default())?;
/// assert_eq!(outcome.state.step, 2);
/// # Ok::<(), train::Error>(())
/// ```
///
/// # Errors
/// As [`train`]; and if the network takes other images than those of the data, or tells other classes apart. Images must have 3
/// channels: files of models say nothing of them.
pub fn train_model(
    model: Model,
    config: &Config,
    data: Dataset,
    resume: Option<&Resume>,
    observers: Observers<'_>,
    stop: &StopFlag,
) -> Result<Outcome> {
    config.check_options(data.train.shape())?;
    run(model, &devices_of(config)?, config, data, resume, observers, stop)
}

fn devices_of(config: &Config) -> Result<Vec<Device>> {
    // Two kinds of algorithms would not add up to the same bits.
    let deterministic = config.training.arithmetic.deterministic || config.repeats();
    open_devices(&config.placement.devices, &Arithmetic { deterministic, ..config.training.arithmetic })
}

/// As [`train`], on devices that the caller opened: one replica on each, or on as many as it has pipeline stages, whatever
/// else the configuration says of devices.
///
/// # Errors
/// As [`train`].
pub fn train_on(
    devices: &[Device],
    config: &Config,
    data: Dataset,
    resume: Option<&Resume>,
    observers: Observers<'_>,
    stop: &StopFlag,
) -> Result<Outcome> {
    config.check_for(data.train.shape())?;
    run(named(config, &data)?, devices, config, data, resume, observers, stop)
}

/// What all ways to train come to, once the configuration has been checked.
fn run(
    model: Model,
    devices: &[Device],
    config: &Config,
    data: Dataset,
    resume: Option<&Resume>,
    observers: Observers<'_>,
    stop: &StopFlag,
) -> Result<Outcome> {
    let stages = config.stages();
    let none = || Error::Device("there is no device to train on".into());
    let device = devices.first().ok_or_else(none)?;
    let towers = devices.len() / stages;
    let run = Whole::prepare(config, model, data, resume, towers, device)?.watched_by(observers);
    memory::check_host(&run, device, towers, towers)?;
    let observers = Mutex::new(Some(observers));
    let outcomes = run_stages(devices, stages, |replica: Replica, stage: Stage| {
        let first = replica.rank() == 0 && stage.is_first();
        let own = if first { observers.lock().ok().and_then(|mut o| o.take()) } else { None };
        run.stage(replica, stage, own.unwrap_or_default(), stop)
    })?;
    outcomes.into_iter().next().ok_or_else(none)
}

/// The network that the configuration names.
pub(crate) fn named(config: &Config, data: &Dataset) -> Result<Model> {
    let unknown = || Error::Device(format!("there is no network {}", config.training.model));
    let model = models::by_name_for(&config.training.model, data.train.shape(), data.classes.len());
    Ok(model.ok_or_else(unknown)??)
}

/// Refuses a network for other images, or with a number for other than each class.
fn check_fit(model: &Model, data: &Dataset) -> Result<()> {
    let own = Task::of(model);
    let wanted = Task { image: data.train.shape(), classes: data.classes.len() };
    if own == wanted {
        return Ok(());
    }
    Err(Error::Option {
        option: "the network",
        value: own.to_string(),
        accepted: format!("{wanted}: those of the data"),
    })
}

/// What all replicas of a run share.
pub(crate) struct Whole<'a> {
    pub(crate) config: &'a Config,
    pub(crate) resume: Option<&'a Resume>,
    /// The network, or the stages that it is cut into.
    pub(crate) stages: Vec<Model>,
    /// Where it is cut: the last layer of each stage but the last.
    cuts: String,
    shelf: Shelf,
    pub(crate) prepared: Prepared,
    /// After how many steps each observer wants to see the network in the middle of an epoch. All stages of a pipeline must know: they
    /// hand their tensors over.
    snapshots: Vec<Option<u64>>,
}

impl<'a> Whole<'a> {
    /// Makes ready for `towers` replicas on devices like this one. The configuration has been checked but for their number.
    pub(crate) fn prepare(
        config: &'a Config,
        model: Model,
        data: Dataset,
        resume: Option<&'a Resume>,
        towers: usize,
        device: &Device,
    ) -> Result<Self> {
        config.check_replicas(towers)?;
        let fingerprint = fingerprint(&data);
        let trained_on = resume.and_then(|resume| resume.state.data.as_ref());
        trained_on.map_or(Ok(()), |trained_on| compare(trained_on, &fingerprint))?;
        if data.train.is_empty() || data.validation.as_ref().unwrap_or(&data.test).is_empty() {
            let (value, accepted) =
                ("0".to_owned(), "at least 1, for training and for validation".to_owned());
            return Err(Error::Option { option: "the number of samples", value, accepted });
        }
        let parts = [Some(&data.train), Some(&data.test), data.validation.as_ref()];
        parts.into_iter().flatten().try_for_each(check_labels)?;
        check_fit(&model, &data)?;
        config.check_groups(model.graph())?;
        let data = split(config, data)?;
        let samples = |split: Split| Samples::new(split.images, split.labels.to_vec());
        let (input, augmentation) =
            measure(config.training.preprocessing, &config.training.augmentation, &data.train)?;
        let prepared = Prepared {
            input,
            augmentation,
            train: samples(data.train)?,
            val: samples(data.test)?,
            classes: data.classes,
            dataset: data.name,
            fingerprint,
        };
        let batch = global_batch(config, resume, towers).min(prepared.train.len());
        let micro_batch = batch.div_ceil(config.shards(towers)).max(1);
        let stages = pipeline::split(config, model, device, micro_batch)?;
        let cuts = pipeline::cuts(&stages);
        Ok(Whole { config, resume, stages, cuts, shelf: Shelf::default(), prepared, snapshots: Vec::new() })
    }

    /// The run with those who are going to watch it.
    pub(crate) fn watched_by(self, observers: &[Box<dyn Observer>]) -> Self {
        Whole { snapshots: observers.iter().map(|observer| observer.snapshot_every()).collect(), ..self }
    }

    /// Samples of a whole batch over all `towers`.
    pub(crate) fn global_batch(&self, towers: usize) -> usize {
        global_batch(self.config, self.resume, towers)
    }

    /// Runs one replica, or a stage of one; the observers see it.
    pub(crate) fn stage(
        &self,
        replica: Replica,
        stage: Stage,
        observers: Observers<'_>,
        stop: &StopFlag,
    ) -> Result<Outcome> {
        let model = &self.stages[stage.number()];
        let first = replica.rank() == 0 && stage.is_first();
        let early_stop = self.config.outputs.early_stop.clone().filter(|_| first);
        let stopping = early_stop.map(EarlyStopping::with).transpose()?;
        let stage = Pipelined { stage, shelf: &self.shelf, cuts: &self.cuts };
        stop.0.heeded.store(true, Ordering::Relaxed);
        let (worker, train) = Worker::new(self.config, &self.prepared, model, self.resume, replica, stage)?;
        let ended = self.resume.is_some_and(|resume| resume.may_have_ended(self.config));
        let snapshots = &self.snapshots;
        Run { worker, train, observers, stopping, snapshots, stop, ended, told: false }.fit()
    }
}

/// Samples of a whole batch; a run that goes on keeps its own.
fn global_batch(config: &Config, resume: Option<&Resume>, towers: usize) -> usize {
    resume.map_or(config.global_batch(towers), |resume| resume.state.global_batch)
}

/// Those who say whether the run goes on: the observers, and then early stopping.
fn deciding<'d>(
    observers: &'d mut [Box<dyn Observer>],
    stopping: &'d mut Option<EarlyStopping>,
) -> impl Iterator<Item = &'d mut dyn Observer> {
    let stopping = stopping.iter_mut().map(|stopping| stopping as &mut dyn Observer);
    observers.iter_mut().map(|observer| &mut **observer as &mut dyn Observer).chain(stopping)
}

/// One replica's run and, on the first, those who watch it.
struct Run<'a, 'o> {
    worker: Worker<'a>,
    train: Source,
    observers: Observers<'o>,
    /// Whoever decides, on the first replica, whether the run stops before its last epoch.
    stopping: Option<EarlyStopping>,
    /// After how many steps each observer wants to see the network.
    snapshots: &'a [Option<u64>],
    stop: &'a StopFlag,
    /// Whether it may be that observers ended the run where it goes on.
    ended: bool,
    /// Whether the observers have heard why steps can't be recorded.
    told: bool,
}

impl Run<'_, '_> {
    fn fit(mut self) -> Result<Outcome> {
        self.begin()?;
        let (mut end, diverged) = match self.epochs() {
            // All replicas have come here after the same step. What was saved before stays the run's last state.
            Err(error @ Error::NotFinite { .. }) if self.worker.config.outputs.terminate_on_nan => {
                (End::Stopped(error.to_string()), true)
            }
            end => (end?, false),
        };
        let Run { worker, observers, stop, .. } = &mut self;
        if let End::Stopped(reason) = &mut end
            && !diverged
            && worker.take_average()?
            && let Some((val_loss, val_acc)) = worker.evaluate(stop, |_, _| Ok(()))?
        {
            *reason +=
                &format!("; the average of the weights has val_loss {val_loss:.4}, val_acc {val_acc:.4}");
        }
        worker.meet_for_snapshot()?;
        for observer in observers.iter_mut() {
            match end {
                End::Interrupted => observer.on_interrupt(&worker.state, worker)?,
                _ => observer.on_end(&worker.state, worker)?,
            }
        }
        Ok(Outcome { end, state: self.worker.state })
    }

    /// The epochs that are left, until all are done or the run is to end.
    fn epochs(&mut self) -> Result<End> {
        if self.ended {
            let Run { worker, observers, stopping, .. } = self;
            let wishes = deciding(observers, stopping).map(|observer| observer.on_resume(&worker.state));
            let wishes = wishes.collect::<callbacks::Result<Vec<_>>>()?;
            if let Flow::Stop(reason) = self.settle(wishes)? {
                let more = "it had stopped before; to go on, give a larger `epochs` or another `early_stop`";
                return Ok(End::Stopped(format!("{reason}; {more}")));
            }
        }
        while self.worker.state.epoch < self.worker.config.training.epochs {
            if self.epoch()? {
                return Ok(End::Interrupted);
            }
            match self.end_epoch()? {
                Some(Flow::Continue) => {}
                Some(Flow::Stop(reason)) => return Ok(End::Stopped(reason)),
                None => return Ok(End::Interrupted),
            }
        }
        Ok(End::Done)
    }

    fn begin(&mut self) -> Result<()> {
        let Run { worker, train, observers, stopping, .. } = self;
        let run = RunInfo {
            recipe: &worker.config.recipe,
            model: &worker.config.training.model,
            epochs: worker.config.training.epochs,
            state: &worker.state,
            train_samples: worker.prepared.train.len(),
            val_samples: worker.prepared.val.len(),
            steps_per_epoch: train.steps() as u64,
            replicas: worker.replicas(),
            devices: worker.describe(),
            simd: tensor_cpu::simd_level(),
            bf16: tensor_cpu::bf16_level(),
            notes: worker.config.describe_lr_scaling(worker.state.global_batch).into_iter().collect(),
        };
        deciding(observers, stopping).try_for_each(|observer| observer.on_begin(&run))?;
        for oddity in worker.config.oddities() {
            observers.iter_mut().try_for_each(|observer| observer.on_warning(&oddity))?;
        }
        Ok(())
    }

    /// The steps of one epoch, or of what is left of it; true if the run was asked to stop.
    fn epoch(&mut self) -> Result<bool> {
        let Run { worker, train, observers, snapshots, stop, told, .. } = self;
        let (epoch, done) = (worker.state.epoch, worker.state.partial);
        let began = Instant::now();
        worker.begin_epoch()?;
        observers.iter_mut().try_for_each(|observer| observer.on_epoch_begin(epoch))?;
        let device = worker.device().clone();
        for batch in train.epoch(&device, epoch, done.steps as usize)? {
            let stopping = worker.step(&batch?, stop.is_raised())?;
            worker.state.partial.seconds = done.seconds + began.elapsed().as_secs_f64();
            let step = worker.step_info(began.elapsed().as_secs_f64());
            observers.iter_mut().try_for_each(|observer| observer.on_step(&step))?;
            if let Some(rates) = worker.replica_rates()? {
                observers.iter_mut().try_for_each(|observer| observer.on_replica_rates(&rates))?;
            }
            let steps = worker.state.step;
            let is_due = |every: &Option<u64>| every.is_some_and(|every| steps.is_multiple_of(every));
            if snapshots.iter().any(is_due) && worker.read_losses_in_order()? {
                worker.meet_for_snapshot()?;
                let step = worker.step_info(step.seconds);
                for (observer, _) in observers.iter_mut().zip(*snapshots).filter(|(_, every)| is_due(every)) {
                    observer.on_snapshot(&step, &worker.state, worker)?;
                }
            }
            if stopping {
                worker.read_losses()?;
                return Ok(true);
            }
        }
        worker.read_losses()?;
        worker.state.partial.seconds = done.seconds + began.elapsed().as_secs_f64();
        if let Some(why) = worker.not_recorded().filter(|_| !core::mem::replace(told, true)) {
            let warning = format!("steps run op by op, which takes longer: {why}");
            observers.iter_mut().try_for_each(|observer| observer.on_warning(&warning))?;
        }
        Ok(false)
    }

    /// Evaluates, records, and lets the observers decide whether to go on. `None` if the run was asked to stop in between: all
    /// steps of the epoch are done then, and a resume begins with the evaluation.
    fn end_epoch(&mut self) -> Result<Option<Flow>> {
        let Run { worker, observers, stopping, stop, .. } = self;
        let began = Instant::now();
        let evaluated = worker.evaluate(stop, |done, all| {
            Ok(observers.iter_mut().try_for_each(|observer| observer.on_evaluate(done, all))?)
        })?;
        let Some((val_loss, val_acc)) = evaluated else { return Ok(None) };
        if !val_loss.is_finite() {
            let (epoch, step) = (worker.state.epoch + 1, worker.state.partial.steps);
            return Err(Error::NotFinite { loss: val_loss, epoch, step });
        }
        let partial = worker.end_epoch();
        let (loss, acc) = partial.means();
        let record = EpochRecord {
            epoch: worker.state.epoch,
            loss,
            acc,
            val_loss,
            val_acc,
            lr: partial.lr,
            seconds: partial.seconds + began.elapsed().as_secs_f64(),
            images_per_second: partial.samples as f64 / partial.seconds,
        };
        worker.record(record.clone());
        worker.meet_for_snapshot()?;
        let wishes = deciding(observers, stopping).map(|o| o.on_epoch_end(&record, &worker.state, worker));
        let wishes = wishes.collect::<callbacks::Result<Vec<_>>>()?;
        self.settle(wishes).map(Some)
    }

    /// What all replicas do, of which the first one's observers wish this: the first who wishes to stop says why.
    fn settle(&mut self, wishes: Vec<Flow>) -> Result<Flow> {
        let flow = wishes.into_iter().find(|wish| *wish != Flow::Continue).unwrap_or(Flow::Continue);
        let stop = self.worker.agree(flow != Flow::Continue)?;
        Ok(match flow {
            Flow::Continue if stop => Flow::Stop("the first replica stopped".into()),
            flow => flow,
        })
    }
}
