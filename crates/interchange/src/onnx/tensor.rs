//! A value of a graph that depends on the images.

use super::axes::{Axes, Axis};
use super::extent::Extent;
use super::term::Term;
use std::sync::Arc;

/// A tensor that depends on the images: a function of a layer's output, and how its axes lie.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) layer: String,
    pub(super) term: Arc<Term>,
    /// Of the term, in the order of layers.
    pub(super) shape: Vec<Extent>,
    pub(super) axes: Axes,
    /// How many numbers a flattened image must have, if the graph says so of images of an open size.
    pub(super) len: Option<i64>,
}

impl Tensor {
    /// The output of a layer.
    pub(super) fn of(layer: String, shape: Vec<Extent>) -> Self {
        let axes = Axes::of(&shape);
        Tensor { layer, term: Term::leaf(), shape, axes, len: None }
    }

    pub(super) fn with_term(self, term: Arc<Term>) -> Self {
        Tensor { term, ..self }
    }

    /// What its axes are.
    pub(super) fn kinds(&self) -> Vec<Axis> {
        match self.is_plain() {
            true => [Axis::Batch, Axis::Channels, Axis::Rows, Axis::Columns][..self.shape.len()].to_vec(),
            false => self.axes.kinds(&self.shape),
        }
    }

    /// Whether the axes are those of the layer.
    pub(super) fn is_plain(&self) -> bool {
        self.axes == Axes::of(&self.shape)
    }

    /// Its shape as the graph has it.
    pub(super) fn seen(&self) -> Vec<Extent> {
        self.axes.shape().unwrap_or_default()
    }

    /// Another layer's output of another shape, whose axes lie as these.
    pub(super) fn beside(&self, layer: String, shape: Vec<Extent>) -> Self {
        let axes = self.axes.with_channels(&shape[1]);
        Tensor { layer, term: Term::leaf(), shape, axes, len: self.len }
    }
}
