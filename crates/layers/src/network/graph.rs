use crate::error::InLayer;
use crate::layer::check_inputs;
use crate::parameter::ParamPlace;
use crate::{Error, Layer, Lower, ParamSpec, Result, Role};
use std::collections::HashMap;
use std::sync::Arc;
use towers_program::ops::{Neighbor, Receive};
use towers_program::{Builder, Program, Shape, Span, TensorId};

/// A tensor of a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value(pub(super) usize);

/// One value, as the inputs of a layer.
impl AsRef<[Value]> for Value {
    fn as_ref(&self) -> &[Value] {
        std::slice::from_ref(self)
    }
}

/// The use that a network is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Forward passes only. Memory is reused once a tensor has been read for the last time.
    Inference,
    /// Forward and backward passes.
    Training,
    /// Training, and the gradient of the network's input too.
    TrainingWithInputGradient,
    /// The same passes, but the layers compute as in inference: dropout does nothing, and normalizations use their running
    /// averages. Parameters have no gradients.
    InferenceWithInputGradient,
}

impl Mode {
    /// Whether layers compute as in training.
    pub(super) fn is_training(self) -> bool {
        matches!(self, Mode::Training | Mode::TrainingWithInputGradient)
    }
}

/// An architecture: named layers and their connections. Owns no memory on any device. Clones share their
/// layers.
#[derive(Clone, Debug)]
pub struct Graph {
    pub(super) name: String,
    pub(super) nodes: Vec<Node>,
    /// Shapes for one sample, by value.
    pub(super) shapes: Vec<Shape>,
    /// Whether the value is a batch of vectors, not of 1x1 images; for the summary.
    pub(super) flat: Vec<bool>,
    pub(super) counts: HashMap<String, usize>,
    /// Whether another stage computes its input.
    pub(super) receives: bool,
    /// Whether another stage reads its output.
    pub(super) sends: bool,
    /// The number of classes if a sample has any number of them, also in the stages before the scores.
    pub(super) multi_label: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    /// Shared with the stages that the graph was cut into.
    pub(super) layer: Arc<dyn Layer>,
    pub(super) inputs: Vec<Value>,
    pub(super) output: Value,
    /// The parameters that [`Graph::freeze`] took, by their names in the layer.
    frozen: Vec<&'static str>,
}

impl Node {
    /// The parameters of its layer, for a graph with these shapes. If none is left to train, the running averages
    /// are frozen too.
    pub(super) fn params(&self, shapes: &[Shape]) -> Vec<ParamSpec> {
        let inputs: Vec<Shape> = self.inputs.iter().map(|value| shapes[value.0]).collect();
        let mut specs = self.layer.params(&inputs);
        for spec in specs.iter_mut().filter(|spec| self.frozen.contains(&spec.name)) {
            spec.role = Role::Frozen;
        }
        if !self.frozen.is_empty() && specs.iter().all(|spec| spec.role != Role::Trainable) {
            specs.iter_mut().for_each(|spec| spec.role = Role::Frozen);
        }
        specs
    }

    /// The parameters that training changes: those that an optimizer does, or if there are none, running averages.
    fn freezable(&self, shapes: &[Shape]) -> Vec<&'static str> {
        let specs = self.params(shapes);
        let trains = specs.iter().any(|spec| spec.role == Role::Trainable);
        let changes =
            |spec: &&ParamSpec| if trains { spec.role == Role::Trainable } else { spec.role.is_running() };
        specs.iter().filter(changes).map(|spec| spec.name).collect()
    }
}

impl Graph {
    /// An empty graph for images of `[height, width, channels]`.
    pub fn new(name: &str, [h, w, c]: [usize; 3]) -> Self {
        let (name, shapes) = (name.to_owned(), vec![Shape::new(1, h, w, c)]);
        let (nodes, flat, counts) = (Vec::new(), vec![false], HashMap::new());
        Graph { name, nodes, shapes, flat, counts, receives: false, sends: false, multi_label: None }
    }

    /// The graph's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The input images.
    pub fn input(&self) -> Value {
        Value(0)
    }

    /// The shape of `value` for a batch of one.
    pub fn shape(&self, value: Value) -> Shape {
        self.shapes[value.0]
    }

