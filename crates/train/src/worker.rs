use crate::state::Partial;
use crate::{Config, Error, Input, Result, Resume, Snapshot, StepInfo, TrainState};
use augment::{Batch, Loader, LoaderOptions, Rows, Samples};
use checkpoint::Tensors;
use layers::{Draws, Metrics, Mode, Network, Role};
use models::Model;
use optim::{OptimizerState, Progress};
use parallel::{Collective, Replica, largest_slice, slice_batch};
use tensor::{Backend, Device, Span};

/// The data of a run, shared by its replicas.
pub(crate) struct Prepared {
    pub(crate) train: Samples,
    pub(crate) val: Samples,
    pub(crate) input: Input,
    pub(crate) classes: Vec<String>,
    pub(crate) dataset: String,
}

/// One replica of a run: a network, its optimizer, and its share of the validation data.
pub(crate) struct Worker<'a> {
    pub(crate) config: &'a Config,
    pub(crate) prepared: &'a Prepared,
    pub(crate) state: TrainState,
    steps_per_epoch: u64,
    device: Device,
    collective: Box<dyn Collective>,
    network: Network,
    optimizer: OptimizerState,
    val_loader: Loader,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(
        config: &'a Config,
        prepared: &'a Prepared,
        model: &Model,
        resume: Option<&Resume>,
        replica: Replica,
    ) -> Result<(Self, Loader)> {
        let (rank, world) = (replica.rank(), replica.world());
        let Replica { device, collective } = replica;
        let global = resume.map_or(config.global_batch(world), |resume| resume.state.global_batch);
        let rest = if config.drop_last { 0 } else { prepared.train.len() % global };
        let batch =
            largest_slice(global.min(prepared.train.len()), world).max(largest_slice(rest, world)).max(1);
        let mut network = model.build(&device, batch, Mode::Training)?;
        network.init(config.seed)?;
        let optimizer = OptimizerState::new(&device, config.optimizer, network.arena().trainable.len)?;
        let rows = Rows::Share { index: rank, of: world };
        let options = LoaderOptions::new()
            .batch_size(global)
            .seed(config.seed)
            .drop_last(config.drop_last)
            .rows(rows.clone());
        let pipeline = prepared.input.pipeline(config.augmentation.clone())?;
        let loader = Loader::new(prepared.train.clone(), pipeline, options)?;
        // No share of a batch of this size, or of a shorter one, is larger than the network's largest.
        let val_batch = batch.max(world * (batch + 1).saturating_sub(world));
        let options = LoaderOptions::new().batch_size(val_batch).rows(rows).evaluation();
        let val_loader =
            Loader::new(prepared.val.clone(), prepared.input.pipeline(Default::default())?, options)?;
        let state = TrainState { global_batch: global, ..TrainState::default() };
        let steps_per_epoch = loader.steps_per_epoch() as u64;
        if steps_per_epoch == 0 {
            let value = format!("{global} over all replicas");
            let samples = prepared.train.len();
            let accepted =
                format!("at most the {samples} training samples: this recipe leaves out short batches");
            return Err(Error::Option { option: "the batch size", value, accepted });
        }
        let mut worker = Worker {
            config,
            prepared,
            state,
            steps_per_epoch,
            device,
            collective,
            network,
            optimizer,
            val_loader,
        };
        if let Some(resume) = resume {
            worker.restore(resume)?;
        }
        Ok((worker, loader))
    }

    /// The learning rate of the next step.
    pub(crate) fn lr(&self) -> f64 {
        let TrainState { epoch, step, .. } = self.state;
        let (steps_per_epoch, epochs) = (self.steps_per_epoch, self.config.epochs);
        self.config.schedule.lr(self.config.lr, &Progress { step, epoch, steps_per_epoch, epochs })
    }

    /// What observers learn after a step.
    pub(crate) fn step_info(&self, seconds: f64) -> StepInfo {
        let TrainState { epoch, partial, .. } = &self.state;
        let (loss, acc) = partial.means();
        StepInfo {
            epoch: *epoch,
            epochs: self.config.epochs,
            steps_done: partial.steps,
            steps_per_epoch: self.steps_per_epoch,
            samples: partial.samples,
            loss,
            acc,
            lr: partial.lr,
            seconds,
        }
    }

    /// The devices, in words.
    pub(crate) fn describe(&self) -> String {
        match self.collective.world() {
            1 => self.device.name(),
            world => format!("{world} replicas, each on {}", self.device.name()),
        }
    }

    /// One training step on this replica's share of a batch. Returns whether any replica was asked to stop.
    pub(crate) fn step(&mut self, batch: &Batch, stop: bool) -> Result<bool> {
        let lr = self.lr();
        let share = slice_batch(batch.global_len, self.collective.world(), self.collective.rank());
        let draws = Draws { seed: self.config.seed, step: self.state.step, first_sample: share.start as u32 };
        self.network.set_input(&batch.x, &batch.labels)?;
        self.network.train_pass(draws, self.config.label_smoothing, batch.global_len)?;
        let stop = self.reduce_from(0, stop)?;
        let metrics = self.network.metrics()?;
        if !metrics.loss_sum.is_finite() {
            let (epoch, step) = (self.state.epoch + 1, self.state.partial.steps + 1);
            return Err(Error::NotFinite { loss: metrics.loss_sum, epoch, step });
        }
        self.network.finish_step(batch.global_len)?;
        let arena = self.network.arena_mut();
        self.optimizer.step(&self.device, lr, &mut arena.params, &arena.grads, arena.trainable)?;
        self.state.step += 1;
        let partial = &mut self.state.partial;
        partial.steps += 1;
        partial.samples += batch.global_len as u64;
        partial.loss_sum += metrics.loss_sum;
        partial.correct += metrics.correct;
        partial.lr = lr;
        Ok(stop)
    }

    /// Whether any replica wants the run to stop.
    pub(crate) fn agree(&mut self, stop: bool) -> Result<bool> {
        self.reduce_from(self.network.arena().signal.offset, stop)
    }

    /// Adds up what replicas have in `grads` from element `from` on: gradients, sums, metrics and, at the end, their wishes
    /// to stop. Returns whether there was one.
    fn reduce_from(&mut self, from: usize, stop: bool) -> Result<bool> {
        let arena = self.network.arena_mut();
        let signal = arena.signal;
        self.device.fill(f32::from(u8::from(stop)), &mut arena.grads, signal)?;
        self.collective.all_reduce_sum(
            &self.device,
            &mut arena.grads,
            Span::new(from, signal.end() - from),
        )?;
        let mut wishes = [0.0];
        self.device.download(&arena.grads, signal.offset, &mut wishes)?;
        Ok(wishes[0] > 0.0)
    }

    /// The mean loss and accuracy on the validation data, over all replicas; NaN without data.
    pub(crate) fn evaluate(
        &mut self,
        mut progress: impl FnMut(usize, usize) -> Result<()>,
    ) -> Result<(f64, f64)> {
        let all = self.prepared.val.len();
        let (mut done, mut sums) = (0, Metrics::default());
        for batch in self.val_loader.epoch(0, 0)? {
            let batch = batch?;
            self.network.set_input(&batch.x, &batch.labels)?;
            self.network.evaluate_pass()?;
            let arena = self.network.arena_mut();
            self.collective.all_reduce_sum(&self.device, &mut arena.grads, arena.metrics)?;
            let metrics = self.network.metrics()?;
            sums.loss_sum += metrics.loss_sum;
            sums.correct += metrics.correct;
            done += batch.global_len;
            progress(done, all)?;
        }
        Ok((sums.loss_sum / all as f64, sums.correct / all as f64))
    }

    /// Makes this replica what it was when the checkpoint was written.
    fn restore(&mut self, resume: &Resume) -> Result<()> {
        let arena = self.network.arena_mut();
        let mut memory = vec![0.0; self.optimizer.memory().len()];
        for slot in arena.slots().to_vec() {
            arena.load(&self.device, &slot, resume.values(&slot.name, slot.span.len)?)?;
            if let (Some(name), Role::Trainable) = (self.optimizer.name(), slot.role) {
                let values = resume.values(&format!("{name}/{}", slot.name), slot.span.len)?;
                memory[slot.span.range()].copy_from_slice(values);
            }
        }
        self.optimizer.import(&self.device, &memory)?;
        self.state = resume.state.clone();
        Ok(())
    }

    /// Parameters and running averages, copied from the device.
    fn parameters(&self) -> Result<Tensors> {
        let mut tensors = Tensors::new();
        let arena = self.network.arena();
        for slot in arena.slots() {
            let values = arena.storage(slot).to_vec(&self.device, slot.span.offset, slot.span.len)?;
            tensors.insert(&slot.name, slot.shape.clone(), values)?;
        }
        Ok(tensors)
    }

    /// Ends an epoch: the next one begins with empty sums.
    pub(crate) fn end_epoch(&mut self) -> Partial {
        self.state.epoch += 1;
        core::mem::take(&mut self.state.partial)
    }
}

impl Snapshot for Worker<'_> {
    fn all_tensors(&self) -> Result<Tensors> {
        let mut tensors = self.parameters()?;
        let Some(name) = self.optimizer.name() else { return Ok(tensors) };
        for slot in self.network.arena().slots().iter().filter(|slot| slot.role == Role::Trainable) {
            let values = self.optimizer.memory().to_vec(&self.device, slot.span.offset, slot.span.len)?;
            tensors.insert(format!("{name}/{}", slot.name), slot.shape.clone(), values)?;
        }
        Ok(tensors)
    }

    fn model_tensors(&self) -> Result<Tensors> {
        let mut tensors = self.parameters()?;
        crate::model_file::describe(&mut tensors, &self.config.model, self.prepared)?;
        Ok(tensors)
    }
}
