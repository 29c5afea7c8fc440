use super::activation::before_activation;
use super::{count, operands, per_channel};
use crate::Op;
use crate::passes::Gradients;
use crate::rule::Rule;
use crate::{BatchNorm, Error, Kind, Result, Shape, Step, StepArgs, TensorId};

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

    fn operands(&self) -> &'static [Kind] {
        const {
            &[
                Kind::batch("the input"),
                Kind::parameter("gamma"),
                Kind::parameter("beta"),
                Kind::parameter("the bias").optional(),
            ]
        }
    }

    fn results(&self) -> &'static [Kind] {
        const { &[Kind::batch("the output"), Kind::statistic("the saved statistics"), Kind::gradient("the sums")] }
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let (&[x, gamma, beta, ref bias @ ..], 3..=4) = (shapes, shapes.len()) else {
            return Err(count(self.name(), shapes.len(), 4));
        };
        affine(self.name(), x, gamma, beta)?;
        bias.iter().try_for_each(|&bias| per_channel(self.name(), "the bias", bias, x.c))?;
        Ok(vec![x, Shape::vectors(1, 2 * x.c), Shape::vectors(1, 2 * x.c)])
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

    fn operands(&self) -> &'static [Kind] {
        const {
            &[
                Kind::batch("the input"),
                Kind::parameter("gamma"),
                Kind::parameter("beta"),
                Kind::average("the mean"),
                Kind::average("the variance"),
            ]
        }
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let [x, gamma, beta, mean, var] = operands(self.name(), shapes)?;
        affine(self.name(), x, gamma, beta)?;
        per_channel(self.name(), "the mean", mean, x.c)?;
        per_channel(self.name(), "the variance", var, x.c)?;
        Ok(vec![x])
    }
}

impl BatchNormInfer {
    /// The gradient of the input alone: in training only a frozen layer uses running averages.
    pub(crate) fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let &[x, gamma, beta, _, variance] = &step.operands[..] else { return Ok(()) };
        for (what, parameter) in [("gamma", gamma), ("beta", beta)] {
            if to.wants(parameter) {
                let (value, accepted) = ("trained", "frozen: running averages have no gradient for it");
                return Err(Error::Option { op: self.name(), what, value, accepted });
            }
        }
        let dy = before_activation(self.bn.act, step.results[0], to.of(step), to)?;
        to.add_op(x, BatchNormInferGradient { epsilon: self.bn.epsilon }, &[dy, gamma, variance])
    }
}

impl Rule for BatchNormInferGradient {
    fn name(&self) -> &'static str {
        "batch_norm_infer_gradient"
    }

    fn options(&self) -> String {
        format!("epsilon {}", self.epsilon)
    }

    fn operands(&self) -> &'static [Kind] {
        const { &[Kind::batch("dy"), Kind::parameter("gamma"), Kind::average("the variance")] }
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let [dy, gamma, var] = operands(self.name(), shapes)?;
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

    fn operands(&self) -> &'static [Kind] {
        const {
            &[
                Kind::batch("the input"),
                Kind::parameter("gamma"),
                Kind::parameter("beta"),
                Kind::statistic("the saved statistics"),
            ]
        }
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
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

    fn operands(&self) -> &'static [Kind] {
        const {
            &[
                Kind::batch("the input"),
                Kind::parameter("gamma"),
                Kind::parameter("beta"),
                Kind::statistic("the saved statistics"),
                Kind::batch("dy"),
            ]
        }
    }

    fn results(&self) -> &'static [Kind] {
        const { &[Kind::gradient("the gradient of gamma"), Kind::gradient("the gradient of beta")] }
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let [x, gamma, beta, of_batch, dy] = operands(self.name(), shapes)?;
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

    fn operands(&self) -> &'static [Kind] {
        if self.shared {
            const {
                &[
                    Kind::batch("the input"),
                    Kind::parameter("gamma"),
                    Kind::parameter("beta"),
                    Kind::statistic("the saved statistics"),
                    Kind::batch("dy"),
                    Kind::statistic("the gradients of gamma and beta"),
                ]
            }
        } else {
            const {
                &[
                    Kind::batch("the input"),
                    Kind::parameter("gamma"),
                    Kind::parameter("beta"),
                    Kind::statistic("the saved statistics"),
                    Kind::batch("dy"),
                    Kind::gradient("the gradient of gamma"),
                    Kind::gradient("the gradient of beta"),
                ]
            }
        }
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let &[x, gamma, beta, of_batch, dy, ref sums @ ..] = shapes else {
            return Err(count(self.name(), shapes.len(), self.operands().len()));
        };
        affine(self.name(), x, gamma, beta)?;
        match (self.shared, sums) {
            (true, &[both]) => saved(self.name(), x, both)?,
            (false, &[dgamma, dbeta]) => affine(self.name(), x, dgamma, dbeta)?,
            _ => return Err(count(self.name(), shapes.len(), self.operands().len())),
        }
        saved(self.name(), x, of_batch)?;
        Error::check_shape(self.name(), "dy", dy, x)?;
        Ok(vec![x])
    }

    fn adds(&self) -> bool {
        true
    }
}
