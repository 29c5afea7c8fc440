use crate::{Layer, Lower};
use std::borrow::Cow;
use towers_program::{Activation, Error, Result, TensorId, ops};

/// An activation as a separate layer: Keras' `Activation("relu")`. After a normalization, that layer's
/// `activation` does the same and saves a pass over the memory. Convolutions and dense layers only take ReLUs:
/// the gradients of the others need values that a fused op would overwrite.
///
/// ```
/// use towers_layers::Graph;
/// use towers_program::Activation;
///
/// let mut graph = Graph::new("activations", [8, 8, 3]);
/// let x = graph.add(Activation::Gelu, graph.input())?;
/// # Ok::<(), towers_layers::Error>(())
/// ```
impl Layer for Activation {
    fn kind(&self) -> Cow<'static, str> {
        self.label().into()
    }

    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        to.push(ops::Activate { act: *self }, inputs)
    }
}

/// The kind of a layer with a fused activation: `Add+ReLU`.
pub(crate) fn fused(kind: &'static str, act: Activation) -> Cow<'static, str> {
    match act {
        Activation::None => kind.into(),
        act => format!("{kind}+{}", act.label()).into(),
    }
}

/// Refuses a fused activation whose gradient needs overwritten values.
pub(crate) fn check_fused(op: &'static str, act: Activation) -> Result<()> {
    if !act.reads_input() {
        return Ok(());
    }
    let (name, accepted) =
        (act.name(), "a layer of its own behind this one: its gradient needs what comes in");
    Err(Error::Option { op, what: "the activation", value: name, accepted })
}
