use super::activation::before_activation;
use super::{count, per_channel};
use crate::Op;
use crate::passes::Gradients;
use crate::rule::Rule;
use crate::signature::signatures;
use crate::{Activation, BatchNorm, Error, Result, Shape, Step, StepArgs, TensorId};

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

/// The gradient of [`BatchNormInfer`]'s input: `dy * gamma / sqrt(var + epsilon)`. Reads dy, before the activation, gamma and the variance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormInferGradient {
    /// Added to the variance.
    pub epsilon: f32,
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

/// The gradient of the input. Reads x, gamma, beta, the saved statistics, dy, and the gradients of gamma and beta over the whole batch: two
/// runs, or where the batch is shared, one run with both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormInputGradient {
    /// The normalization.
    pub bn: BatchNorm,
    /// Whether the whole batch is that of all replicas.
    pub shared: bool,
}

signatures! {
    BatchNormTrain {
        x: batch "the input", gamma: parameter "gamma", beta: parameter "beta"; bias: parameter "the bias"
    } -> {
        y: batch "the output", saved: statistic "the saved statistics", sums: gradient "the sums"
    }
    BatchNormInfer {
        x: batch "the input", gamma: parameter "gamma", beta: parameter "beta",
        mean: average "the mean", var: average "the variance"
    }
    BatchNormInferGradient { dy: batch "dy", gamma: parameter "gamma", var: average "the variance" }
    BatchNormRecompute {
        x: batch "the input", gamma: parameter "gamma", beta: parameter "beta",
        saved: statistic "the saved statistics"
    }
    BatchNormWeightGradient {
        x: batch "the input", gamma: parameter "gamma", beta: parameter "beta",
        saved: statistic "the saved statistics", dy: batch "dy"
    } -> {
        dgamma: gradient "the gradient of gamma", dbeta: gradient "the gradient of beta"
    }
    BatchNormInputGradient {
        x: batch "the input", gamma: parameter "gamma", beta: parameter "beta",
        saved: statistic "the saved statistics", dy: batch "dy",
        sums: sum "the gradients of gamma and beta"; dbeta: gradient "the gradient of beta"
    }
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

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::BatchNormTrain { x, gamma, beta, bias } = self.operands_of(shapes)?;
        affine(self.name(), x, gamma, beta)?;
        bias.map_or(Ok(()), |bias| per_channel(self.name(), "the bias", bias, x.c))?;
        Ok(vec![x, Shape::vectors(1, 2 * x.c), Shape::vectors(1, 2 * x.c)])
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let operands::BatchNormTrain { x, gamma, beta, .. } = self.operands_of(&step.operands)?;
        let (saved, dy) = (step.results[1], to.of(step));
        let given = to.of_parameters(&[gamma, beta])?;
        let sums = to.push(BatchNormWeightGradient { bn: self.bn }, &[x, gamma, beta, saved, dy], &given)?;
        let op = BatchNormInputGradient { bn: self.bn, shared: false };
        to.add_op(x, op, &[x, gamma, beta, saved, dy, sums[0], sums[1]])
    }

    fn recompute(&self, step: &Step) -> Option<(Op, Vec<TensorId>)> {
        let operands::BatchNormTrain { x, gamma, beta, .. } = self.operands_of(&step.operands).ok()?;
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

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::BatchNormInfer { x, gamma, beta, mean, var } = self.operands_of(shapes)?;
        affine(self.name(), x, gamma, beta)?;
        per_channel(self.name(), "the mean", mean, x.c)?;
        per_channel(self.name(), "the variance", var, x.c)?;
        Ok(vec![x])
    }

    fn fused_activation(&mut self) -> Option<&mut Activation> {
        Some(&mut self.bn.act)
    }

    // The gradient of the input alone: in training only a frozen layer uses running averages.
    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let operands::BatchNormInfer { x, gamma, beta, var, .. } = self.operands_of(&step.operands)?;
        for (what, parameter) in [("gamma", gamma), ("beta", beta)] {
            if to.wants(parameter) {
                let (value, accepted) = ("trained", "frozen: running averages have no gradient for it");
                return Err(Error::Option { op: self.name(), what, value, accepted });
            }
        }
        let dy = before_activation(self.bn.act, step.results[0], to.of(step), to)?;
        to.add_op(x, BatchNormInferGradient { epsilon: self.bn.epsilon }, &[dy, gamma, var])
    }
}

impl Rule for BatchNormInferGradient {
    fn name(&self) -> &'static str {
        "batch_norm_infer_gradient"
    }

    fn options(&self) -> String {
        format!("epsilon {}", self.epsilon)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::BatchNormInferGradient { dy, gamma, var } = self.operands_of(shapes)?;
        per_channel(self.name(), "gamma", gamma, dy.c)?;
        per_channel(self.name(), "the variance", var, dy.c)?;
        Ok(vec![dy])
    }
}

impl Rule for BatchNormRecompute {
    fn name(&self) -> &'static str {
        "batch_norm_recompute"
    }

    fn options(&self) -> String {
        options(&self.bn)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::BatchNormRecompute { x, gamma, beta, saved: of_batch } = self.operands_of(shapes)?;
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

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::BatchNormWeightGradient { x, gamma, beta, saved: of_batch, dy } =
            self.operands_of(shapes)?;
        affine(self.name(), x, gamma, beta)?;
        saved(self.name(), x, of_batch)?;
        Error::check_shape(self.name(), "dy", dy, x)?;
        Ok(vec![gamma, beta])
    }
}

impl Rule for BatchNormInputGradient {
    fn name(&self) -> &'static str {
        "batch_norm_input_gradient"
    }

    fn options(&self) -> String {
        options(&self.bn)
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::BatchNormInputGradient { x, gamma, beta, saved: of_batch, dy, sums, dbeta } =
            self.operands_of(shapes)?;
        affine(self.name(), x, gamma, beta)?;
        match (self.shared, dbeta) {
            (true, None) => saved(self.name(), x, sums)?,
            (false, Some(dbeta)) => affine(self.name(), x, sums, dbeta)?,
            (shared, _) => return Err(count(self.name(), shapes.len(), if shared { 6 } else { 7 })),
        }
        saved(self.name(), x, of_batch)?;
        Error::check_shape(self.name(), "dy", dy, x)?;
        Ok(vec![x])
    }

    fn adds(&self) -> bool {
        true
    }
}
