//! Which memory each tensor of a network gets: worked out once, before the first step.

use super::graph::{Graph, Kind, Mode, Node, Value};
use super::normalized::Normalized;
use super::sum::{Copied, Operands};
use crate::{Error, Result};
use core::ops::Range;
use tensor::{Layout, Write};

/// Where a value lies: inside which root tensor, and from which of its channels on.
#[derive(Clone, Copy)]
pub(super) struct Placement {
    pub(super) root: usize,
    pub(super) channel: usize,
}

/// Where a layer's tensors lie and how its gradient is written.
pub(super) struct Step {
    /// The node in the graph.
    pub(super) node: usize,
    pub(super) x: Tenant,
    pub(super) y: Tenant,
    /// Where the output goes in inference passes; `None` where the layer before has done this one's work.
    pub(super) infer: Option<Tenant>,
    /// The normalization whose work this layer does too in inference passes: its node in the graph.
    pub(super) folds: Option<usize>,
    /// How the input's gradient is written; `None` where it isn't.
    pub(super) dx: Option<Write>,
    /// Of a sum whose first operand lies elsewhere: that one.
    pub(super) copied: Option<Copied>,
    /// Gradients to set to 0 before this layer's backward pass, as `(slot, elements)`.
    pub(super) clear: Vec<(usize, usize)>,
}

/// A tensor's layout for the largest batch, and the slots that hold it and its gradient.
#[derive(Clone, Copy)]
pub(super) struct Tenant {
    pub(super) layout: Layout,
    pub(super) slot: usize,
    pub(super) grad_slot: Option<usize>,
}

pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) input: Tenant,
    pub(super) output: Tenant,
    /// Elements of each slot.
    pub(super) slots: Vec<usize>,
}

/// When a root tensor, or its gradient, holds something that will be read: forward node `i` of `n` runs at tick `i`, the
/// loss at tick `n`, the backward pass of node `i` at tick `2n - i`.
#[derive(Clone, Copy)]
struct Life {
    from: usize,
    to: usize,
}

impl Life {
    const NONE: Life = Life { from: usize::MAX, to: 0 };

    fn extend(&mut self, tick: usize) {
        self.from = self.from.min(tick);
        self.to = self.to.max(tick);
    }

    fn is_some(self) -> bool {
        self.from <= self.to
    }
}

impl Plan {
    pub(super) fn new(graph: &Graph, output: Value, batch: usize, mode: Mode) -> Result<Self> {
        let uses = Uses::new(graph, output, mode)?;
        check_used(graph, output)?;
        let size = |root: usize| batch * graph.shapes[root].len();
        let (slots, assigned) = assign(&uses.lives(), size);
        let tenant = |value: Value| {
            let Placement { root, channel } = uses.places[value.0];
            let whole = Layout::contiguous(graph.shapes[root].with_n(batch));
            let layout = whole.channels(channel..channel + graph.shapes[value.0].c);
            let (slot, grad_slot) = (assigned[2 * root], assigned[2 * uses.gradients[root] + 1]);
            Tenant { layout, slot: slot.unwrap_or(0), grad_slot }
        };
        let (writes, cleared) = uses.writes();
        let steps = graph.nodes.iter().enumerate().filter_map(|(k, node)| {
            let (&x, copied) = uses.reads[k].split_first()?;
            Some(Step {
                node: k,
                x: tenant(x),
                y: tenant(node.output),
                infer: uses.folds.written(graph, k).map(tenant),
                folds: uses.folds.by(k),
                dx: writes[k][0],
                copied: copied.first().map(|&v| Copied { from: tenant(v), gradient: writes[k][1] }),
                clear: cleared[k]
                    .iter()
                    .filter_map(|&root| Some((assigned[2 * root + 1]?, size(root))))
                    .collect(),
            })
        });
        Ok(Plan { steps: steps.collect(), input: tenant(graph.input()), output: tenant(output), slots })
    }
}

