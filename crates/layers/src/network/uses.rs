//! Who reads and writes which tensors of a network, and which of them lie inside of others.

use super::graph::{Graph, Kind, Mode, Node, Value};
use super::normalized::Normalized;
use super::sum::Operands;
use crate::{Error, Result};
use core::ops::Range;
use tensor::Write;

/// Where a value lies: inside which root tensor, and from which of its channels on.
#[derive(Clone, Copy)]
pub(super) struct Placement {
    pub(super) root: usize,
    pub(super) channel: usize,
}

/// Who reads and writes what, and where it lies.
pub(super) struct Uses<'a> {
    pub(super) graph: &'a Graph,
    pub(super) output: Value,
    pub(super) training: bool,
    pub(super) input_gradient: bool,
    /// By node: what it reads from other memory than its output's. A concatenation reads nothing.
    pub(super) reads: Vec<Vec<Value>>,
    pub(super) places: Vec<Placement>,
    /// By root: the one in whose gradient's memory its own gradient lies.
    pub(super) gradients: Vec<usize>,
    pub(super) folds: Folds,
}

impl<'a> Uses<'a> {
    pub(super) fn new(graph: &'a Graph, output: Value, mode: Mode) -> Result<Self> {
        check_used(graph, output)?;
        let training = mode != Mode::Inference;
        let input_gradient = mode == Mode::TrainingWithInputGradient
            || graph.nodes.iter().any(|node| {
                matches!(&node.kind, Kind::Layer(layer) if layer.needs_dx())
                    && node.inputs[0] == graph.input()
            });
        let reads: Vec<Vec<Value>> = graph.nodes.iter().map(|node| reads(graph, node, output)).collect();
        let places = place(graph, output, &reads)?;
        let gradients = graph.gradient_roots(&places, output);
        let folds = folds(graph, &places, output);
        Ok(Uses { graph, output, training, input_gradient, reads, places, gradients, folds })
    }

    pub(super) fn root(&self, value: Value) -> usize {
        self.places[value.0].root
    }

    pub(super) fn gradient_root(&self, value: Value) -> usize {
        self.gradients[self.root(value)]
    }

    /// Whether a node writes the gradient of what it reads: somebody asks for it, and it isn't there already.
    fn writes_gradient(&self, node: &Node, x: Value) -> bool {
        let wanted = self.training && (x != self.graph.input() || self.input_gradient);
        wanted && self.gradient_root(x) != self.gradient_root(node.output)
    }

    /// How each node writes the gradients of what it reads, and which roots' gradients to clear before which node's backward
    /// pass.
    ///
    /// The first to write a part of a root sets it and later ones add. Where a write would hit a part that is half written,
    /// the root is cleared first and everybody adds.
    pub(super) fn writes(&self) -> (Vec<[Option<Write>; 2]>, Vec<Vec<usize>>) {
        let graph = self.graph;
        let mut cleared: Vec<usize> = Vec::new();
        'again: loop {
            let mut writes = vec![[None; 2]; graph.nodes.len()];
            let mut clear_before = vec![Vec::new(); graph.nodes.len()];
            let mut written: Vec<Vec<Range<usize>>> = vec![Vec::new(); graph.shapes.len()];
            let channels = |value: Value| {
                let channel = self.places[value.0].channel;
                channel..channel + graph.shapes[value.0].c
            };
            written[self.gradient_root(self.output)].push(channels(self.output));
            for (k, node) in graph.nodes.iter().enumerate().rev() {
                for (&x, write) in self.reads[k].iter().zip(&mut writes[k]) {
                    if !self.writes_gradient(node, x) {
                        continue;
                    }
                    let (root, range) = (self.gradient_root(x), channels(x));
                    if cleared.contains(&root) && written[root].is_empty() {
                        clear_before[k].push(root);
                        written[root].push(0..graph.shapes[root].c);
                    }
                    let is_written = |ch: &usize| written[root].iter().any(|range| range.contains(ch));
                    let covered = range.clone().filter(is_written).count();
                    if covered != 0 && covered != range.len() {
                        cleared.push(root);
                        continue 'again;
                    }
                    *write = Some(if covered == 0 { Write::Set } else { Write::Add });
                    written[root].push(range);
                }
            }
            return (writes, clear_before);
        }
    }
}

/// What a node reads from other memory than its output's. For a sum that is the operand that is added, then the one that is
/// copied, where it is.
fn reads(graph: &Graph, node: &Node, output: Value) -> Vec<Value> {
    match (&node.kind, graph.operands(node, output)) {
        (Kind::Concatenate, _) => Vec::new(),
        (_, Some(Operands { first, in_place: false, second })) => vec![second, first],
        (_, Some(Operands { second, .. })) => vec![second],
        (_, None) => vec![node.inputs[0]],
    }
}

/// Places the inputs of every concatenation inside its output, and the first operands of sums where these lie.
fn place(graph: &Graph, output: Value, reads: &[Vec<Value>]) -> Result<Vec<Placement>> {
    let mut places: Vec<Placement> =
        (0..graph.shapes.len()).map(|root| Placement { root, channel: 0 }).collect();
    for node in &graph.nodes {
        let inside = match graph.operands(node, output) {
            Some(Operands { first, in_place: true, .. }) => vec![first],
            _ if matches!(node.kind, Kind::Concatenate) => node.inputs.clone(),
            _ => continue,
        };
        let mut channel = 0;
        for value in inside {
            for place in places.iter_mut().filter(|place| place.root == value.0) {
                *place = Placement { root: node.output.0, channel: place.channel + channel };
            }
            channel += graph.shapes[value.0].c;
        }
    }
    for (node, reads) in graph.nodes.iter().zip(reads) {
        if reads.iter().any(|x| places[x.0].root == places[node.output.0].root) {
            let what = "its input and output would be slices of one concatenation".to_owned();
            return Err(Error::Graph { layer: node.name.clone(), what });
        }
    }
    Ok(places)
}

/// Which layers do the work of the normalization behind them too in inference passes.
pub(super) struct Folds(Vec<Normalized>);

/// All that can: a layer can't write beside what it reads.
fn folds(graph: &Graph, places: &[Placement], output: Value) -> Folds {
    let root = |value: Value| places[value.0].root;
    let apart = |pair: &Normalized| {
        pair.folds && root(graph.nodes[pair.of].inputs[0]) != root(graph.nodes[pair.by].output)
    };
    Folds(graph.normalized(output).into_iter().filter(apart).collect())
}

impl Folds {
    /// The node of the normalization that a node's layer does.
    pub(super) fn by(&self, of: usize) -> Option<usize> {
        self.0.iter().find(|pair| pair.of == of).map(|pair| pair.by)
    }

    /// What a node's layer writes in inference passes, if it has anything to do.
    pub(super) fn written(&self, graph: &Graph, node: usize) -> Option<Value> {
        let done = self.0.iter().any(|pair| pair.by == node);
        (!done).then(|| graph.nodes[self.by(node).unwrap_or(node)].output)
    }
}

/// Refuses layers whose output nobody reads.
fn check_used(graph: &Graph, output: Value) -> Result<()> {
    for node in &graph.nodes {
        if node.output != output && !graph.nodes.iter().any(|reader| reader.inputs.contains(&node.output)) {
            let what = "its output leads nowhere".to_owned();
            return Err(Error::Graph { layer: node.name.clone(), what });
        }
    }
    Ok(())
}
