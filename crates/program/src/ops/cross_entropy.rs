use super::operands;
use crate::rule::Rule;
use crate::{Error, Kind, Result, Shape, SoftmaxXent, StepArgs, Target};

/// Softmax cross-entropy. Reads the logits (a vector a sample) and the labels. Writes the gradient of the logits, in training, then two
/// numbers: the sum of the losses, and how many samples have their label as their largest logit.
///
/// Label smoothing and the scale of the gradient are the step's: [`StepArgs`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropy {
    /// Whether the gradient is computed.
    pub gradient: bool,
}

impl CrossEntropy {
    /// The loss of a step.
    pub fn loss(&self, args: &StepArgs) -> SoftmaxXent {
        let scale = if self.gradient { 1.0 / args.global_batch as f32 } else { 1.0 };
        SoftmaxXent { label_smoothing: args.label_smoothing, scale, mixed: args.mixed }
    }
}

impl Rule for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn operands(&self) -> &'static [Kind] {
        const { &[Kind::batch("the logits"), Kind::labels()] }
    }

    fn results(&self) -> &'static [Kind] {
        let all = const { &[Kind::batch("the gradient of the logits"), Kind::gradient("the metrics")] };
        if self.gradient { all } else { &all[1..] }
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let [logits, labels] = operands(self.name(), shapes)?;
        Error::check_shape(self.name(), "the logits", logits, logits.flatten())?;
        Error::check_shape(self.name(), "the labels", labels, Shape::vectors(1, Target::WORDS))?;
        Ok(self.gradient.then_some(logits).into_iter().chain([Shape::vectors(1, 2)]).collect())
    }
}
