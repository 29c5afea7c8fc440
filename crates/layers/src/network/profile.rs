//! A traced pass, to time each step, and the work of each layer.

use super::graph::{Graph, elements};
use super::instance::Network;
use crate::{Draws, Result, Role};
use std::borrow::Cow;
use towers_program::{Program, Shape};

/// The work of a layer for one sample.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Work {
    /// The layer's name.
    pub name: String,
    /// The layer's type as Keras spells it.
    pub kind: Cow<'static, str>,
    /// The input, for one sample.
    pub x: Shape,
    /// The output, for one sample.
    pub y: Shape,
    /// Multiply-adds of the layer's weights in the forward pass. As is usual, every weight of a kernel counts
    /// once for each output, in the padding too. Elementwise work doesn't count.
    pub multiply_adds: usize,
    /// The same for the backward pass: once for the gradient of trained weights, and once for the input's gradient
    /// if a trained parameter comes before the layer.
    pub backward_multiply_adds: usize,
    /// Trainable parameters.
    pub trainable: usize,
    /// Frozen parameters and running averages.
    pub non_trainable: usize,
}

impl Graph {
    /// The work of each layer, in the order of the forward pass. Layers that [only join](crate::Layer::only_joins) others are
    /// left out.
    pub fn work(&self) -> Vec<Work> {
        // By value: whether it depends on a trained parameter.
        let mut trains = vec![false; self.shapes.len()];
        let work = self.nodes.iter().filter_map(|node| {
            let (x, y) = (self.shape(node.inputs[0]), self.shape(node.output));
            let specs = node.params(&self.shapes);
            let reaches = node.inputs.iter().any(|input| trains[input.0]);
            trains[node.output.0] = reaches || specs.iter().any(|spec| spec.role == Role::Trainable);
            if node.layer.only_joins() {
                return None;
            }
            let count = |trainable: bool| {
                let of_kind = specs.iter().filter(|spec| (spec.role == Role::Trainable) == trainable);
                of_kind.map(|spec| elements(&spec.shape)).sum()
            };
            // A parameter with one dimension is a bias or a scale, not a kernel.
            let kernels = || specs.iter().filter(|spec| spec.shape.len() > 1);
            let [weights, trained] = [false, true].map(|only_trained| {
                let counted = kernels().filter(|spec| !only_trained || spec.role == Role::Trainable);
                counted.map(|spec| elements(&spec.shape)).sum::<usize>()
            });
            let of_input = if reaches { weights } else { 0 };
            Some(Work {
                name: node.name.clone(),
                kind: node.layer.kind(),
                x,
                y,
                multiply_adds: weights * y.h * y.w,
                backward_multiply_adds: (trained + of_input) * y.h * y.w,
                trainable: count(true),
                non_trainable: count(false),
            })
        });
        work.collect()
    }
}

/// A piece of a traced pass.
#[derive(Clone, Copy, Debug)]
pub enum Traced<'a> {
    /// The step of this number.
    Step(&'a Program, usize),
    /// The device's last work on the gradients, after all steps: [`towers_program::Backend::finish_grads`].
    Gradients,
}

impl Network {
    /// A [`train_pass`](Network::train_pass) that calls `ended` after each step of its program, once the
    /// device has finished it. Exchanges are left out.
    ///
    /// It waits for the device after each step, so all steps together take longer than the pass does.
    ///
    /// # Errors
    /// As [`train_pass`](Network::train_pass).
    pub fn trace_train_pass(
        &mut self,
        draws: Draws,
        label_smoothing: f32,
        global_batch: usize,
        mut ended: impl FnMut(Traced),
    ) -> Result<()> {
        self.trace(Some(draws), label_smoothing, global_batch, &mut ended)?;
        self.finish_grads()?;
        self.device.synchronize()?;
        ended(Traced::Gradients);
        Ok(())
    }