    /// Whether `value` is a batch of vectors, not of images.
    pub fn is_vectors(&self, value: Value) -> bool {
        self.flat[value.0]
    }

    /// Adds a layer that reads a value, or several, named as Keras would: `conv2d`, `conv2d_1`, ...
    ///
    /// ```
    /// use towers_layers::{Add, Conv2D, Graph};
    ///
    /// let mut graph = Graph::new("residual", [8, 8, 3]);
    /// let x = graph.add(Conv2D::new(16, 3).same(), graph.input())?;
    /// let y = graph.add(Conv2D::new(16, 3).same(), x)?;
    /// let sum = graph.add(Add::new(), [x, y])?;
    /// # Ok::<(), towers_layers::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the layer can't take inputs of these shapes, or so many.
    pub fn add(&mut self, layer: impl Layer + 'static, inputs: impl AsRef<[Value]>) -> Result<Value> {
        let name = self.next_name(&layer.kind());
        self.add_named(&name, layer, inputs)
    }

    /// Adds a layer under the given name, which identifies its parameters and dropout masks.
    ///
    /// # Errors
    /// As [`add`](Graph::add), or if the name is taken.
    pub fn add_named(
        &mut self,
        name: &str,
        layer: impl Layer + 'static,
        inputs: impl AsRef<[Value]>,
    ) -> Result<Value> {
        let refuse = |what: String| Err(Error::Graph { layer: name.to_owned(), what });
        let inputs = inputs.as_ref().to_vec();
        if let Err(what) = check_inputs(&layer, inputs.len()) {
            return refuse(what);
        }
        let shapes: Vec<Shape> = inputs.iter().map(|value| self.shapes[value.0]).collect();
        let alone = Alone::new(&layer, name, &shapes).in_layer(name)?.program;
        if self.nodes.iter().any(|node| node.name == name) {
            return refuse("this name is taken".into());
        }
        let output = Value(self.shapes.len());
        self.shapes.push(alone.shape(alone.output));
        let stays = self.flat[inputs[0].0] && !layer.makes_images();
        self.flat.push(stays || layer.makes_vectors());
        let (name, layer, frozen) = (name.to_owned(), Arc::new(layer), Vec::new());
        self.nodes.push(Node { name, layer, inputs, output, frozen });
        Ok(output)
    }

    /// Has samples with any number of classes from now on: each of the scores in `logits` has a sigmoid of its own, the loss is
    /// binary cross-entropy, and labels are [multi-hot](towers_program::Labels::MultiHot).
    ///
    /// ```
    /// use towers_layers::{Dense, Draws, Flatten, Graph, Mode};
    ///
    /// let mut graph = Graph::new("tiny", [2, 2, 1]);
    /// let x = graph.add(Flatten, graph.input())?;
    /// let logits = graph.add(Dense::new(3), x)?;
    /// graph.set_multi_label(logits);
    /// let mut network = graph.build(logits, &towers_tensor_cpu::device(1), 2, Mode::Training)?;
    /// network.set_input(&[0.5; 8], &[0b101, 0])?;
    /// network.train_pass(Draws { seed: 1, step: 0, first_sample: 0 }, 0.0, 2)?;
    /// // All parameters are 0 yet, so each probability is a half.
    /// assert_eq!(network.metrics()?.loss_sum, f64::from(2.0 * core::f32::consts::LN_2));
    /// assert_eq!(network.predict()?, [0.5; 6]);
    /// # Ok::<(), towers_layers::Error>(())
    /// ```
    pub fn set_multi_label(&mut self, logits: Value) {
        self.multi_label = Some(self.shape(logits).c);
    }

    /// Whether a sample has any number of classes.
    pub fn is_multi_label(&self) -> bool {
        self.multi_label.is_some()
    }

