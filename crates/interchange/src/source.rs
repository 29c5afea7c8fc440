use crate::layout::channels_first;
use crate::{Error, Result, layout};
use checkpoint::Tensors;
use layers::{Step, Value};
use program::{Op, ops};

/// A trained network, as the writers of this crate take it.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    /// The network's name.
    pub name: &'a str,
    /// Height, width and channels of its pictures.
    pub image: [usize; 3],
    /// The images that go in.
    pub input: Value,
    /// Its layers.
    pub steps: Vec<Step>,
    /// The scores that come out.
    pub logits: Value,
    /// The parameters, under the names of their slots.
    pub tensors: &'a Tensors,
    /// What happens to pixels first.
    pub pixels: Pixels,
    /// The names of the classes, by label.
    pub classes: &'a [String],
    /// The data set that the classes are of; `None` where their names are only assumed.
    pub dataset: Option<&'a str>,
}

/// What turns values from 0 to 255 into the network's input: `x * scale + shift`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pixels {
    /// One number a channel.
    pub scale: Vec<f32>,
    /// One number a channel, or one for each value of an image, in the order (row, column, channel).
    pub shift: Vec<f32>,
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
        self.classes.len() == 2 && last.is_some_and(|spec| spec.shape.last() == Some(&1))
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
