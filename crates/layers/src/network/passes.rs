use super::arena::Arena;
use super::graph::{Graph, Mode, Value};
use super::lane::Lane;
use super::plan::{Plan, Step, Tenant};
use super::profile::Part;
use super::sum::Copied;
use crate::error::InLayer;
use crate::meeting::Across;
use crate::{Add, Backward, Draws, Error, Forward, Op, Result, Role};
use tensor::{Backend, Device, Ints, Layout, SoftmaxXent, Span, Storage, Target, View, ViewMut, Write};

/// What a pass over some samples measured, as sums: divide by the number of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metrics {
    /// The sum of the losses.
    pub loss_sum: f64,
    /// How many samples were classified correctly.
    pub correct: f64,
}

/// An architecture on a device, with all the memory that its passes need.
pub struct Network {
    pub(super) device: Device,
    /// Each holds a batch; see [`Graph::build_stage`].
    pub(super) lanes: Vec<Lane>,
    /// The one that passes work on.
    pub(super) lane: usize,
    pub(super) input: Tenant,
    pub(super) output: Tenant,
    /// In f32, whatever activations are.
    probabilities: Storage,
    pub(super) arena: Arena,
    pub(super) mode: Mode,
    /// Where layers of several replicas meet; see [`Network::prepare_across`].
    pub(super) board: Option<Storage>,
}

pub(super) struct BuiltStep {
    pub(super) name: String,
    pub(super) action: Action,
    pub(super) x: Tenant,
    pub(super) y: Tenant,
    pub(super) infer: Option<Tenant>,
    pub(super) dx: Option<Write>,
    /// Of a sum.
    pub(super) copied: Option<Copied>,
    pub(super) clear: Vec<(usize, usize)>,
}

/// What a step does.
pub(super) enum Action {
    Op(Box<dyn Op>),
    Add(Add),
}

impl Action {
    pub(super) fn board_len(&self, replicas: usize) -> usize {
        match self {
            Action::Op(op) => op.board_len(replicas),
            Action::Add(_) => 0,
        }
    }
}

impl BuiltStep {
    pub(super) fn new(name: &str, step: &Step, action: Action) -> Self {
        let &Step { x, y, infer, dx, copied, ref clear, .. } = step;
        BuiltStep { name: name.to_owned(), action, x, y, infer, dx, copied, clear: clear.clone() }
    }

    /// Where the output's gradient lies, in training.
    pub(super) fn dy_slot(&self) -> usize {
        self.y.grad_slot.expect("the plan gives every output of a training network a gradient")
    }
}

impl Tenant {
    pub(super) fn view<'a>(&self, slot: &'a Storage, n: usize) -> View<'a, Storage> {
        View::new(slot, self.layout.samples(0..n))
    }

    pub(super) fn view_mut<'a>(&self, slot: &'a mut Storage, n: usize) -> ViewMut<'a, Storage> {
        ViewMut::new(slot, self.layout.samples(0..n))
    }
}

/// Several slots to work with at once.
pub(super) fn disjoint<const N: usize>(slots: &mut [Storage], which: [usize; N]) -> [&mut Storage; N] {
    slots.get_disjoint_mut(which).expect("the plan gives the tensors of one op slots of their own")
}

impl Graph {
    /// How many numbers a network has for activations and their gradients, beside the parameters, when it is built for
    /// batches of up to `batch` samples.
    ///
    /// # Errors
    /// As [`build`](Graph::build), but for the device.
    pub fn activation_len(&self, output: Value, batch: usize, mode: Mode) -> Result<usize> {
        Ok(Plan::new(self, output, batch, mode)?.slots.iter().sum())
    }

    /// Builds the part of the graph that ends in `output` (the logits: one vector of class scores a sample) on a device,
    /// for batches of up to `batch` samples.
    ///
    /// # Errors
    /// If a layer leads nowhere, or the device's memory doesn't suffice.
    pub fn build(&self, output: Value, device: &Device, batch: usize, mode: Mode) -> Result<Network> {
        let network = self.build_stage(output, device, batch, mode, 1)?;
        let logits = network.output.layout.shape;
        tensor::Error::check_shape("build", "the network's output", logits, logits.flatten())?;
        Ok(network)
    }

    /// Builds a stage of a network that [`split`](Graph::split) cut: `output` may be any tensor. The stage has so many lanes,
    /// of which each holds a batch of up to `batch` samples between its forward and its backward pass.
    ///
    /// # Errors
    /// As [`build`](Graph::build).
    pub fn build_stage(
        &self,
        output: Value,
        device: &Device,
        batch: usize,
        mode: Mode,
        lanes: usize,
    ) -> Result<Network> {
        let plan = Plan::new(self, output, batch, mode)?;
        let arena = Arena::new(self, device)?;
        let lane = |_| Lane::new(self, output, &plan, &arena, device, batch, mode);
        let lanes = (0..lanes.max(1)).map(lane).collect::<Result<_>>()?;
        let vectors = plan.output.layout.shape;
        Ok(Network {
            device: device.clone(),
            lanes,
            lane: 0,
            input: plan.input,
            output: plan.output,
            probabilities: device.alloc(vectors.n * vectors.c)?,
            arena,
            mode,
            board: None,
        })
    }
}

