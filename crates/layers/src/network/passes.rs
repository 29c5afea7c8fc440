//! The passes of a network over its current batch.

use super::arena::Arena;
use super::graph::Mode;
use super::instance::Network;
use super::lane::{Action, BuiltStep, Lane};
use super::plan::{BackwardStep, Repeat};
use super::profile::Part;
use crate::error::InLayer;
use crate::meeting::Across;
use crate::{Backward, Draws, Error, Forward, Result};
use tensor::{Backend, Device, Layout, SoftmaxXent, Span, Storage, ViewMut};

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
        self.train_in_parts(draws, label_smoothing, global_batch, None, |_, _, _| Ok::<_, Error>(()))?;
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
        mut passed: impl FnMut(&Device, &mut Storage, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        self.train_in_parts(draws, label_smoothing, global_batch, None, |device, grads, part| match part {
            Part::Backward(layer) => passed(device, grads, layer),
            _ => Ok(()),
        })
    }

    /// A training pass that calls `after` behind each part of it, with the arena's `grads`. Where that does nothing, it costs
    /// nothing.
    pub(super) fn train_in_parts<E: From<Error>>(
        &mut self,
        draws: Draws,
        label_smoothing: f32,
        global_batch: usize,
        mut across: Option<Across<'_>>,
        mut after: impl FnMut(&Device, &mut Storage, Part) -> Result<(), E>,
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
        self.forward(Some(draws), across.as_mut(), &mut after)?;
        self.loss(label_smoothing, 1.0 / global_batch as f32, true)?;
        after(&self.device, &mut self.arena.grads, Part::Loss)?;
        self.backward(draws, across.as_mut(), &mut after)
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
        self.evaluate_in_parts(|_, _, _| Ok(()))
    }

    /// As [`train_in_parts`](Network::train_in_parts), for [`evaluate_pass`](Network::evaluate_pass).
    pub(super) fn evaluate_in_parts(
        &mut self,
        mut after: impl FnMut(&Device, &mut Storage, Part) -> Result<()>,
    ) -> Result<()> {
        let metrics = self.arena.metrics;
        self.device.fill(0.0, &mut self.arena.grads, metrics)?;
        if self.n() > 0 {
            self.forward(None, None, &mut after)?;
            self.loss(0.0, 1.0, false)?;
            after(&self.device, &mut self.arena.grads, Part::Loss)?;
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
        self.forward(None, None, |_, _, _| Ok::<_, Error>(()))?;
        let logits = self.output.view(self.lanes[self.lane].pools.of(self.output.pool), n);
        let layout = Layout::contiguous(logits.layout.shape);
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

    pub(super) fn forward<E: From<Error>>(
        &mut self,
        training: Option<Draws>,
        mut across: Option<&mut Across<'_>>,
        mut after: impl FnMut(&Device, &mut Storage, Part) -> Result<(), E>,
    ) -> Result<(), E> {
        let Network { device, lanes, lane, arena, board, .. } = self;
        let Lane { steps, pools, n, .. } = &mut lanes[*lane];
        for (k, step) in steps.iter_mut().enumerate() {
            if let Action::Add(add) = step.action {
                add.run_forward(device, pools, step, *n).in_layer(&step.name)?;
            }
            let y = if training.is_some() { Some(step.y) } else { step.infer };
            if let (BuiltStep { name, action: Action::Op(op), x, .. }, Some(y)) = (step, y) {
                let [x_pool, y_pool] = pools.disjoint([x.pool, y.pool]);
                let Arena { params, grads, running, .. } = &mut *arena;
                let meeting =
                    across.as_mut().zip(board.as_mut()).map(|(across, board)| across.meeting(board));
                let cx = Forward { device, params, running, grads, training, meeting };
                op.forward(cx, x.view(x_pool, *n), y.view_mut(y_pool, *n)).in_layer(name)?;
            }
            after(device, &mut arena.grads, Part::Forward(k))?;
        }
        Ok(())
    }

    pub(super) fn loss(&mut self, label_smoothing: f32, scale: f32, gradient: bool) -> Result<()> {
        let Network { device, lanes, lane, output, output_gradient, arena, .. } = self;
        let Lane { pools, labels, mixed, n, .. } = &mut lanes[*lane];
        let (xent, metrics) = (SoftmaxXent { label_smoothing, scale, mixed: *mixed }, arena.metrics);
        let (logits, dlogits) = match output_gradient.filter(|_| gradient) {
            Some(gradient) => {
                let [logits, dlogits] = pools.disjoint([output.pool, gradient.pool]);
                (output.view(logits, *n), Some(gradient.view_mut(dlogits, *n)))
            }
            None => (output.view(pools.of(output.pool), *n), None),
        };
        device.softmax_xent(&xent, logits, labels, dlogits, &mut arena.grads, metrics).in_layer("loss")
    }

    pub(super) fn backward<E: From<Error>>(
        &mut self,
        draws: Draws,
        mut across: Option<&mut Across<'_>>,
        mut after: impl FnMut(&Device, &mut Storage, Part) -> Result<(), E>,
    ) -> Result<(), E> {
        for k in (0..self.lanes[self.lane].steps.len()).rev() {
            self.repeat_before(k, draws)?;
            self.backward_step(k, draws, across.as_deref_mut())?;
            after(&self.device, &mut self.arena.grads, Part::Backward(k))?;
        }
        Ok(())
    }

    /// Computes again what the backward pass of step `k` is the first to read.
    fn repeat_before(&mut self, k: usize, draws: Draws) -> Result<()> {
        let Network { device, lanes, lane, arena, .. } = self;
        let Lane { steps, pools, n, .. } = &mut lanes[*lane];
        for r in 0..steps[k].backward.as_ref().map_or(0, |backward| backward.again.len()) {
            let Some(&Repeat { step, x, y }) = steps[k].backward.as_ref().and_then(|b| b.again.get(r)) else {
                break;
            };
            let BuiltStep { name, action: Action::Op(op), .. } = &mut steps[step] else { continue };
            let [x_pool, y_pool] = pools.disjoint([x.pool, y.pool]);
            let Arena { params, grads, .. } = &mut *arena;
            let cx = Backward { device, params, grads, draws, meeting: None };
            op.forward_again(cx, x.view(x_pool, *n), y.view_mut(y_pool, *n)).in_layer(name)?;
        }
        Ok(())
    }

    fn backward_step(&mut self, k: usize, draws: Draws, across: Option<&mut Across<'_>>) -> Result<()> {
        let Network { device, lanes, lane, arena, board, .. } = self;
        let Lane { steps, pools, n, .. } = &mut lanes[*lane];
        let BuiltStep { name, action, backward, copied, .. } = &mut steps[k];
        let Some(step) = backward else { return Err(Error::InferenceOnly) };
        for &(pool, run) in &step.clear {
            device.fill(0.0, pools.of_mut(pool), run)?;
        }
        let op = match action {
            Action::Op(op) => op,
            Action::Add(add) => return add.run_backward(device, pools, *copied, step, *n).in_layer(name),
        };
        let Arena { params, grads, .. } = &mut *arena;
        let meeting = across.zip(board.as_mut()).map(|(across, board)| across.meeting(board));
        let cx = Backward { device, params, grads, draws, meeting };
        let &mut BackwardStep { x, y, dy, dx, .. } = step;
        let wanted = [x.pool, y.pool, dx.map(|(dx, _)| dx.pool)];
        let (dy_pool, [x_pool, y_pool, dx_pool], nothing) = pools.lend(dy.pool, wanted);
        let dx = dx.zip(dx_pool).map(|((dx, write), pool)| (dx.view_mut(pool, *n), write));
        let (x, y) = (x.view(x_pool, nothing, *n), y.view(y_pool, nothing, *n));
        op.backward(cx, x, y, dy.view_mut(dy_pool, *n), dx).in_layer(name)
    }
}
