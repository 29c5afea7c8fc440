use crate::{Shape, Span};

/// The number of a tensor in its [`Program`](crate::Program).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorId(pub(crate) usize);

impl TensorId {
    /// Its place in [`Program::tensors`](crate::Program::tensors).
    pub fn index(self) -> usize {
        self.0
    }
}

/// Memory of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arena {
    /// Activations and their gradients, in the device's number format for these. Their shapes are those of one sample.
    Activations,
    /// Numbers that an op keeps for another one in f32, such as a batch's means.
    Statistics,
    /// The network's parameters. A program reads them only.
    Parameters,
    /// Gradients of parameters, then sums and metrics.
    Gradients,
    /// Running averages. A program reads them only.
    Averages,
    /// Labels: integers. Their shape is that of one sample.
    Labels,
}

impl Arena {
    /// All of them.
    pub const ALL: [Arena; 6] = [
        Arena::Activations,
        Arena::Statistics,
        Arena::Parameters,
        Arena::Gradients,
        Arena::Averages,
        Arena::Labels,
    ];

    /// Whether a tensor in it has its shape once for each sample of a batch.
    pub const fn is_batched(self) -> bool {
        matches!(self, Arena::Activations | Arena::Labels)
    }

    /// Whether [`place`](crate::Executable::place) decides where in it a tensor lies.
    pub const fn is_placed(self) -> bool {
        matches!(self, Arena::Activations | Arena::Statistics)
    }

    /// Its place in errors: `in the activations`.
    pub(crate) const fn place(self) -> &'static str {
        match self {
            Arena::Activations => "in the activations",
            Arena::Statistics => "in the statistics",
            Arena::Parameters => "in the parameters",
            Arena::Gradients => "in the gradients",
            Arena::Averages => "in the averages",
            Arena::Labels => "in the labels",
        }
    }

    /// The letter of its tensors in a printed program: `%` for activations.
    pub(crate) const fn mark(self) -> &'static str {
        match self {
            Arena::Activations => "%",
            Arena::Statistics => "#",
            Arena::Parameters => "@",
            Arena::Gradients => "&",
            Arena::Averages => "~",
            Arena::Labels => "$",
        }
    }
}

/// The place of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// At the place that [`place`](crate::Executable::place) chooses.
    Free,
    /// At this element of an arena that the caller laid out.
    At(usize),
    /// Inside of another tensor, from this channel on. What shares all channels shares all memory.
    In(TensorId, usize),
}

/// A tensor of a program. It is written once.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// The shape: of one sample where the arena [is batched](Arena::is_batched).
    pub shape: Shape,
    /// In which memory.
    pub arena: Arena,
    /// Where there.
    pub home: Home,
    /// A parameter's name, or its gradient's: `conv2d/kernel`.
    pub name: Option<String>,
}

/// A parameter, as an op reads it, and what becomes of its gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// `LAYER/PARAMETER`.
    pub name: String,
    /// Its place in the parameters' arena, and its gradient's in the gradients'.
    pub span: Span,
    /// Whether an optimizer changes it.
    pub trained: bool,
}
