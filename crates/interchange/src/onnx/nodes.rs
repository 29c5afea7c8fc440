//! From layers to the nodes of a graph.

use super::proto::{AttributeProto, AttributeType, FLOAT, GraphProto, INT64, NodeProto, TensorProto};
use crate::source::{Weights, grouped};
use crate::{Error, Result, Source, layout};
use std::collections::{HashMap, HashSet};
use towers_layers::{Step, Value};
use towers_program::{Activation, Op, Pad, Shape, ops};

/// The name of the graph's input.
pub const INPUT: &str = "images";
/// The name of the graph's output.
pub const OUTPUT: &str = "logits";

/// A set of operators, by its number, and the version of the format that came with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Opset {
    pub(super) number: i64,
    pub(super) ir_version: i64,
}

impl Opset {
    /// Of July 2022: for all networks but those of the next one.
    const FIRST: Opset = Opset { number: 17, ir_version: 8 };
    /// Of March 2024: the first one whose `GroupNormalization` has a scale for each channel.
    const WITH_GROUP_NORM: Opset = Opset { number: 21, ir_version: 10 };
}

/// A graph in the making.
pub(super) struct Nodes<'s> {
    source: &'s Source<'s>,
    pub(super) graph: GraphProto,
    /// What the graph needs so far.
    opset: Opset,
    /// What the values are called so far.
    names: HashMap<Value, String>,
    /// The names of the layers there, by their names here.
    layers: HashMap<String, String>,
    /// How many channels the values have, or how many numbers a vector.
    widths: HashMap<Value, usize>,
    /// Those that are vectors.
    pub(super) vectors: HashSet<Value>,
    /// All names that are taken: a graph gives each of them once.
    taken: HashSet<String>,
}

/// A node's attribute.
pub(super) enum Attribute<'a> {
    Float(&'a str, f32),
    Number(&'a str, usize),
    Numbers(&'a str, &'a [usize]),
    Word(&'a str, &'a str),
}
pub(super) use Attribute::{Float, Number, Numbers, Word};

impl Attribute<'_> {
    /// As an `AttributeProto`, with its type.
    fn message(&self) -> AttributeProto {
        let named = |name: &str, kind: AttributeType| AttributeProto {
            name: name.to_owned(),
            r#type: kind.into(),
            ..AttributeProto::default()
        };
        match *self {
            Float(name, value) => AttributeProto { f: Some(value), ..named(name, AttributeType::Float) },
            Number(name, value) => {
                AttributeProto { i: Some(value as i64), ..named(name, AttributeType::Int) }
            }
            Numbers(name, values) => {
                AttributeProto { ints: integers(values), ..named(name, AttributeType::Ints) }
            }
            Word(name, word) => {
                AttributeProto { s: word.as_bytes().to_vec(), ..named(name, AttributeType::String) }
            }
        }
    }
}

impl<'s> Nodes<'s> {
    /// A graph that has read the pixels.
    pub(super) fn new(source: &'s Source<'s>) -> Self {
        let mut nodes = Nodes {
            source,
            graph: GraphProto::default(),
            opset: Opset::FIRST,
            names: HashMap::new(),
            layers: HashMap::new(),
            widths: HashMap::from([(source.input, source.image[2])]),
            vectors: HashSet::new(),
            taken: HashSet::from([INPUT, OUTPUT, layout::SCALE, layout::SHIFT].map(str::to_owned)),
        };
        // A layer keeps its name, unless it is one of these. All other values get numbers where a name is
        // taken.
        for step in &source.steps {
            let own = nodes.unique(&step.name);
            nodes.layers.insert(step.name.clone(), own);
        }
        [layout::SCALE, layout::SHIFT].iter().for_each(|own| _ = nodes.taken.remove(*own));
        let mut x = INPUT.to_owned();
        for (op, weights) in [("Mul", source.scale()), ("Add", source.shift())] {
            let neutral = if op == "Mul" { 1.0 } else { 0.0 };
            if weights.data.iter().all(|&value| value == neutral) {
                continue;
            }
            let applied = nodes.unique(&format!("{}_applied", weights.name));
            let weights = nodes.initializer(weights);
            x = nodes.node(op, &[&x, &weights], &[], applied);
        }
        nodes.names.insert(source.input, x);
        nodes
    }

