mod build;
mod describe;
mod snapshot;

pub(crate) use describe::arithmetic;

use crate::data::{Piece, Share, Source};
use crate::run::average::Average;
use crate::run::division::{self, Division};
use crate::run::measured::Measured;
use crate::run::meter::{Meter, Totals};
use crate::run::passes::{Kind, Passes};
use crate::run::pipeline;
use crate::run::prepared_run::PreparedRun;
use crate::run::step::{StepOptions, ascend, gradients, train_step, update};
use crate::run::stop_flag::{Request, StopFlag};
use crate::run::throughput::Throughput;
use crate::{Error, Result};
use std::mem::take;
use std::time::{Duration, Instant};
use towers_callbacks::{EpochRecord, Partial, Plateau, StepInfo, StepRecord, TrainState};
use towers_config::Training;
use towers_layers::{Arena, Draws, Network};
use towers_metrics::Values;
use towers_optim::Progress;
use towers_parallel::{Collective, Exchanges, Stage};
use towers_program::{Device, OptimizerState, ReplayArgs, Span};

/// One replica of a run, or a stage of one: a network and its optimizer.
pub(crate) struct Worker<'a> {
    pub(crate) run: &'a PreparedRun<'a>,
    pub(crate) state: TrainState,
    /// Reduces the schedule's rate, after the epochs of `state`.
    plateau: Option<Plateau>,
    /// Whether this replica has found a NaN or infinite loss that the others don't know of yet; the run will
    /// end.
    diverged: bool,
    /// Whether this replica asks all for a checkpoint, and they don't know yet.
    saves: bool,
    steps_per_epoch: u64,
    pub(crate) device: Device,
    /// Dropped before the collective: NCCL can't end while there are captured graphs with its operations.
    passes: Passes,
    collective: Box<dyn Collective>,
    network: Network,
    optimizer: OptimizerState,
    average: Option<Average>,
    /// Whether layers compute statistics over the whole batch, and so synchronize with those of other
    /// replicas.
    syncs_batch_norm: bool,
    stage: Stage,
    /// Losses and correct answers of the epoch so far.
    meter: Meter,
    /// The last time the meter was read, and the samples of the epoch that it had then.
    read: Instant,
    read_samples: u64,
    /// Whether any replica or stage has an asynchronous device, so that checks for requests to stop would
    /// delay it.
    ahead: bool,
    throughput: Throughput,
}

/// The least time between two readings of losses from an asynchronous device: every reading waits for it.
const READ_EVERY: Duration = Duration::from_millis(100);

/// The least number of steps between two checks for requests to stop. All ranks must check after the same
/// step, so no clock decides.
const STOP_CHECK_EVERY: u64 = 16;

