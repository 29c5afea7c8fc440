use crate::{Initializer, Meeting, Operation};
use tensor::{
    Activation, Backend, BatchNorm, Device, Error, NormSpans, Result, Shape, Span, Storage, View, ViewMut,
    Write,
};

/// A layer's configuration: what a [`Graph`](crate::Graph) holds.
///
/// A layer of one's own implements this and [`Op`].
pub trait Layer: core::fmt::Debug + Send + Sync {
    /// The type's name as Keras spells it, for the summary: `Conv2D`.
    fn kind(&self) -> &'static str;

    /// The output's shape for inputs of shape `x`.
    ///
    /// # Errors
    /// If the layer can't take such inputs.
    fn output_shape(&self, x: Shape) -> Result<Shape>;

    /// The parameters for inputs of shape `x`, in the order in which [`Place::params`] will hold them.
    fn params(&self, _x: Shape) -> Vec<ParamSpec> {
        Vec::new()
    }

    /// Whether the output is a batch of vectors, not of images, for the summary; by default what the input is.
    fn makes_vectors(&self) -> bool {
        false
    }

    /// Whether backward passes need a place for the input's gradient even where nobody reads it.
    fn needs_dx(&self) -> bool {
        false
    }

    /// Whether the output's vectors must lie back to back, so that it can't be a slice of a concatenation.
    fn contiguous_output(&self) -> bool {
        false
    }

    /// Which tensors backward passes read, beside the output's gradient. The memory of others serves again as soon as the
    /// forward pass is through with them, and [`Op::backward`] finds their shapes alone. By default both.
    fn backward_reads(&self) -> BackwardReads {
        BackwardReads::BOTH
    }

    /// Whether [`Op::forward_again`] computes the output once more, in little time and to the last bit. Then a network on a
    /// device that [prefers it](tensor::Backend::recomputes) does not keep the output between the passes. By default not.
    fn recomputes(&self) -> bool {
        false
    }

    /// Whether backward passes neither read the output nor overwrite its gradient. Then a sum behind the layer, see
    /// [`Add`](crate::Add), takes both memories for its own, and nothing is copied. By default not.
    fn lends_output(&self) -> bool {
        false
    }

    /// Which of the parameters is a bias: a number for each channel that is added last of all to the output; `None` where an
    /// activation follows it, or there is none.
    fn bias(&self) -> Option<usize> {
        None
    }

    /// Whether a bias of the layer before makes no difference to the output of a training pass, as each channel's mean is
    /// taken away: then that layer leaves it out, and this one counts it in, see [`Place::bias_before`].
    fn takes_bias_away(&self) -> bool {
        false
    }

    /// The batch normalization that this layer is, if it is one: in inference it uses nothing but its parameters, and those are
    /// gamma, beta, the running mean and the running variance.
    fn normalization(&self) -> Option<BatchNorm> {
        None
    }

    /// Whether the layer does the [`normalization`](Layer::normalization) behind it too in inference passes, where it finds one
    /// at its [`Place`].
    fn folds_normalization(&self) -> bool {
        false
    }

    /// What the layer computes in inference for inputs of shape `x`, so that the network can be
    /// written for other programs; by default it doesn't say, and the network can't.
    fn operation(&self, _x: Shape) -> Option<Operation> {
        None
    }

    /// The layer at its place in a network, with the memory that it needs beside its parameters.
    ///
    /// # Errors
    /// If the device can't allocate or prepare.
    fn build(&self, place: &Place) -> Result<Box<dyn Op>>;
}

/// Which of a layer's tensors its backward pass reads, beside the output's gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackwardReads {
    /// The input.
    pub input: bool,
    /// The output.
    pub output: bool,
}

impl BackwardReads {
    /// Both tensors.
    pub const BOTH: Self = BackwardReads { input: true, output: true };
    /// The input alone.
    pub const INPUT: Self = BackwardReads { input: true, output: false };
    /// The output alone.
    pub const OUTPUT: Self = BackwardReads { input: false, output: true };
    /// Neither.
    pub const NOTHING: Self = BackwardReads { input: false, output: false };

    /// What a layer reads that multiplies its input: that, and for the mask of an activation the output.
    pub(crate) fn of_product(act: Activation) -> Self {
        BackwardReads { input: true, output: act != Activation::None }
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
    /// Who changes it.
    pub role: Role,
}

/// Who changes a parameter, and so where it lies in the [`Arena`](crate::Arena).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    /// The optimizer, by its gradient.
    Trainable,
    /// Nobody: it keeps the values that it was given, and a backward pass need not compute its gradient (Keras'
    /// `trainable=False`, PyTorch's `requires_grad=False`).
    Frozen,
    /// A running average of sums that the forward pass leaves in the gradients' arena:
    /// `running = momentum * running + (1 - momentum) * new`.
    Running {
        /// The share of the old value that stays in a step.
        momentum: f32,
    },
}

