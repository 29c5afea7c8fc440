//! Means and largest numbers over axes, and parts of the channels.

use super::axes::{Axes, Axis};
use super::constants::Constant;
use super::extent::{Extent, shown};
use super::fold::{place, range_of, ranges};
use super::graph::{Of, Reader};
use super::node::Node;
use super::tensor::Tensor;
use super::term::{Kind, Term};
use std::sync::Arc;

impl<'g> Reader<'g> {
    /// The mean or the largest number over rows and columns, as PyTorch's `mean((2, 3))` and
    /// `AdaptiveAvgPool2d(1)`, or the mean over the channels, as a part of a layer normalization.
    pub(super) fn reduce(&mut self, node: &Node<'g>, class: &'static str) -> Result<Of, String> {
        let axes = self.axes(node, 18)?.unwrap_or_default();
        let keeps = node.flag("keepdims", true)?;
        node.only("noop_with_empty_axes", 0)?;
        let x = self.tensor(node, 0)?;
        let at: Option<Vec<usize>> = axes.iter().map(|&axis| place(axis, x.axes.len())).collect();
        let refuse = || node.form(format!("over the axes {axes:?} of {}", shown(&x.seen())));
        let at = at.filter(|at| !at.is_empty()).ok_or_else(refuse)?;
        let kinds = x.kinds();
        let mut over: Vec<Axis> = at.iter().map(|&k| kinds[k]).filter(|kind| *kind != Axis::Single).collect();
        over.sort_by_key(|kind| *kind as usize);
        let (kind, from): (Kind, usize) = match &over[..] {
            [Axis::Rows, Axis::Columns] | [Axis::Pixels] => (Kind::Pooled(class, Arc::clone(&x.term)), 2),
            // Of one pixel already.
            [] if x.shape.len() == 4
                && x.shape[2..].iter().all(Extent::is_one)
                && at.iter().all(|&k| k > 1) =>
            {
                (Kind::Pooled(class, Arc::clone(&x.term)), 2)
            }
            [Axis::Channels] if class == "GlobalAveragePooling2D" => (Kind::Mean(Arc::clone(&x.term)), 1),
            _ => return Err(refuse()),
        };
        let mut shape = x.shape.clone();
        let behind = if from == 1 { 1..2 } else { 2..shape.len() };
        shape[behind].iter_mut().for_each(|side| *side = Extent::number(1));
        let axes = if keeps { x.axes.single(&at) } else { x.axes.without(&at) };
        let term = Term::kind(kind, node);
        Ok(Tensor { shape, axes, term, ..x }.into())
    }

    /// Of all rows and columns.
    pub(super) fn global_pooling(&mut self, node: &Node<'g>, class: &'static str) -> Result<Of, String> {
        let (x, _) = self.image(node, 0)?;
        let mut shape = self.shape(&x);
        shape.resize(4, Extent::number(1));
        shape[2..].iter_mut().for_each(|side| *side = Extent::number(1));
        let term = Term::kind(Kind::Pooled(class, Term::leaf()), node);
        Ok(Tensor::of(x, shape).with_term(term).into())
    }

    /// Channels from `start` on, `len` of them.
    pub(super) fn channels(&mut self, node: &Node<'g>, x: &Tensor, start: i64, len: i64) -> Tensor {
        if x.shape[1] == Extent::number(len) {
            return x.clone();
        }
        let (from, of) = match &x.term.kind {
            Kind::Channels(from, _, of) => (from + start, Arc::clone(of)),
            _ => (start, Arc::clone(&x.term)),
        };
        let term = Term::kind(Kind::Channels(from, len, of), node);
        let mut shape = x.shape.clone();
        shape[1] = Extent::number(len);
        let axes = match x.is_plain() {
            true => Axes::of(&shape),
            false => x.axes.with_channels(&shape[1]),
        };
        Tensor { shape, axes, term, ..x.clone() }
    }

    /// A channel, as an image without channels or as one with one channel.
    pub(super) fn gather(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let at = self.constant(node, 1)?.cloned();
        let x = self.with_channels(node)?;
        let axis = place(node.int("axis", 0)?, x.axes.len());
        if let Some(axes) = at.as_ref().and_then(|at| strided(&x, at)) {
            return Ok(Tensor { axes, ..x }.into());
        }
        let at =
            at.filter(|at| at.shape.len() < 2).and_then(|at| Some((at.shape.len(), at.known_numbers()?)));
        let (Some((rank, at)), Some(axis)) = (at, axis) else { return Err(node.unknown()) };
        let channels = (x.kinds()[axis] == Axis::Channels).then(|| x.shape[1].known()).flatten();
        let places: Option<Vec<usize>> =
            channels.and_then(|channels| at.iter().map(|&at| place(at, channels as usize)).collect());
        let Some(places) = places.filter(|places| places.windows(2).all(|pair| pair[0] + 1 == pair[1]))
        else {
            return Err(node.form(format!("of {:?} along the axis {axis} of {}", at, shown(&x.seen()))));
        };
        let Some(&first) = places.first() else { return Err(node.unknown()) };
        let part = self.channels(node, &x, first as i64, places.len() as i64);
        let axes = if rank == 0 { part.axes.without(&[axis]) } else { part.axes.clone() };
        Ok(Tensor { axes, ..part }.into())
    }

