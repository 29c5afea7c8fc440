use crate::ops::*;
use crate::passes::Gradients;
use crate::{Arena, Error, Result, Shape, Step, TensorId};

/// What an op is: its options are its fields, and its rules are these methods. `ops` has a file for each topic.
///
/// Operands and results have an order, which the op's documentation tells. Shapes are those of one sample for activations.
pub trait Rule {
    /// The name in printed programs and errors.
    fn name(&self) -> &'static str;

    /// The options in printed programs: `3x3, stride 2`.
    fn options(&self) -> String {
        String::new()
    }

    /// The results' shapes.
    ///
    /// # Errors
    /// If the operands do not fit.
    fn results(&self, operands: &[Shape]) -> Result<Vec<Shape>>;

    /// In which arena a result lies.
    fn arena(&self, _result: usize) -> Arena {
        Arena::Activations
    }

    /// The ops of the backward pass: reads the gradient of the step's first result, and adds to those of its operands.
    ///
    /// # Errors
    /// As [`Gradients::push`]; by default that the op has none.
    fn gradient(&self, _step: &Step, _to: &mut Gradients) -> Result<()> {
        let (what, value, accepted) = ("the gradient", "asked for", "left alone: this op has none");
        Err(Error::Option { op: self.name(), what, value, accepted })
    }

    /// The operands in whose memory the first result may lie, the best one first.
    fn in_place(&self) -> &'static [usize] {
        &[]
    }

    /// Whether the op can add its first result to another tensor.
    fn adds(&self) -> bool {
        false
    }

    /// For an op that costs little: the op and the operands that compute the first result of `step` once more, with the same bits,
    /// where all results are still there but the first one.
    fn repeat(&self, _step: &Step) -> Option<(Op, Vec<TensorId>)> {
        None
    }

    /// Multiply-adds for one sample.
    fn multiply_adds(&self, _operands: &[Shape]) -> usize {
        0
    }
}

impl Op {
    /// Whether the caller does it, with other replicas.
    pub fn is_exchange(&self) -> bool {
        matches!(self, Op::Gather(_) | Op::SumOverReplicas(_))
    }
}

macro_rules! ops {
    ($($(#[$doc:meta])* $op:ident),+ $(,)?) => {
        /// An op with its options.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Op {
            $($(#[$doc])* $op($op)),+
        }

        impl core::ops::Deref for Op {
            type Target = dyn Rule;

            fn deref(&self) -> &Self::Target {
                match self {
                    $(Op::$op(op) => op),+
                }
            }
        }

        $(impl From<$op> for Op {
            fn from(op: $op) -> Op {
                Op::$op(op)
            }
        })+
    };
}

ops! {
    /// A convolution.
    Conv2dForward,
    /// A convolution and the normalization that follows it, in inference.
    Conv2dNormalized,
    /// The gradient of a convolution's input.
    Conv2dInputGradient,
    /// The gradients of a convolution's kernel and bias.
    Conv2dWeightGradient,
    /// A dense layer.
    LinearForward,
    /// The gradient of a dense layer's input.
    LinearInputGradient,
    /// The gradients of a dense layer's kernel and bias.
    LinearWeightGradient,
    /// Batch normalization with the batch's own statistics.
    BatchNormTrain,
    /// Batch normalization with running averages.
    BatchNormInfer,
    /// The output of a batch normalization once more.
    BatchNormRepeat,
    /// One replica's statistics of a batch.
    BatchNormMoments,
    /// Batch normalization with the statistics of all replicas.
    BatchNormJoined,
    /// The gradients of gamma and beta.
    BatchNormWeightGradient,
    /// The gradient of a batch normalization's input.
    BatchNormInputGradient,
    /// An activation function.
    Activate,
    /// The gradient before an activation function.
    ActivationGradient,
    /// A sum of two tensors.
    Add,
    /// The largest element of each window.
    MaxPool,
    /// Its gradient.
    MaxPoolGradient,
    /// The mean of each window.
    AveragePool,
    /// Its gradient.
    AveragePoolGradient,
    /// Drops elements.
    Dropout,
    /// Multiplies by a constant.
    Scale,
    /// The same numbers in another shape.
    Reshape,
    /// Several tensors side by side, along the channels.
    Concat,
    /// Some channels of a tensor.
    Slice,
    /// Two runs of numbers, one behind the other.
    Join,
    /// What all replicas have, one behind the other.
    Gather,
    /// The sum over all replicas.
    SumOverReplicas,
    /// The gradient that the next stage computed.
    Receive,
    /// The loss.
    CrossEntropy,
}
