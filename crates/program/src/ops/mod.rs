//! The ops, a file for each topic: options, kinds of operands and results, shapes, gradient, cost.

mod activation;
mod add;
mod batch_norm;
mod channels;
mod conv2d;
mod cross_entropy;
mod depthwise;
mod dropout;
mod exchange;
mod group_norm;
mod layer_norm;
mod linear;
mod local_response_norm;
mod merge;
mod pool;
mod prelu;
mod reshape;
mod scale;
mod sync_batch_norm;
mod upsample;
mod zero_pad;

pub use activation::{Activate, ActivationGradient};
pub use add::Add;
pub use batch_norm::{
    BatchNormInfer, BatchNormInferGradient, BatchNormInputGradient, BatchNormRecompute, BatchNormTrain,
    BatchNormWeightGradient,
};
pub use channels::{ChannelShuffle, Concat, Slice, SliceGradient};
pub use conv2d::{Conv2dForward, Conv2dInputGradient, Conv2dNormalized, Conv2dWeightGradient};
pub use cross_entropy::CrossEntropy;
pub use depthwise::{
    Depthwise, DepthwiseForward, DepthwiseInputGradient, DepthwiseNormalized, DepthwiseWeightGradient,
};
pub use dropout::Dropout;
pub use exchange::{AllGather, AllReduce, AllReduceStart, Join, Neighbor, Receive, Send};
pub use group_norm::{GroupNorm, GroupNormGradient};
pub use layer_norm::{LayerNorm, LayerNormGradient};
pub use linear::{LinearForward, LinearInputGradient, LinearWeightGradient};
pub use local_response_norm::{LocalResponseNorm, LocalResponseNormGradient};
pub use merge::{How, Merge, MergeGradient, Spread};
pub use pool::{AveragePool, AveragePoolGradient, MaxPool, MaxPoolGradient};
pub use prelu::{PRelu, PReluInputGradient, PReluSlopeGradient};
pub use reshape::Reshape;
pub use scale::Scale;
pub use sync_batch_norm::{BatchNormMoments, SyncBatchNorm};
pub use upsample::{Upsample, UpsampleGradient};
pub use zero_pad::ZeroPad;

/// The operands of each op, by name.
///
/// ```
/// use towers_program::operands;
///
/// let given = operands::Conv2dForward { x: "x", w: "kernel", b: None };
/// assert_eq!(Vec::from(given), ["x", "kernel"]);
/// ```
pub mod operands {
    pub use super::activation::operands::*;
    pub use super::add::operands::*;
    pub use super::batch_norm::operands::*;
    pub use super::channels::operands::*;
    pub use super::conv2d::operands::*;
    pub use super::cross_entropy::operands::*;
    pub use super::depthwise::operands::*;
    pub use super::dropout::operands::*;
    pub use super::exchange::operands::*;
    pub use super::group_norm::operands::*;
    pub use super::layer_norm::operands::*;
    pub use super::linear::operands::*;
    pub use super::local_response_norm::operands::*;
    pub use super::merge::operands::*;
    pub use super::pool::operands::*;
    pub use super::prelu::operands::*;
    pub use super::reshape::operands::*;
    pub use super::scale::operands::*;
    pub use super::sync_batch_norm::operands::*;
    pub use super::upsample::operands::*;
    pub use super::zero_pad::operands::*;
}

/// The results of each op that has more than one, by name.
pub mod results {
    pub use super::batch_norm::results::*;
    pub use super::conv2d::results::*;
    pub use super::depthwise::results::*;
    pub use super::exchange::results::*;
    pub use super::group_norm::results::*;
    pub use super::layer_norm::results::*;
    pub use super::linear::results::*;
    pub use super::prelu::results::*;
    pub use super::sync_batch_norm::results::*;

    crate::signature::names! { Output, "results", y: batch "the output" }
}

use crate::rule::Rule;
use crate::{Activation, Error, Result, Shape};

fn count(op: &'static str, got: usize, expected: usize) -> Error {
    Error::Length { op, what: "the list of operands", expected, got }
}

/// Checks that a run of numbers has one for each of `c` channels.
fn per_channel(op: &'static str, what: &'static str, run: Shape, c: usize) -> Result<()> {
    Error::check_shape(op, what, run, Shape::vectors(1, c))
}

/// `relu` behind a comma, where there is an activation.
fn and_activation(act: Activation) -> String {
    if act == Activation::None { String::new() } else { format!(", {act}") }
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

        impl core::ops::DerefMut for Op {
            fn deref_mut(&mut self) -> &mut Self::Target {
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
    /// A depthwise convolution.
    DepthwiseForward,
    /// A depthwise convolution and the normalization that follows it, in inference.
    DepthwiseNormalized,
    /// The gradient of a depthwise convolution's input.
    DepthwiseInputGradient,
    /// The gradients of a depthwise convolution's kernel and bias.
    DepthwiseWeightGradient,
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
    /// The gradient of its input.
    BatchNormInferGradient,
    /// The output of a batch normalization once more.
    BatchNormRecompute,
    /// One replica's statistics of a batch.
    BatchNormMoments,
    /// Batch normalization with the statistics of all replicas.
    SyncBatchNorm,
    /// The gradients of gamma and beta.
    BatchNormWeightGradient,
    /// The gradient of a batch normalization's input.
    BatchNormInputGradient,
    /// Normalization over groups of channels.
    GroupNorm,
    /// Its gradients.
    GroupNormGradient,
    /// Normalization of each pixel over its channels.
    LayerNorm,
    /// Its gradients.
    LayerNormGradient,
    /// Each channel by its neighbours.
    LocalResponseNorm,
    /// Its gradient.
    LocalResponseNormGradient,
    /// An activation function.
    Activate,
    /// The gradient before an activation function.
    ActivationGradient,
    /// A ReLU with trained slopes.
    PRelu,
    /// The gradient of its input.
    PReluInputGradient,
    /// The gradient of its slopes.
    PReluSlopeGradient,
    /// A sum of two tensors.
    Add,
    /// A product or a sum of two tensors, the second of which may be spread.
    Merge,
    /// The gradient of what is spread.
    MergeGradient,
    /// The largest element of each window.
    MaxPool,
    /// Its gradient.
    MaxPoolGradient,
    /// The mean of each window.
    AveragePool,
    /// Its gradient.
    AveragePoolGradient,
    /// Zeros around images, or images without their borders.
    ZeroPad,
    /// Larger images.
    Upsample,
    /// Its gradient.
    UpsampleGradient,
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
    /// The gradient of a slice's input.
    SliceGradient,
    /// Channels in another order.
    ChannelShuffle,
    /// Two runs of numbers, one behind the other.
    Join,
    /// The runs of all replicas, one behind the other.
    AllGather,
    /// The sum over all replicas.
    AllReduce,
    /// Starts the sum of some gradients over all replicas.
    AllReduceStart,
    /// Sends a tensor to another stage.
    Send,
    /// A tensor that another stage sends.
    Receive,
    /// The loss.
    CrossEntropy,
}

impl Op {
    /// Whether it needs other replicas or stages, so that the caller does it and no device.
    pub fn is_exchange(&self) -> bool {
        self.is_synchronization() || matches!(self, Op::AllReduceStart(_) | Op::Send(_) | Op::Receive(_))
    }

    /// Whether it shares statistics of the batch with the other replicas, which then all run it, those without samples too.
    pub fn is_synchronization(&self) -> bool {
        matches!(self, Op::AllGather(_) | Op::AllReduce(_))
    }
}