    /// The same for [`evaluate_pass`](Network::evaluate_pass), which has no backward steps.
    ///
    /// # Errors
    /// As [`evaluate_pass`](Network::evaluate_pass).
    pub fn trace_evaluate_pass(&mut self, mut ended: impl FnMut(Traced)) -> Result<()> {
        self.trace(None, 0.0, 1, &mut ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchNormalization, Concatenate, Conv2D, Dense, Flatten, Mode, Value};
    use towers_program::Phase;

    /// A convolution, a normalization, and the same again beside it, into a dense layer.
    fn graph() -> (Graph, Value) {
        let mut graph = Graph::new("test", [6, 6, 3]);
        let x = graph.add(Conv2D::new(4, 3).same(), graph.input()).unwrap();
        let a = graph.add(BatchNormalization::new(), x).unwrap();
        let b = graph.add(Conv2D::new(5, 3).strides(2).same(), a).unwrap();
        let c = graph.add(Conv2D::new(6, 1).strides(2), a).unwrap();
        let both = graph.add(Concatenate, [b, c]).unwrap();
        let flat = graph.add(Flatten, both).unwrap();
        let logits = graph.add(Dense::new(10), flat).unwrap();
        (graph, logits)
    }

    #[test]
    fn work_counts_weights_once_for_each_place() {
        let (graph, _) = graph();
        let work = graph.work();
        let counts: Vec<_> = work.iter().map(|w| (w.name.as_str(), w.multiply_adds, w.trainable)).collect();
        let dense = 3 * 3 * 11 * 10;
        assert_eq!(
            counts,
            [
                ("conv2d", 9 * 3 * 4 * 36, 9 * 3 * 4 + 4),
                ("batch_normalization", 0, 8),
                ("conv2d_1", 9 * 4 * 5 * 9, 9 * 4 * 5 + 5),
                ("conv2d_2", 4 * 6 * 9, 4 * 6 + 6),
                ("flatten", 0, 0),
                ("dense", dense, dense + 10),
            ]
        );
        assert_eq!((&*work[1].kind, work[1].non_trainable), ("BatchNormalization", 8));
        // No layer reads the gradient of the images.
        let backward: Vec<_> = work
            .iter()
            .filter(|w| w.multiply_adds > 0)
            .map(|w| w.backward_multiply_adds / w.multiply_adds)
            .collect();
        assert_eq!(backward, [1, 2, 2, 2]);
    }

    /// Frozen parameters count as frozen and have no gradient. Layers below them all compute none.
    #[test]
    fn work_knows_what_is_frozen() {
        let (mut graph, logits) = graph();
        let all: usize = graph.work().iter().map(|w| w.trainable + w.non_trainable).sum();
        graph.freeze(|name| name.starts_with("conv2d/") || name == "conv2d_1/kernel");
        let (work, summary) = (graph.work(), graph.summary(logits));
        let trainable: usize = work.iter().map(|w| w.trainable).sum();
        let non_trainable: usize = work.iter().map(|w| w.non_trainable).sum();
        assert_eq!((trainable, non_trainable), (summary.trainable, summary.non_trainable));
        assert_eq!(trainable + non_trainable, all);
        let backward: Vec<_> = work
            .iter()
            .filter(|w| w.multiply_adds > 0)
            .map(|w| w.backward_multiply_adds / w.multiply_adds)
            .collect();
        // Nothing, the input's, both, both.
        assert_eq!(backward, [0, 1, 2, 2]);
    }

    #[test]
    fn a_traced_pass_has_every_step_once_in_order_and_the_same_result() {
        let (graph, logits) = graph();
        let mut network = graph.build(logits, &towers_tensor_cpu::device(1), 2, Mode::Training).unwrap();
        network.init(3).unwrap();
        let images: Vec<f32> = (0..2 * 108).map(|k| (k as f32 * 0.37).sin()).collect();
        network.set_input(&images, &[1, 7]).unwrap();
        let draws = Draws { seed: 3, step: 0, first_sample: 0 };
        network.train_pass(draws, 0.0, 2).unwrap();
        let all = |network: &Network| {
            let grads = &network.arena().grads;
            grads.to_vec(network.device(), 0, grads.len()).unwrap()
        };
        let plain = all(&network);
        let (mut steps, mut own, mut ends) = (Vec::new(), Vec::new(), 0);
        let ended = |traced: Traced| match traced {
            Traced::Step(program, step) => {
                // A single replica exchanges nothing.
                let is_own = |&k: &usize| !program.steps[k].op.is_exchange();
                own = (0..program.steps.len()).filter(is_own).collect();
                steps.push(step);
            }
            Traced::Gradients => ends += 1,
        };
        network.trace_train_pass(draws, 0.0, 2, ended).unwrap();
        assert_eq!((all(&network), ends), (plain, 1));
        assert_eq!(steps, own);
        let mut phases = Vec::new();
        let ended = |traced: Traced| {
            let Traced::Step(program, step) = traced else { panic!("inference has no gradients") };
            phases.push(program.steps[step].phase);
        };
        network.trace_evaluate_pass(ended).unwrap();
        assert_eq!(phases.pop(), Some(Phase::Loss));
        assert!(phases.iter().all(|&phase| phase == Phase::Forward) && phases.len() > 3);
    }
}
