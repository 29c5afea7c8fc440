//! `ZeroPadding2D` becomes the padding of the layers behind it, if all of them can take it and compute the same.

use super::options::Options;
use towers_layers::{Graph, Padding, Result, Value};
use towers_program::Pad;

/// A layer's output, with zeros around it that the next layer adds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensor {
    pub(super) value: Value,
    zeros: Pad,
    /// Whether it has no negative numbers, so that zeros around it don't change a maximum.
    pub(super) is_never_negative: bool,
}

impl Tensor {
    /// Without zeros, of any numbers.
    pub(super) fn of(value: Value) -> Self {
        Tensor { value, zeros: Pad::VALID, is_never_negative: false }
    }

    pub(super) fn is_padded(&self) -> bool {
        self.zeros != Pad::VALID
    }

    /// The same with more zeros.
    pub(super) fn with_zeros(self, more: Pad) -> Self {
        Tensor { zeros: both(self.zeros, more), ..self }
    }

    /// The zeros around it that are still to be added.
    pub(super) fn zeros(&self) -> Pad {
        self.zeros
    }

    /// The value, for a layer that can't add zeros: then the layers before it have done that.
    pub(super) fn without_zeros(&self, reader: &Options<'_>) -> Result<Value> {
        if self.is_padded() {
            return Err(reader.refuse("the zeros before it have no layer that adds them"));
        }
        Ok(self.value)
    }

    /// The padding of a layer with these windows, with the zeros before it.
    pub(super) fn padding(
        &self,
        graph: &Graph,
        own: Padding,
        kernel: [usize; 2],
        stride: [usize; 2],
    ) -> Padding {
        if !self.is_padded() {
            return own;
        }
        let shape = graph.shape(self.value);
        let (h, w) =
            (shape.h + self.zeros.top + self.zeros.bottom, shape.w + self.zeros.left + self.zeros.right);
        Padding::Sides(match own {
            Padding::Same => both(self.zeros, Pad::same(h, w, kernel, stride)),
            Padding::Sides(pad) => both(self.zeros, pad),
            _ => self.zeros,
        })
    }
}

fn both(a: Pad, b: Pad) -> Pad {
    Pad {
        top: a.top.saturating_add(b.top),
        bottom: a.bottom.saturating_add(b.bottom),
        left: a.left.saturating_add(b.left),
        right: a.right.saturating_add(b.right),
    }
}
