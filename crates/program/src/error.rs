use crate::{Layout, Pad, Shape, Span};
use core::fmt;

/// The result of an op.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// The errors of backends. Every variant names the op and the refused values.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two operands do not fit each other.
    #[error("{op}: {what} has shape {got}, but {expected} is needed")]
    Shape {
        /// The op that refused.
        op: &'static str,
        /// Which operand.
        what: &'static str,
        /// The shape that would fit.
        expected: Shape,
        /// The shape that was given.
        got: Shape,
    },
    /// A run of parameters has the wrong length.
    #[error("{op}: {what} has {got} elements, but {expected} are needed")]
    Length {
        /// The op that refused.
        op: &'static str,
        /// Which operand.
        what: &'static str,
        /// The length that would fit.
        expected: usize,
        /// The length that was given.
        got: usize,
    },
    /// A layout reaches past the end of its buffer.
    #[error("{op}: {what} ends at element {end} of a buffer of {len}")]
    OutOfBounds {
        /// The op that refused.
        op: &'static str,
        /// Which operand.
        what: &'static str,
        /// One past the last element that was asked for.
        end: usize,
        /// The buffer's length.
        len: usize,
    },
    /// A layout whose pixels overlap or lie apart where the op needs them back to back.
    #[error("{op}: {what} needs contiguous pixels, but has {layout:?}")]
    NotContiguous {
        /// The op that refused.
        op: &'static str,
        /// Which operand.
        what: &'static str,
        /// The layout that was given.
        layout: Layout,
    },
    /// A parameter of the op is outside of its domain.
    #[error("{op}: {what} is {value}, but must be {accepted}")]
    Value {
        /// The op that refused.
        op: &'static str,
        /// Which parameter.
        what: &'static str,
        /// The value that was given.
        value: f64,
        /// The accepted values.
        accepted: &'static str,
    },
    /// A window, a convolution's kernel or a pooling's, that cannot move over its input.
    #[error("{0}")]
    Window(Box<Misfit>),
    /// An option of the op that goes by a name is none that it takes.
    #[error("{op}: {what} is {value}, but must be {accepted}")]
    Option {
        /// The op that refused.
        op: &'static str,
        /// Which option.
        what: &'static str,
        /// The name that was given.
        value: &'static str,
        /// The accepted values.
        accepted: &'static str,
    },
    /// A tensor lies where the op does not read or write.
    #[error("{op}: {what} must be {accepted}, not {got}")]
    Place {
        /// The op that refused.
        op: &'static str,
        /// Which operand or result.
        what: &'static str,
        /// The place that was given.
        got: &'static str,
        /// The accepted place.
        accepted: &'static str,
    },
    /// A saved state is not this optimizer's.
    #[error(
        "{state}: {got} values were given, but {expected} are needed; is the checkpoint of another model or optimizer?"
    )]
    StateLength {
        /// The names of its arenas, see [`OptimizerState::arenas`](crate::OptimizerState::arenas).
        state: String,
        /// The length that would fit.
        expected: usize,
        /// The length that was given.
        got: usize,
    },
    /// An option of an optimizer or of a group of parameters is outside of its domain.
    #[error(transparent)]
    Optimizer(#[from] towers_optim::Error),
    /// Tensors of two devices met in one op.
    #[error("{op}: an operand lives on another device than the op runs on")]
    DeviceMismatch {
        /// The op that refused.
        op: &'static str,
    },
    /// Memory that several buffers share was to be written.
    #[error("{op}: memory that is shared can't be written")]
    Shared {
        /// The op that refused.
        op: &'static str,
    },
    /// The device has too little memory.
    #[error("out of memory: {bytes} bytes could not be allocated on {device}")]
    OutOfMemory {
        /// The size that was asked for.
        bytes: usize,
        /// The device's name.
        device: String,
    },
    /// The device's own libraries reported an error.
    #[error("{device}: {message}")]
    Device {
        /// The device's name.
        device: String,
        /// The library's error.
        message: String,
    },
}

/// A window and the input over which it cannot move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The op that refused.
    pub op: &'static str,
    /// Which window.
    pub what: &'static str,
    /// Rows and columns of the window.
    pub kernel: [usize; 2],
    /// Rows and columns from one window to the next.
    pub stride: [usize; 2],
    /// Rows and columns of the input.
    pub input: [usize; 2],
    /// The place of the input.
    pub pad: Pad,
    /// The accepted values.
    pub accepted: &'static str,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Misfit { op, what, kernel: [kh, kw], stride: [sh, sw], input: [h, w], pad, accepted } = self;
        write!(f, "{op}: {what} is {kh}x{kw}, moved by {sh}x{sw} over an input of {h}x{w}")?;
        if *pad != Pad::VALID {
            let [h, w] = pad.around(self.input);
            write!(f, ", {h}x{w} with its padding")?;
        }
        write!(f, ", but must be {accepted}")
    }
}

impl From<Misfit> for Error {
    fn from(misfit: Misfit) -> Self {
        Error::Window(Box::new(misfit))
    }
}

impl Error {
    /// Checks that a run of parameters has `expected` elements.
    pub fn check_len(op: &'static str, what: &'static str, span: Span, expected: usize) -> Result<()> {
        if span.len == expected { Ok(()) } else { Err(Error::Length { op, what, expected, got: span.len }) }
    }

    /// Checks that a tensor has the shape `expected`.
    pub fn check_shape(op: &'static str, what: &'static str, got: Shape, expected: Shape) -> Result<()> {
        if got == expected { Ok(()) } else { Err(Error::Shape { op, what, expected, got }) }
    }
}

impl Layout {
    /// Checks that the tensor lies inside a buffer of `len` elements and that no two pixels overlap.
    pub fn check(self, op: &'static str, what: &'static str, len: usize) -> Result<()> {
        if self.stride < self.shape.c {
            return Err(Error::NotContiguous { op, what, layout: self });
        }
        if self.end() > len {
            return Err(Error::OutOfBounds { op, what, end: self.end(), len });
        }
        Ok(())
    }
}

impl Span {
    /// Checks that the run lies inside an arena of `len` elements.
    pub fn check(self, op: &'static str, what: &'static str, len: usize) -> Result<()> {
        if self.end() > len { Err(Error::OutOfBounds { op, what, end: self.end(), len }) } else { Ok(()) }
    }
}
