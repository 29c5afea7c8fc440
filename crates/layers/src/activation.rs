use crate::{Layer, Lower};
use program::{Activation, Error, Result, TensorId, ops};
use std::borrow::Cow;

/// An activation as a layer of its own: Keras' `Activation("relu")`. Where it follows a normalization, that layer's `activation`
/// does the same in one pass less over the memory. Convolutions and dense layers have [`Activation::Relu`] alone: the gradients of
/// the others need what these would overwrite.
///
/// ```
/// use layers::Graph;
/// use program::Activation;
///
/// let mut graph = Graph::new("activations", [8, 8, 3]);
/// let x = graph.add(Activation::Gelu, graph.input())?;
/// # Ok::<(), layers::Error>(())
/// ```
impl Layer for Activation {
    fn kind(&self) -> Cow<'static, str> {
        self.label().into()
    }

    fn lower(&self, to: &mut Lower, x: TensorId) -> Result<TensorId> {
        to.push(ops::Activate { act: *self }, &[x])
    }
}

/// The kind of a layer that does an activation as well: `Add+ReLU`.
pub(crate) fn fused(kind: &'static str, act: Activation) -> Cow<'static, str> {
    match act {
        Activation::None => kind.into(),
        act => format!("{kind}+{}", act.label()).into(),
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
