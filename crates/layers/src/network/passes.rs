//! The passes of a network over its current batch.

use super::arena::Arena;
use super::exchange::{self, Exchange};
use super::graph::Mode;
use super::instance::Network;
use super::lowering::Prepared;
use super::micro_batch::{MicroBatch, Pass};
use super::profile::Traced;
use crate::error::InLayer;
use crate::{Draws, Error, Result};
use core::ops::Range;
use towers_program::{Device, Layout, Memory, Phase, Span, StepArgs, TensorId, View, ViewMut};

/// The metrics of a pass over some samples, as sums: divide by the number of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metrics {
    /// The sum of the losses.
    pub loss_sum: f64,
    /// The number of samples that were classified correctly. A sample of a multi-label network counts as the share of its right classes.
    pub correct: f64,
}

impl Network {
    /// A training pass over the current batch. Afterwards the arena's `grads` hold the gradients, the sums
    /// for the running averages, and the metrics, ready to be added to other replicas'.
    ///
    /// The loss is softmax cross-entropy, or binary cross-entropy of a [multi-label](Network::is_multi_label) network. Its gradient is
    /// divided by `global_batch`, the samples of all replicas.
    /// A batch of no samples leaves zeros.
    ///
    /// Running averages, such as those of batch normalization, move in [`finish_step`](Network::finish_step).
    /// Without it, inference uses the initial ones.
    ///
    /// # Errors
    /// [`Error::InferenceOnly`], [`Error::GlobalBatch`] for a global batch smaller than the current one, or
    /// the device's error.
    pub fn train_pass(&mut self, draws: Draws, label_smoothing: f32, global_batch: usize) -> Result<()> {
        self.train_pass_with(draws, label_smoothing, global_batch, None)
    }

    /// A [`train_pass`](Network::train_pass) with the exchanges of its program, if there is anyone to exchange
    /// with. It starts the all-reduces of [`buckets`](Network::buckets) of gradients, and shares statistics
    /// once the network is [synchronized](Network::synchronize).
    ///
    /// # Errors
    /// As [`train_pass`](Network::train_pass), and the errors of the exchange.
    pub fn train_pass_with(
        &mut self,
        draws: Draws,
        label_smoothing: f32,
        global_batch: usize,
        mut exchange: Option<&mut dyn Exchange>,
    ) -> Result<()> {
        self.check_global_batch(global_batch)?;
        self.forward_pass(draws, reborrow(&mut exchange))?;
        self.backward_pass(draws, label_smoothing, global_batch, exchange)
    }

    /// The first part of a training pass. A stage also receives the current batch, and sends its output on.
    /// With [`backward_pass`](Network::backward_pass) it equals
    /// [`train_pass_with`](Network::train_pass_with), bit for bit. Other
    /// [micro-batches](Network::choose_micro_batch) may pass in between.
    ///
    /// # Errors
    /// As [`train_pass_with`](Network::train_pass_with).
    pub fn forward_pass(&mut self, draws: Draws, exchange: Option<&mut dyn Exchange>) -> Result<()> {
        if self.mode == Mode::Inference {
            return Err(Error::InferenceOnly);
        }
        // The loss writes the metrics, if there are samples and a loss.
        if self.n() == 0 {
            let all = Span::new(0, self.arena.grads.len());
            self.device.fill(0.0, &mut self.arena.grads, all)?;
        } else if self.graph.sends {
            self.device.fill(0.0, &mut self.arena.grads, self.arena.metrics)?;
        }
        let synchronized = exchange.is_some() && self.synchronized.is_some();
        self.micro_batches[self.micro_batch].pass =
            if synchronized { Pass::Synchronized } else { Pass::Training };
        self.run(Phase::Forward, Some(draws), 0.0, 1, exchange)
    }

    /// The second part: the loss and the backward pass. A stage without the loss receives the gradient of its
    /// output; a stage with an earlier neighbour sends it the gradient of its input. `draws` are those of the
    /// forward pass.
    ///
    /// # Errors
    /// As [`train_pass_with`](Network::train_pass_with).
    pub fn backward_pass(
        &mut self,
        draws: Draws,
        label_smoothing: f32,
        global_batch: usize,
        mut exchange: Option<&mut dyn Exchange>,
    ) -> Result<()> {
        self.check_global_batch(global_batch)?;
        self.run(Phase::Loss, Some(draws), label_smoothing, global_batch, None)?;
        self.run(Phase::Backward, Some(draws), label_smoothing, global_batch, reborrow(&mut exchange))?;
        // With an exchange, its all-reduces bring gradients into place, bucket by bucket.
        if exchange.is_none() { self.finish_grads() } else { Ok(()) }
    }

    /// Chooses the micro-batch for all later calls: its batch, and the results of its last passes.
    ///
    /// # Errors
    /// [`Error::Batch`] if the stage has no memory for such a micro-batch.
    pub fn choose_micro_batch(&mut self, micro_batch: usize) -> Result<()> {
        if micro_batch >= self.micro_batches.len() {
            let accepted = format!("{} micro-batches", self.micro_batches.len());
            return Err(Error::Batch { accepted, given: format!("micro-batch {micro_batch}") });
        }
        self.micro_batch = micro_batch;
        Ok(())
    }

