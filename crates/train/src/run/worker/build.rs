//! Builds a replica of a run, or a stage of one.

use super::{Worker, arithmetic};
use crate::data::Source;
use crate::run::average::Average;
use crate::run::division;
use crate::run::first_values::FirstValues;
use crate::run::memory;
use crate::run::meter::Meter;
use crate::run::passes::Passes;
use crate::run::pipeline;
use crate::run::prepared_run::{PreparedRun, global_batch};
use crate::run::speed;
use crate::run::throughput::Throughput;
use crate::run::whitening;
use crate::{Config, Error, Result, Resume};
use std::mem::take;
use std::time::Instant;
use towers_augment::{ImageDataGenerator, LoaderOptions, Samples};
use towers_callbacks::TrainState;
use towers_config::DeviceWeights;
use towers_layers::Mode;
use towers_optim::Optimizer;
use towers_options::{Message, message};
use towers_parallel::{Replica, Shards, Stage};
use towers_program::Device;

/// The error for a batch larger than the data, if short batches are left out.
fn too_large(config: &Config, global: usize, world: usize, samples: usize) -> Error {
    let batches = config.training.virtual_replicas.unwrap_or(world) * config.training.gradient_accumulation;
    let remedy = match samples / batches {
        _ if config.training.global_batch_size.is_some() => {
            message!(["global_batch_size"], " {samples} or less, or ")
        }
        0 => Message::default(),
        each => message!(["batch_size"], " {each} or less, or "),
    };
    let accepted =
        message!("at most the {samples} training samples: this recipe leaves out short batches; give ");
    let accepted = accepted.and(remedy).and("a recipe with drop_last = false");
    Error::about("the batch size", format_args!("{global} over all replicas"), accepted)
}

/// The most samples that a replica with these shards passes at once, in training or in evaluation.
fn largest_pass(run: &PreparedRun<'_>, shards: &Shards, global: usize) -> usize {
    let largest = |samples: usize, drop_last: bool| {
        let rest = if drop_last { 0 } else { samples % global };
        shards.largest(global.min(samples)).max(shards.largest(rest))
    };
    let of_training = largest(run.data.train.len(), run.config.training.drop_last);
    of_training.max(largest(run.data.val.len(), false)).max(1)
}

/// A replica's batches of the training and of the validation data.
fn sources(
    run: &PreparedRun<'_>,
    device: &Device,
    stage: &Stage,
    shards: &Shards,
    global: usize,
) -> Result<[Source; 2]> {
    let PreparedRun { config, data, .. } = run;
    let source = |samples: &Samples, augmentation: &ImageDataGenerator, options, labelling| {
        Source::new(device, stage, samples, augmentation.build(samples.shape())?, options, shards, labelling)
    };
    let options = config.training.loader_options().batch_size(global);
    let train = source(&data.train, &data.augmentation, options, &data.labelling)?;
    let options = LoaderOptions::new().batch_size(global).evaluation();
    Ok([train, source(&data.val, &data.augmentation.evaluation(), options, &data.val_labelling)?])
}

impl<'a> Worker<'a> {
    /// The replica, and its share of the training and of the validation data.
    pub(crate) fn new(
        run: &'a PreparedRun<'a>,
        resume: Option<&Resume>,
        first_values: Option<&FirstValues>,
        replica: Replica,
        mut stage: Stage,
    ) -> Result<(Self, Source, Source)> {
        let PreparedRun { config, data, .. } = run;
        let model = &run.stages[stage.number()];
        let (rank, world) = (replica.rank(), replica.world());
        let Replica { device, mut collective } = replica;
        // The weights that were measured in the resumed run.
        let measured = |resume: &&Resume| resume.config.placement.device_weights == DeviceWeights::Auto;
        let measured_before =
            resume.filter(measured).and_then(|resume| resume.state.device_weights.parse().ok());
        let global = global_batch(config, resume, world);
        let weights = config.placement.device_weights.settle(measured_before.as_ref(), world, || {
            let each = global.min(data.train.len()).div_ceil(config.shards(world));
            speed::measure(model, &device, collective.as_mut(), &mut stage, each)
        })?;
        let own = config.shards_of(&weights, world, rank);
        // This replica needs memory for the largest of its shards over all batches, or for any that may come.
        let any = division::moves_shards(config, world).then(|| Shards::new(own.total(), 1, 0));
        let batch = largest_pass(run, any.as_ref().unwrap_or(&own), global);
        let lanes = pipeline::max_in_flight(&stage, own.own().len());
        let built = if stage.is_last() {
            model.build(&device, batch, Mode::Training)
        } else {
            model.build_stage(&device, batch, Mode::Training, lanes)
        };
        let mut network = built.map_err(|error| memory::explain(error, model, &device, batch * lanes))?;
        network.init(config.training.seed)?;
        match (resume, first_values) {
            (Some(_), _) => {}
            (None, Some(values)) => values.load(&mut network)?,
            (None, None) => whitening::whiten(&mut network, data, collective.as_mut())?,
        }
        let syncs_batch_norm =
            config.training.sync_batch_norm && world > 1 && network.synchronize(collective.rank(), world)?;
        let optimizer = config.optimizer_on(&run.model, &network)?;
        let average = config.training.ema.map(|ema| Average::new(ema, &network)).transpose()?;
        let meter = Meter::new(&device)?;
        let [train, val] = sources(run, &device, &stage, &own, global)?;
        let steps_per_epoch = train.steps() as u64;
        if steps_per_epoch == 0 {
            return Err(too_large(config, global, world, data.train.len()));
        }
        let in_order = config.training.virtual_replicas.is_some() || own.total() > world;
        let passes = Passes::new(&network, own, in_order, lanes)?;
        let mut state = TrainState::default();
        (state.global_batch, state.replicas) = (global, world);
        (state.device_weights, state.arithmetic) = (weights.to_string(), arithmetic(&device));
        let mut worker = Worker {
            run,
            state,
            plateau: super::plateau(&config.training),
            diverged: false,
            saves: false,
            steps_per_epoch,
            device,
            collective,
            network,
            optimizer,
            average,
            passes,
            syncs_batch_norm,
            stage,
            meter,
            read: Instant::now(),
            read_samples: 0,
            ahead: true,
            throughput: Throughput::default(),
        };
        worker.ahead = worker.has_others() && worker.agree(worker.device.runs_ahead())?;
        if let Some(resume) = resume {
            let here = take(&mut worker.state);
            worker.restore(resume)?;
            let TrainState { device_weights, replicas, arithmetic, .. } = here;
            let state = &mut worker.state;
            (state.device_weights, state.replicas, state.arithmetic) = (device_weights, replicas, arithmetic);
        }
        worker.state.data = Some(data.fingerprint.clone());
        // Before any file of the run is written.
        Optimizer::rate(worker.lr())?;
        Ok((worker, train, val))
    }
}
