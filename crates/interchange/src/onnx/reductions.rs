//! Means and largest numbers over axes, and parts of the channels.

use super::axes::Axis;
use super::extent::{Extent, shown};
use super::fold::{place, range_of, ranges};
use super::graph::{Of, Reader};
use super::lower::Tensor;
use super::node::Node;
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
            true => super::axes::Axes::of(&shape),
            false => x.axes.with_channels(&shape[1]),
        };
        Tensor { shape, axes, term, ..x.clone() }
    }

    /// A channel, as an image without channels or as one with one channel.
    pub(super) fn gather(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let at = self.constant(node, 1)?.cloned();
        let x = self.tensor(node, 0)?;
        let at =
            at.filter(|at| at.shape.len() < 2).and_then(|at| Some((at.shape.len(), at.known_numbers()?)));
        let axis = place(node.int("axis", 0)?, x.axes.len());
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
        let mut x = self.tensor(node, 0)?;
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

    /// Ranges of channels that follow one another.
    pub(super) fn split(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let given = match node.since(13) {
            true => match self.constant(node, 1)? {
                None => None,
                Some(given) => Some(given.known_numbers().ok_or_else(|| node.unknown())?),
            },
            false => node.ints("split")?.map(<[i64]>::to_vec),
        };
        let parts = node.all_outputs();
        if let Some(named) = node.given("num_outputs")?
            && named != parts.len() as i64
        {
            return Err(node.form(format!("of num_outputs={named} into {}", parts.len())));
        }
        let axis = node.int("axis", 0)?;
        let x = self.tensor(node, 0)?;
        let at = place(axis, x.axes.len()).filter(|&at| x.kinds()[at] == Axis::Channels);
        let channels = at.and(x.shape[1].known());
        let refuse = || node.form(format!("of the axis {axis} of {}", shown(&x.seen())));
        let channels = channels.ok_or_else(refuse)?;
        // Equal parts, but the last one may be smaller.
        let each = (channels + parts.len() as i64 - 1) / parts.len() as i64;
        let lens = given.unwrap_or_else(|| {
            let from = (0..parts.len() as i64).map(|k| k * each);
            from.map(|from| each.min(channels - from)).collect()
        });
        if lens.len() != parts.len()
            || lens.iter().any(|&len| len < 1)
            || lens.iter().sum::<i64>() != channels
        {
            return Err(node.form(format!("of {} into {lens:?}", shown(&x.seen()))));
        }
        let (mut from, mut all) = (0, Vec::new());
        for (&name, &len) in parts.iter().zip(&lens) {
            all.push((name, self.channels(node, &x, from, len).into()));
            from += len;
        }
        let first: Of = all.remove(0).1;
        self.further = all.into_iter().filter(|(name, _)| !name.is_empty()).collect();
        Ok(first)
    }
}
