//! From a graph to programs: the training step and the inference pass of a network.

use super::arena::Slots;
use super::graph::{Graph, Mode, Node, Value};
use crate::error::InLayer;
use crate::parameter::ParamPlace;
use crate::{Error, Lower, Result, Role};
use towers_program::ops::Neighbor;
use towers_program::passes::{self, Training};
use towers_program::{Arena, Builder, Executable, Op, Phase, Program, Span, TensorId, ops};

/// Steps that memory rests before it is reused, on a device that doesn't [save](towers_program::Backend::recomputes)
/// it. Such a device runs independent steps side by side, and branches of a backward pass would wait for each
/// other's memory.
const REST: usize = 6;

impl Graph {
    /// The training step of the part that ends in `output`, or its inference pass, before its tensors have places.
    ///
    /// ```
    /// use towers_layers::{BatchNormalization, Conv2D, Flatten, Graph, Mode};
    ///
    /// let mut graph = Graph::new("tiny", [4, 4, 3]);
    /// let x = graph.add(Conv2D::new(2, 3), graph.input())?;
    /// let x = graph.add(BatchNormalization::new(), x)?;
    /// let logits = graph.add(Flatten, x)?;
    /// let text = graph.program(logits, Mode::Inference, true)?.to_string();
    /// assert!(text.contains("= conv2d_batch_norm 3x3 %0, @conv2d/kernel, @batch_normalization/gamma,"));
    /// # Ok::<(), towers_layers::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the output of a layer is unused.
    pub fn program(&self, output: Value, mode: Mode, recomputes: bool) -> Result<Program> {
        self.lowered(output, mode, recomputes, None)
    }

    /// As [`program`](Graph::program), with a place in memory for every tensor, for batches of up to `batch`
    /// samples. `sync_batch_norm` is this replica's rank and the number of replicas, for batch normalization
    /// over all of them. The `Display` form is the output of `towers program`.
    ///
    /// # Errors
    /// As [`program`](Graph::program).
    pub fn executable(
        &self,
        output: Value,
        batch: usize,
        mode: Mode,
        recomputes: bool,
        sync_batch_norm: Option<[usize; 2]>,
    ) -> Result<Executable> {
        Ok(self.prepared(output, batch, mode, recomputes, sync_batch_norm)?.executable)
    }

    /// As [`executable`](Graph::executable), with the steps of each layer.
    pub(super) fn prepared(
        &self,
        output: Value,
        batch: usize,
        mode: Mode,
        recomputes: bool,
        sync_batch_norm: Option<[usize; 2]>,
    ) -> Result<Prepared> {
        Prepared::new(self.lowered(output, mode, recomputes, sync_batch_norm)?, batch, recomputes)
    }

    fn lowered(
        &self,
        output: Value,
        mode: Mode,
        recompute: bool,
        sync_batch_norm: Option<[usize; 2]>,
    ) -> Result<Program> {
        let forward = self.forward(output, mode)?;
        if mode == Mode::Inference {
            return Ok(passes::inference(forward));
        }
        let input_gradient = mode != Mode::Training;
        let bucket = Some(passes::BUCKET);
        Ok(passes::training(forward, Training { input_gradient, recompute, sync_batch_norm, bucket })?)
    }

    /// The ops from the input to the loss.
    pub(super) fn forward(&self, output: Value, mode: Mode) -> Result<Program> {
        self.check_used(output)?;
        let slots = &Slots::new(self);
        let mut builder = Builder::new(self.shapes[0]);
        let mut tensors: Vec<Option<TensorId>> = vec![None; self.shapes.len()];
        let input = builder.input();
        tensors[0] = Some(input);
        if self.receives {
            let shape = builder.shape(input);
            builder.push(ops::Receive { from: Neighbor::Previous, shape }, &[], &[input])?;
        }
        let mut number = 0;
        for node in &self.nodes {
            let inputs: Vec<TensorId> = node.inputs.iter().filter_map(|value| tensors[value.0]).collect();
            let places = if node.layer.only_joins() { Vec::new() } else { slots.of(number) };
            let y = lower_node(self, node, &mut builder, &inputs, &places, mode);
            tensors[node.output.0] = Some(y.in_layer(&node.name)?);
            number += usize::from(!node.layer.only_joins());
        }
        let y = tensors[output.0].unwrap_or(input);
        if self.sends {
            builder.push(ops::Send { to: Neighbor::Next }, &[y], &[])?;
        }
        // Only class scores have a loss.
        if self.sends || builder.shape(y) != builder.shape(y).flatten() {
            return Ok(builder.finish(y));
        }
        let gradient = mode != Mode::Inference;
        let loss = ops::CrossEntropy { gradient, multi_label: self.multi_label.is_some() };
        end_with(loss, builder, y, slots.metrics)
    }