    fn check_global_batch(&self, global_batch: usize) -> Result<()> {
        if global_batch < self.n().max(1) {
            return Err(Error::GlobalBatch { global_batch, own: self.n() });
        }
        Ok(())
    }

    /// Brings all gradients of the current batch into place.
    pub(super) fn finish_grads(&mut self) -> Result<()> {
        // Without samples there are only zeros, which are in place.
        if self.n() == 0 {
            return Ok(());
        }
        Ok(self.device.finish_grads(&mut self.arena.grads, self.arena.trainable)?)
    }

    /// Moves the running averages by the sums over all `global_batch` samples, after the replicas' `grads`
    /// have been added.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn finish_step(&mut self, global_batch: usize) -> Result<()> {
        if global_batch == 0 {
            return Err(Error::GlobalBatch { global_batch, own: self.n() });
        }
        let Arena { grads, running, averages, .. } = &mut self.arena;
        for average in averages {
            let scale = 1.0 / global_batch as f32;
            self.device.ema_step(average.momentum, scale, grads, average.sums, running, average.running)?;
        }
        Ok(())
    }

    /// A forward pass over the current batch, as in inference: afterwards the arena's `grads` hold the metrics.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn evaluate_pass(&mut self) -> Result<()> {
        self.evaluate_pass_with(None)
    }

    /// As [`evaluate_pass`](Network::evaluate_pass), for a stage: it receives the batch, and sends it on.
    /// Only the last stage has metrics. The others leave zeros.
    ///
    /// # Errors
    /// As [`evaluate_pass`](Network::evaluate_pass), and the errors of the exchange.
    pub fn evaluate_pass_with(&mut self, exchange: Option<&mut dyn Exchange>) -> Result<()> {
        self.device.fill(0.0, &mut self.arena.grads, self.arena.metrics)?;
        self.infer(exchange)?;
        self.run(Phase::Loss, None, 0.0, 1, None)
    }

    /// The forward pass of inference.
    fn infer(&mut self, exchange: Option<&mut dyn Exchange>) -> Result<()> {
        self.micro_batches[self.micro_batch].pass = Pass::Inference;
        self.run(Phase::Forward, None, 0.0, 1, exchange)
    }

    /// The class probabilities of the current batch, by an inference pass: one row of
    /// [`classes`](Network::classes) a sample. Those of a [multi-label](Network::is_multi_label) network are independent; of others they
    /// sum to 1.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn predict(&mut self) -> Result<Vec<f32>> {
        let n = self.n();
        self.infer(None)?;
        if self.is_multi_label() {
            let sigmoid = |&logit: &f32| (1.0 / (1.0 + f64::from(-logit).exp())) as f32;
            return Ok(self.scores()?.iter().map(sigmoid).collect());
        }
        let at = self.infer.executable.layout(self.infer.program().output, n);
        let (logits, layout) =
            (View::new(&self.micro_batches[self.micro_batch].activations, at), Layout::contiguous(at.shape));
        self.device.softmax(logits, ViewMut::new(&mut self.probabilities, layout))?;
        let probabilities = self.probabilities.to_vec(&self.device, 0, layout.shape.len())?;
        // One score gives the probability of the second class alone.
        let both = |&second: &f32| [1.0 - second, second];
        Ok(if layout.shape.c == 1 { probabilities.iter().flat_map(both).collect() } else { probabilities })
    }

    /// The scores of the current batch's samples after an inference pass, one row of [`classes`](Network::classes) each:
    /// logits, or 0 and the only logit for networks with one. A stage of a network has no scores but the last.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn scores(&mut self) -> Result<Vec<f32>> {
        // A graph that repeats an inference pass does not say so.
        self.micro_batches[self.micro_batch].pass = Pass::Inference;
        let single = !self.is_multi_label();
        let work = self.work();
        let output = work.prepared.program().output;
        let scores = work.read(output)?;
        let both = |&second: &f32| [0.0, second];
        Ok(if single && work.prepared.program().tensor(output).shape.c == 1 {
            scores.iter().flat_map(both).collect()
        } else {
            scores
        })
    }

    /// The metrics of the last pass or, after an all-reduce, of all replicas.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn metrics(&self) -> Result<Metrics> {
        let mut sums = [0.0; 2];
        self.device.download(&self.arena.grads, self.arena.metrics.offset, &mut sums)?;
        Ok(Metrics { loss_sum: f64::from(sums[0]), correct: f64::from(sums[1]) })
    }

    /// Runs a phase of the last pass, layer by layer: an error names its layer. Inference has no draws.
    fn run(
        &mut self,
        phase: Phase,
        draws: Option<Draws>,
        label_smoothing: f32,
        global_batch: usize,
        mut exchange: Option<&mut dyn Exchange>,
    ) -> Result<()> {
        let mut work = self.work();
        let args = work.args(draws, label_smoothing, global_batch);
        for (layer, steps) in work.prepared.layers(phase) {
            work.run(steps.clone(), &args, reborrow(&mut exchange)).in_layer(layer)?;
        }
        Ok(())
    }

    /// A pass step by step, of training with draws, else of inference.
    pub(super) fn trace(
        &mut self,
        draws: Option<Draws>,
        label_smoothing: f32,
        global_batch: usize,
        ended: &mut dyn FnMut(Traced),
    ) -> Result<()> {
        if draws.is_some() && self.train.is_none() {
            return Err(Error::InferenceOnly);
        }
        self.micro_batches[self.micro_batch].pass =
            if draws.is_some() { Pass::Training } else { Pass::Inference };
        let mut work = self.work();
        let args = work.args(draws, label_smoothing, global_batch);
        let program = work.prepared.program();
        let is_own = |&k: &usize| !program.steps[k].op.is_exchange();
        for step in (0..program.steps.len()).filter(is_own) {
            let layer = program.layers.get(program.steps[step].layer).map_or("", String::as_str);
            work.run(step..step + 1, &args, None).in_layer(layer)?;
            work.device.synchronize()?;
            ended(Traced::Step(program, step));
        }
        Ok(())
    }

    /// The program of training, with its memory. It is that of the last pass from now on.
    pub(super) fn begin_training(&mut self) -> Work<'_> {
        self.micro_batches[self.micro_batch].pass = Pass::Training;
        self.work()
    }

    /// The program of the last pass, with its memory.
    fn work(&mut self) -> Work<'_> {
        let Network { device, micro_batches, micro_batch, infer, train, synchronized, arena, .. } = self;
        let micro_batch = &mut micro_batches[*micro_batch];
        Work {
            device,
            prepared: micro_batch.pass.of(infer, train.as_ref(), synchronized.as_ref()),
            micro_batch,
            arena,
        }
    }
}

