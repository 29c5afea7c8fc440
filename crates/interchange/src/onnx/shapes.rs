//! Operators that compute nothing: they change the axes of a tensor, or read its shape.

use super::constants::Constant;
use super::extent::{Extent, count, reshaped, shown};
use super::fold::{part, place};
use super::graph::{Of, Reader};
use super::node::Node;
use super::tensor::Tensor;

impl<'g> Reader<'g> {
    pub(super) fn flatten(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let x = self.tensor(node, 0)?;
        match node.int("axis", 1)? {
            axis if [1, 1 - x.axes.len() as i64].contains(&axis) => self.vector(node, x),
            axis => Err(node.form(format!("at the axis {axis}"))),
        }
    }

    /// A vector of all the numbers of an image.
    fn vector(&mut self, node: &Node<'g>, x: Tensor) -> Result<Of, String> {
        let seen = x.seen();
        let long = seen.get(1..).and_then(count).ok_or_else(|| node.unknown())?;
        self.with_shape(node, x, &[seen[0].clone(), long])
    }

    /// A tensor with axes of these extents.
    fn with_shape(&mut self, node: &Node<'g>, x: Tensor, to: &[Extent]) -> Result<Of, String> {
        match x.axes.reshaped(to) {
            Some(axes) => Ok(Tensor { axes, ..x }.into()),
            None => Err(node.form(format!("from {} to {}", shown(&x.seen()), shown(to)))),
        }
    }

    /// A tensor of another shape with the same numbers again and again. Products and sums do that themselves, so the node that reads
    /// this one must be such.
    pub(super) fn expand(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let to = self.constant(node, 1)?.and_then(Constant::as_numbers).map(<[Extent]>::to_vec);
        let x = self.tensor(node, 0)?;
        let (seen, to) = (x.seen(), to.ok_or_else(|| node.unknown())?);
        let extent = |(own, to): (&Extent, &Extent)| match own.is_one() {
            true => Some(to.clone()),
            false => (own == to || to.is_one()).then(|| own.clone()),
        };
        let shape: Option<Vec<Extent>> = seen.iter().zip(&to).map(extent).collect();
        match shape.filter(|_| seen.len() == to.len()) {
            Some(shape) if shape == seen => {}
            Some(shape) => _ = self.spread.insert(node.output(), shape),
            None => return Err(node.form(format!("from {} to {}", shown(&seen), shown(&to)))),
        }
        Ok(x.into())
    }

    pub(super) fn squeeze(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let axes = self.axes(node, 13)?;
        let x = self.tensor(node, 0)?;
        let seen = x.seen();
        let refuse = || {
            let axes = axes.as_ref().map_or(String::new(), |axes| format!(" at the axes {axes:?}"));
            node.form(format!("of {}{axes}", shown(&seen)))
        };
        let at: Option<Vec<usize>> = match &axes {
            None => Some((0..seen.len()).filter(|&k| seen[k].is_one()).collect()),
            Some(axes) => axes.iter().map(|&axis| place(axis, seen.len())).collect(),
        };
        let at = at.filter(|at| at.iter().all(|&k| k > 0 && seen[k].is_one())).ok_or_else(refuse)?;
        let axes = x.axes.without(&at);
        Ok(Tensor { axes, ..x }.into())
    }

    pub(super) fn unsqueeze(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let axes = self.axes(node, 13)?.unwrap_or_default();
        let x = self.tensor(node, 0)?;
        let rank = x.axes.len() + axes.len();
        let at: Option<Vec<usize>> = axes.iter().map(|&axis| place(axis, rank)).collect();
        let mut at = at.ok_or_else(|| node.unknown())?;
        at.sort_unstable();
        let distinct = at.windows(2).all(|pair| pair[0] != pair[1]);
        match x.axes.unsqueezed(&at).filter(|_| distinct && rank < 64) {
            Some(axes) => Ok(Tensor { axes, ..x }.into()),
            None => Err(node.form(format!("of {} at the axes {axes:?}", shown(&x.seen())))),
        }
    }

    pub(super) fn transpose(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let x = self.tensor(node, 0)?;
        let order = match node.ints("perm")? {
            Some(order) => order.to_vec(),
            None => (0..x.axes.len() as i64).rev().collect(),
        };
        match x.axes.permuted(&order) {
            Some(axes) => Ok(Tensor { axes, ..x }.into()),
            None => Err(node.form(format!("of {} with perm={order:?}", shown(&x.seen())))),
        }
    }

    pub(super) fn reshape(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let to = match node.since(5) {
            true => {
                let to = self.constant(node, 1)?.filter(|to| to.shape.len() == 1);
                to.and_then(|to| Some(to.as_numbers()?.to_vec()))
            }
            false => node.ints("shape")?.map(|to| to.iter().map(|&n| Extent::number(n)).collect()),
        };
        let to = to.ok_or_else(|| node.form("without whole numbers as its shape"))?;
        let zero_copies = !node.flag("allowzero", false)?;
        let x = self.tensor(node, 0)?;
        let seen = x.seen();
        let refuse = || node.form(format!("from {} to {}", shown(&seen), shown(&to)));
        if let Some(shape) = reshaped(&to, &seen, zero_copies)
            && let Some(axes) = x.axes.reshaped(&shape)
        {
            return Ok(Tensor { axes, ..x }.into());
        }
        // Images of an open size: when they come, they must have just so many numbers.
        let long = seen.get(1..).and_then(count).ok_or_else(refuse)?;
        let [first, len] = &to[..] else { return Err(refuse()) };
        let len = len.known().filter(|&len| len > 0 && long.known().is_none()).ok_or_else(refuse)?;
        let is_batch = match first.known() {
            Some(0) => zero_copies,
            Some(-1) => true,
            _ => *first == seen[0],
        };
        let axes = x.axes.reshaped(&[seen[0].clone(), long]).filter(|_| is_batch).ok_or_else(refuse)?;
        Ok(Tensor { axes, len: Some(len), ..x }.into())
    }

    /// The shape of a tensor as a tensor.
    pub(super) fn shape_as_value(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let seen = self.tensor(node, 0)?.seen();
        Ok(Of::Constant(Constant::numbers(part(node, &seen)?)))
    }
}
