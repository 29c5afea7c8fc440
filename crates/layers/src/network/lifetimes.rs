//! What a network holds in memory, from when to when.
//!
//! Time goes in ticks: forward node `i` of `n` runs at tick `i`, the loss at tick `n`, the backward pass of node `i` at tick
//! `2n - i`. Every op is one [`Access`], and all else follows from these: a buffer lives from the first access to it until the
//! last, and buffers of one access can't lie in one piece of memory, of which an op would read a part and write another.

use super::graph::{Kind, Node, Value};
use super::packing::Life;
use super::uses::Uses;
use crate::BackwardReads;

/// What memory is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Buffer {
    /// A root tensor.
    Value(usize),
    /// A root tensor that was given up after the forward pass, computed again for the backward pass.
    Again(usize),
    /// The gradient of a root tensor.
    Gradient(usize),
}

impl Buffer {
    /// Its place in a list of all buffers.
    pub(super) fn index(self) -> usize {
        match self {
            Buffer::Value(root) => 3 * root,
            Buffer::Again(root) => 3 * root + 1,
            Buffer::Gradient(root) => 3 * root + 2,
        }
    }

    /// The root tensor of the buffer at this place.
    pub(super) fn root(index: usize) -> usize {
        index / 3
    }
}

/// What an op works with at once.
struct Access {
    tick: usize,
    buffers: Vec<Buffer>,
}

/// A root tensor that is computed again.
pub(super) struct Again {
    pub(super) root: usize,
    /// Before the backward pass of this node, the first that reads it.
    pub(super) before: usize,
    /// The nodes that compute its parts.
    pub(super) by: Vec<usize>,
}

/// Ticks that memory rests before it is used again, on a device that doesn't [save](tensor::Backend::recomputes) it. Such a device runs
/// side by side what memory does not order, and branches of a backward pass wait for each other where one gets the other's.
const REST: usize = 4;

/// What a network holds, and which tensors it computes again.
pub(super) struct Lifetimes {
    /// By [`Buffer::index`]; `None` for what needs no memory.
    pub(super) lives: Vec<Option<Life>>,
    /// Buffers that an op works with at once.
    pub(super) together: Vec<Vec<usize>>,
    pub(super) again: Vec<Again>,
}

impl Lifetimes {
    /// `recomputes` as [`Backend::recomputes`](tensor::Backend::recomputes).
    pub(super) fn new(uses: &Uses, recomputes: bool) -> Self {
        let again = if uses.training && recomputes { uses.recomputed() } else { Vec::new() };
        let mut lives: Vec<Option<Life>> = vec![None; 3 * uses.graph.shapes.len()];
        let accesses = uses.accesses(&again);
        let rest = if recomputes { 0 } else { REST };
        for Access { tick, buffers } in &accesses {
            for buffer in buffers {
                let life = lives[buffer.index()].get_or_insert(Life { from: *tick, to: *tick });
                *life = Life { from: life.from.min(*tick), to: life.to.max(*tick + rest) };
            }
        }
        let together = accesses.into_iter().map(|access| {
            let mut indices: Vec<usize> = access.buffers.into_iter().map(Buffer::index).collect();
            indices.sort_unstable();
            indices.dedup();
            indices
        });
        Lifetimes { lives, together: together.collect(), again }
    }
}

impl Uses<'_> {
    /// What the backward pass of a node reads.
    pub(super) fn backward_reads(node: &Node) -> BackwardReads {
        match &node.kind {
            Kind::Layer(layer) => layer.backward_reads(),
            Kind::Add(add) => add.backward_reads(),
            Kind::Concatenate => BackwardReads::NOTHING,
        }
    }

    /// The values that the backward pass of node `k` reads.
    fn read_back(&self, k: usize) -> impl Iterator<Item = Value> {
        let node = &self.graph.nodes[k];
        let BackwardReads { input, output } = Self::backward_reads(node);
        let inputs = self.reads[k].iter().copied().filter(move |_| input);
        inputs.chain(output.then_some(node.output))
    }

    /// The root tensors that need not be kept: those that nothing but layers which [recompute](crate::Layer::recomputes)
    /// writes, from tensors that are kept, and that backward passes read.
    fn recomputed(&self) -> Vec<Again> {
        let mut recomputed: Vec<Again> = Vec::new();
        for root in 0..self.graph.shapes.len() {
            if [self.graph.input(), self.output].map(|value| self.root(value)).contains(&root) {
                continue;
            }
            let nodes = || self.graph.nodes.iter().enumerate();
            let inside = |node: &Node| self.root(node.output) == root;
            let parts = nodes().filter(|(_, node)| inside(node) && !matches!(node.kind, Kind::Concatenate));
            let by: Vec<usize> = parts.map(|(k, _)| k).collect();
            let kept = |value: Value| recomputed.iter().all(|again| again.root != self.root(value));
            let can = |&k: &usize| {
                let node = &self.graph.nodes[k];
                let recomputes = matches!(&node.kind, Kind::Layer(layer) if layer.recomputes());
                recomputes && Self::backward_reads(node).input && kept(node.inputs[0])
            };
            let before =
                nodes().rev().find(|(k, _)| self.read_back(*k).any(|value| self.root(value) == root));
            if let Some((before, _)) = before.filter(|_| by.iter().all(can)) {
                recomputed.push(Again { root, before, by });
            }
        }
        recomputed
    }

    /// Every op of a training and of an inference pass.
    fn accesses(&self, again: &[Again]) -> Vec<Access> {
        let n = self.graph.nodes.len();
        let value = |value: Value| Buffer::Value(self.root(value));
        let gradient = |value: Value| Buffer::Gradient(self.gradient_root(value));
        let end = if self.training { 2 * n + 1 } else { n };
        let mut accesses = Vec::new();
        let mut at = |tick: usize, buffers: Vec<Buffer>| accesses.push(Access { tick, buffers });
        // The input and the logits outlive the pass: for another pass over the same batch, and for who reads the logits.
        at(0, vec![value(self.graph.input())]);
        at(end, vec![value(self.graph.input()), value(self.output)]);
        for (k, node) in self.graph.nodes.iter().enumerate() {
            let read = || self.reads[k].iter().map(|&x| value(x));
            if matches!(node.kind, Kind::Concatenate) {
                continue;
            }
            // A network that is trained makes inference passes too.
            if let Some(written) = self.folds.written(self.graph, k) {
                at(k, read().chain([value(written)]).collect());
            }
            if self.training {
                at(k, read().chain([value(node.output)]).collect());
            }
        }
        if !self.training {
            return accesses;
        }
        at(n, vec![value(self.output), gradient(self.output)]);
        let kept = |value: Value| {
            let root = self.root(value);
            let given_up = again.iter().any(|again| again.root == root);
            if given_up { Buffer::Again(root) } else { Buffer::Value(root) }
        };
        for (k, node) in self.graph.nodes.iter().enumerate() {
            if matches!(node.kind, Kind::Concatenate) {
                continue;
            }
            let wanted = |x: &&Value| **x != self.graph.input() || self.input_gradient;
            let gradients = self.reads[k].iter().filter(wanted).chain([&node.output]);
            at(2 * n - k, gradients.map(|&x| gradient(x)).chain(self.read_back(k).map(kept)).collect());
        }
        for Again { root, before, by } in again {
            let from = by.iter().map(|&k| value(self.graph.nodes[k].inputs[0]));
            from.for_each(|from| at(2 * n - before, vec![from, Buffer::Again(*root)]));
        }
        if self.input_gradient {
            at(2 * n + 1, vec![gradient(self.graph.input())]);
        }
        accesses
    }
}
