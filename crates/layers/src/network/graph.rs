use crate::activation::check_fused;
use crate::error::InLayer;
use crate::parameter::ParamPlace;
use crate::{Add, Error, Layer, Lower, ParamSpec, Result, Role};
use program::{Builder, Program, Shape, Span};
use std::collections::HashMap;
use std::sync::Arc;

/// A tensor of a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value(pub(super) usize);

/// The use that a network is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Forward passes only. Memory is reused once a tensor has been read for the last time.
    Inference,
    /// Forward and backward passes.
    Training,
    /// Training, and the gradient of the network's input too.
    TrainingWithInputGradient,
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
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) inputs: Vec<Value>,
    pub(super) output: Value,
    /// The parameters that [`Graph::freeze`] took, by their names in the layer.
    frozen: Vec<&'static str>,
}

impl Node {
    /// The parameters of its layer, for a graph with these shapes. If none is left to train, the running averages
    /// are frozen too.
    pub(super) fn params(&self, shapes: &[Shape]) -> Vec<ParamSpec> {
        let Kind::Layer(layer) = &self.kind else { return Vec::new() };
        let mut specs = layer.params(shapes[self.inputs[0].0]);
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

#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// Shared with the stages that the graph was cut into.
    Layer(Arc<dyn Layer>),
    Concatenate,
    Add(Add),
}

impl Graph {
    /// An empty graph for images of `[height, width, channels]`.
    pub fn new(name: &str, [h, w, c]: [usize; 3]) -> Self {
        let (name, shapes) = (name.to_owned(), vec![Shape::new(1, h, w, c)]);
        let (nodes, flat, counts) = (Vec::new(), vec![false], HashMap::new());
        Graph { name, nodes, shapes, flat, counts, receives: false, sends: false }
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

    /// Adds a layer that reads `x`, named as Keras would: `conv2d`, `conv2d_1`, ...
    ///
    /// # Errors
    /// If the layer can't take inputs of this shape.
    pub fn add(&mut self, layer: impl Layer + 'static, x: Value) -> Result<Value> {
        let name = self.next_name(&layer.kind());
        self.add_named(&name, layer, x)
    }

    /// Adds a layer under the given name, which identifies its parameters and dropout masks.
    ///
    /// # Errors
    /// If the layer can't take inputs of this shape, or the name is taken.
    pub fn add_named(&mut self, name: &str, layer: impl Layer + 'static, x: Value) -> Result<Value> {
        let alone = alone(&layer, name, self.shapes[x.0]).in_layer(name)?;
        let shape = alone.shape(alone.output);
        let flat = self.flat[x.0] || layer.makes_vectors();
        self.push(name, Kind::Layer(Arc::new(layer)), vec![x], shape, flat)
    }

    /// Joins tensors along their channels. This costs nothing if each layer before it can write into its
    /// slice of the result. A tensor that is joined twice is copied. So is one that a layer reads to write
    /// another slice.
    ///
    /// # Errors
    /// If there are none, or their sizes differ.
    pub fn concat(&mut self, values: &[Value]) -> Result<Value> {
        let name = self.next_name("Concatenate");
        self.concat_named(&name, values)
    }

    /// As [`concat`](Graph::concat), under the given name.
    ///
    /// # Errors
    /// As [`concat`](Graph::concat), or if the name is taken.
    pub fn concat_named(&mut self, name: &str, values: &[Value]) -> Result<Value> {
        let refuse = |what: String| Err(Error::Graph { layer: name.to_owned(), what });
        let Some(first) = values.first() else {
            return refuse("there is nothing to join".into());
        };
        let size = self.shapes[first.0];
        for value in values {
            let shape = self.shapes[value.0];
            if shape.with_c(1) != size.with_c(1) {
                return refuse(format!("cannot join {size} and {shape} along the channels"));
            }
        }
        let channels = values.iter().map(|v| self.shapes[v.0].c).sum();
        let flat = self.flat[first.0];
        self.push(name, Kind::Concatenate, values.to_vec(), size.with_c(channels), flat)
    }

    /// Adds two tensors of one shape, named as Keras would: `add`, `add_1`, ... Keras' `Add()([a, b])`.
    ///
    /// If no other layer reads one of them, the sum is computed in its place, and the gradient of the sum
    /// serves as both gradients.
    ///
    /// ```
    /// use layers::{Add, BatchNormalization, Conv2D, Graph};
    /// use program::Activation::Relu;
    ///
    /// let mut graph = Graph::new("residual", [8, 8, 3]);
    /// let x = graph.add(Conv2D::new(16, 3).same(), graph.input())?;
    /// let y = graph.add(Conv2D::new(16, 3).same(), x)?;
    /// let y = graph.add(BatchNormalization::new(), y)?;
    /// let sum = graph.merge(Add::new().activation(Relu), [y, x])?;
    /// assert_eq!(graph.shape(sum), graph.shape(x));
    /// # Ok::<(), layers::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensors' shapes differ.
    pub fn merge(&mut self, add: Add, values: [Value; 2]) -> Result<Value> {
        let name = self.next_name(&add.kind());
        self.merge_named(&name, add, values)
    }

    /// As [`merge`](Graph::merge), under the given name.
    ///
    /// # Errors
    /// As [`merge`](Graph::merge), or if the name is taken.
    pub fn merge_named(&mut self, name: &str, add: Add, values: [Value; 2]) -> Result<Value> {
        let [a, b] = values.map(|value| self.shapes[value.0]);
        if a != b {
            return Err(Error::Graph { layer: name.to_owned(), what: format!("cannot add {a} and {b}") });
        }
        check_fused("add", add.act()).in_layer(name)?;
        let flat = self.flat[values[0].0];
        self.push(name, Kind::Add(add), values.to_vec(), a, flat)
    }

    fn push(
        &mut self,
        name: &str,
        kind: Kind,
        inputs: Vec<Value>,
        shape: Shape,
        flat: bool,
    ) -> Result<Value> {
        if self.nodes.iter().any(|node| node.name == name) {
            return Err(Error::Graph { layer: name.to_owned(), what: "this name is taken".into() });
        }
        let output = Value(self.shapes.len());
        self.shapes.push(shape);
        self.flat.push(flat);
        self.nodes.push(Node { name: name.to_owned(), kind, inputs, output, frozen: Vec::new() });
        Ok(output)
    }

    /// Freezes the trained parameters whose names, as in `conv2d/kernel`, satisfy `takes`: training changes them no
    /// more. The backward pass ends at the lowest layer that is trained.
    ///
    /// A normalization whose trained parameters are all frozen normalizes by its running averages, and these stay as
    /// they are: Keras' `BatchNormalization` with `trainable = False`. One that has no trained parameters goes by the names
    /// of its averages, `batch_normalization/moving_mean`.
    ///
    /// ```
    /// use layers::{BatchNormalization, Conv2D, Flatten, Graph, Mode};
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
    /// # Ok::<(), layers::Error>(())
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
/// assert_eq!(layers::keras_name("BatchNormalization"), "batch_normalization");
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
pub(super) fn alone(layer: &dyn Layer, name: &str, x: Shape) -> program::Result<Program> {
    let mut builder = Builder::new(x);
    let specs = layer.params(x);
    let mut end = 0;
    let place = |spec: &ParamSpec| {
        let span = Span::new(end, elements(&spec.shape));
        end = span.end();
        ParamPlace { span, sums: if spec.role.is_running() { span } else { Span::new(0, 0) } }
    };
    let places: Vec<ParamPlace> = specs.iter().map(place).collect();
    let input = builder.input();
    let y = layer.lower(&mut Lower::new(&mut builder, name, true, &specs, &places), input)?;
    Ok(builder.finish(y))
}

/// The number of elements of a tensor. An absurd shape has too many for any memory.
pub(super) fn elements(shape: &[usize]) -> usize {
    shape.iter().fold(1, |len, &side| len.saturating_mul(side))
}
