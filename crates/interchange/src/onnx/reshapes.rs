//! Operators that change the shape of a tensor, or read it.

use super::constants::Constant;
use super::extent::{Extent, count, makes, shown};
use super::graph::{Of, Part, Reader};
use super::node::Node;
use serde_json::json;

impl<'g> Reader<'g> {
    /// The shape of a node's first operand, if that is an image or a vector.
    fn shape_of(&self, node: &Node<'g>) -> Result<Vec<Extent>, String> {
        match self.value(node, 0)? {
            Some(Of::Layer(x) | Of::Part(Part::Sigmoid, x)) => Ok(self.shape(x)),
            Some(Of::Pooled(_, x)) => {
                let mut shape = self.shape(x);
                shape.iter_mut().skip(2).for_each(|side| *side = Extent::number(1));
                Ok(shape)
            }
            Some(Of::Transposed(x)) => match &self.shape(x)[..] {
                [batch, channels, rows, columns] => {
                    Ok([batch, rows, columns, channels].map(Extent::clone).into())
                }
                _ => Err(node.unknown()),
            },
            _ => Err(node.unknown()),
        }
    }

    /// A vector of all the numbers of an image; `len` is how many there must be, if the graph says so of
    /// images of an open size.
    fn vector(&mut self, node: &Node<'g>, len: Option<i64>) -> Result<Of, String> {
        let shape = self.shape_of(node)?;
        let long = count(&shape[1..]).ok_or_else(|| node.unknown())?;
        let shape = vec![shape[0].clone(), len.map_or(long, Extent::number)];
        match self.value(node, 0)?.cloned() {
            Some(Of::Pooled(class, x)) => Ok(self.plain(node, class, json!({}), vec![x], shape)),
            Some(Of::Transposed(x)) => Ok(self.plain(node, "Flatten", json!({}), vec![x], shape)),
            _ => {
                let x = self.layer(node, 0)?;
                if self.shape(&x).len() == 2 {
                    return Ok(Of::Layer(x));
                }
                let flat = self.plain(node, "Flatten", json!({}), vec![x], shape);
                if let Of::Layer(name) = &flat {
                    let len = len.and_then(|len| usize::try_from(len).ok());
                    self.flattened.insert(name.clone(), len);
                }
                Ok(flat)
            }
        }
    }

    pub(super) fn flatten(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let axes = self.shape_of(node)?.len() as i64;
        match node.int("axis", 1)? {
            axis if [1, 1 - axes].contains(&axis) => self.vector(node, None),
            axis => Err(node.form(format!("at the axis {axis}"))),
        }
    }

    /// Removes rows and columns of a 1x1 image, in one step or in two.
    pub(super) fn squeeze(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let axes = self.axes(node, 13)?;
        let (squeezed, x) = match self.value(node, 0)? {
            Some(Of::Part(Part::Squeezed, x)) => (true, x.clone()),
            _ => (false, String::new()),
        };
        let shape = if squeezed { self.shape(&x) } else { self.shape_of(node)? };
        let is_single = shape.len() == 4 && shape[2..].iter().all(|side| *side == Extent::number(1));
        let axis = |axis: i64| if axis < 0 { axis + if squeezed { 3 } else { 4 } } else { axis };
        let axes = axes.map(|axes| axes.into_iter().map(axis).collect::<Vec<_>>());
        match axes.as_deref() {
            Some([2]) if squeezed && is_single => {
                let shape = vec![shape[0].clone(), shape[1].clone()];
                let flat = self.plain(node, "Flatten", json!({}), vec![x], shape);
                Ok(flat)
            }
            None | Some([2, 3] | [3, 2]) if !squeezed && is_single => self.vector(node, None),
            Some([2 | 3]) if !squeezed && is_single => Ok(Of::Part(Part::Squeezed, self.layer(node, 0)?)),
            axes => {
                let axes = axes.map_or(String::new(), |axes| format!(" at the axes {axes:?}"));
                Err(node.form(format!("of {}{axes}", shown(&shape))))
            }
        }
    }