    /// The operand of which channels are taken. Shuffled ones become a layer first.
    fn with_channels(&mut self, node: &Node<'g>) -> Result<Tensor, String> {
        let x = self.tensor(node, 0)?;
        if x.axes.shuffled(&x.shape).is_none() {
            return Ok(x);
        }
        let layer = self.layer(node, 0)?;
        let shape = self.shape(&layer);
        Ok(Tensor::of(layer, shape))
    }

    /// Parts of the channels. The first one is given back.
    pub(super) fn split(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let sizes = match node.since(13) {
            true if node.operand(1).is_some() => {
                let sizes = self.constant(node, 1)?.and_then(|own| own.known_numbers());
                Some(sizes.ok_or_else(|| node.form("without whole numbers as its parts"))?)
            }
            true => None,
            false => node.ints("split")?.map(<[i64]>::to_vec),
        };
        let count = node.output_names().len();
        node.only("num_outputs", count as i64)?;
        let x = self.with_channels(node)?;
        let axis = place(node.int("axis", 0)?, x.axes.len()).ok_or_else(|| node.unknown())?;
        let channels = x.seen()[axis].known().filter(|_| x.kinds()[axis] == Axis::Channels);
        let Some(channels) = channels else {
            return Err(node.form(format!("of the axis {axis} of {}", shown(&x.seen()))));
        };
        // Without sizes all parts have as many but the last.
        let each = (channels - 1) / count as i64 + 1;
        let sizes = sizes
            .unwrap_or_else(|| (0..count as i64).map(|k| (channels - k * each).clamp(0, each)).collect());
        let all = sizes.iter().fold(0_i64, |sum, &size| sum.saturating_add(size));
        if sizes.len() != count || all != channels || sizes.iter().any(|&size| size < 1) {
            return Err(node.form(format!("of {channels} channels into {sizes:?}")));
        }
        let (mut from, mut parts) = (0, Vec::new());
        for (name, len) in node.output_names().zip(sizes) {
            parts.push((name, Of::from(self.channels(node, &x, from, len))));
            from += len;
        }
        let (_, first) = parts.remove(0);
        self.parts = parts.into_iter().filter(|(name, _)| !name.is_empty()).collect();
        Ok(first)
    }

    /// A range of channels.
    pub(super) fn slice(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let mut all: [Option<Vec<i64>>; 4] = Default::default();
        if node.since(10) {
            for (k, own) in all.iter_mut().enumerate() {
                *own = self.constant(node, k + 1)?.and_then(|own| own.known_numbers());
                if own.is_none() && node.operand(k + 1).is_some() {
                    return Err(node.form("without whole numbers as its range"));
                }
            }
        }
        let mut x = self.with_channels(node)?;
        let ranges = ranges(node, &all, x.axes.len())?.ok_or_else(|| node.unknown())?;
        for (axis, start, end, step) in ranges {
            let extent = x.seen()[axis].clone();
            // All of an axis, of whatever extent.
            if start == 0
                && step == 1
                && (end >= i64::from(i32::MAX) || extent.known().is_some_and(|n| end >= n))
            {
                continue;
            }
            if step == 1
                && let Some(cut) = self.without_border(node, &x, axis, [start, end])?
            {
                x = cut;
                continue;
            }
            let known = extent.known().filter(|_| x.kinds()[axis] == Axis::Channels && step == 1);
            let range = known.map(|extent| range_of(extent, start, end)).filter(|(from, to)| from < to);
            let Some((from, to)) = range else {
                return Err(node.form(format!(
                    "from {start} to {end} in steps of {step} of the axis {axis} of {}",
                    shown(&x.seen())
                )));
            };
            x = self.channels(node, &x, from, to - from);
        }
        Ok(x.into())
    }
}

/// The axes of all numbers in their order, in another shape: what PyTorch's newer exporter makes of `as_strided`.
fn strided(x: &Tensor, at: &Constant) -> Option<Axes> {
    let in_order =
        x.axes.len() == 1 && at.known_numbers()?.into_iter().eq(0..at.shape.iter().product::<usize>() as i64);
    let shape: Vec<Extent> = at.shape.iter().map(|&n| Extent::number(n as i64)).collect();
    x.axes.reshaped(&shape).filter(|_| in_order && at.shape.len() > 1)
}
