//! The ops, a file for each topic: options, shapes, gradient, cost.

mod activation;
mod add;
mod batch_norm;
mod channels;
mod conv2d;
mod cross_entropy;
mod dropout;
mod exchange;
mod linear;
mod pool;
mod reshape;
mod scale;
mod shared_batch_norm;

pub use activation::{Activate, ActivationGradient};
pub use add::Add;
pub use batch_norm::{
    BatchNormInfer, BatchNormInputGradient, BatchNormRepeat, BatchNormTrain, BatchNormWeightGradient,
};
pub use channels::{Concat, Slice};
pub use conv2d::{Conv2dForward, Conv2dInputGradient, Conv2dNormalized, Conv2dWeightGradient};
pub use cross_entropy::CrossEntropy;
pub use dropout::Dropout;
pub use exchange::{Gather, Join, Receive, SumOverReplicas};
pub use linear::{LinearForward, LinearInputGradient, LinearWeightGradient};
pub use pool::{AveragePool, AveragePoolGradient, MaxPool, MaxPoolGradient};
pub use reshape::Reshape;
pub use scale::Scale;
pub use shared_batch_norm::{BatchNormJoined, BatchNormMoments};

use crate::passes::Gradients;
use crate::{Activation, Error, Result, Shape, TensorId};

/// Operands of a fixed number, or an error that says how many there should be.
fn operands<const N: usize>(op: &'static str, shapes: &[Shape]) -> Result<[Shape; N]> {
    shapes.try_into().map_err(|_| count(op, shapes.len(), N))
}

fn count(op: &'static str, got: usize, expected: usize) -> Error {
    Error::Length { op, what: "the list of operands", expected, got }
}

/// Checks that a run of numbers has one for each of `c` channels.
fn per_channel(op: &'static str, what: &'static str, run: Shape, c: usize) -> Result<()> {
    Error::check_shape(op, what, run, Shape::vectors(1, c))
}

/// The gradient before a fused activation.
fn before_activation(act: Activation, y: TensorId, dy: TensorId, to: &mut Gradients) -> Result<TensorId> {
    match act {
        Activation::None => Ok(dy),
        act => Ok(to.push(ActivationGradient { act }, &[y, dy], &[])?[0]),
    }
}

/// `relu` behind a comma, where there is an activation.
fn and_activation(act: Activation) -> String {
    if act == Activation::None { String::new() } else { format!(", {}", act.name()) }
}
