//! The passes of a network over its current batch.

use super::across::{AcrossReplicas, exchange};
use super::arena::Arena;
use super::graph::Mode;
use super::instance::Network;
use super::lane::{Lane, Pass};
use super::lowering::Prepared;
use super::profile::Traced;
use crate::error::InLayer;
use crate::{Draws, Error, Result};
use core::ops::Range;
use tensor::{Backend, Device, Execute, Layout, Memory, Span, StepArgs, Storage, View, ViewMut};

/// What a pass over some samples measured, as sums: divide by the number of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metrics {
    /// The sum of the losses.
    pub loss_sum: f64,
    /// How many samples were classified correctly.
    pub correct: f64,
}

impl Network {
    /// A training pass over the current batch: afterwards the arena's `grads` hold the gradients, the sums behind the
    /// running averages, and the metrics, ready to be added to other replicas'.
    ///
    /// The loss is softmax cross-entropy; its gradient is divided by `global_batch`, the samples of all replicas.
    /// A batch of no samples leaves zeros.
    ///
    /// Running averages, such as those of batch normalization, don't move before [`finish_step`](Network::finish_step): without it
    /// inference goes by those that the network began with.
    ///
    /// # Errors
    /// [`Error::InferenceOnly`], or what the device says.
    pub fn train_pass(&mut self, draws: Draws, label_smoothing: f32, global_batch: usize) -> Result<()> {
        self.train(draws, label_smoothing, global_batch, None, |_, _, _| Ok::<_, Error>(()))?;
        self.finish_grads()
    }

    /// A [`train_pass`](Network::train_pass) that says as it goes which gradients are complete: behind each layer's backward pass
    /// it calls `passed` with the layer's number, that of [`trainable`](Network::trainable), and the arena's `grads`.
    /// A batch of no samples passes no layer.
    ///
    /// A device may still keep gradients of weights in a form of its own. It is left to `passed` to have
    /// [`Backend::finish_grads`] bring the run that it takes into place.
    ///
    /// # Errors
    /// As [`train_pass`](Network::train_pass), and those of `passed`.
    pub fn train_pass_by_layers<E: From<Error>>(
        &mut self,
        draws: Draws,
        label_smoothing: f32,
        global_batch: usize,
        passed: impl FnMut(&Device, &mut Storage, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        self.train(draws, label_smoothing, global_batch, None, passed)
    }

    /// A training pass, with other replicas where `across` leads to them. See
    /// [`train_pass_by_layers`](Network::train_pass_by_layers) for `passed`.
    pub(super) fn train<E: From<Error>>(
        &mut self,
        draws: Draws,
        label_smoothing: f32,
        global_batch: usize,
        mut across: Option<&mut dyn AcrossReplicas>,
        passed: impl FnMut(&Device, &mut Storage, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.mode == Mode::Inference {
            return Err(Error::InferenceOnly.into());
        }
        let n = self.n();
        if global_batch < n.max(1) {
            return Err(Error::GlobalBatch { global_batch, own: n }.into());
        }
        if n == 0 {
            let all = Span::new(0, self.arena.grads.len());
            self.device.fill(0.0, &mut self.arena.grads, all).map_err(Error::from)?;
            // There is nothing more to do, but to meet those who have samples.
            if across.is_none() {
                return Ok(());
            }
        }
        self.forward(Some(draws), reborrow(&mut across), global_batch)?;
        self.loss(label_smoothing, global_batch)?;
        self.backward(draws, across, global_batch, passed)
    }

    /// Brings all gradients of the current batch into place.
    pub(super) fn finish_grads(&mut self) -> Result<()> {
        // Without samples there are none, but for the zeros in their place.
        if self.n() == 0 {
            return Ok(());
        }
        Ok(self.device.finish_grads(&mut self.arena.grads, self.arena.trainable)?)
    }

    /// After replicas' `grads` have been added: moves the running averages by the sums over all `global_batch` samples.
    ///
    /// # Errors
    /// What the device says.
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
    /// What the device says.
    pub fn evaluate_pass(&mut self) -> Result<()> {
        let metrics = self.arena.metrics;
        self.device.fill(0.0, &mut self.arena.grads, metrics)?;
        if self.n() > 0 {
            self.forward(None, None, 1)?;
            self.loss(0.0, 1)?;
        }
        Ok(())
    }

    /// The class probabilities of the current batch, by a forward pass as in inference: one row of
    /// [`classes`](Network::classes) a sample.
    ///
    /// # Errors
    /// What the device says.
    pub fn predict(&mut self) -> Result<Vec<f32>> {
        let n = self.n();
        self.forward(None, None, 1)?;
        let at = self.infer.executable.layout(self.infer.program().output, n);
        let (logits, layout) =
            (View::new(&self.lanes[self.lane].activations, at), Layout::contiguous(at.shape));
        self.device.softmax(logits, ViewMut::new(&mut self.probabilities, layout))?;
        Ok(self.probabilities.to_vec(&self.device, 0, layout.shape.len())?)
    }

    /// What the last pass measured (or, after an all-reduce, all replicas').
    ///
    /// # Errors
    /// What the device says.
    pub fn metrics(&self) -> Result<Metrics> {
        let mut sums = [0.0; 2];
        self.device.download(&self.arena.grads, self.arena.metrics.offset, &mut sums)?;
        Ok(Metrics { loss_sum: f64::from(sums[0]), correct: f64::from(sums[1]) })
    }

    /// The forward pass: of training, from draws, or of inference.
    pub(super) fn forward(
        &mut self,
        draws: Option<Draws>,
        mut across: Option<&mut dyn AcrossReplicas>,
        global_batch: usize,
    ) -> Result<()> {
        self.lanes[self.lane].pass = match (draws, &across) {
            (None, _) => Pass::Inference,
            (Some(_), None) => Pass::Training,
            (Some(_), Some(_)) => Pass::AcrossReplicas,
        };
        let mut work = self.work();
        let args = work.args(draws, global_batch, 0.0);
        for steps in &work.prepared.forward {
            work.run(steps.clone(), &args, reborrow(&mut across))?;
        }
        Ok(())
    }

    /// The loss of the batch whose forward pass was the last one.
    pub(super) fn loss(&mut self, label_smoothing: f32, global_batch: usize) -> Result<()> {
        let mut work = self.work();
        let args = work.args(None, global_batch, label_smoothing);
        let steps = work.prepared.loss.clone();
        work.run_steps(steps, &args, None).in_layer("loss")
    }

    /// The backward pass, which calls `passed` behind each layer.
    pub(super) fn backward<E: From<Error>>(
        &mut self,
        draws: Draws,
        mut across: Option<&mut dyn AcrossReplicas>,
        global_batch: usize,
        mut passed: impl FnMut(&Device, &mut Storage, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut work = self.work();
        let args = work.args(Some(draws), global_batch, 0.0);
        for (layer, steps) in work.prepared.backward.iter().enumerate().rev() {
            work.run(steps.clone(), &args, reborrow(&mut across))?;
            passed(work.device, &mut work.arena.grads, layer)?;
        }
        Ok(())
    }

    /// A pass step by step: of training, from draws, or of inference.
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
        self.lanes[self.lane].pass = if draws.is_some() { Pass::Training } else { Pass::Inference };
        let mut work = self.work();
        let args = work.args(draws, global_batch, label_smoothing);
        let program = work.prepared.program();
        for step in 0..program.steps.len() {
            work.run(step..step + 1, &args, None)?;
            work.device.synchronize()?;
            ended(Traced::Step(program, step));
        }
        Ok(())
    }

    /// The program of the last pass, with its memory.
    fn work(&mut self) -> Work<'_> {
        let Network { device, lanes, lane, infer, train, across, arena, .. } = self;
        let lane = &mut lanes[*lane];
        Work { device, prepared: lane.pass.of(infer, train.as_ref(), across.as_ref()), lane, arena }
    }
}

/// A loan of the way to the other replicas, for one part of a pass.
fn reborrow<'a>(across: &'a mut Option<&mut dyn AcrossReplicas>) -> Option<&'a mut dyn AcrossReplicas> {
    across.as_mut().map(|across| &mut **across as _)
}