    /// Adds the nodes of a layer.
    pub(super) fn step(&mut self, step: &Step) -> Result<()> {
        let refuse = |reason: &str| Error::Export {
            layer: step.name.clone(),
            target: "ONNX",
            reason: reason.to_owned(),
        };
        let weights = self.source.weights(step, &step.name)?;
        let weights: Vec<String> = weights.into_iter().map(|weights| self.initializer(weights)).collect();
        let names: Option<Vec<String>> = step.inputs.iter().map(|x| self.names.get(x).cloned()).collect();
        let names = names.ok_or_else(|| refuse("it reads what no layer before it computes"))?;
        let operands: Vec<&str> = names.iter().chain(&weights).map(String::as_str).collect();
        let op = step.op.ok_or_else(|| refuse("it is not a single op on its input and its parameters"))?;
        let name = match grouped(op) {
            Op::Conv2dForward(ops::Conv2dForward { conv, act }) => {
                let (kernel, stride, pads) = (conv.kernel, conv.stride, pads(conv.pad));
                let mut about = vec![
                    Numbers("kernel_shape", &kernel),
                    Numbers("strides", &stride),
                    Numbers("pads", &pads),
                ];
                if conv.dilation != [1, 1] {
                    about.push(Numbers("dilations", &conv.dilation));
                }
                if conv.groups != 1 {
                    about.push(Number("group", conv.groups));
                }
                self.activated(step, "Conv", &operands, &about, act)
            }
            Op::LinearForward(ops::LinearForward { act, .. }) => {
                self.activated(step, "Gemm", &operands, &[Number("transB", 1)], act)
            }
            Op::BatchNormTrain(ops::BatchNormTrain { bn }) => {
                let momentum = step.momentum().unwrap_or(0.9);
                let about = [Float("epsilon", bn.epsilon), Float("momentum", momentum)];
                self.activated(step, "BatchNormalization", &operands, &about, bn.act)
            }
            Op::GroupNorm(ops::GroupNorm { groups, epsilon, act }) => {
                self.opset = Opset::WITH_GROUP_NORM;
                let about = [Float("epsilon", epsilon), Number("num_groups", groups)];
                self.activated(step, "GroupNormalization", &operands, &about, act)
            }
            Op::LayerNorm(ops::LayerNorm { epsilon }) => self.layer_normalization(step, &operands, epsilon),
            Op::LocalResponseNorm(norm) => self.local_response(step, operands[0], norm),
            Op::ZeroPad(ops::ZeroPad { top, bottom, left, right }) => {
                let output = self.output(step);
                self.padded(step, operands[0], [top, left, bottom, right], output)
            }
            Op::Upsample(op) => self.resized(step, operands[0], op),
            // Of all of an image: a vector.
            Op::AveragePool(_) if step.flat => {
                let image = self.helper(step, "image");
                let image = self.node("GlobalAveragePool", &operands, &[], image);
                self.activated(step, "Flatten", &[&image], &[], Activation::None)
            }
            Op::MaxPool(ops::MaxPool { pool }) => self.pooled(step, "MaxPool", &operands, pool),
            Op::AveragePool(ops::AveragePool { pool }) => self.pooled(step, "AveragePool", &operands, pool),
            Op::Reshape(ops::Reshape { to }) if !step.flat => self.image(step, operands[0], to),
            Op::Reshape(_) if step.x.h * step.x.w > 1 => {
                // Back to rows, columns, channels: the order that the layer behind was trained with.
                let order = [0, 2, 3, 1];
                let x = self.helper(step, "order");
                let x = self.node("Transpose", &operands, &[Numbers("perm", &order)], x);
                self.activated(step, "Flatten", &[&x], &[], Activation::None)
            }
            Op::Reshape(_) => self.activated(step, "Flatten", &operands, &[], Activation::None),
            Op::Dropout(_) if step.output != self.source.logits => operands[0].to_owned(),
            Op::Dropout(_) => self.activated(step, "Identity", &operands, &[], Activation::None),
            Op::Activate(ops::Activate { act }) => self.activate(step, operands[0].to_owned(), act),
            Op::Scale(ops::Scale { factor }) => {
                let factor = self.constant(step, "factor", factor);
                self.activated(step, "Mul", &[operands[0], &factor], &[], Activation::None)
            }
            Op::ChannelShuffle(ops::ChannelShuffle { groups }) => {
                let [h, w, c] = [step.x.h, step.x.w, step.x.c];
                // 0: as many samples as before.
                let parts = self.integers(step, "parts", &[0, groups, c / groups, h, w]);
                let whole = self.integers(step, "whole", &[0, c, h, w]);
                let [split, turned] = ["split", "turned"].map(|part| self.helper(step, part));
                let split = self.node("Reshape", &[operands[0], &parts], &[], split);
                let turned = self.node("Transpose", &[&split], &[Numbers("perm", &[0, 2, 1, 3, 4])], turned);
                self.activated(step, "Reshape", &[&turned, &whole], &[], Activation::None)
            }
            Op::Slice(ops::Slice { from, channels }) => {
                let [start, end, axis] = [("start", from), ("end", from + channels), ("axis", 1)]
                    .map(|(what, value)| self.integers(step, what, &[value]));
                self.activated(step, "Slice", &[operands[0], &start, &end, &axis], &[], Activation::None)
            }
            Op::Concat(_) => {
                self.activated(step, "Concat", &operands, &[Number("axis", 1)], Activation::None)
            }
            Op::Merge(ops::Merge { how }) => {
                let op = if how == ops::How::Product { "Mul" } else { "Add" };
                self.activated(step, op, &operands, &[], Activation::None)
            }
            Op::Add(ops::Add { act }) => self.activated(step, "Add", &operands, &[], act),
            _ => return Err(refuse("what it computes has no operator there")),
        };
        self.names.insert(step.output, name);
        if step.flat {
            self.vectors.insert(step.output);
        }
        let width = match step.op {
            Some(Op::Conv2dForward(_) | Op::LinearForward(_)) => {
                step.params.first().and_then(|kernel| kernel.shape.last().copied())
            }
            Some(Op::DepthwiseForward(op)) => Some(op.conv.outputs()),
            Some(Op::Concat(_)) => step.inputs.iter().map(|x| self.widths.get(x).copied()).sum(),
            Some(Op::Reshape(ops::Reshape { to })) => Some(to.c),
            Some(Op::Slice(ops::Slice { channels, .. })) => Some(channels),
            _ => Some(step.x.c),
        };
        self.widths.insert(step.output, width.unwrap_or(step.x.c));
        let (scores, classes) = (self.widths[&step.output], self.source.classes.len());
        // A single score is a sigmoid of two classes.
        let fits = scores == classes || (scores, classes) == (1, 2);
        if step.output == self.source.logits && !fits {
            return Err(refuse(&format!("it gives {scores} scores, but there are {classes} classes")));
        }
        Ok(())
    }

