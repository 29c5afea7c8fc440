//! Which memory each tensor of a network gets: worked out once, before the first step.

use super::graph::{Graph, Kind, Mode, Value};
use super::normalized::Normalized;
use crate::{Error, Result};
use core::ops::Range;
use tensor::{Layout, Write};

/// Where a value lies: inside which root tensor, and from which of its channels on.
#[derive(Clone, Copy)]
struct Placement {
    root: usize,
    channel: usize,
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
        let places = place(graph)?;
        check_used(graph, output)?;
        let training = mode != Mode::Inference;
        let input_gradient = mode == Mode::TrainingWithInputGradient
            || graph.nodes.iter().any(|node| {
                matches!(&node.kind, Kind::Layer(layer) if layer.needs_dx())
                    && node.inputs[0] == graph.input()
            });
        let folds = folds(graph, &places, output);
        let lives = lives(graph, &places, &folds, output, training, input_gradient);
        let size = |root: usize| batch * graph.shapes[root].len();
        let (slots, assigned) = assign(&lives, size);
        let tenant = |value: Value| {
            let Placement { root, channel } = places[value.0];
            let whole = Layout::contiguous(graph.shapes[root].with_n(batch));
            let layout = whole.channels(channel..channel + graph.shapes[value.0].c);
            let (slot, grad_slot) = (assigned[2 * root], assigned[2 * root + 1]);
            Tenant { layout, slot: slot.unwrap_or(0), grad_slot }
        };
        let (writes, cleared) = writes(graph, &places, output, training, input_gradient);
        let layers = graph.nodes.iter().enumerate().filter(|(_, n)| matches!(n.kind, Kind::Layer(_)));
        let steps = layers.map(|(k, node)| Step {
            node: k,
            x: tenant(node.inputs[0]),
            y: tenant(node.output),
            infer: folds.written(graph, k).map(tenant),
            folds: folds.by(k),
            dx: writes[k],
            clear: cleared[k]
                .iter()
                .filter_map(|&root| Some((assigned[2 * root + 1]?, size(root))))
                .collect(),
        });
        Ok(Plan { steps: steps.collect(), input: tenant(graph.input()), output: tenant(output), slots })
    }
}

/// Places the inputs of every concatenation inside its output.
fn place(graph: &Graph) -> Result<Vec<Placement>> {
    let mut places: Vec<Placement> =
        (0..graph.shapes.len()).map(|root| Placement { root, channel: 0 }).collect();
    for node in graph.nodes.iter().filter(|node| matches!(node.kind, Kind::Concatenate)) {
        let mut channel = 0;
        for value in &node.inputs {
            for place in places.iter_mut().filter(|place| place.root == value.0) {
                *place = Placement { root: node.output.0, channel: place.channel + channel };
            }
            channel += graph.shapes[value.0].c;
        }
    }
    for node in graph.nodes.iter().filter(|node| matches!(node.kind, Kind::Layer(_))) {
        if places[node.inputs[0].0].root == places[node.output.0].root {
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

/// The lives of root `r` at `2r` and of its gradient at `2r + 1`.
fn lives(
    graph: &Graph,
    places: &[Placement],
    folds: &Folds,
    output: Value,
    training: bool,
    input_gradient: bool,
) -> Vec<Life> {
    let n = graph.nodes.len();
    let mut lives = vec![Life::NONE; 2 * graph.shapes.len()];
    let root = |value: Value| places[value.0].root;
    // The input and the logits outlive the pass: for another pass over the same batch, and for who reads the logits.
    let end = if training { 2 * n + 1 } else { n };
    lives[2 * root(graph.input())] = Life { from: 0, to: end };
    lives[2 * root(output)].extend(end);
    for (k, node) in graph.nodes.iter().enumerate() {
        if matches!(node.kind, Kind::Concatenate) {
            continue;
        }
        let (x, y) = (root(node.inputs[0]), root(node.output));
        if let Some(written) = folds.written(graph, k) {
            [x, root(written)].into_iter().for_each(|value| lives[2 * value].extend(k));
        }
        for value in [x, y].into_iter().filter(|_| training) {
            lives[2 * value].extend(k);
            lives[2 * value].extend(2 * n - k);
            if value != 0 || input_gradient {
                lives[2 * value + 1].extend(2 * n - k);
            }
        }
    }
    if training {
        lives[2 * root(output) + 1].extend(n);
        if input_gradient {
            lives[1].extend(2 * n + 1);
        }
    }
    lives
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

/// How each node writes its input's gradient, and which roots' gradients to clear before which node's backward pass.
///
/// The first to write a part of a root sets it and later ones add. Where a write would hit a part that is half written,
/// the root is cleared first and everybody adds.
fn writes(
    graph: &Graph,
    places: &[Placement],
    output: Value,
    training: bool,
    input_gradient: bool,
) -> (Vec<Option<Write>>, Vec<Vec<usize>>) {
    let mut cleared: Vec<usize> = Vec::new();
    'again: loop {
        let mut writes = vec![None; graph.nodes.len()];
        let mut clear_before = vec![Vec::new(); graph.nodes.len()];
        let mut written: Vec<Vec<Range<usize>>> = vec![Vec::new(); graph.shapes.len()];
        let channels = |value: Value| {
            let channel = places[value.0].channel;
            channel..channel + graph.shapes[value.0].c
        };
        written[places[output.0].root].push(channels(output));
        for (k, node) in graph.nodes.iter().enumerate().rev() {
            let wanted = training && (node.inputs[0] != graph.input() || input_gradient);
            if matches!(node.kind, Kind::Concatenate) || !wanted {
                continue;
            }
            let (root, range) = (places[node.inputs[0].0].root, channels(node.inputs[0]));
            if cleared.contains(&root) && written[root].is_empty() {
                clear_before[k].push(root);
                written[root].push(0..graph.shapes[root].c);
            }
            let covered = range.clone().filter(|ch| written[root].iter().any(|w| w.contains(ch))).count();
            if covered != 0 && covered != range.len() {
                cleared.push(root);
                continue 'again;
            }
            writes[k] = Some(if covered == 0 { Write::Set } else { Write::Add });
            written[root].push(range);
        }
        return (writes, clear_before);
    }
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