/// A program and its memory.
struct Work<'a> {
    device: &'a Device,
    prepared: &'a Prepared,
    lane: &'a mut Lane,
    arena: &'a mut Arena,
}

impl Work<'_> {
    fn args(&self, draws: Option<Draws>, global_batch: usize, label_smoothing: f32) -> StepArgs {
        let Draws { seed, step, first_sample } = draws.unwrap_or(Draws { seed: 0, step: 0, first_sample: 0 });
        let Lane { n, mixed, .. } = *self.lane;
        StepArgs { n, global_batch, seed, step, first_sample, label_smoothing, mixed }
    }

    /// Runs the steps of a layer.
    fn run(
        &mut self,
        steps: Range<usize>,
        args: &StepArgs,
        across: Option<&mut dyn AcrossReplicas>,
    ) -> Result<()> {
        let Some(first) = steps.clone().next() else { return Ok(()) };
        let program = self.prepared.program();
        let layer = program.layers.get(program.steps[first].layer).map_or("", String::as_str);
        self.run_steps(steps, args, across).in_layer(layer)
    }

    fn run_steps(
        &mut self,
        mut steps: Range<usize>,
        args: &StepArgs,
        mut across: Option<&mut dyn AcrossReplicas>,
    ) -> tensor::Result<()> {
        let Work { device, prepared, lane, arena } = self;
        let program = &prepared.executable;
        while !steps.is_empty() {
            let until = steps.clone().find(|&k| program.step(k).op.is_exchange()).unwrap_or(steps.end);
            let memory = Memory {
                activations: &mut lane.activations,
                statistics: &mut lane.statistics,
                params: &arena.params,
                grads: &mut arena.grads,
                averages: &arena.running,
                labels: &lane.labels,
            };
            device.run(program, steps.start..until, args, memory)?;
            if let (Some(across), true) = (reborrow(&mut across), until < steps.end) {
                let step = program.step(until);
                exchange(&step.op, device, across, &mut lane.statistics, program.span(step.results[0]))?;
            }
            steps.start = (until + 1).min(steps.end);
        }
        Ok(())
    }
}
