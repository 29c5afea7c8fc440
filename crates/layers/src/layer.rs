use crate::{Initializer, Lower};
use program::{Result, Shape, TensorId};
use std::borrow::Cow;

/// A layer's configuration, as a [`Graph`](crate::Graph) holds it.
///
/// A custom layer lists its parameters and its ops. The output's shape, the backward pass and the memory
/// follow from the ops.
///
/// ```
/// use layers::{Graph, Layer, Lower};
/// use program::{Activation, Result, TensorId, ops};
///
/// /// `y = x + max(x, 0)`.
/// #[derive(Debug)]
/// struct Residual;
///
/// impl Layer for Residual {
///     fn lower(&self, to: &mut Lower, x: TensorId) -> Result<TensorId> {
///         let relu = to.push(ops::Activate { act: Activation::Relu }, &[x])?;
///         to.push(ops::Add { act: Activation::None }, &[x, relu])
///     }
/// }
///
/// let mut graph = Graph::new("residual", [8, 8, 3]);
/// let y = graph.add(Residual, graph.input())?;
/// assert_eq!(graph.shape(y), graph.shape(graph.input()));
/// # Ok::<(), layers::Error>(())
/// ```
pub trait Layer: core::fmt::Debug + Send + Sync {
    /// The type's name as Keras spells it, for the summary: `Conv2D`. By default the name of the Rust type.
    fn kind(&self) -> Cow<'static, str> {
        let name = core::any::type_name::<Self>();
        let name = name.split('<').next().unwrap_or(name);
        name.rsplit("::").next().unwrap_or(name).into()
    }

    /// The parameters for inputs of shape `x`, in the order in which [`Lower::params`] counts them.
    fn params(&self, _x: Shape) -> Vec<ParamSpec> {
        Vec::new()
    }

    /// Adds the layer's ops to a program, and returns its output.
    ///
    /// # Errors
    /// If the layer can't take an input of this shape.
    fn lower(&self, to: &mut Lower, x: TensorId) -> Result<TensorId>;

    /// Whether the output is a batch of vectors, not of images, for the summary. By default as for the input.
    fn makes_vectors(&self) -> bool {
        false
    }
}

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

/// The inputs of the random numbers of a training pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws {
    /// The run's seed.
    pub seed: u64,
    /// The training step, counted from the start of the run.
    pub step: u64,
    /// The place of this network's first sample in the global batch.
    pub first_sample: u32,
}