    pub(super) fn reshape(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let to = self.constant(node, 1)?.filter(|to| to.shape.len() == 1);
        let to = to.and_then(|to| Some(to.as_numbers()?.to_vec()));
        let to = to.ok_or_else(|| node.form("without whole numbers as its shape"))?;
        let zero_copies = !node.flag("allowzero", false)?;
        if let Some(Of::Part(Part::Normalized(groups, epsilon), x)) = self.value(node, 0)?.cloned() {
            let shape = self.shape(&x);
            let from = grouped(&shape, groups).ok_or_else(|| node.unknown())?;
            return match makes(&to, &from, &shape, zero_copies) {
                true => Ok(Of::Part(Part::Ungrouped(groups, epsilon), x)),
                false => Err(node.form(format!("from {} to {}", shown(&from), shown(&to)))),
            };
        }
        let from = self.shape_of(node)?;
        let makes = |shape: &[Extent]| makes(&to, &from, shape, zero_copies);
        let refuse = || Err(node.form(format!("from {} to {}", shown(&from), shown(&to))));
        let is_layer = matches!(self.value(node, 0)?, Some(Of::Layer(_) | Of::Part(Part::Sigmoid, _)));
        if is_layer && makes(&from) {
            return Ok(Of::Layer(self.layer(node, 0)?));
        }
        match &to[..] {
            [_, groups, _] if is_layer => {
                let groups = groups.known().ok_or_else(|| node.unknown())?;
                match grouped(&from, groups) {
                    Some(shape) if makes(&shape) => Ok(Of::Part(Part::Grouped(groups), self.layer(node, 0)?)),
                    _ => refuse(),
                }
            }
            [_, len] => {
                let long = count(&from[1..]).ok_or_else(|| node.unknown())?;
                let (batch, known) = (from[0].clone(), len.known().filter(|&len| len > 0));
                if makes(&[batch.clone(), long.clone()]) {
                    return self.vector(node, None);
                }
                // Images of an open size: when they come, they must have just so many numbers.
                match known.filter(|_| long.known().is_none()) {
                    Some(len) if makes(&[batch, Extent::number(len)]) => self.vector(node, Some(len)),
                    _ => refuse(),
                }
            }
            _ => refuse(),
        }
    }

    /// The shape of a tensor as a tensor.
    pub(super) fn shape_as_value(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let all = self.shape_of(node)?;
        let place = |key: &str, default: usize| {
            let at = node.int(key, default as i64)?;
            let at = if at < 0 { at + all.len() as i64 } else { at };
            Ok::<_, String>(at.clamp(0, all.len() as i64) as usize)
        };
        let (start, end) = (place("start", 0)?, place("end", all.len())?);
        Ok(Of::Constant(Constant::numbers(all.get(start..end).unwrap_or_default().to_vec())))
    }

    /// The mean or the largest number over rows and columns, as PyTorch's `mean((2, 3))` and
    /// `AdaptiveAvgPool2d(1)`.
    pub(super) fn reduce(&mut self, node: &Node<'g>, class: &'static str) -> Result<Of, String> {
        let axes = self.axes(node, 18)?.unwrap_or_default();
        let keeps = node.flag("keepdims", true)?;
        node.only("noop_with_empty_axes", 0)?;
        let (x, _) = self.image(node, 0)?;
        let mut axes: Vec<i64> = axes.iter().map(|&axis| if axis < 0 { axis + 4 } else { axis }).collect();
        axes.sort_unstable();
        if axes != [2, 3] {
            return Err(node.form(format!("over the axes {axes:?}")));
        }
        if keeps {
            return Ok(Of::Pooled(class, x));
        }
        let shape = self.shape(&x)[..2].to_vec();
        Ok(self.plain(node, class, json!({}), vec![x], shape))
    }
}

/// The shape of images whose channels are put into groups.
fn grouped(shape: &[Extent], groups: i64) -> Option<Vec<Extent>> {
    let [batch, channels, rows, columns] = shape else { return None };
    let each = channels.known().filter(|channels| groups > 0 && channels % groups == 0)? / groups;
    let each = Extent::number(each).times(rows)?.times(columns)?;
    Some(vec![batch.clone(), Extent::number(groups), each])
}
