//! A graph read from outside: what each layer computes, of what.

use super::graph::{Graph, Kind, Value};
use crate::{Operation, ParamSpec};
use std::borrow::Cow;
use tensor::Shape;

/// One layer of a graph, as [`Graph::steps`] tells of it.
#[derive(Clone, Debug)]
pub struct Step {
    /// The layer's unique name. A parameter's slot is called `LAYER/PARAMETER`.
    pub name: String,
    /// The layer's type, as Keras spells it.
    pub kind: Cow<'static, str>,
    /// What it computes; `None` if the layer doesn't say.
    pub operation: Option<Operation>,
    /// Its parameters.
    pub params: Vec<ParamSpec>,
    /// What it reads.
    pub inputs: Vec<Value>,
    /// The shape of the first of them, for a batch of one.
    pub x: Shape,
    /// What it computes.
    pub output: Value,
}

impl Graph {
    /// The layers, each behind those that it reads from, up to the one that computes `output`.
    ///
    /// ```
    /// use layers::{Conv2D, Graph, Operation};
    ///
    /// let mut graph = Graph::new("tiny", [8, 8, 3]);
    /// let output = graph.add(Conv2D::new(4, 3).same(), graph.input())?;
    /// let [conv] = &graph.steps(output)[..] else { panic!("one layer") };
    /// assert_eq!((conv.name.as_str(), conv.params[0].shape.as_slice()), ("conv2d", &[3, 3, 3, 4][..]));
    /// assert!(matches!(conv.operation, Some(Operation::Conv2d(conv, _)) if conv.pad.top == 1));
    /// # Ok::<(), layers::Error>(())
    /// ```
    pub fn steps(&self, output: Value) -> Vec<Step> {
        let nodes = self.nodes.iter().filter(|node| node.output.0 <= output.0);
        nodes
            .map(|node| {
                let x = self.shapes[node.inputs[0].0];
                let (kind, operation, params) = match &node.kind {
                    Kind::Layer(layer) => (layer.kind(), layer.operation(x), layer.params(x)),
                    Kind::Concatenate => ("Concatenate".into(), Some(Operation::Concatenate), Vec::new()),
                    Kind::Add(add) => (add.kind(), Some(Operation::Add(add.act())), Vec::new()),
                };
                let (name, inputs) = (node.name.clone(), node.inputs.clone());
                Step { name, kind, operation, params, inputs, x, output: node.output }
            })
            .collect()
    }
}
