use crate::{Layer, Lower, Operation};
use tensor::{Activation, Error, Result, Shape, TensorId, ops};

/// `max(x, 0)` as a layer of its own. Where it follows a convolution, a dense layer or a normalization, that layer's
/// `activation` does the same in one pass less over the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relu;

/// [`Activation::Gelu`] as a layer of its own: Keras' `Activation("gelu")`. Where it follows a normalization, that layer's
/// `activation` does the same in one pass less over the memory; convolutions and dense layers can't, as its gradient needs what
/// they would overwrite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gelu;

impl Layer for Relu {
    fn kind(&self) -> &'static str {
        "ReLU"
    }

    fn lower(&self, to: &mut Lower, x: TensorId) -> Result<TensorId> {
        to.push(ops::Activate { act: Activation::Relu }, &[x])
    }

    fn operation(&self, _x: Shape) -> Option<Operation> {
        Some(Operation::Activation(Activation::Relu))
    }
}

impl Layer for Gelu {
    fn kind(&self) -> &'static str {
        "GELU"
    }

    fn lower(&self, to: &mut Lower, x: TensorId) -> Result<TensorId> {
        to.push(ops::Activate { act: Activation::Gelu }, &[x])
    }

    fn operation(&self, _x: Shape) -> Option<Operation> {
        Some(Operation::Activation(Activation::Gelu))
    }
}

/// Refuses an activation whose gradient needs what an op with it fused in would overwrite.
pub(crate) fn check_fused(op: &'static str, act: Activation) -> Result<()> {
    if !act.reads_input() {
        return Ok(());
    }
    let (name, accepted) =
        (act.name(), "a layer of its own behind this one: its gradient needs what comes in");
    Err(Error::Option { op, what: "the activation", value: name, accepted })
}
