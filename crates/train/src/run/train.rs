//! The functions that train: a named or a custom network, on devices opened here or by the caller.

use crate::run::fit::{Observers, Outcome};
use crate::run::prepared_run::{PreparedRun, named, no_device};
use crate::run::stop_flag::StopFlag;
use crate::{Config, Result, Resume, open_devices};
use dataset::Dataset;
use models::Model;
use parallel::{Replica, Stage, run_stages};
use program::Device;
use std::sync::Mutex;

/// Trains a network on `data` as `config` says, with one replica per device, from the start or from a
/// checkpoint.
///
/// The observers see the first replica. Every replica reads its own share of every batch. Gradients are added
/// along a fixed tree, so a run repeats bit for bit with any number of threads. With
/// [`virtual_replicas`](crate::Training::virtual_replicas) the number of devices changes no bit either.
///
/// # Errors
/// All reasons for an early end; see [`Error`](crate::Error). Data other than those of the
/// resumed run are [`OtherData`](crate::Error::OtherData). A training loss that is NaN or
/// infinite is [`NotFinite`](crate::Error::NotFinite).
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

/// As [`train`], with a custom network and any name in the configuration. Replicas, checkpoints, resume and
/// observers work the same way. [`Trained::with_model`](trained::Trained::with_model) opens it again; the
/// command line knows only the networks of [`models`].
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
/// As [`train`]; and if the network is for other images, or for another number of classes, than the data.
/// Images must have 1 or 3 channels.
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
    open_devices(&config.placement.devices, &config.training.arithmetic)
}

/// As [`train`], on devices that the caller opened: one replica on each, or one on as many as it has pipeline
/// stages. The devices of the configuration are ignored.
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

/// The common part of all functions that train, once the configuration has been checked.
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
    let world = devices.len() / stages;
    let run = PreparedRun::prepare(config, model, data, resume, world, devices, observers)?;
    let observers = Mutex::new(Some(observers));
    let patience = config.placement.devices.patience();
    let outcomes = run_stages(devices, stages, patience, |replica: Replica, stage: Stage| {
        run.start(resume, replica, stage, &observers, stop)?.fit()
    })?;
    outcomes.into_iter().next().ok_or_else(no_device)
}