impl Worker<'_> {
    /// Waits for all replicas.
    pub(crate) fn meet(&mut self) -> Result<()> {
        Ok(self.collective.barrier()?)
    }

    /// Whether an epoch is left.
    pub(crate) fn has_epochs_left(&self) -> bool {
        self.state.epochs_done < self.run.config.training.epochs
    }

    /// The progress of the run.
    fn progress(&self) -> Progress {
        let TrainState { epochs_done, step, .. } = self.state;
        Progress {
            step,
            epochs_done,
            steps_per_epoch: self.steps_per_epoch,
            epochs: self.run.config.training.epochs,
        }
    }

    /// The learning rate of the next step.
    pub(crate) fn lr(&self) -> f64 {
        let lr = self.run.config.lr_at(self.state.global_batch, &self.progress());
        self.plateau.as_ref().map_or(lr, |plateau| plateau.lr(lr))
    }

    /// The information for observers after a step.
    pub(crate) fn step_info(&self, seconds: f64) -> StepInfo {
        let TrainState { epochs_done, partial, .. } = &self.state;
        let mut read = *partial;
        read.samples = self.read_samples;
        let mut info = StepInfo::default();
        (info.epoch, info.epochs) = (epochs_done + 1, self.run.config.training.epochs);
        (info.steps_done, info.steps_per_epoch) = (partial.steps, self.steps_per_epoch);
        (info.samples, info.metrics) = (partial.samples, read.means());
        (info.lr, info.seconds) = (partial.lr, seconds);
        info
    }

    /// Prepares an epoch, or the rest of one: copies its sums so far to the device.
    pub(crate) fn begin_epoch(&mut self) -> Result<()> {
        self.optimizer.begin_epoch(self.state.epochs_done);
        self.read_samples = self.state.partial.samples;
        self.meter.set(&self.device, &self.state.partial)
    }

    /// Why the run has no more steps, if the configuration limits them.
    pub(crate) fn steps_are_over(&self) -> Option<String> {
        let most = self.run.config.outputs.max_steps?;
        (self.state.step >= most).then(|| format!("the {most} steps of the run are done"))
    }

    /// Whether the validation data are measured after this epoch.
    pub(crate) fn validates(&self) -> bool {
        let (epoch, training) = (self.state.epochs_done + 1, &self.run.config.training);
        let is_last = epoch >= training.epochs || self.steps_are_over().is_some();
        is_last || epoch.is_multiple_of(training.validate_every)
    }

    /// One training step on this replica's shards of a batch, the last one of the run if `stops` says so, or `over`. Returns
    /// what any replica was asked to do after it; replicas on asynchronous devices learn it some steps late.
    ///
    /// An asynchronous device only gets the commands here. A NaN or infinite loss is found when the losses
    /// are read, and has changed no parameter until then.
    pub(crate) fn step(
        &mut self,
        batch: &Share,
        stop: &StopFlag,
        (stops, over): (bool, bool),
    ) -> Result<Request> {
        if let Some(queued) = self.collective.queued() {
            queued.at_step(self.state.step);
        }
        let (lr, global, split) = (self.lr(), batch.global(), self.stage.stages() > 1);
        let alone = self.passes.is_single() && !split;
        let (training, step) = (&self.run.config.training, self.state.step);
        let epoch = self.state.epochs_done + 1;
        let turn = ReplayArgs { step, lr: lr as f32, first: 0 };
        let draws = Draws { seed: training.seed, step, first_sample: 0 };
        let label_smoothing = training.label_smoothing as f32;
        let options = StepOptions { draws, label_smoothing, lr, global_batch: global, epoch };
        let runs = self.optimizer.runs();
        let kind = match (alone, self.syncs_batch_norm) {
            (true, _) => Kind::Step { runs },
            (_, true) => Kind::Synchronized,
            _ => Kind::Gradients,
        };
        if self.optimizer.is_sharpness_aware() && !alone {
            self.pass(batch, kind, &turn, &options)?;
            self.after_pass(Request::None, Kind::Ascent { runs }, &turn, &options, ascend)?;
        }
        self.pass(batch, kind, &turn, &options)?;
        let own = self.passes.shards().own_rows(global).len();
        self.throughput.add(own, Duration::ZERO);
        // A rank that found a NaN loss ends the run of all together.
        self.saves |= stop.take_save();
        let mut request = match stops || stop.is_raised() || self.diverged {
            true => Request::Stop,
            false if over => Request::End,
            false if self.saves => Request::Save,
            false => Request::None,
        };
        if !alone {
            self.after_pass(request, Kind::Update { runs }, &turn, &options, update)?;
            // The request remains until all check.
            let last = self.state.partial.steps + 1 == self.steps_per_epoch;
            let check = !self.ahead || last || step % STOP_CHECK_EVERY == 0;
            request = if check { self.read_requests(request)? } else { Request::None };
        }
        self.saves &= request == Request::None;
        self.state.step += 1;
        let done = self.progress();
        if let Some(average) = &mut self.average {
            average.after(&done, &mut self.network)?;
        }
        let partial = &mut self.state.partial;
        partial.steps += 1;
        partial.samples += global as u64;
        partial.lr = lr;
        if !self.device.runs_ahead() || self.read.elapsed() >= READ_EVERY || self.is_recorded() {
            self.read_losses_in_order()?;
        }
        Ok(request)
    }

    /// The passes over this replica's shards of a batch: with [`Kind::Step`] the whole step.
    fn pass(&mut self, batch: &Share, kind: Kind, turn: &ReplayArgs, options: &StepOptions) -> Result<()> {
        let Worker { passes, network, optimizer, meter, stage, collective, .. } = self;
        let (began, mut waited) = (Instant::now(), Duration::ZERO);
        if stage.stages() > 1 {
            pipeline::train(passes, stage, network, batch, options)?;
        } else {
            let pass = |network: &mut Network, piece: &Piece<'_>, exchanges: Option<Exchanges<'_>>| {
                let draws = Draws { first_sample: piece.first_sample, ..options.draws };
                let options = StepOptions { draws, ..*options };
                if let Kind::Step { .. } = kind {
                    return train_step(network, optimizer, meter, &options);
                }
                waited += gradients(network, &options, exchanges)?;
                Ok(())
            };
            passes.each(network, collective.as_mut(), batch, kind, turn, (pass, |_, _| Ok(())))?;
        }
        self.throughput.add(0, began.elapsed().saturating_sub(waited));
        Ok(())
    }

    /// Sums the results of the passes, with this replica's request, over all replicas. Then does the work that follows.
    fn after_pass(
        &mut self,
        request: Request,
        kind: Kind,
        turn: &ReplayArgs,
        options: &StepOptions,
        work: fn(&mut Network, &mut OptimizerState, &mut Meter, &StepOptions) -> Result<()>,
    ) -> Result<()> {
        self.request(request)?;
        self.passes.finish(self.collective.as_mut(), &mut self.network)?;
        self.sum_over_stages(self.metrics_and_signal())?;
        let Worker { passes, device, network, optimizer, meter, collective, .. } = self;
        let began = Instant::now();
        passes.after(device, collective.as_mut(), options.global_batch, kind, turn, || {
            work(network, optimizer, meter, options)
        })?;
        self.throughput.add(0, began.elapsed());
        Ok(())
    }

    /// Whether the last step ends a record of steps. No clock decides, so that a run repeats its records. The
    /// last record of an epoch includes up to half as many steps more, since those alone would be noise.
    fn is_recorded(&self) -> bool {
        let (every, steps) = (self.run.config.outputs.log_every, self.state.partial.steps);
        let left = self.steps_per_epoch.saturating_sub(steps);
        every > 0 && (left == 0 || (steps.is_multiple_of(every) && left >= every.div_ceil(2)))
    }

    /// The record that the last step ends, if it ends one.
    pub(crate) fn record_steps(&mut self) -> Option<StepRecord> {
        let is_due = self.is_recorded() && !self.diverged;
        let TrainState { epochs_done, step, partial, .. } = &mut self.state;
        is_due.then(|| partial.record(*epochs_done + 1, *step)).flatten()
    }

    /// As [`read_losses`](Self::read_losses), but returns whether the losses are finite. With other replicas,
    /// a loss that is not ends the run in order, at a step after which all check.
    pub(crate) fn read_losses_in_order(&mut self) -> Result<bool> {
        match self.read_losses() {
            Err(Error::NotFinite { .. }) if self.run.config.outputs.terminate_on_nan && self.has_others() => {
                self.diverged = true;
                Ok(false)
            }
            read => read.map(|()| true),
        }
    }

    /// The throughput of every replica, by rank, at the steps with an exchange; called by all after every
    /// step.
    pub(crate) fn replica_rates(&mut self) -> Result<Option<Vec<f64>>> {
        // The host can't time an asynchronous device, and the others alone don't show the slowest.
        let move_shards = division::moves_shards(self.run.config, self.collective.world());
        if self.ahead || !Throughput::is_due(self.state.partial.steps, self.steps_per_epoch, move_shards) {
            return Ok(None);
        }
        self.throughput.exchange(&self.device, self.collective.as_mut())
    }

    /// A better division of the shards, if these throughputs of the replicas have one. They are the same on
    /// all replicas, and so is the answer.
    pub(crate) fn better_division(&self, rates: &[f64]) -> Option<Division> {
        let moves = division::moves_shards(self.run.config, self.collective.world());
        division::better(self.passes.shards(), rates).filter(|_| moves)
    }

    /// Changes the shards of this replica between two steps, as all do.
    pub(crate) fn divide(&mut self, division: Division, sources: [&mut Source; 2]) -> Result<()> {
        let Division { weights, shards } = division;
        sources.into_iter().try_for_each(|source| source.set_shards(&shards))?;
        self.passes.set_shards(&self.network, shards)?;
        self.state.device_weights = weights.to_string();
        Ok(())
    }

    /// Brings the sums of the epoch up to date; waits for an asynchronous device.
    pub(crate) fn read_losses(&mut self) -> Result<()> {
        let totals = self.meter.read(&self.device)?;
        (self.read, self.read_samples) = (Instant::now(), self.state.partial.samples);
        totals.check(self.state.epochs_done + 1)?;
        (self.state.partial.loss_sum, self.state.partial.correct) = (totals.loss_sum, totals.correct);
        Ok(())
    }

    /// Whether any replica says yes, as to a request to stop.
    pub(crate) fn agree(&mut self, yes: bool) -> Result<bool> {
        let own = Request::stop_if(yes);
        self.request(own)?;
        self.sum(self.network.arena().signal)?;
        Ok(self.read_requests(own)? == Request::Stop)
    }

    /// Leaves this replica's request for the next sum.
    fn request(&mut self, request: Request) -> Result<()> {
        let signal = self.network.arena().signal;
        Ok(self.device.fill(request.number(), &mut self.network.arena_mut().grads, signal)?)
    }

    /// Replaces the span `at` of `grads` by the sum over the shards of all replicas.
    fn sum(&mut self, at: Span) -> Result<()> {
        self.passes.add_up(self.collective.as_mut(), &mut self.network, at)?;
        self.sum_over_stages(at)
    }

    /// Adds up a span of `grads` over the stages of this replica: the metrics, which only the last one has, and
    /// requests. With the sum over the replicas, all stages get the same numbers.
    fn sum_over_stages(&mut self, at: Span) -> Result<()> {
        if self.stage.stages() == 1 {
            return Ok(());
        }
        Ok(self.stage.replica.all_reduce_sum(&self.device, &mut self.network.arena_mut().grads, at)?)
    }

    /// The metrics, followed by the requests.
    fn metrics_and_signal(&self) -> Span {
        let Arena { metrics, signal, .. } = self.network.arena();
        Span::new(metrics.offset, signal.end() - metrics.offset)
    }

    /// The strongest request of all replicas at the last sum; waits for an asynchronous device. `own` is the
    /// request of this one.
    fn read_requests(&self, own: Request) -> Result<Request> {
        if !self.has_others() {
            return Ok(own);
        }
        let Arena { grads, signal, .. } = self.network.arena();
        let mut requests = [0.0];
        self.device.download(grads, signal.offset, &mut requests)?;
        Ok(Request::of_sum(requests[0]))
    }

    /// Whether other replicas or stages compute parts of the same steps.
    fn has_others(&self) -> bool {
        self.collective.world() > 1 || self.stage.stages() > 1
    }

    /// Why steps take longer than they could, a sentence for each reason.
    pub(crate) fn fallbacks(&self) -> Vec<String> {
        let refusal = self.passes.capture_refusal();
        let eager = refusal.map(|why| format!("steps run op by op, which takes longer: {why}"));
        eager.into_iter().chain(crate::gpus::fallbacks(&self.device)).collect()
    }

    /// The metrics on the validation data, over all replicas; NaN without data. `None` if a replica was asked to stop in
    /// between, by the flag or by what `progress` returned.
    pub(crate) fn evaluate(
        &mut self,
        val: &mut Source,
        stop: &StopFlag,
        mut progress: impl FnMut(usize, usize) -> bool,
    ) -> Result<Option<Values>> {
        let PreparedRun { data, config, .. } = self.run;
        let (device, all) = (self.device.clone(), data.val.len());
        let mut measured = Measured::new(&config.outputs.metrics, data)?;
        let (mut done, mut asked) = (0, false);
        self.meter.set(&device, &Partial::default())?;
        for (number, batch) in (0..).zip(val.epoch(&device, 0, 0)?) {
            let batch = batch?;
            let Worker { passes, network, collective, stage, .. } = self;
            let count = |network: &mut Network, piece: &Piece<'_>| {
                measured.add(network, done + piece.first_sample as usize)
            };
            if stage.stages() > 1 {
                pipeline::evaluate(passes, stage, network, &batch, count)?;
            } else {
                let (collective, args) = (collective.as_mut(), ReplayArgs::default());
                let pass = |network: &mut Network, _: &Piece<'_>, _: Option<Exchanges<'_>>| {
                    Ok(network.evaluate_pass()?)
                };
                passes.each(network, collective, &batch, Kind::Evaluation, &args, (pass, count))?;
            }
            let own = Request::stop_if(stop.is_raised() || asked);
            self.request(own)?;
            self.sum(self.metrics_and_signal())?;
            self.meter.add(&self.network)?;
            done += batch.global();
            asked = progress(done, all);
            let check = done < all && (!self.ahead || number % STOP_CHECK_EVERY == 0);
            if check && self.read_requests(own)? == Request::Stop {
                return Ok(None);
            }
        }
        let Totals { loss_sum, correct, .. } = self.meter.read(&device)?;
        let all = all as f64;
        let mut values = Values::from_iter([("val_loss", loss_sum / all), ("val_acc", correct / all)]);
        let more = measured.values(&device, self.collective.as_mut(), &mut self.stage)?;
        more.iter().for_each(|(name, value)| values.set(format!("val_{name}"), value));
        Ok(Some(values))
    }

    /// Replaces the weights by their average if the run ends before the step that would have done so; returns
    /// whether it has. Not if the model is that of the best epoch, which stays as it was measured.
    pub(crate) fn take_average(&mut self) -> Result<bool> {
        let done = self.progress();
        let outputs = &self.run.config.outputs;
        let restores = outputs.early_stop.as_ref().is_some_and(|stop| stop.restore_best_weights);
        if restores || outputs.checkpoints.save_best.is_some() {
            return Ok(false);
        }
        match &self.average {
            Some(average) if !average.has_overwritten(&done) => {
                average.overwrite(&mut self.network)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Ends an epoch: the next one starts with empty sums.
    pub(crate) fn end_epoch(&mut self) -> Partial {
        self.state.epochs_done += 1;
        take(&mut self.state.partial)
    }

    /// Stores the figures of an epoch, which are the same on every replica.
    pub(crate) fn record(&mut self, record: EpochRecord) {
        if let Some(plateau) = &mut self.plateau {
            plateau.observe_epoch(&record);
        }
        self.state.history.push(record);
    }
}

/// The plateau before the first epoch, if the run reduces its learning rate.
fn plateau(training: &Training) -> Option<Plateau> {
    let plateau = training.reduce_lr_on_plateau.clone().map(Plateau::new);
    plateau.map(|plateau| plateau.validate_every(training.validate_every))
}
