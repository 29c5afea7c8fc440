use super::activation::before_activation;
use super::{count, operands, per_channel};
use crate::Op;
use crate::passes::Gradients;
use crate::rule::Rule;
use crate::{Activation, Arena, BatchNorm, Error, Result, Shape, Step, StepArgs, TensorId};

/// Batch normalization with the batch's own statistics.
///
/// Reads x, gamma, beta and, if the op before has left one out of x, its bias, which the mean takes away again. Writes y; the means and
/// `1/sqrt(var + epsilon)` for the backward pass; and `n * mean` and `n * unbiased variance`, `n` the samples, which become running
/// averages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormTrain {
    /// The normalization.
    pub bn: BatchNorm,
}

/// Batch normalization with running averages. Reads x, gamma, beta, mean and variance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormInfer {
    /// The normalization.
    pub bn: BatchNorm,
}

/// The output of a [`BatchNormTrain`] once more. Reads x, gamma, beta and the saved statistics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormRecompute {
    /// The normalization.
    pub bn: BatchNorm,
}

/// The gradients of gamma and beta. Reads x, gamma, beta, the saved statistics and dy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormWeightGradient {
    /// The normalization.
    pub bn: BatchNorm,
}

/// The gradient of the input. Reads x, gamma, beta, the saved statistics, dy, and the gradients of gamma and beta over the whole batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormInputGradient {
    /// The normalization.
    pub bn: BatchNorm,
    /// Whether the whole batch is that of all replicas.
    pub shared: bool,
}

impl BatchNormInputGradient {
    /// How many numbers each channel has in the whole batch, for an input of this shape.
    pub fn count(&self, args: &StepArgs, x: Shape) -> usize {
        let samples = if self.shared { args.global_batch } else { x.n };
        samples * x.h * x.w
    }
}

pub(super) fn options(bn: &BatchNorm) -> String {
    format!("epsilon {}{}", bn.epsilon, super::and_activation(bn.act))
}

/// Checks gamma and beta.
fn affine(op: &'static str, x: Shape, gamma: Shape, beta: Shape) -> Result<()> {
    per_channel(op, "gamma", gamma, x.c)?;
    per_channel(op, "beta", beta, x.c)
}

fn saved(op: &'static str, x: Shape, saved: Shape) -> Result<()> {
    per_channel(op, "the saved statistics", saved, 2 * x.c)
}

impl Rule for BatchNormTrain {
    fn name(&self) -> &'static str {
        "batch_norm"
    }

    fn options(&self) -> String {
        options(&self.bn)
    }

    fn results(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let (&[x, gamma, beta, ref bias @ ..], 3..=4) = (shapes, shapes.len()) else {
            return Err(count(self.name(), shapes.len(), 4));
        };
        affine(self.name(), x, gamma, beta)?;
        bias.iter().try_for_each(|&bias| per_channel(self.name(), "the bias", bias, x.c))?;
        Ok(vec![x, Shape::vectors(1, 2 * x.c), Shape::vectors(1, 2 * x.c)])
    }

    fn arena(&self, result: usize) -> Arena {
        [Arena::Activations, Arena::Statistics, Arena::Gradients][result]
    }
}

impl BatchNormTrain {
    pub(crate) fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let &[x, gamma, beta, ..] = &step.operands[..] else { return Ok(()) };
        let (saved, dy) = (step.results[1], to.of(step));
        let given = to.of_parameters(&[gamma, beta])?;
        let sums = to.push(BatchNormWeightGradient { bn: self.bn }, &[x, gamma, beta, saved, dy], &given)?;
        let op = BatchNormInputGradient { bn: self.bn, shared: false };
        to.add_op(x, op, &[x, gamma, beta, saved, dy, sums[0], sums[1]])
    }

    pub(crate) fn recompute(&self, step: &Step) -> Option<(Op, Vec<TensorId>)> {
        let &[x, gamma, beta, ..] = &step.operands[..] else { return None };
        Some((BatchNormRecompute { bn: self.bn }.into(), vec![x, gamma, beta, step.results[1]]))
    }
}

impl Rule for BatchNormInfer {
    fn name(&self) -> &'static str {
        "batch_norm_infer"
    }

    fn options(&self) -> String {
        options(&self.bn)
    }

    fn results(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let [x, gamma, beta, mean, var] = operands(self.name(), shapes)?;
        affine(self.name(), x, gamma, beta)?;
        per_channel(self.name(), "the mean", mean, x.c)?;
        per_channel(self.name(), "the variance", var, x.c)?;
        Ok(vec![x])
    }
}

impl BatchNormInfer {
    /// Of the input alone: in training only a frozen layer uses running averages. The output is `x` times a factor a channel, plus a
    /// constant. So its gradient is normalized like `x`, with a mean and a beta of 0. These zeros are the gradient of the frozen beta,
    /// which nothing writes.
    pub(crate) fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let &[x, gamma, beta, _, variance] = &step.operands[..] else { return Ok(()) };
        if !to.wants(x) {
            return Ok(());
        }
        let dy = before_activation(self.bn.act, step.results[0], to.of(step), to)?;
        let zeros = to.of_parameters(&[beta])?[0];
        let bn = BatchNorm { act: Activation::None, ..self.bn };
        to.add_op(x, BatchNormInfer { bn }, &[dy, gamma, zeros, zeros, variance])
    }
}

impl Rule for BatchNormRecompute {
    fn name(&self) -> &'static str {
        "batch_norm_recompute"
    }

    fn options(&self) -> String {
        options(&self.bn)
    }

    fn results(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let [x, gamma, beta, of_batch] = operands(self.name(), shapes)?;
        affine(self.name(), x, gamma, beta)?;
        saved(self.name(), x, of_batch)?;
        Ok(vec![x])
    }
}

impl Rule for BatchNormWeightGradient {
    fn name(&self) -> &'static str {
        "batch_norm_weight_gradient"
    }

    fn options(&self) -> String {
        options(&self.bn)
    }

    fn results(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let [x, gamma, beta, of_batch, dy] = operands(self.name(), shapes)?;
        affine(self.name(), x, gamma, beta)?;
        saved(self.name(), x, of_batch)?;
        Error::check_shape(self.name(), "dy", dy, x)?;
        Ok(vec![gamma, beta])
    }

    fn arena(&self, _: usize) -> Arena {
        Arena::Gradients
    }
}

impl Rule for BatchNormInputGradient {
    fn name(&self) -> &'static str {
        "batch_norm_input_gradient"
    }

    fn options(&self) -> String {
        options(&self.bn)
    }

    fn results(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let [x, gamma, beta, of_batch, dy, dgamma, dbeta] = operands(self.name(), shapes)?;
        affine(self.name(), x, gamma, beta)?;
        affine(self.name(), x, dgamma, dbeta)?;
        saved(self.name(), x, of_batch)?;
        Error::check_shape(self.name(), "dy", dy, x)?;
        Ok(vec![x])
    }

    fn adds(&self) -> bool {
        true
    }
}
