//! Sums: in which memory they are computed, whose gradients share one, and how a pass computes them.
//!
//! A sum and its operands hold different numbers, but never all at once. The operand that is computed last is often read by the
//! sum alone: then it is computed where the sum will lie, and the other one is added to it there. On the way back the gradient of
//! the sum is that of both operands. So the first one's has the same memory too; and the other one's, unless somebody adds to it
//! what the first one would take for its own.

use super::graph::{Graph, Kind, Node, Value};
use super::lane::BuiltStep;
use super::plan::{BackwardStep, Tenant};
use super::pools::Pools;
use super::uses::Placement;
use crate::Add;
use tensor::{Backend, Device, Result, Write};

/// The operands of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operands {
    /// What the sum begins with.
    pub(super) first: Value,
    /// Whether that is computed where the sum lies, and need not be copied there.
    pub(super) in_place: bool,
    /// What is added to it.
    pub(super) second: Value,
}

/// The operand that is copied to where the sum lies, and how its gradient is written; `None` where it isn't.
#[derive(Clone, Copy)]
pub(super) struct Copied {
    pub(super) from: Tenant,
    pub(super) gradient: Option<(Tenant, Write)>,
}

impl Graph {
    /// The operands of a node, where it is a sum.
    pub(super) fn operands(&self, node: &Node, output: Value) -> Option<Operands> {
        let (Kind::Add(_), &[a, b]) = (&node.kind, &node.inputs[..]) else { return None };
        // Values are numbered as they are computed.
        let (early, late) = if a.0 < b.0 { (a, b) } else { (b, a) };
        let lent = [late, early].map(|value| value != output && self.is_lent(value));
        Some(match lent {
            [false, true] => Operands { first: early, in_place: true, second: late },
            [in_place, _] => Operands { first: late, in_place, second: early },
        })
    }

    /// Whether a layer lends this output of its to the one who reads it.
    fn is_lent(&self, value: Value) -> bool {
        let producer = self.nodes.iter().find(|node| node.output == value);
        let lends = |node: &Node| matches!(&node.kind, Kind::Layer(layer) if layer.lends_output() && !layer.contiguous_output());
        let readers = self.nodes.iter().flat_map(|node| &node.inputs).filter(|&&input| input == value);
        producer.is_some_and(lends) && readers.count() == 1
    }

    /// For each value the one in whose gradient's memory its own lies.
    pub(super) fn gradient_roots(&self, places: &[Placement], output: Value) -> Vec<usize> {
        let mut roots: Vec<usize> = (0..self.shapes.len()).collect();
        for node in self.nodes.iter().rev() {
            let Some(operands) = self.operands(node, output) else { continue };
            if self.may_share(node, operands, places, output) {
                roots[operands.second.0] = roots[node.output.0];
            }
        }
        roots
    }

    /// Whether the second operand's gradient may have the memory of the sum's, which the first one's has too.
    ///
    /// Backward goes from the largest number to the smallest. When the layer that computed the first operand has read its
    /// gradient, nobody needs that any more: whoever comes later may add to it, or change it. So the second operand must have
    /// been computed before the first one, and so must all else that reads it.
    fn may_share(&self, sum: &Node, operands: Operands, places: &[Placement], output: Value) -> bool {
        let Operands { first, in_place, second } = operands;
        let whole = |value: Value| places[value.0].root == value.0;
        let joined = |node: &Node| matches!(node.kind, Kind::Concatenate) && node.output == second;
        let mut others =
            self.nodes.iter().filter(|node| node.inputs.contains(&second) && node.output != sum.output);
        in_place
            && second.0 < first.0
            && second != self.input()
            && second != output
            && whole(sum.output)
            && whole(second)
            && !self.nodes.iter().any(joined)
            && others.all(|node| node.output.0 < first.0)
    }
}

impl Add {
    /// The sum of the current batch of `n` samples.
    pub(super) fn run_forward(
        self,
        device: &Device,
        pools: &mut Pools,
        step: &BuiltStep,
        n: usize,
    ) -> Result<()> {
        if let Some(Copied { from, .. }) = step.copied {
            let [x, y] = pools.disjoint([from.pool, step.y.pool]);
            device.copy(from.view(x, n), step.y.view_mut(y, n), Write::Set)?;
        }
        let [x, y] = pools.disjoint([step.x.pool, step.y.pool]);
        self.forward(device, step.x.view(x, n), step.y.view_mut(y, n))
    }

    /// The gradients of its operands, as far as they don't lie where the sum's does.
    pub(super) fn run_backward(
        self,
        device: &Device,
        pools: &mut Pools,
        copied: Option<Copied>,
        step: &BackwardStep,
        n: usize,
    ) -> Result<()> {
        let &BackwardStep { y, dy, dx, .. } = step;
        let (dy_data, [y_data], nothing) = pools.lend(dy.pool, [y.pool]);
        self.backward(device, y.view(y_data, nothing, n), dy.view_mut(dy_data, n))?;
        for (dx, write) in dx.into_iter().chain(copied.and_then(|copied| copied.gradient)) {
            let [dy_data, dx_data] = pools.disjoint([dy.pool, dx.pool]);
            device.copy(dy.view(dy_data, n), dx.view_mut(dx_data, n), write)?;
        }
        Ok(())
    }
}
