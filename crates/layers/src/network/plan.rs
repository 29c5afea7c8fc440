//! Which memory each tensor of a network gets: worked out once, before the first step.

use super::graph::{Graph, Mode, Value};
use super::lifetimes::{Again, Buffer, Lifetimes};
use super::packing::{Packing, Request, Spot, pack};
use super::sum::Copied;
use super::uses::Uses;
use crate::{BackwardReads, Result};
use tensor::{Layout, Span, Write};

/// Where a tensor lies for the largest batch: in which pool, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tenant {
    pub(super) pool: usize,
    pub(super) layout: Layout,
}

/// A tensor that a backward pass reads, or whose shape alone it looks at: then it lies nowhere.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    pub(super) pool: Option<usize>,
    pub(super) layout: Layout,
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
    /// Of a sum whose first operand lies elsewhere: that one.
    pub(super) copied: Option<Copied>,
    /// In training.
    pub(super) backward: Option<BackwardStep>,
}

/// Where the tensors of a layer's backward pass lie.
#[derive(Clone)]
pub(super) struct BackwardStep {
    /// What to compute again first.
    pub(super) again: Vec<Repeat>,
    /// Gradients to set to 0 then, as runs of pools.
    pub(super) clear: Vec<(usize, Span)>,
    pub(super) x: Kept,
    pub(super) y: Kept,
    pub(super) dy: Tenant,
    /// The input's gradient and how it is written; `None` where it isn't.
    pub(super) dx: Option<(Tenant, Write)>,
}

/// A forward pass that is repeated: which step's, from where to where.
#[derive(Clone, Copy)]
pub(super) struct Repeat {
    pub(super) step: usize,
    pub(super) x: Tenant,
    pub(super) y: Tenant,
}

pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) input: Tenant,
    pub(super) output: Tenant,
    pub(super) input_gradient: Option<Tenant>,
    pub(super) output_gradient: Option<Tenant>,
    /// Elements of each pool.
    pub(super) pools: Vec<usize>,
}

impl Plan {
    /// `recomputes` as [`Backend::recomputes`](tensor::Backend::recomputes).
    pub(super) fn new(
        graph: &Graph,
        output: Value,
        batch: usize,
        mode: Mode,
        recomputes: bool,
    ) -> Result<Self> {
        Self::packed(graph, output, batch, mode, recomputes, pack)
    }

    fn packed(
        graph: &Graph,
        output: Value,
        batch: usize,
        mode: Mode,
        recomputes: bool,
        pack: impl FnOnce(&[Option<Request>], &[Vec<usize>]) -> Packing,
    ) -> Result<Self> {
        let uses = Uses::new(graph, output, mode)?;
        let lifetimes = Lifetimes::new(&uses, recomputes);
        let size = |index: usize| batch * graph.shapes[Buffer::root(index)].len();
        let request =
            |(index, life): (usize, &Option<_>)| life.map(|life| Request { len: size(index), life });
        let requests: Vec<_> = lifetimes.lives.iter().enumerate().map(request).collect();
        let Packing { pools, spots } = pack(&requests, &lifetimes.together);
        let placed = Placed { uses: &uses, again: &lifetimes.again, spots: &spots, batch };
        Ok(Plan {
            steps: placed.steps(),
            input: placed.value(graph.input()),
            output: placed.value(output),
            input_gradient: placed.gradient(graph.input()),
            output_gradient: placed.gradient(output),
            pools,
        })
    }
}

/// The places of all buffers.
struct Placed<'a> {
    uses: &'a Uses<'a>,
    again: &'a [Again],
    /// By [`Buffer::index`].
    spots: &'a [Option<Spot>],
    batch: usize,
}