    /// Freezes the trained parameters whose names, as in `conv2d/kernel`, satisfy `takes`: training changes them no
    /// more. The backward pass ends at the lowest layer that is trained.
    ///
    /// A normalization whose trained parameters are all frozen normalizes by its running averages, and these stay as
    /// they are: Keras' `BatchNormalization` with `trainable = False`. One that has no trained parameters goes by the names
    /// of its averages, `batch_normalization/moving_mean`.
    ///
    /// ```
    /// use towers_layers::{BatchNormalization, Conv2D, Flatten, Graph, Mode};
    ///
    /// let mut graph = Graph::new("tiny", [4, 4, 3]);
    /// let x = graph.add(Conv2D::new(2, 3), graph.input())?;
    /// let x = graph.add(BatchNormalization::new(), x)?;
    /// let x = graph.add(Conv2D::new(5, 2), x)?;
    /// let logits = graph.add(Flatten, x)?;
    /// graph.freeze(|name| !name.starts_with("conv2d_1/"));
    /// assert_eq!(graph.trained(), ["conv2d_1/kernel", "conv2d_1/bias"]);
    /// let step = graph.program(logits, Mode::Training, true)?.to_string();
    /// assert!(step.contains("batch_norm_infer") && !step.contains("\nconv2d, backward"), "{step}");
    /// # Ok::<(), towers_layers::Error>(())
    /// ```
    pub fn freeze(&mut self, takes: impl Fn(&str) -> bool) {
        for node in &mut self.nodes {
            let own = node.freezable(&self.shapes);
            node.frozen.extend(own.into_iter().filter(|name| takes(&format!("{}/{name}", node.name))));
        }
    }

    /// The names that [`freeze`](Graph::freeze) asks about, in the order of the layers.
    pub fn freezable(&self) -> Vec<String> {
        let of_node = |node: &Node| {
            let own = node.freezable(&self.shapes).into_iter();
            own.map(|name| format!("{}/{name}", node.name)).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of_node).collect()
    }

    /// The next name for a layer of this kind, as Keras numbers them: of `Conv2D` it is `conv2d`, then
    /// `conv2d_1`. A fused activation stays out of the name.
    pub fn next_name(&mut self, kind: &str) -> String {
        let name = keras_name(kind.split('+').next().unwrap_or(kind));
        // A given name may equal the next number's.
        loop {
            let count = self.counts.entry(name.clone()).or_insert(0);
            *count += 1;
            let numbered = if *count == 1 { name.clone() } else { format!("{name}_{}", *count - 1) };
            if self.nodes.iter().all(|node| node.name != numbered) {
                return numbered;
            }
        }
    }
}

/// Keras' name for the first layer of a class.
///
/// ```
/// assert_eq!(towers_layers::keras_name("BatchNormalization"), "batch_normalization");
/// ```
pub fn keras_name(class: &str) -> String {
    let (mut name, mut lower) = (String::new(), false);
    for ch in class.chars() {
        if lower && ch.is_uppercase() {
            name.push('_');
        }
        lower = ch.is_lowercase();
        name.extend(ch.to_lowercase());
    }
    name
}

/// A single layer, in training.
pub(super) struct Alone {
    pub(super) program: Program,
    pub(super) inputs: Vec<TensorId>,
}

impl Alone {
    /// For inputs of these shapes. The first is the program's input; the others are [received](Receive).
    pub(super) fn new(layer: &dyn Layer, name: &str, shapes: &[Shape]) -> towers_program::Result<Self> {
        let mut builder = Builder::new(shapes[0]);
        let mut inputs = vec![builder.input()];
        for &shape in shapes.iter().skip(1) {
            inputs.extend(builder.push(Receive { from: Neighbor::Previous, shape }, &[], &[])?);
        }
        let specs = layer.params(shapes);
        let mut end = 0;
        let place = |spec: &ParamSpec| {
            let span = Span::new(end, elements(&spec.shape));
            end = span.end();
            ParamPlace { span, sums: if spec.role.is_running() { span } else { Span::new(0, 0) } }
        };
        let places: Vec<ParamPlace> = specs.iter().map(place).collect();
        builder.layer(name);
        let y = layer.lower(&mut Lower::new(&mut builder, name, true, &specs, &places), &inputs)?;
        Ok(Alone { program: builder.finish(y), inputs })
    }
}

/// The number of elements of a tensor. An absurd shape has too many for any memory.
pub(super) fn elements(shape: &[usize]) -> usize {
    shape.iter().fold(1, |len, &side| len.saturating_mul(side))
}
