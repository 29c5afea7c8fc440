//! Formats of numbers.

use towers_program::Precision;

/// The format of the numbers in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    F32,
    Bf16,
    F16,
}

impl Format {
    /// The format of activations and their gradients.
    pub(crate) const fn of_activations(precision: Precision) -> Format {
        match precision {
            Precision::Fp32 | Precision::Tf32 => Format::F32,
            Precision::Bf16 => Format::Bf16,
            Precision::Fp16 => Format::F16,
        }
    }

    /// Bytes of a number.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Format::F32 => 4,
            Format::Bf16 | Format::F16 => 2,
        }
    }
}
