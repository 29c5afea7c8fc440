use crate::rule::Rule;
use crate::{Error, Kind, Labels, Result, Shape, Signature, Step, StepArgs, TensorId, Xent};

/// Softmax cross-entropy. Reads the logits (a vector a sample) and the labels. Writes the gradient of the logits, in training, then two
/// numbers: the sum of the losses, and how many samples have their label as their largest logit.
///
/// With multi-hot labels it is binary cross-entropy of a sigmoid for each class, and the second number is the sum of each sample's
/// share of right classes: those whose probability is above 1/2 where the sample has them (Keras' `binary_accuracy`).
///
/// Label smoothing and the scale of the gradient are the step's: [`StepArgs`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropy {
    /// Whether the gradient is computed.
    pub gradient: bool,
    /// Whether labels are [multi-hot](Labels::MultiHot).
    pub multi_label: bool,
}

/// The operands of the loss, by name.
pub mod operands {
    crate::signature::names! { CrossEntropy, "operands", logits: batch "the logits", labels: labels "the labels" }
}

impl Signature for CrossEntropy {
    fn operands(&self) -> &'static [Kind] {
        operands::CrossEntropy::<()>::KINDS
    }

    fn results(&self) -> &'static [Kind] {
        let all = const { &[Kind::batch("the gradient of the logits"), Kind::gradient("the metrics")] };
        if self.gradient { all } else { &all[1..] }
    }
}

impl CrossEntropy {
    /// The logits, and the results: their gradient, if it is computed, and the metrics.
    ///
    /// # Errors
    /// If their number is wrong. That of a placed program was checked.
    pub fn bind(&self, step: &Step) -> Result<(TensorId, Option<TensorId>, TensorId)> {
        let operands::CrossEntropy { logits, .. } = operands::CrossEntropy::of(self.name(), &step.operands)?;
        match step.results[..] {
            [dlogits, metrics] if self.gradient => Ok((logits, Some(dlogits), metrics)),
            [metrics] if !self.gradient => Ok((logits, None, metrics)),
            _ => {
                let (what, expected, got) = ("the list of results", self.results().len(), step.results.len());
                Err(Error::Length { op: self.name(), what, expected, got })
            }
        }
    }

    /// The loss of a step.
    pub fn loss(&self, args: &StepArgs) -> Xent {
        let scale = if self.gradient { 1.0 / args.global_batch as f32 } else { 1.0 };
        let labels = match args.targets {
            _ if self.multi_label => Labels::MultiHot,
            true => Labels::Target,
            false => Labels::Class,
        };
        Xent { label_smoothing: args.label_smoothing, scale, labels }
    }

    /// Integers of the memory for a sample's label: of whichever kind a step has.
    pub const fn label_words(&self, classes: usize) -> usize {
        if self.multi_label { Labels::MultiHot.words(classes) } else { Labels::Target.words(classes) }
    }
}

impl Rule for CrossEntropy {
    fn name(&self) -> &'static str {
        if self.multi_label { "binary_cross_entropy" } else { "cross_entropy" }
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::CrossEntropy { logits, labels } = operands::CrossEntropy::of(self.name(), shapes)?;
        Error::check_shape(self.name(), "the logits", logits, logits.flatten())?;
        Error::check_shape(self.name(), "the labels", labels, Shape::vectors(1, self.label_words(logits.c)))?;
        Ok(self.gradient.then_some(logits).into_iter().chain([Shape::vectors(1, 2)]).collect())
    }
}
