//! An architecture on a device, and its current batch.

use super::arena::{Arena, Slots};
use super::graph::{Graph, Mode, Value};
use super::lowering::Prepared;
use super::micro_batch::{MicroBatch, Pass};
use crate::{Error, Result};
use towers_program::{Device, Ints, Labels, Layout, Span, Storage, Target, TensorId, View, ViewMut};

/// An architecture on a device, with all the memory that its passes need.
pub struct Network {
    pub(super) device: Device,
    pub(super) graph: Graph,
    pub(super) output: Value,
    /// Each holds a batch; see [`Graph::build_stage`].
    pub(super) micro_batches: Vec<MicroBatch>,
    /// The one that passes work on.
    pub(super) micro_batch: usize,
    pub(super) infer: Prepared,
    /// In training.
    pub(super) train: Option<Prepared>,
    /// The training step with synchronized batch normalization; see [`Network::synchronize`].
    pub(super) synchronized: Option<Prepared>,
    /// In f32, whatever the format of activations.
    pub(super) probabilities: Storage,
    pub(super) arena: Arena,
    pub(super) mode: Mode,
    /// Whether the output is class scores. That of a stage may be anything.
    pub(super) whole: bool,
}

impl Graph {
    /// The number of elements of activations and their gradients in a network for batches of up to `batch`
    /// samples, on a device that [recomputes](towers_program::Backend::recomputes) or doesn't.
    ///
    /// # Errors
    /// As [`build`](Graph::build), but for the device.
    pub fn activation_len(&self, output: Value, batch: usize, mode: Mode, recomputes: bool) -> Result<usize> {
        let mut len = 0;
        for mode in passes_of(mode) {
            let executable = self.executable(output, batch, mode, recomputes, None)?;
            len = len.max(executable.len(towers_program::Arena::Activations));
        }
        Ok(len)
    }

    /// Builds the part of the graph that ends in `output` (the logits: one vector of class scores a sample) on a device,
    /// for batches of up to `batch` samples.
    ///
    /// All parameters are 0 then, which can't learn: call [`init`](Network::init), or load weights into the
    /// [arena](Network::arena_mut).
    ///
    /// # Errors
    /// If the output of a layer is unused, or the device's memory doesn't suffice.
    pub fn build(&self, output: Value, device: &Device, batch: usize, mode: Mode) -> Result<Network> {
        let logits = self.shape(output);
        towers_program::Error::check_shape("build", "the network's output", logits, logits.flatten())?;
        let network = self.build_stage(output, device, batch, mode, 1)?;
        Ok(Network { whole: true, ..network })
    }

    /// Builds a stage of a network that [`split`](Graph::split) cut: `output` may be any tensor. The stage
    /// has memory for `micro_batches` batches of up to `batch` samples, each from its forward to its backward
    /// pass.
    ///
    /// # Errors
    /// As [`build`](Graph::build).
    pub fn build_stage(
        &self,
        output: Value,
        device: &Device,
        batch: usize,
        mode: Mode,
        micro_batches: usize,
    ) -> Result<Network> {
        let arena = || Arena::new(Slots::new(self), device);
        self.build_with(output, device, batch, mode, micro_batches, arena)
    }

    fn build_with(
        &self,
        output: Value,
        device: &Device,
        batch: usize,
        mode: Mode,
        micro_batches: usize,
        arena: impl FnOnce() -> Result<Arena>,
    ) -> Result<Network> {
        let prepare = |mode| {
            let prepared = self.prepared(output, batch, mode, device.recomputes(), None)?;
            device.prepare(&prepared.executable)?;
            Ok::<_, Error>(prepared)
        };
        let infer = prepare(Mode::Inference)?;
        let train = if mode == Mode::Inference { None } else { Some(prepare(mode)?) };
        let programs: Vec<&Prepared> = [&infer].into_iter().chain(&train).collect();
        let words = label_words(self);
        let micro_batch = |_| MicroBatch::new(&programs, device, batch, words);
        let micro_batches = (0..micro_batches.max(1)).map(micro_batch).collect::<Result<_>>()?;
        Ok(Network {
            device: device.clone(),
            micro_batches,
            micro_batch: 0,
            infer,
            train,
            synchronized: None,
            probabilities: device.alloc(batch * self.shape(output).c)?,
            arena: arena()?,
            mode,
            whole: false,
            graph: self.clone(),
            output,
        })
    }
}

/// The programs of the passes: training, if it was built for it, and inference.
fn passes_of(mode: Mode) -> impl Iterator<Item = Mode> {
    [Mode::Inference, mode].into_iter().skip(usize::from(mode == Mode::Inference))
}

/// The integers of a sample's label, if it is no [`Target`].
fn label_words(graph: &Graph) -> usize {
    graph.multi_label.map_or(1, |classes| Labels::MultiHot.words(classes))
}

