//! Several tensors as one, and what passes one on.

use super::axes::{Axes, Axis};
use super::elementwise::range;
use super::extent::{Extent, shown};
use super::fold::place;
use super::graph::{Of, Reader};
use super::node::Node;
use super::tensor::Tensor;
use super::term::Term;
use serde_json::json;

impl<'g> Reader<'g> {
    /// Whatever has the same numbers.
    pub(super) fn identity(&mut self, node: &Node<'g>) -> Result<Of, String> {
        Ok(self.tensor(node, 0)?.into())
    }

    /// Floats of other types: they are float32 here.
    pub(super) fn cast(&mut self, node: &Node<'g>) -> Result<Of, String> {
        node.int("saturate", 1)?;
        let to = node.int("to", 0)?;
        match to {
            1 | 11 => {}
            10 | 16 => self.is_half = true,
            to => return Err(node.form(format!("to another type than floats (its `to` is {to})"))),
        }
        self.identity(node)
    }

    /// Along the channels.
    pub(super) fn concat(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let mut all = (0..node.names().len()).map(|k| self.tensor(node, k)).collect::<Result<Vec<_>, _>>()?;
        let axis = if node.since(4) { node.given("axis")? } else { Some(node.int("axis", 1)?) };
        let axis = axis.ok_or_else(|| node.refuse("lacks its `axis`"))?;
        let first = all.first().ok_or_else(|| node.unknown())?.clone();
        let refuse = || node.form(format!("of the axis {axis}"));
        let at = place(axis, first.axes.len()).ok_or_else(refuse)?;
        if all.len() == 1 {
            return Ok(first.into());
        }
        if let Some(whole) = self.whole(node, &all, at)? {
            return Ok(whole);
        }
        let alike =
            |x: &Tensor| x.axes.len() == first.axes.len() && x.axes.single(&[at]) == first.axes.single(&[at]);
        let is_channels = |x: &Tensor| x.kinds().get(at) == Some(&Axis::Channels);
        if !all.iter().all(|x| alike(x) && is_channels(x) && x.shape.len() == first.shape.len()) {
            // As images or vectors, whatever they are made of.
            if at != 1 || all.iter().any(|x| x.axes.len() != first.axes.len()) {
                return Err(refuse());
            }
            for (k, x) in all.iter_mut().enumerate() {
                let layer = self.layer(node, k)?;
                *x = Tensor::of(layer.clone(), self.shape(&layer));
            }
        }
        let parts = all.into_iter().map(|x| self.base(x)).collect::<Result<Vec<_>, _>>()?;
        let channels = parts.iter().map(|x| x.shape[1].known()).sum::<Option<i64>>();
        let mut shape = parts[0].shape.clone();
        shape[1] = channels.map_or_else(|| self.new_size(), Extent::number);
        let (first, inputs) = (parts[0].clone(), parts.into_iter().map(|x| x.layer).collect());
        match self.plain(node, "Concatenate", json!({}), inputs, shape.clone()) {
            Of::Layer(layer) if first.is_plain() => {
                let axes = Axes::of(&shape);
                Ok(Tensor { layer, term: Term::leaf(), shape, axes, len: None }.into())
            }
            Of::Layer(layer) => Ok(first.beside(layer, shape).into()),
            other => Ok(other),
        }
    }

    /// All channels of one layer's output in their order, each with its own scale and offset: torchvision's
    /// `transform_input`.
    fn whole(&mut self, node: &Node<'g>, all: &[Tensor], at: usize) -> Result<Option<Of>, String> {
        let Some(ranges) = all.iter().map(range).collect::<Option<Vec<_>>>() else { return Ok(None) };
        let (first, of) = (&all[0], &ranges[0].4);
        let (mut next, mut scale, mut offset) = (0, Vec::new(), Vec::new());
        for (x, (from, len, scales, offsets, own)) in all.iter().zip(&ranges) {
            let fits = *from == next && own == of && x.layer == first.layer && x.is_plain() && at == 1;
            if !fits {
                return Ok(None);
            }
            next += len;
            scale.extend(scales);
            offset.extend(offsets);
        }
        let shape = self.shape(&first.layer);
        if !of.is_leaf() || shape.get(1) != Some(&Extent::number(next)) {
            return Ok(None);
        }
        let scaled = Term::affine("Mul", of, &scale, "", node)?;
        let term = Term::affine("Add", &scaled, &offset, "", node)?;
        let whole = Tensor::of(first.layer.clone(), shape);
        let is_same = scale.iter().all(|&x| x == 1.0) && offset.iter().all(|&x| x == 0.0);
        Ok(Some(if is_same { whole.into() } else { whole.with_term(term).into() }))
    }

    pub(super) fn dropout(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let rate = match node.since(12) {
            true => self.number(node, 1)?.unwrap_or(0.5),
            false => node.float("ratio", 0.5)?,
        };
        if !node.since(7) {
            node.flag("is_test", false)?;
        }
        // A graph that PyTorch wrote for training says so. It is what training does here too, and nothing
        // else.
        self.constant(node, 2)?;
        node.given("seed")?;
        self.pointwise(node, "Dropout", json!({"rate": rate}), Vec::new())
    }

    /// A softmax over the channels. The loss has it.
    pub(super) fn softmax(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let x = self.tensor(node, 0)?;
        let seen = x.seen();
        // Before version 13, of all that is behind the axis.
        let axis = node.int("axis", if node.since(13) { -1 } else { 1 })?;
        let is_vector = seen.iter().skip(2).all(Extent::is_one);
        if !is_vector || ![1, 1 - seen.len() as i64].contains(&axis) {
            return Err(node.form(format!("of the axis {axis} of {}", shown(&seen))));
        }
        let layer = self.layer(node, 0)?;
        let shape = self.shape(&layer);
        Ok(self.plain(node, "Activation", json!({"activation": "softmax"}), vec![layer], shape))
    }
}