impl Role {
    /// Whether it is a running average, which lies in memory of its own.
    pub fn is_running(self) -> bool {
        matches!(self, Role::Running { .. })
    }

    /// [`Role::Trainable`], or [`Role::Frozen`] if it is not to be trained.
    pub(crate) fn trained(is_trained: bool) -> Self {
        if is_trained { Role::Trainable } else { Role::Frozen }
    }
}

/// Where a layer stands in a network.
pub struct Place<'a> {
    /// The device.
    pub device: &'a Device,
    /// The layer's unique name.
    pub name: &'a str,
    /// The input's shape, with the largest batch.
    pub x: Shape,
    /// Whether there will be backward passes.
    pub training: bool,
    /// For each of [`Layer::params`], in order: trainable and frozen ones lie at this span of `params` and, their gradients, of
    /// `grads`, where there is a place for a frozen one's too; running ones lie in `running`.
    pub params: &'a [Span],
    /// Whether the layer behind takes this one's [`bias`](Layer::bias) away in training passes: there it is left out of the
    /// output, and its gradient is 0.
    pub bias_taken_away: bool,
    /// In `params`, the bias that the layer before leaves out in training passes.
    pub bias_before: Option<Span>,
    /// The normalization behind, and where its parameters lie, for a layer that
    /// [folds it](Layer::folds_normalization): in inference passes its output is to be that of the normalization.
    pub normalization: Option<(BatchNorm, NormSpans)>,
    /// For each of the running ones, in order: where in `grads` the forward pass leaves its sums.
    pub sums: &'a [Span],
}

/// What random numbers of a training pass are drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws {
    /// The run's seed.
    pub seed: u64,
    /// The training step, counted from the start of the run.
    pub step: u64,
    /// The place of this network's first sample in the global batch.
    pub first_sample: u32,
}

/// What a forward pass works with.
pub struct Forward<'a> {
    /// The device.
    pub device: &'a Device,
    /// The parameters' arena.
    pub params: &'a Storage,
    /// The running averages' arena.
    pub running: &'a Storage,
    /// The gradients' arena, for sums that replicas add up.
    pub grads: &'a mut Storage,
    /// `Some` in training, `None` for inference.
    pub training: Option<Draws>,
    /// `Some` where several replicas have a part of the batch each, and layers are to compute with the whole.
    pub meeting: Option<Meeting<'a>>,
}

/// What a backward pass works with.
pub struct Backward<'a> {
    /// The device.
    pub device: &'a Device,
    /// The parameters' arena.
    pub params: &'a Storage,
    /// The gradients' arena.
    pub grads: &'a mut Storage,
    /// The same as in the forward pass.
    pub draws: Draws,
    /// The same as in the forward pass.
    pub meeting: Option<Meeting<'a>>,
}

/// A layer at its place in a network.
pub trait Op: Send {
    /// How many numbers the layer needs on the board when it [meets](Meeting) those of the other replicas, this one among so
    /// many; by default it meets nobody.
    fn board_len(&self, _replicas: usize) -> usize {
        0
    }

    /// Computes `y` from `x`.
    ///
    /// # Errors
    /// What the device says.
    fn forward(&mut self, cx: Forward<'_>, x: View<Storage>, y: ViewMut<Storage>) -> Result<()>;

    /// Computes `y` from `x` once more, to the last bit as the last forward pass in training did, for a layer that
    /// [recomputes](Layer::recomputes).
    ///
    /// # Errors
    /// What the device says; by default that this layer doesn't.
    fn forward_again(&mut self, cx: Backward<'_>, _x: View<Storage>, _y: ViewMut<Storage>) -> Result<()> {
        let message = "this layer does not compute its output again".to_owned();
        Err(Error::Device { device: cx.device.name(), message })
    }

    /// Computes the gradients of the parameters and, where `dx` is given, of the input. `dy` is this op's to overwrite. Of
    /// `x` and `y` those are there that the layer [reads](Layer::backward_reads); of the other one the layout is right, and the data
    /// empty.
    ///
    /// # Errors
    /// What the device says.
    fn backward(
        &mut self,
        cx: Backward<'_>,
        x: View<Storage>,
        y: View<Storage>,
        dy: ViewMut<Storage>,
        dx: Option<(ViewMut<Storage>, Write)>,
    ) -> Result<()>;
}