impl Network {
    /// A network for inference that shares the parameters and running averages of this one, so that each of several threads has
    /// one with its own batch. Neither can write them until the other is dropped: what would, as
    /// [`init`](Network::init) or an optimizer's step, is an error.
    ///
    /// # Errors
    /// Those of the device.
    pub fn share(&self) -> Result<Network> {
        let arena = || self.arena.share(&self.device);
        let (batch, micro_batches) = (self.max_batch(), self.micro_batches.len());
        let network =
            self.graph.build_with(self.output, &self.device, batch, Mode::Inference, micro_batches, arena)?;
        Ok(Network { whole: self.whole, ..network })
    }

    /// Samples in the current batch.
    pub(super) fn n(&self) -> usize {
        self.micro_batches[self.micro_batch].n
    }

    /// The program of the last pass over the current batch.
    pub(super) fn last(&self) -> &Prepared {
        let pass = self.micro_batches[self.micro_batch].pass;
        pass.of(&self.infer, self.train.as_ref(), self.synchronized.as_ref())
    }

    /// The program of training passes: the synchronized one, if the last pass was.
    pub(super) fn training(&self) -> Option<&Prepared> {
        match self.micro_batches[self.micro_batch].pass {
            Pass::Synchronized => self.synchronized.as_ref(),
            Pass::Training | Pass::Inference => self.train.as_ref(),
        }
    }

    /// The layout of a tensor of a program, for the current batch.
    pub(super) fn layout(&self, of: &Prepared, id: TensorId) -> Layout {
        of.executable.layout(id, self.n())
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
        self.infer.executable.batch()
    }

    /// The number of classes: that of the scores, or two for a single one, the logit of the second class.
    pub fn classes(&self) -> usize {
        match self.graph.shape(self.output).c {
            1 if !self.is_multi_label() => 2,
            scores => scores,
        }
    }

    /// Whether a sample has any number of classes: see [`Graph::set_multi_label`].
    pub fn is_multi_label(&self) -> bool {
        self.graph.is_multi_label()
    }

    /// The integers of a sample's label: 1, or the words of a [multi-hot](Labels::MultiHot) one.
    pub fn label_words(&self) -> usize {
        label_words(&self.graph)
    }

    /// Elements of one input sample: height x width x channels.
    pub fn sample_len(&self) -> usize {
        self.graph.shape(self.graph.input()).per_sample()
    }

    /// Elements of device memory for activations and their gradients, beside the parameters.
    pub fn activation_len(&self) -> usize {
        self.micro_batches.iter().map(|micro_batch| micro_batch.activations.len()).sum()
    }

