use super::arena::{Arena, specs};
use super::graph::{Graph, Kind, Mode, Value};
use super::plan::{BackwardStep, Plan, Step, Tenant};
use super::pools::Pools;
use super::sum::Copied;
use crate::error::InLayer;
use crate::{Add, Op, Place, Result};
use tensor::{AffineSpans, Backend, Device, Ints, NormSpans, Span, Target};

/// What a network keeps of one batch from its forward to its backward pass: activations, labels, and what layers note.
pub(super) struct Lane {
    pub(super) steps: Vec<BuiltStep>,
    pub(super) pools: Pools,
    /// With room for mixed ones.
    pub(super) labels: Ints,
    /// Whether these are mixed: whole [`Target`]s.
    pub(super) mixed: bool,
    /// Samples in the batch.
    pub(super) n: usize,
}

/// A layer, or a sum, at its place.
pub(super) struct BuiltStep {
    pub(super) name: String,
    pub(super) action: Action,
    pub(super) x: Tenant,
    pub(super) y: Tenant,
    pub(super) infer: Option<Tenant>,
    /// Of a sum.
    pub(super) copied: Option<Copied>,
    /// In training.
    pub(super) backward: Option<BackwardStep>,
}

/// What a step does.
pub(super) enum Action {
    Op(Box<dyn Op>),
    Add(Add),
}

impl Action {
    pub(super) fn board_len(&self, replicas: usize) -> usize {
        match self {
            Action::Op(op) => op.board_len(replicas),
            Action::Add(_) => 0,
        }
    }
}

impl BuiltStep {
    fn new(name: &str, step: &Step, action: Action) -> Self {
        let &Step { x, y, infer, copied, ref backward, .. } = step;
        BuiltStep { name: name.to_owned(), action, x, y, infer, copied, backward: backward.clone() }
    }
}

impl Lane {
    pub(super) fn new(
        graph: &Graph,
        output: Value,
        plan: &Plan,
        arena: &Arena,
        device: &Device,
        batch: usize,
        mode: Mode,
    ) -> Result<Lane> {
        let pools = Pools::new(device, &plan.pools)?;
        let owners: Vec<&str> = specs(graph).map(|(_, layer, _)| layer).collect();
        let places = |name: &str| {
            let own = arena.slots().iter().zip(&owners).filter(move |(_, owner)| **owner == name);
            own.map(|(slot, _)| slot).collect::<Vec<_>>()
        };
        let normalized = graph.normalized(output);
        let mut steps = Vec::new();
        for step in &plan.steps {
            let node = &graph.nodes[step.node];
            let layer = match &node.kind {
                Kind::Layer(layer) => layer,
                Kind::Add(add) => {
                    steps.push(BuiltStep::new(&node.name, step, Action::Add(*add)));
                    continue;
                }
                Kind::Concatenate => continue,
            };
            let own = places(&node.name);
            let params: Vec<Span> = own.iter().map(|slot| slot.span).collect();
            let sums: Vec<Span> =
                own.iter().filter(|slot| slot.role.is_running()).map(|slot| slot.sums).collect();
            let before = normalized.iter().find(|pair| pair.by == step.node);
            let bias_before =
                before.and_then(|pair| Some(places(&graph.nodes[pair.of].name)[pair.bias?].span));
            let bias_taken_away = normalized.iter().any(|pair| pair.of == step.node && pair.bias.is_some());
            let normalization = step.folds.and_then(|by| {
                let Kind::Layer(layer) = &graph.nodes[by].kind else { return None };
                let &[gamma, beta, mean, var] = &places(&graph.nodes[by].name)[..] else { return None };
                let [gamma, beta, mean, var] = [gamma, beta, mean, var].map(|slot| slot.span);
                Some((layer.normalization()?, NormSpans { affine: AffineSpans { gamma, beta }, mean, var }))
            });
            let (x, training) = (step.x.layout.shape, mode != Mode::Inference);
            let place = Place {
                device,
                name: &node.name,
                x,
                training,
                params: &params,
                sums: &sums,
                bias_taken_away,
                bias_before,
                normalization,
            };
            let op = layer.build(&place).in_layer(&node.name)?;
            steps.push(BuiltStep::new(&node.name, step, Action::Op(op)));
        }
        Ok(Lane { steps, pools, labels: device.alloc_ints(batch * Target::WORDS)?, mixed: false, n: 0 })
    }
}