    /// The `GraphProto` so far, and the operators that it needs.
    /// The sigmoid of the scores, under this name; returns it.
    pub(super) fn sigmoid(&mut self, name: &str) -> String {
        let output = self.unique(name);
        self.node("Sigmoid", &[OUTPUT], &[], output)
    }

    pub(super) fn finish(self) -> (GraphProto, Opset) {
        (self.graph, self.opset)
    }

    /// The numbers of a vector or an image, in the order (row, column, channel), as an image of another shape.
    fn image(&mut self, step: &Step, x: &str, to: Shape) -> String {
        let [before, split] = ["order", "shape"].map(|what| self.helper(step, what));
        let x = match step.x.h * step.x.w {
            1 => x.to_owned(),
            _ => self.node("Transpose", &[x], &[Numbers("perm", &[0, 2, 3, 1])], before),
        };
        let shape = self.integers(step, "to", &[0, to.h, to.w, to.c]);
        let image = self.node("Reshape", &[&x, &shape], &[], split);
        let output = self.output(step);
        self.node("Transpose", &[&image], &[Numbers("perm", &[0, 3, 1, 2])], output)
    }

    /// A node with its activation; returns the name of the result.
    pub(super) fn activated(
        &mut self,
        step: &Step,
        op: &str,
        operands: &[&str],
        attributes: &[Attribute<'_>],
        act: Activation,
    ) -> String {
        let output = match act {
            Activation::None => self.output(step),
            _ => self.helper(step, "linear"),
        };
        let y = self.node(op, operands, attributes, output);
        if act == Activation::None { y } else { self.activate(step, y, act) }
    }

    /// What a layer's result is called: as the layer, and the last one as the graph's output.
    pub(super) fn output(&self, step: &Step) -> String {
        match self.layers.get(&step.name) {
            Some(own) if step.output != self.source.logits => own.clone(),
            _ => OUTPUT.to_owned(),
        }
    }

    /// A name for a part of a layer.
    pub(super) fn helper(&mut self, step: &Step, part: &str) -> String {
        self.unique(&format!("{}_{part}", step.name))
    }

    /// This name, or a numbered one if it is taken. It is taken then.
    pub(super) fn unique(&mut self, wanted: &str) -> String {
        let numbered = (1..).map(|k| format!("{wanted}_{k}"));
        let mut free = core::iter::once(wanted.to_owned()).chain(numbered);
        let name = free.find(|name| !self.taken.contains(name)).unwrap_or_default();
        self.taken.insert(name.clone());
        name
    }

    /// Adds a `NodeProto`; returns the name of its result.
    pub(super) fn node(
        &mut self,
        op: &str,
        operands: &[&str],
        attributes: &[Attribute<'_>],
        output: String,
    ) -> String {
        self.graph.node.push(NodeProto {
            input: operands.iter().map(|&operand| operand.to_owned()).collect(),
            output: vec![output.clone()],
            name: format!("{output}/{op}"),
            op_type: op.to_owned(),
            attribute: attributes.iter().map(Attribute::message).collect(),
            ..NodeProto::default()
        });
        output
    }

    /// A number for a layer; returns its name.
    pub(super) fn constant(&mut self, step: &Step, what: &str, value: f32) -> String {
        let name = format!("{}_{what}", step.name);
        self.initializer(Weights { name, shape: Vec::new(), data: vec![value] })
    }

    /// Whole numbers for a layer, such as a shape; returns their name.
    fn integers(&mut self, step: &Step, what: &str, values: &[usize]) -> String {
        let name = self.unique(&format!("{}_{what}", step.name));
        self.graph.initializer.push(TensorProto {
            dims: vec![values.len() as i64],
            data_type: INT64,
            name: name.clone(),
            int64_data: integers(values),
            ..TensorProto::default()
        });
        name
    }

    /// Adds a tensor; returns its name.
    pub(super) fn initializer(&mut self, weights: Weights) -> String {
        let name = self.unique(&weights.name);
        self.graph.initializer.push(tensor(&Weights { name: name.clone(), ..weights }));
        name
    }
}

/// As ONNX orders them: where rows and columns begin, then where they end.
pub(super) fn pads(pad: Pad) -> [usize; 4] {
    [pad.top, pad.left, pad.bottom, pad.right]
}

fn tensor(weights: &Weights) -> TensorProto {
    TensorProto {
        dims: integers(&weights.shape),
        data_type: FLOAT,
        name: weights.name.clone(),
        raw_data: weights
            .data
            .iter()
            .map(|value| value.to_le_bytes())
            .collect::<Vec<_>>()
            .into_flattened()
            .into(),
        ..TensorProto::default()
    }
}

/// Numbers in the type that ONNX has for them.
fn integers(values: &[usize]) -> Vec<i64> {
    values.iter().map(|&value| value as i64).collect()
}
