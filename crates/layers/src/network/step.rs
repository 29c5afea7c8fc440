//! The ops of a graph's layers, for exporters.

use super::graph::{Alone, Graph, Value};
use crate::{ParamSpec, Role};
use std::borrow::Cow;
use towers_program::{Op, Shape};

/// One layer of a graph, from [`Graph::steps`].
#[derive(Clone, Debug)]
pub struct Step {
    /// The layer's unique name. A parameter's slot is called `LAYER/PARAMETER`.
    pub name: String,
    /// The layer's type, as Keras spells it.
    pub kind: Cow<'static, str>,
    /// Its op in training. `None` unless the layer is one op that reads its inputs and then its parameters,
    /// in their order.
    pub op: Option<Op>,
    /// Its parameters.
    pub params: Vec<ParamSpec>,
    /// What it reads.
    pub inputs: Vec<Value>,
    /// The shape of the first input, for a batch of one.
    pub x: Shape,
    /// What it computes.
    pub output: Value,
    /// Whether that is a batch of vectors, not of images.
    pub flat: bool,
}

impl Step {
    /// The momentum of its running averages, if it has any.
    pub fn momentum(&self) -> Option<f32> {
        self.params.iter().find_map(|spec| match spec.role {
            Role::Running { momentum } => Some(momentum),
            Role::Trainable | Role::Frozen => None,
        })
    }
}

impl Graph {
    /// The layers up to the one that computes `output`, each after its inputs.
    ///
    /// ```
    /// use towers_layers::{Conv2D, Graph};
    /// use towers_program::Op;
    ///
    /// let mut graph = Graph::new("tiny", [8, 8, 3]);
    /// let output = graph.add(Conv2D::new(4, 3).same(), graph.input())?;
    /// let [conv] = &graph.steps(output)[..] else { panic!("one layer") };
    /// assert_eq!((conv.name.as_str(), conv.params[0].shape.as_slice()), ("conv2d", &[3, 3, 3, 4][..]));
    /// assert!(matches!(conv.op, Some(Op::Conv2dForward(forward)) if forward.conv.pad.top == 1));
    /// # Ok::<(), towers_layers::Error>(())
    /// ```
    pub fn steps(&self, output: Value) -> Vec<Step> {
        let nodes = self.nodes.iter().filter(|node| node.output.0 <= output.0);
        nodes
            .map(|node| {
                let shapes: Vec<Shape> = node.inputs.iter().map(|value| self.shapes[value.0]).collect();
                let (kind, params) = (node.layer.kind(), node.params(&self.shapes));
                let alone = Alone::new(&*node.layer, &node.name, &shapes).ok();
                let op = alone.and_then(|alone| only(&alone, &node.name, &params));
                let (name, inputs, x) = (node.name.clone(), node.inputs.clone(), shapes[0]);
                let (output, flat) = (node.output, self.flat[node.output.0]);
                Step { name, kind, op, params, inputs, x, output, flat }
            })
            .collect()
    }
}

/// The op of a layer's program, if it is the only one and reads the inputs and then the parameters in their order.
fn only(Alone { program, inputs }: &Alone, layer: &str, params: &[ParamSpec]) -> Option<Op> {
    // The inputs but the first are received.
    let [step] = program.steps.get(inputs.len() - 1..)? else { return None };
    let parameters = step.operands.strip_prefix(&inputs[..])?;
    let read = parameters.iter().map(|&id| program.tensor(id).name.clone());
    let own = params.iter().filter(|spec| !spec.role.is_running());
    let is_plain = step.results.first() == Some(&program.output)
        && read.eq(own.map(|spec| Some(format!("{layer}/{}", spec.name))));
    is_plain.then_some(step.op)
}
