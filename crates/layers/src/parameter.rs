use crate::Initializer;
use towers_program::Span;

/// A parameter: its name in the layer, shape, first values and part in training.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamSpec {
    /// As Keras names it: `kernel`, `bias`, `gamma`, ...
    pub name: &'static str,
    /// As Keras lays it out: `(kh, kw, c, k)`, `(inputs, outputs)`, `(c)`.
    pub shape: Vec<usize>,
    /// The first values.
    pub init: Initializer,
    /// What changes it.
    pub role: Role,
}

/// How a parameter changes. This decides its place in the [`Arena`](crate::Arena).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    /// By the optimizer, with its gradient.
    Trainable,
    /// Never: it keeps the given values, and its gradient need not be computed (Keras' `trainable=False`,
    /// PyTorch's `requires_grad=False`).
    Frozen,
    /// As a running average of sums that the forward pass leaves in the gradients' arena: `running = momentum
    /// * running + (1 - momentum) * new`.
    Running {
        /// The share of the old value that stays in a step.
        momentum: f32,
    },
}

impl Role {
    /// Whether it is a running average, which lies in separate memory.
    pub fn is_running(self) -> bool {
        matches!(self, Role::Running { .. })
    }

    /// [`Role::Trainable`] or [`Role::Frozen`].
    pub(crate) fn trained(is_trained: bool) -> Self {
        if is_trained { Role::Trainable } else { Role::Frozen }
    }
}

/// The place of a parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParamPlace {
    pub(crate) span: Span,
    /// For running averages: where in the gradients' arena the forward pass leaves the sums.
    pub(crate) sums: Span,
}