impl Network {
    /// Samples in the current batch.
    pub(super) fn n(&self) -> usize {
        self.lanes[self.lane].n
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Parameters, gradients and running averages.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Parameters, gradients and running averages, to change.
    pub fn arena_mut(&mut self) -> &mut Arena {
        &mut self.arena
    }

    /// The largest batch.
    pub fn max_batch(&self) -> usize {
        self.input.layout.shape.n
    }

    /// How many classes the output has.
    pub fn classes(&self) -> usize {
        self.output.layout.shape.c
    }

    /// Elements of one input sample: height x width x channels.
    pub fn sample_len(&self) -> usize {
        self.input.layout.shape.per_sample()
    }

    /// Elements of device memory for activations and their gradients, beside the parameters.
    pub fn activation_len(&self) -> usize {
        self.lanes.iter().flat_map(|lane| &lane.slots).map(Storage::len).sum()
    }

    /// Sets every parameter to its first values: a pure function of the seed.
    ///
    /// # Errors
    /// What the device says.
    pub fn init(&mut self, seed: u64) -> Result<()> {
        self.arena.init(&self.device, seed)
    }

    /// Copies a batch to the device: images in NHWC order, one label each.
    ///
    /// # Errors
    /// [`Error::Batch`] if there are more samples than the network was built for, or the images' size differs.
    pub fn set_input(&mut self, images: &[f32], labels: &[u32]) -> Result<()> {
        self.send(images, labels, labels.len(), false)
    }

    /// As [`set_input`](Network::set_input), of samples with two labels each, as mixup and cutmix give.
    ///
    /// # Errors
    /// As [`set_input`](Network::set_input).
    pub fn set_mixed_input(&mut self, images: &[f32], targets: &[Target]) -> Result<()> {
        let words: Vec<u32> = targets.iter().flat_map(|target| target.to_words()).collect();
        self.send(images, &words, targets.len(), true)
    }

    fn send(&mut self, images: &[f32], labels: &[u32], n: usize, mixed: bool) -> Result<()> {
        let per_sample = self.sample_len();
        if n > self.max_batch() || images.len() != n * per_sample {
            return Err(Error::Batch {
                accepted: format!("up to {} samples of {per_sample} numbers", self.max_batch()),
                given: format!("{} numbers for {n} labels", images.len()),
            });
        }
        let Network { device, lanes, lane, input, .. } = self;
        let lane = &mut lanes[*lane];
        device.upload(images, &mut lane.slots[input.slot], input.layout.offset)?;
        device.upload_ints(labels, &mut lane.labels)?;
        (lane.n, lane.mixed) = (n, mixed);
        Ok(())
    }

    /// Has the device itself put the next batch of `n` samples in place: `load` writes images and labels.
    ///
    /// # Errors
    /// [`Error::Batch`] if there are more samples than the network was built for, and those of `load`.
    pub fn load_input<E: From<Error>>(
        &mut self,
        n: usize,
        load: impl FnOnce(ViewMut<'_, Storage>, &mut Ints) -> Result<(), E>,
    ) -> Result<(), E> {
        self.set_batch(n)?;
        let Lane { slots, labels, .. } = &mut self.lanes[self.lane];
        load(self.input.view_mut(&mut slots[self.input.slot], n), labels)
    }

    /// Says how many samples the current batch has, where its images and labels are in place already.
    ///
    /// # Errors
    /// [`Error::Batch`] if there are more samples than the network was built for.
    pub fn set_batch(&mut self, n: usize) -> Result<()> {
        if n > self.max_batch() {
            let accepted = format!("up to {} samples", self.max_batch());
            return Err(Error::Batch { accepted, given: n.to_string() });
        }
        let lane = &mut self.lanes[self.lane];
        (lane.n, lane.mixed) = (n, false);
        Ok(())
    }

    /// A training pass over the current batch: afterwards the arena's `grads` hold the gradients, the sums behind the
    /// running averages, and the metrics, ready to be added to other replicas'.
    ///
    /// The loss is softmax cross-entropy; its gradient is divided by `global_batch`, the samples of all replicas.
    /// A batch of no samples leaves zeros.
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

    /// The trainable tensors in the order of the arena, each with the number of the layer whose backward pass completes its
    /// gradient: layers are numbered as in [`Graph::work`].
    pub fn trainable(&self) -> Vec<(usize, Span)> {
        let steps = &self.lanes[self.lane].steps;
        let slots = self.arena.slots().iter().filter(|slot| slot.role == Role::Trainable);
        let numbered = slots.filter_map(|slot| {
            let (layer, _) = slot.name.rsplit_once('/')?;
            Some((steps.iter().position(|step| step.name == layer)?, slot.span))
        });
        numbered.collect()
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
        let logits = self.output.view(&self.lanes[self.lane].slots[self.output.slot], n);
        let layout = Layout::contiguous(logits.layout.shape);
        self.device.softmax(logits, ViewMut::new(&mut self.probabilities, layout))?;
        Ok(self.probabilities.to_vec(&self.device, 0, layout.shape.len())?)
    }

    /// The class scores that the last pass computed for the current batch, one vector a sample.
    pub fn logits(&self) -> View<'_, Storage> {
        self.output.view(&self.lanes[self.lane].slots[self.output.slot], self.n())
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

    /// The input, for tests that vary it.
    pub fn input_mut(&mut self) -> &mut Storage {
        &mut self.lanes[self.lane].slots[self.input.slot]
    }

    /// The gradient of the input after a training pass, where the network was built for it.
    pub fn input_gradient(&self) -> Option<&Storage> {
        self.input.grad_slot.map(|slot| &self.lanes[self.lane].slots[slot])
    }

    pub(super) fn forward<E: From<Error>>(
        &mut self,
        training: Option<Draws>,
        mut across: Option<&mut Across<'_>>,
        mut after: impl FnMut(&Device, &mut Storage, Part) -> Result<(), E>,
    ) -> Result<(), E> {
        let Network { device, lanes, lane, arena, board, .. } = self;
        let Lane { steps, slots, n, .. } = &mut lanes[*lane];
        for (k, step) in steps.iter_mut().enumerate() {
            if let Action::Add(add) = step.action {
                add.run_forward(device, slots, step, *n).in_layer(&step.name)?;
            }
            let y = if training.is_some() { Some(step.y) } else { step.infer };
            if let (BuiltStep { name, action: Action::Op(op), x, .. }, Some(y)) = (step, y) {
                let [x_slot, y_slot] = disjoint(slots, [x.slot, y.slot]);
                let Arena { params, grads, running, .. } = &mut *arena;
                let meeting =
                    across.as_mut().zip(board.as_mut()).map(|(across, board)| across.meeting(board));
                let cx = Forward { device, params, running, grads, training, meeting };
                op.forward(cx, x.view(x_slot, *n), y.view_mut(y_slot, *n)).in_layer(name)?;
            }
            after(device, &mut arena.grads, Part::Forward(k))?;
        }
        Ok(())
    }

    pub(super) fn loss(&mut self, label_smoothing: f32, scale: f32, gradient: bool) -> Result<()> {
        let Network { device, lanes, lane, output, arena, .. } = self;
        let Lane { slots, labels, mixed, n, .. } = &mut lanes[*lane];
        let (xent, metrics) = (SoftmaxXent { label_smoothing, scale, mixed: *mixed }, arena.metrics);
        let (logits, dlogits) = match output.grad_slot.filter(|_| gradient) {
            Some(grad_slot) => {
                let [logits, dlogits] = disjoint(slots, [output.slot, grad_slot]);
                (output.view(logits, *n), Some(output.view_mut(dlogits, *n)))
            }
            None => (output.view(&slots[output.slot], *n), None),
        };
        device.softmax_xent(&xent, logits, labels, dlogits, &mut arena.grads, metrics).in_layer("loss")
    }

    pub(super) fn backward<E: From<Error>>(
        &mut self,
        draws: Draws,
        mut across: Option<&mut Across<'_>>,
        mut after: impl FnMut(&Device, &mut Storage, Part) -> Result<(), E>,
    ) -> Result<(), E> {
        let Network { device, lanes, lane, arena, board, .. } = self;
        let Lane { steps, slots, n, .. } = &mut lanes[*lane];
        for (k, step) in steps.iter_mut().enumerate().rev() {
            for &(slot, len) in &step.clear {
                device.fill(0.0, &mut slots[slot], Span::new(0, len)).map_err(Error::from)?;
            }
            let dy_slot = step.dy_slot();
            if let Action::Add(add) = step.action {
                add.run_backward(device, slots, step, *n).in_layer(&step.name)?;
            }
            let BuiltStep { name, action: Action::Op(op), x, y, dx, .. } = step else {
                after(device, &mut arena.grads, Part::Backward(k))?;
                continue;
            };
            let Arena { params, grads, .. } = &mut *arena;
            let meeting = across.as_mut().zip(board.as_mut()).map(|(across, board)| across.meeting(board));
            let cx = Backward { device, params, grads, draws, meeting };
            match (*dx, x.grad_slot) {
                (Some(write), Some(dx_slot)) => {
                    let [xs, ys, dys, dxs] = disjoint(slots, [x.slot, y.slot, dy_slot, dx_slot]);
                    let dx = Some((x.view_mut(dxs, *n), write));
                    op.backward(cx, x.view(xs, *n), y.view(ys, *n), y.view_mut(dys, *n), dx)
                }
                _ => {
                    let [xs, ys, dys] = disjoint(slots, [x.slot, y.slot, dy_slot]);
                    op.backward(cx, x.view(xs, *n), y.view(ys, *n), y.view_mut(dys, *n), None)
                }
            }
            .in_layer(name)?;
            after(device, &mut arena.grads, Part::Backward(k))?;
        }
        Ok(())
    }
}