    /// Sets every parameter to its first values: a pure function of the seed.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn init(&mut self, seed: u64) -> Result<()> {
        self.arena.init(&self.device, seed)
    }

    /// Copies a batch to the device: images in NHWC order, one label each, of [so many words](Network::label_words).
    ///
    /// # Errors
    /// [`Error::Batch`] if there are more samples than the network was built for, or the images' size
    /// differs. [`Error::Label`] for a label that is none of the classes. A [stage](Graph::build_stage) can't
    /// check labels.
    pub fn set_input(&mut self, images: &[f32], labels: &[u32]) -> Result<()> {
        let n = self.count(labels)?;
        self.send(images, labels, n, false)
    }

    /// As [`set_input`](Network::set_input), of samples with a [`Target`] each: two labels, as mixup and cutmix give, or weights.
    ///
    /// # Errors
    /// As [`set_input`](Network::set_input).
    pub fn set_input_with_targets(&mut self, images: &[f32], targets: &[Target]) -> Result<()> {
        let words = self.words_of(targets)?;
        self.send(images, &words, targets.len(), true)
    }

    /// The number of these labels, once they are checked.
    fn count(&self, labels: &[u32]) -> Result<usize> {
        let words = self.label_words();
        if !self.is_multi_label() {
            self.check_labels(labels.iter().copied())?;
        } else if !labels.len().is_multiple_of(words) {
            let accepted = format!("multi-hot labels of {words} words each");
            return Err(Error::Batch { accepted, given: format!("{} words", labels.len()) });
        }
        Ok(labels.len() / words)
    }

    /// The words of these targets, once they are checked.
    fn words_of(&self, targets: &[Target]) -> Result<Vec<u32>> {
        if self.is_multi_label() {
            let accepted = "multi-hot labels".to_owned();
            return Err(Error::Batch { accepted, given: "targets of one or two classes".to_owned() });
        }
        self.check_labels(targets.iter().flat_map(|target| [target.label, target.other]))?;
        Ok(targets.iter().flat_map(|target| target.to_words()).collect())
    }

    /// A label outside of the classes would make the loss NaN without an explanation.
    fn check_labels(&self, mut labels: impl Iterator<Item = u32>) -> Result<()> {
        let classes = self.classes();
        let wrong = labels.find(|&label| self.whole && label as usize >= classes);
        wrong.map_or(Ok(()), |label| Err(Error::Label { label, classes }))
    }

    /// Copies the labels of a batch whose images another stage sends.
    ///
    /// # Errors
    /// As [`set_input`](Network::set_input).
    pub fn set_labels(&mut self, labels: &[u32]) -> Result<()> {
        let n = self.count(labels)?;
        self.send_labels(labels, n, false)
    }

    /// As [`set_labels`](Network::set_labels), of samples with a [`Target`] each.
    ///
    /// # Errors
    /// As [`set_input`](Network::set_input).
    pub fn set_targets(&mut self, targets: &[Target]) -> Result<()> {
        let words = self.words_of(targets)?;
        self.send_labels(&words, targets.len(), true)
    }

    fn send_labels(&mut self, labels: &[u32], n: usize, targets: bool) -> Result<()> {
        self.set_batch(n, targets)?;
        Ok(self.device.upload_ints(labels, &mut self.micro_batches[self.micro_batch].labels)?)
    }

    fn send(&mut self, images: &[f32], labels: &[u32], n: usize, targets: bool) -> Result<()> {
        let per_sample = self.sample_len();
        if n > self.max_batch() || images.len() != n * per_sample {
            return Err(Error::Batch {
                accepted: format!("up to {} samples of {per_sample} numbers", self.max_batch()),
                given: format!("{} numbers for {n} labels", images.len()),
            });
        }
        // The input lies at the start, in every program.
        self.device.upload(images, &mut self.micro_batches[self.micro_batch].activations, 0)?;
        self.send_labels(labels, n, targets)
    }

    /// Puts the next batch of `n` samples in place by `load`, which writes images, and labels or
    /// [`Target`]s, on the device.
    ///
    /// # Errors
    /// [`Error::Batch`] if there are more samples than the network was built for, and those of `load`.
    pub fn load_input<E: From<Error>>(
        &mut self,
        n: usize,
        targets: bool,
        load: impl FnOnce(ViewMut<'_, Storage>, &mut Ints) -> Result<(), E>,
    ) -> Result<(), E> {
        self.set_batch(n, targets)?;
        let layout = self.input_layout();
        let MicroBatch { activations, labels, .. } = &mut self.micro_batches[self.micro_batch];
        load(ViewMut::new(activations, layout), labels)
    }

    /// Sets the number of samples of the current batch, and whether each has a [`Target`] instead of one
    /// label. Images and labels stay as they are.
    ///
    /// # Errors
    /// [`Error::Batch`] if there are more samples than the network was built for.
    pub fn set_batch(&mut self, n: usize, targets: bool) -> Result<()> {
        if n > self.max_batch() {
            let accepted = format!("up to {} samples", self.max_batch());
            return Err(Error::Batch { accepted, given: n.to_string() });
        }
        let micro_batch = &mut self.micro_batches[self.micro_batch];
        (micro_batch.n, micro_batch.targets) = (n, targets);
        Ok(())
    }

    /// The runs of the arena's `grads` that replicas add up, in this order. First come the buckets of
    /// gradients, whose all-reduces start in the backward pass. The last run is the rest: the sums of
    /// normalizations and the metrics.
    pub fn buckets(&self) -> Vec<Span> {
        let mut buckets: Vec<Span> = self.train.iter().flat_map(Prepared::buckets).collect();
        let end = buckets.first().map_or(0, |last| last.end());
        buckets.push(Span::new(end, self.arena.grads.len() - end));
        buckets
    }

    /// The class scores of the last pass over the current batch, one vector a sample.
    pub fn logits(&self) -> View<'_, Storage> {
        let last = self.last();
        View::new(&self.micro_batches[self.micro_batch].activations, self.layout(last, last.program().output))
    }

    fn input_layout(&self) -> Layout {
        self.layout(&self.infer, self.infer.program().input)
    }

    /// The current batch on the device.
    pub fn input(&self) -> View<'_, Storage> {
        View::new(&self.micro_batches[self.micro_batch].activations, self.input_layout())
    }

    /// The same, for tests that vary it.
    pub fn input_mut(&mut self) -> ViewMut<'_, Storage> {
        let layout = self.input_layout();
        ViewMut::new(&mut self.micro_batches[self.micro_batch].activations, layout)
    }

    /// The gradient of the input after a training pass, if the network was built for it.
    pub fn input_gradient(&self) -> Option<View<'_, Storage>> {
        let train = self.training()?;
        let layout = self.layout(train, train.program().input_gradient?);
        Some(View::new(&self.micro_batches[self.micro_batch].activations, layout))
    }
}
