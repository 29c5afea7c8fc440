use towers_layers::{Cut, Graph, Mode, Network, ParamSpec, Result, Role, Step, Summary, Value};
use towers_program::Device;

/// Height, width and channels of CIFAR's images, for which the networks were designed.
pub const IMAGE: [usize; 3] = [32, 32, 3];

/// An architecture and its output.
#[derive(Clone, Debug)]
pub struct Model {
    graph: Graph,
    logits: Value,
}

impl Model {
    /// The architecture that ends in `logits`: one vector of class scores a sample. A single score is the logit of the second of two
    /// classes, whose sigmoid is its probability.
    pub fn new(graph: Graph, logits: Value) -> Self {
        Model { graph, logits }
    }

    /// The layers.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The same with frozen parameters: those whose names satisfy `takes`. See [`Graph::freeze`].
    #[must_use]
    pub fn frozen(mut self, takes: impl Fn(&str) -> bool) -> Self {
        self.graph.freeze(takes);
        self
    }

    /// The same for images with any number of classes each: see [`Graph::set_multi_label`].
    #[must_use]
    pub fn multi_label(mut self) -> Self {
        self.graph.set_multi_label(self.logits);
        self
    }

    /// Whether an image has any number of classes.
    pub fn is_multi_label(&self) -> bool {
        self.graph.is_multi_label()
    }

    /// Height, width and channels of its images.
    pub fn image(&self) -> [usize; 3] {
        let shape = self.graph.shape(self.graph.input());
        [shape.h, shape.w, shape.c]
    }

    /// The number of classes: that of the scores, or two for a single one.
    pub fn classes(&self) -> usize {
        match self.graph.shape(self.logits).per_sample() {
            1 if !self.is_multi_label() => 2,
            scores => scores,
        }
    }

    /// Layers, shapes and parameter counts.
    pub fn summary(&self) -> Summary {
        self.graph.summary(self.logits)
    }

    /// The op and the inputs of each layer, up to the logits.
    pub fn steps(&self) -> Vec<Step> {
        self.graph.steps(self.logits)
    }

    /// The trained kernels that are matrices of hidden layers, for [`Muon`](towers_program::OptimizerState::matrices): their names
    /// with their inputs, which for a convolution are those of a whole window, and their outputs. Kernels of depthwise and of
    /// grouped convolutions are none, nor is the last one, which makes the scores.
    ///
    /// ```
    /// let model = towers_models::keras_cnn(10)?;
    /// let [.., (name, [inputs, outputs])] = &model.hidden_matrices()[..] else { panic!("some matrices") };
    /// assert_eq!((name.as_str(), *inputs, *outputs), ("dense/kernel", 2304, 512));
    /// # Ok::<(), towers_layers::Error>(())
    /// ```
    pub fn hidden_matrices(&self) -> Vec<(String, [usize; 2])> {
        let mut kernels = Vec::new();
        for step in self.steps() {
            for ParamSpec { name, shape, role, .. } in &step.params {
                let matrix = match (*name, &shape[..]) {
                    ("kernel", &[inputs, outputs]) => Some([inputs, outputs]),
                    // A filter of a grouped convolution reads some of the channels.
                    ("kernel", &[h, w, c, outputs]) if c == step.x.c => Some([h * w * c, outputs]),
                    ("pointwise_kernel", &[h, w, c, outputs]) => Some([h * w * c, outputs]),
                    _ => None,
                };
                kernels.extend(matrix.map(|matrix| (format!("{}/{name}", step.name), matrix, *role)));
            }
        }
        kernels.pop();
        let trained = kernels.into_iter().filter(|(.., role)| *role == Role::Trainable);
        trained.map(|(name, matrix, _)| (name, matrix)).collect()
    }

    /// The value of the logits: one vector of class scores a sample.
    pub fn logits(&self) -> Value {
        self.logits
    }

    /// The number of elements of activations and their gradients, for batches of up to `batch` samples, on a
    /// device that [recomputes](towers_program::Backend::recomputes) or doesn't.
    ///
    /// # Errors
    /// If the output of a layer is unused.
    pub fn activation_len(&self, batch: usize, mode: Mode, recomputes: bool) -> Result<usize> {
        self.graph.activation_len(self.logits, batch, mode, recomputes)
    }

    /// The places where it may be cut into stages, in order.
    pub fn cuts(&self) -> Vec<Cut> {
        self.graph.cuts(self.logits)
    }

    /// The cut after a layer.
    ///
    /// # Errors
    /// If there is no such layer, or the network can't be cut there.
    pub fn cut_behind(&self, layer: &str) -> Result<Cut> {
        self.graph.cut_behind(layer, self.logits)
    }

    /// Cuts it into stages, each of which reads the output of the one before.
    ///
    /// ```
    /// let model = towers_models::small_cnn(10)?;
    /// let cuts = model.cuts();
    /// let stages = model.split(&cuts[1..2])?;
    /// let parameters: usize = stages.iter().map(|stage| stage.summary().trainable).sum();
    /// assert_eq!((stages.len(), parameters), (2, model.summary().trainable));
    /// # Ok::<(), towers_layers::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the cuts are not in order.
    pub fn split(&self, cuts: &[Cut]) -> Result<Vec<Model>> {
        let stages = self.graph.split(self.logits, cuts)?;
        Ok(stages.into_iter().map(|(graph, output)| Model::new(graph, output)).collect())
    }

    /// As [`build`](Model::build), for a stage from [`split`](Model::split), with memory for this number of
    /// micro-batches.
    ///
    /// # Errors
    /// If the device's memory doesn't suffice.
    pub fn build_stage(
        &self,
        device: &Device,
        batch: usize,
        mode: Mode,
        micro_batches: usize,
    ) -> Result<Network> {
        self.graph.build_stage(self.logits, device, batch, mode, micro_batches)
    }

    /// The network on a device, for batches of up to `batch` samples.
    ///
    /// # Errors
    /// If the device's memory doesn't suffice.
    pub fn build(&self, device: &Device, batch: usize, mode: Mode) -> Result<Network> {
        self.graph.build(self.logits, device, batch, mode)
    }
}
