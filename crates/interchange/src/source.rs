use crate::layout::channels_first;
use crate::{Error, Result, layout};
use std::borrow::Cow;
use towers_checkpoint::Tensors;
use towers_layers::{Step, Value};
use towers_models::Model;
use towers_program::{Op, ops};

/// A trained network, as the writers of this crate take it. By [default](Source::of) pixels go in as they are, and the classes are
/// called by their numbers.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    pub(crate) name: &'a str,
    /// Height, width and channels of its pictures.
    pub(crate) image: [usize; 3],
    /// The images that go in.
    pub(crate) input: Value,
    pub(crate) steps: Vec<Step>,
    /// The scores that come out.
    pub(crate) logits: Value,
    pub(crate) tensors: &'a Tensors,
    pub(crate) pixels: Pixels,
    pub(crate) classes: Cow<'a, [String]>,
    pub(crate) dataset: Option<&'a str>,
    /// Whether an image has any number of classes, so that each score has a sigmoid of its own.
    pub(crate) multi_label: bool,
}

impl<'a> Source<'a> {
    /// A network with its parameters under the names of their slots, as [`tensors`](crate::tensors) gives them.
    pub fn of(model: &'a Model, tensors: &'a Tensors) -> Self {
        let (image, graph) = (model.image(), model.graph());
        Source {
            name: graph.name(),
            image,
            input: graph.input(),
            steps: model.steps(),
            logits: model.logits(),
            tensors,
            pixels: Pixels::unchanged(image[2]),
            classes: (0..model.classes()).map(|class| class.to_string()).collect(),
            dataset: None,
            multi_label: model.is_multi_label(),
        }
    }

    /// The same under another name.
    pub fn name(self, name: &'a str) -> Self {
        Source { name, ..self }
    }

    /// The same with what happens to pixels first.
    pub fn pixels(self, pixels: Pixels) -> Self {
        Source { pixels, ..self }
    }

    /// The same with the names of the classes, by label.
    pub fn classes(self, classes: &'a [String]) -> Self {
        Source { classes: classes.into(), ..self }
    }

    /// The same with the data set that the classes are of. Without it their names are only assumed.
    pub fn dataset(self, dataset: &'a str) -> Self {
        Source { dataset: Some(dataset), ..self }
    }
}

/// What turns values from 0 to 255 into the network's input: `x * scale + shift`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pixels {
    /// One number a channel.
    pub scale: Vec<f32>,
    /// One number a channel, or one for each value of an image, in the order (row, column, channel).
    pub shift: Vec<f32>,
}

impl Pixels {
    /// Values from 0 to 255 as they are, in this number of channels.
    pub fn unchanged(channels: usize) -> Self {
        Pixels { scale: vec![1.0; channels], shift: vec![0.0; channels] }
    }

    /// Values from 0 to 1, in this number of channels.
    pub fn to_one(channels: usize) -> Self {
        Pixels { scale: vec![1.0 / 255.0; channels], ..Pixels::unchanged(channels) }
    }
}

/// A tensor under the name and in the layout of PyTorch.
pub(crate) struct Weights {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Vec<f32>,
}

/// The op as PyTorch and ONNX have it: a depthwise convolution is one with a group for each channel.
pub(crate) fn grouped(op: Op) -> Op {
    match op {
        Op::DepthwiseForward(ops::DepthwiseForward { conv, act }) => {
            ops::Conv2dForward { conv: conv.grouped(), act }.into()
        }
        op => op,
    }
}

impl Source<'_> {
    /// Whether its one output is the logit of the second of two classes, whose sigmoid is a probability.
    pub(crate) fn has_one_output(&self) -> bool {
        let last = self.steps.iter().rev().find_map(|step| step.params.first());
        !self.multi_label && self.classes.len() == 2 && last.is_some_and(|spec| spec.shape.last() == Some(&1))
    }

    /// The shift as PyTorch lays out images: `(channels, 1, 1)`, or `(channels, rows, columns)`.
    pub(crate) fn shift(&self) -> Weights {
        let [h, w, c] = self.image;
        let (rows, columns) = if self.pixels.shift.len() == c { (1, 1) } else { (h, w) };
        let data = channels_first(&self.pixels.shift, rows * columns, c);
        Weights { name: layout::SHIFT.to_owned(), shape: vec![c, rows, columns], data }
    }

    /// The scale as `(channels, 1, 1)`.
    pub(crate) fn scale(&self) -> Weights {
        let shape = vec![self.image[2], 1, 1];
        Weights { name: layout::SCALE.to_owned(), shape, data: self.pixels.scale.clone() }
    }

    /// The tensors of a step, which is called `layer` there, under PyTorch's names and in its layout: kernels as
    /// `(outputs, inputs, rows, columns)` or `(outputs, inputs)`, `gamma` and `beta` of a normalization as its weight and bias.
    pub(crate) fn weights(&self, step: &Step, layer: &str) -> Result<Vec<Weights>> {
        let tensors = step.params.iter().map(|spec| {
            let name = format!("{}/{}", step.name, spec.name);
            let tensor = self.tensors.get(&name).filter(|tensor| tensor.shape() == spec.shape);
            let data = tensor.ok_or(Error::Tensor { name, shape: spec.shape.clone() })?.data();
            let own = layout::own(spec);
            let (name, shape) = (layout::name(layer, spec.name), layout::shape(&own));
            Ok(Weights { name, shape, data: layout::to_torch(&own, data) })
        });
        tensors.collect()
    }
}