/// A loan of the exchange, for one part of a pass.
fn reborrow<'a>(exchange: &'a mut Option<&mut dyn Exchange>) -> Option<&'a mut dyn Exchange> {
    exchange.as_mut().map(|exchange| &mut **exchange as _)
}

/// A program and its memory.
pub(super) struct Work<'a> {
    device: &'a Device,
    pub(super) prepared: &'a Prepared,
    micro_batch: &'a mut MicroBatch,
    pub(super) arena: &'a mut Arena,
}

impl Work<'_> {
    pub(super) fn args(&self, draws: Option<Draws>, label_smoothing: f32, global_batch: usize) -> StepArgs {
        let Draws { seed, step, first_sample } = draws.unwrap_or(Draws { seed: 0, step: 0, first_sample: 0 });
        let MicroBatch { n, targets, .. } = *self.micro_batch;
        StepArgs { n, global_batch, seed, step, first_sample, label_smoothing, targets }
    }

    /// The numbers of a tensor, back to back. Those of labels are not read.
    pub(super) fn read(&self, id: TensorId) -> towers_program::Result<Vec<f32>> {
        let Work { device, prepared, micro_batch, arena } = self;
        let storage = match prepared.program().tensor(id).arena {
            towers_program::Arena::Activations => &micro_batch.activations,
            towers_program::Arena::Statistics => &micro_batch.statistics,
            towers_program::Arena::Parameters => &arena.params,
            towers_program::Arena::Gradients => &arena.grads,
            towers_program::Arena::Averages => &arena.running,
            towers_program::Arena::Labels => return Ok(Vec::new()),
        };
        let Layout { offset, shape, stride } = prepared.executable.layout(id, micro_batch.n);
        if shape.is_empty() {
            return Ok(Vec::new());
        }
        let end = (shape.rows() - 1) * stride + shape.c;
        let mut numbers = storage.to_vec(device, offset, end)?;
        if stride != shape.c {
            numbers = numbers.chunks(stride).flat_map(|pixel| &pixel[..shape.c]).copied().collect();
        }
        Ok(numbers)
    }

    /// Runs some steps, with their exchanges if there is anyone to exchange with.
    pub(super) fn run(
        &mut self,
        mut steps: Range<usize>,
        args: &StepArgs,
        mut exchange: Option<&mut dyn Exchange>,
    ) -> towers_program::Result<()> {
        let Work { device, prepared, micro_batch, arena } = self;
        let program = &prepared.executable;
        let has_work = args.n > 0 || prepared.synchronizes;
        while !steps.is_empty() {
            let until = steps.clone().find(|&k| program.step(k).op.is_exchange()).unwrap_or(steps.end);
            if has_work && steps.start < until {
                let memory = Memory {
                    activations: &mut micro_batch.activations,
                    statistics: &mut micro_batch.statistics,
                    params: &arena.params,
                    grads: &mut arena.grads,
                    averages: &arena.running,
                    labels: &micro_batch.labels,
                };
                device.run(program, steps.start..until, args, memory)?;
            }
            if let (Some(exchange), true) = (reborrow(&mut exchange), until < steps.end) {
                exchange::run(exchange, program, program.step(until), device, micro_batch, &mut arena.grads)?;
            }
            steps.start = (until + 1).min(steps.end);
        }
        Ok(())
    }
}