impl Placed<'_> {
    /// Where a value or its gradient lies in the memory of a root tensor; `None` if that has none.
    fn tenant(&self, value: Value, buffer: Buffer) -> Option<Tenant> {
        let Spot { pool, offset } = self.spots[buffer.index()]?;
        Some(Tenant { pool, layout: self.layout(value, Buffer::root(buffer.index()), offset) })
    }

    /// The layout of a value in a root tensor that begins at `offset`.
    fn layout(&self, value: Value, root: usize, offset: usize) -> Layout {
        let shapes = &self.uses.graph.shapes;
        let channel = self.uses.places[value.0].channel;
        let whole = Layout { offset, ..Layout::contiguous(shapes[root].with_n(self.batch)) };
        whole.channels(channel..channel + shapes[value.0].c)
    }

    /// Where a value lies in forward passes. What no pass touches has no memory, and so the start of any will do.
    fn value(&self, value: Value) -> Tenant {
        let root = self.uses.root(value);
        let nowhere = Tenant { pool: 0, layout: self.layout(value, root, 0) };
        self.tenant(value, Buffer::Value(root)).unwrap_or(nowhere)
    }

    fn gradient(&self, value: Value) -> Option<Tenant> {
        self.tenant(value, Buffer::Gradient(self.uses.gradient_root(value)))
    }

    /// Where a value lies in the backward pass, if that reads it.
    fn kept(&self, value: Value, is_read: bool) -> Kept {
        let root = self.uses.root(value);
        let again = self.again.iter().any(|again| again.root == root);
        let buffer = if again { Buffer::Again(root) } else { Buffer::Value(root) };
        let tenant = self.tenant(value, buffer).filter(|_| is_read);
        let layout = tenant.map_or(self.layout(value, root, 0), |tenant| tenant.layout);
        Kept { pool: tenant.map(|tenant| tenant.pool), layout }
    }

    fn steps(&self) -> Vec<Step> {
        let Uses { graph, reads, folds, .. } = self.uses;
        let (writes, cleared) = self.uses.writes();
        let steps = graph.nodes.iter().enumerate().filter_map(|(k, node)| {
            let (&x, copied) = reads[k].split_first()?;
            let gradient = |x: Value, write: Option<Write>| Some((self.gradient(x)?, write?));
            let copied = copied
                .first()
                .map(|&from| Copied { from: self.value(from), gradient: gradient(from, writes[k][1]) });
            Some(Step {
                node: k,
                x: self.value(x),
                y: self.value(node.output),
                infer: folds.written(graph, k).map(|value| self.value(value)),
                folds: folds.by(k),
                copied,
                backward: self.backward(k, x, gradient(x, writes[k][0]), &cleared[k]),
            })
        });
        steps.collect()
    }

    fn backward(
        &self,
        k: usize,
        x: Value,
        dx: Option<(Tenant, Write)>,
        cleared: &[usize],
    ) -> Option<BackwardStep> {
        let node = &self.uses.graph.nodes[k];
        let BackwardReads { input, output } = Uses::backward_reads(node);
        let run = |&root: &usize| {
            let Spot { pool, offset } = self.spots[Buffer::Gradient(root).index()]?;
            Some((pool, Span::new(offset, self.batch * self.uses.graph.shapes[root].len())))
        };
        let again = self.again.iter().filter(|again| again.before == k);
        Some(BackwardStep {
            again: again.flat_map(|again| self.repeats(again)).collect(),
            clear: cleared.iter().filter_map(run).collect(),
            x: self.kept(x, input),
            y: self.kept(node.output, output),
            dy: self.gradient(node.output)?,
            dx,
        })
    }

    /// The forward passes that compute a tensor again. Steps are numbered without concatenations, which read nothing.
    fn repeats(&self, again: &Again) -> impl Iterator<Item = Repeat> {
        again.by.iter().filter_map(|&k| {
            let node = &self.uses.graph.nodes[k];
            let step = self.uses.reads[..k].iter().filter(|reads| !reads.is_empty()).count();
            let y = self.tenant(node.output, Buffer::Again(again.root))?;
            Some(Repeat { step, x: self.value(node.inputs[0]), y })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Add, AveragePooling2D, BatchNormalization, Conv2D, Dense, Draws, Dropout, Flatten, Gelu,
        MaxPooling2D, Relu,
    };
    use tensor::{Activation, Device};

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

    fn plan(graph: &Graph, output: Value, mode: Mode) -> Plan {
        Plan::new(graph, output, 6, mode, false).unwrap()
    }

    fn backward(step: &Step) -> &BackwardStep {
        step.backward.as_ref().unwrap()
    }

    fn write(step: &Step) -> Option<Write> {
        backward(step).dx.map(|(_, write)| write)
    }

    #[test]
    fn branches_write_into_the_concatenation() {
        let (graph, y) = branches(false);
        let training = plan(&graph, y, Mode::Training);
        let (a, b) = (&training.steps[0].y, &training.steps[1].y);
        assert_eq!((a.pool, a.layout.stride, b.layout.stride), (b.pool, 12, 12));
        assert_eq!(b.layout.offset, a.layout.offset + 5);
        let writes = |plan: &Plan| plan.steps.iter().map(write).collect::<Vec<_>>();
        assert_eq!(writes(&training), [None, None, Some(Write::Set)]);
        let with_input = plan(&graph, y, Mode::TrainingWithInputGradient);
        assert_eq!(writes(&with_input), [Some(Write::Add), Some(Write::Set), Some(Write::Set)]);
    }

    #[test]
    fn a_half_written_gradient_is_cleared_first() {
        let (graph, y) = branches(true);
        let plan = plan(&graph, y, Mode::Training);
        let [.., whole, again] = &plan.steps[..] else { panic!("four steps") };
        assert_eq!((backward(again).clear.len(), backward(whole).clear.len()), (1, 0));
        assert_eq!((write(again), write(whole)), (Some(Write::Add), Some(Write::Add)));
    }

    #[test]
    fn what_is_not_read_again_gives_its_memory_to_others() {
        let mut graph = Graph::new("chain", [8, 8, 16]);
        let mut x = graph.input();
        for _ in 0..10 {
            x = graph.add(Relu, x).unwrap();
        }
        let tensors = |mode| {
            [true, false].map(|saves| {
                let plan = Plan::new(&graph, x, 6, mode, saves).unwrap();
                plan.pools.iter().sum::<usize>() / (6 * 8 * 8 * 16)
            })
        };
        // The input keeps its own. Where memory is not saved it rests for four ticks.
        assert_eq!(tensors(Mode::Inference), [3, 7]);
        // All outputs, the input, two gradients that take turns, or six.
        assert_eq!(tensors(Mode::Training), [13, 17]);
        assert!(
            backward(&plan(&graph, x, Mode::Training).steps[3]).x.pool.is_none(),
            "a mask is in the output"
        );
    }

    #[test]
    fn dead_ends_are_refused() {
        let (mut graph, y) = branches(false);
        graph.add(Relu, y).unwrap();
        assert!(Plan::new(&graph, y, 1, Mode::Training, false).is_err());
    }

    /// Normalizations in a concatenation and alone, a sum, poolings, dropout.
    fn everything() -> (Graph, Value) {
        let mut graph = Graph::new("test", [8, 8, 3]);
        let g = &mut graph;
        let module = |g: &mut Graph, x: Value, filters: usize, act: Activation| {
            let x = g.add(Conv2D::new(filters, 3).same(), x).unwrap();
            g.add(BatchNormalization::new().activation(act), x).unwrap()
        };
        let x = module(g, g.input(), 8, Activation::Relu);
        let (a, b) = (module(g, x, 8, Activation::Relu), module(g, x, 4, Activation::Relu));
        let x = g.concat(&[a, b]).unwrap();
        let (a, b) = (module(g, x, 6, Activation::Relu), g.add(MaxPooling2D::new(1), x).unwrap());
        let x = g.concat(&[a, b]).unwrap();
        let y = module(g, x, 18, Activation::Gelu);
        let y = g.add(Conv2D::new(18, 1), y).unwrap();
        let y = g.add(Gelu, y).unwrap();
        let y = module(g, y, 18, Activation::None);
        let x = g.merge(Add::new().activation(Activation::Relu), [y, x]).unwrap();
        let x = g.add(AveragePooling2D::new(4), x).unwrap();
        let x = g.add(Dropout::new(0.25), x).unwrap();
        let x = g.add(Flatten, x).unwrap();
        let logits = g.add(Dense::new(10), x).unwrap();
        (graph, logits)
    }

    /// Every buffer in a pool of its own.
    fn alone(requests: &[Option<Request>], _: &[Vec<usize>]) -> Packing {
        let len = |request: &Option<Request>| request.map_or(0, |request| request.len);
        let spots = (0..requests.len()).map(|pool| Some(Spot { pool, offset: 0 })).collect();
        Packing { pools: requests.iter().map(len).collect(), spots }
    }

    /// All that two training passes leave, and the logits of an evaluation.
    fn results(graph: &Graph, logits: Value, plan: &Plan, device: &Device) -> Vec<f32> {
        let mut network =
            graph.build_planned(plan, logits, device, 6, Mode::TrainingWithInputGradient, 1).unwrap();
        network.init(3).unwrap();
        let images: Vec<f32> = (0..5 * 192).map(|k| (k as f32 * 0.37).sin()).collect();
        network.set_input(&images, &[1, 7, 3, 0, 9]).unwrap();
        for step in 0..2 {
            network.train_pass(Draws { seed: 3, step, first_sample: 0 }, 0.0, 5).unwrap();
        }
        let grads = &network.arena().grads;
        let mut all = grads.to_vec(device, 0, grads.len()).unwrap();
        let dx = network.input_gradient().unwrap();
        all.extend(dx.data.to_vec(device, dx.layout.offset, dx.layout.shape.len()).unwrap());
        all.extend(network.predict().unwrap());
        all
    }

    #[test]
    fn neither_shared_memory_nor_what_is_computed_again_changes_a_bit() {
        let ((graph, logits), mode) = (everything(), Mode::TrainingWithInputGradient);
        for device in [Device::cpu(2), Device::reference()] {
            let [kept, again] =
                [false, true].map(|recomputes| Plan::new(&graph, logits, 6, mode, recomputes).unwrap());
            let repeats =
                |plan: &Plan| plan.steps.iter().map(|step| backward(step).again.len()).sum::<usize>();
            // The first, both in the concatenation, and both with a GELU inside of the residual block: not what is added.
            assert_eq!((repeats(&kept), repeats(&again)), (0, 5));
            assert!(again.pools.iter().sum::<usize>() < kept.pools.iter().sum());
            let alone = Plan::packed(&graph, logits, 6, mode, false, alone).unwrap();
            let expected = results(&graph, logits, &alone, &device);
            assert_eq!(results(&graph, logits, &kept, &device), expected);
            assert_eq!(results(&graph, logits, &again, &device), expected);
        }
    }
}
