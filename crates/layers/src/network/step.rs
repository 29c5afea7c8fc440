//! The ops of a graph's layers, for exporters.

use super::graph::{Graph, Kind, Value, alone};
use crate::{ParamSpec, Role};
use program::{Op, Program, Shape, ops};
use std::borrow::Cow;

/// One layer of a graph, from [`Graph::steps`].
#[derive(Clone, Debug)]
pub struct Step {
    /// The layer's unique name. A parameter's slot is called `LAYER/PARAMETER`.
    pub name: String,
    /// The layer's type, as Keras spells it.
    pub kind: Cow<'static, str>,
    /// Its op in training. `None` unless the layer is one op that reads its input and its parameters in their
    /// order.
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
    /// use layers::{Conv2D, Graph};
    /// use program::Op;
    ///
    /// let mut graph = Graph::new("tiny", [8, 8, 3]);
    /// let output = graph.add(Conv2D::new(4, 3).same(), graph.input())?;
    /// let [conv] = &graph.steps(output)[..] else { panic!("one layer") };
    /// assert_eq!((conv.name.as_str(), conv.params[0].shape.as_slice()), ("conv2d", &[3, 3, 3, 4][..]));
    /// assert!(matches!(conv.op, Some(Op::Conv2dForward(forward)) if forward.conv.pad.top == 1));
    /// # Ok::<(), layers::Error>(())
    /// ```
    pub fn steps(&self, output: Value) -> Vec<Step> {
        let nodes = self.nodes.iter().filter(|node| node.output.0 <= output.0);
        nodes
            .map(|node| {
                let x = self.shapes[node.inputs[0].0];
                let (kind, op, params) = match &node.kind {
                    Kind::Layer(layer) => {
                        let (alone, params) = (alone(&**layer, &node.name, x), node.params(&self.shapes));
                        (layer.kind(), alone.ok().and_then(|alone| only(&alone, &node.name, &params)), params)
                    }
                    Kind::Concatenate => ("Concatenate".into(), Some(ops::Concat.into()), Vec::new()),
                    Kind::Add(add) => (add.kind(), Some(ops::Add { act: add.act() }.into()), Vec::new()),
                };
                let (name, inputs) = (node.name.clone(), node.inputs.clone());
                let (output, flat) = (node.output, self.flat[node.output.0]);
                Step { name, kind, op, params, inputs, x, output, flat }
            })
            .collect()
    }
}

/// The op of a layer's program, if it is the only one and reads the input and the parameters in their order.
fn only(program: &Program, layer: &str, params: &[ParamSpec]) -> Option<Op> {
    let [step] = &program.steps[..] else { return None };
    let (first, rest) = step.operands.split_first()?;
    let read = rest.iter().map(|&id| program.tensor(id).name.clone());
    let own = params.iter().filter(|spec| !spec.role.is_running());
    let is_plain = *first == program.input
        && step.results.first() == Some(&program.output)
        && read.eq(own.map(|spec| Some(format!("{layer}/{}", spec.name))));
    is_plain.then_some(step.op)
}