/// Who reads and writes what, and where it lies.
struct Uses<'a> {
    graph: &'a Graph,
    output: Value,
    training: bool,
    input_gradient: bool,
    /// By node: what it reads from other memory than its output's. A concatenation reads nothing.
    reads: Vec<Vec<Value>>,
    places: Vec<Placement>,
    /// By root: the one in whose gradient's memory its own gradient lies.
    gradients: Vec<usize>,
    folds: Folds,
}

impl<'a> Uses<'a> {
    fn new(graph: &'a Graph, output: Value, mode: Mode) -> Result<Self> {
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

    fn root(&self, value: Value) -> usize {
        self.places[value.0].root
    }

    fn gradient_root(&self, value: Value) -> usize {
        self.gradients[self.root(value)]
    }

    /// Whether a node writes the gradient of what it reads: somebody asks for it, and it isn't there already.
    fn writes_gradient(&self, node: &Node, x: Value) -> bool {
        let wanted = self.training && (x != self.graph.input() || self.input_gradient);
        wanted && self.gradient_root(x) != self.gradient_root(node.output)
    }

    /// The lives of root `r` at `2r` and of its gradient at `2r + 1`.
    fn lives(&self) -> Vec<Life> {
        let n = self.graph.nodes.len();
        let mut lives = vec![Life::NONE; 2 * self.graph.shapes.len()];
        // The input and the logits outlive the pass: for another pass over the same batch, and for who reads the logits.
        let end = if self.training { 2 * n + 1 } else { n };
        lives[2 * self.root(self.graph.input())] = Life { from: 0, to: end };
        lives[2 * self.root(self.output)].extend(end);
        for (k, node) in self.graph.nodes.iter().enumerate() {
            if matches!(node.kind, Kind::Concatenate) {
                continue;
            }
            // A network that is trained makes inference passes too.
            if let Some(written) = self.folds.written(self.graph, k) {
                let values = self.reads[k].iter().chain([&written]);
                values.for_each(|&value| lives[2 * self.root(value)].extend(k));
            }
            let is_sum = matches!(node.kind, Kind::Add(_));
            for &value in self.reads[k].iter().chain([&node.output]).filter(|_| self.training) {
                let root = self.root(value);
                lives[2 * root].extend(k);
                // What was added is not looked at again.
                if value == node.output || !is_sum {
                    lives[2 * root].extend(2 * n - k);
                }
                if value != self.graph.input() || self.input_gradient {
                    lives[2 * self.gradients[root] + 1].extend(2 * n - k);
                }
            }
        }
        if self.training {
            lives[2 * self.gradient_root(self.output) + 1].extend(n);
            if self.input_gradient {
                lives[1].extend(2 * n + 1);
            }
        }
        lives
    }

    /// How each node writes the gradients of what it reads, and which roots' gradients to clear before which node's backward
    /// pass.
    ///
    /// The first to write a part of a root sets it and later ones add. Where a write would hit a part that is half written,
    /// the root is cleared first and everybody adds.
    fn writes(&self) -> (Vec<[Option<Write>; 2]>, Vec<Vec<usize>>) {
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
struct Folds(Vec<Normalized>);

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
    fn by(&self, of: usize) -> Option<usize> {
        self.0.iter().find(|pair| pair.of == of).map(|pair| pair.by)
    }

    /// What a node's layer writes in inference passes, if it has anything to do.
    fn written(&self, graph: &Graph, node: usize) -> Option<Value> {
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

/// Gives every life a slot that no other one uses at the same time: the smallest free slot that is large enough, else the
/// largest free one, grown.
fn assign(lives: &[Life], size: impl Fn(usize) -> usize) -> (Vec<usize>, Vec<Option<usize>>) {
    let mut order: Vec<usize> = (0..lives.len()).filter(|&k| lives[k].is_some()).collect();
    order.sort_by_key(|&k| (lives[k].from, core::cmp::Reverse(size(k / 2))));
    let mut slots: Vec<(usize, Option<usize>)> = Vec::new(); // elements, busy until
    let mut assigned = vec![None; lives.len()];
    for k in order {
        let (need, life) = (size(k / 2), lives[k]);
        let free = |until: Option<usize>| until.is_none_or(|until| until < life.from);
        let fits = |&(_, &(len, until)): &(usize, &(usize, Option<usize>))| free(until) && len >= need;
        let smallest = slots.iter().enumerate().filter(fits).min_by_key(|(_, slot)| slot.0);
        let largest =
            || slots.iter().enumerate().filter(|(_, slot)| free(slot.1)).max_by_key(|(_, slot)| slot.0);
        let slot = smallest.or_else(largest).map(|(slot, _)| slot).unwrap_or_else(|| {
            slots.push((0, None));
            slots.len() - 1
        });
        slots[slot] = (slots[slot].0.max(need), Some(life.to));
        assigned[k] = Some(slot);
    }
    (slots.into_iter().map(|(len, _)| len).collect(), assigned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Conv2D, Relu};

    /// x -> a, b -> concat -> r; `a` is read once more, behind the concatenation's reader.
    fn branches(extra: bool) -> (Graph, Value) {
        let mut graph = Graph::new("test", [4, 4, 3]);
        let x = graph.input();
        let a = graph.add(Conv2D::new(5, 1), x).unwrap();
        let b = graph.add(Conv2D::new(7, 1), x).unwrap();
        let both = graph.concat(&[a, b]).unwrap();
        let mut y = graph.add(Conv2D::new(2, 1), both).unwrap();
        if extra {
            let again = graph.add(Conv2D::new(3, 1), a).unwrap();
            y = graph.concat(&[y, again]).unwrap();
        }
        (graph, y)
    }

    #[test]
    fn branches_write_into_the_concatenation() {
        let (graph, y) = branches(false);
        let plan = Plan::new(&graph, y, 6, Mode::Training).unwrap();
        let (a, b) = (&plan.steps[0], &plan.steps[1]);
        assert_eq!((a.y.slot, a.y.layout.stride, a.y.layout.offset), (b.y.slot, 12, 0));
        assert_eq!((b.y.layout.stride, b.y.layout.offset), (12, 5));
        assert_eq!((a.dx, b.dx, plan.steps[2].dx), (None, None, Some(Write::Set)));
        let plan = Plan::new(&graph, y, 6, Mode::TrainingWithInputGradient).unwrap();
        assert_eq!((plan.steps[0].dx, plan.steps[1].dx), (Some(Write::Add), Some(Write::Set)));
    }

    #[test]
    fn a_half_written_gradient_is_cleared_first() {
        let (graph, y) = branches(true);
        let plan = Plan::new(&graph, y, 6, Mode::Training).unwrap();
        let [.., whole, again] = &plan.steps[..] else { panic!("four steps") };
        assert_eq!((again.clear.len(), whole.clear.len()), (1, 0));
        assert_eq!((again.dx, whole.dx), (Some(Write::Add), Some(Write::Add)));
    }

    #[test]
    fn tensors_of_one_op_never_share_a_slot_and_inference_reuses_memory() {
        let mut graph = Graph::new("chain", [8, 8, 16]);
        let mut x = graph.input();
        for _ in 0..10 {
            x = graph.add(Relu, x).unwrap();
        }
        for mode in [Mode::Inference, Mode::Training, Mode::TrainingWithInputGradient] {
            let plan = Plan::new(&graph, x, 2, mode).unwrap();
            for step in &plan.steps {
                let mut slots = vec![step.x.slot, step.y.slot];
                slots.extend(step.y.grad_slot);
                slots.extend(step.x.grad_slot);
                let all = slots.len();
                slots.sort();
                slots.dedup();
                assert_eq!(slots.len(), all, "{mode:?}");
            }
            if mode == Mode::Inference {
                // The input keeps its own.
                assert_eq!(plan.slots.len(), 3);
            } else {
                assert!(plan.slots.len() <= 11 + 2, "gradients take turns: {}", plan.slots.len());
            }
        }
    }

    #[test]
    fn dead_ends_are_refused() {
        let (mut graph, y) = branches(false);
        graph.add(Relu, y).unwrap();
        assert!(Plan::new(&graph, y, 1, Mode::Training).is_err());
    }
}