    /// Refuses layers whose output is unused.
    fn check_used(&self, output: Value) -> Result<()> {
        for node in &self.nodes {
            if node.output != output && !self.nodes.iter().any(|reader| reader.inputs.contains(&node.output))
            {
                let what = "its output leads nowhere".to_owned();
                return Err(Error::Graph { layer: node.name.clone(), what });
            }
        }
        Ok(())
    }
}

fn lower_node(
    graph: &Graph,
    node: &Node,
    builder: &mut Builder,
    inputs: &[TensorId],
    places: &[ParamPlace],
    mode: Mode,
) -> towers_program::Result<TensorId> {
    if !node.layer.only_joins() {
        builder.layer(&node.name);
    }
    let mut specs = node.params(&graph.shapes);
    if mode == Mode::InferenceWithInputGradient {
        let trainable = specs.iter_mut().filter(|spec| spec.role == Role::Trainable);
        trainable.for_each(|spec| spec.role = Role::Frozen);
    }
    node.layer.lower(&mut Lower::new(builder, &node.name, mode.is_training(), &specs, places), inputs)
}

/// Ends a program with the loss of its class scores, and its gradient if there is a backward pass.
fn end_with(loss: ops::CrossEntropy, mut builder: Builder, y: TensorId, metrics: Span) -> Result<Program> {
    let words = loss.label_words(builder.shape(y).c);
    let labels = builder.fixed("labels", Arena::Labels, Span::new(0, words));
    let metrics = builder.fixed("metrics", Arena::Gradients, metrics);
    let results = builder.in_phase(Phase::Loss).push(loss, &[y, labels], &[metrics])?;
    let output_gradient = results.first().copied().filter(|_| loss.gradient);
    Ok(Program { output_gradient, ..builder.finish(y) })
}

/// A placed program, and the steps of each layer.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) executable: Executable,
    forward: Vec<LayerSteps>,
    loss: Vec<LayerSteps>,
    backward: Vec<LayerSteps>,
    /// Whether replicas share batch statistics in the middle of it.
    pub(super) synchronizes: bool,
}

/// A layer's name, and its steps in one phase.
type LayerSteps = (String, core::ops::Range<usize>);

impl Prepared {
    /// For batches of up to `batch` samples.
    fn new(program: Program, batch: usize, recomputes: bool) -> Result<Self> {
        let of = |phase| {
            let steps = (0..)
                .zip(&program.layers)
                .map(|(layer, name)| (name.clone(), program.steps_of(phase, layer)));
            steps.filter(|(_, steps)| !steps.is_empty()).collect::<Vec<LayerSteps>>()
        };
        let (forward, mut backward) = (of(Phase::Forward), of(Phase::Backward));
        backward.reverse();
        let in_loss = |k: &usize| program.steps[*k].phase == Phase::Loss;
        let from = (0..program.steps.len()).find(in_loss).unwrap_or(0);
        let until = from + (from..program.steps.len()).filter(in_loss).count();
        let loss = vec![("loss".to_owned(), from..until)];
        let synchronizes = program.steps.iter().any(|step| step.op.is_synchronization());
        let executable = Executable::place(program, batch, if recomputes { 0 } else { REST })?;
        Ok(Prepared { executable, forward, loss, backward, synchronizes })
    }

    pub(super) fn program(&self) -> &Program {
        self.executable.program()
    }

    /// The layers that have steps in this phase, in the order in which they run.
    pub(super) fn layers(&self, phase: Phase) -> &[LayerSteps] {
        match phase {
            Phase::Forward => &self.forward,
            Phase::Loss => &self.loss,
            Phase::Backward => &self.backward,
        }
    }

    /// The runs of gradients whose all-reduces it starts, in their order.
    pub(super) fn buckets(&self) -> impl Iterator<Item = Span> + '_ {
        let starts = self.program().steps.iter().filter(|step| matches!(step.op, Op::AllReduceStart(_)));
        starts.map(|step| self.executable.span(step.results[0]))
    }
}
