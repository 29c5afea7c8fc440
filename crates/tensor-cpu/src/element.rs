//! What tensors are made of. Ops compute in f32, whatever it is, and round what they store.

use towers_program::Write;

/// A number of a tensor.
pub(crate) trait Element: Copy + Send + Sync + 'static {
    /// The format of buffers that hold such numbers; every run of bits is one.
    const FORMAT: Format;

    fn get(self) -> f32;

    /// The number next to `x`, the even one of two.
    fn of(x: f32) -> Self;

    #[inline(always)]
    fn add(&mut self, x: f32) {
        *self = Self::of(self.get() + x);
    }
}

/// Stores numbers, or adds them to the old ones.
#[inline(always)]
pub(crate) fn put<E: Element>(to: &mut [E], numbers: impl Iterator<Item = f32>, mode: Write) {
    match mode {
        Write::Set => to.iter_mut().zip(numbers).for_each(|(to, x)| *to = E::of(x)),
        Write::Add => to.iter_mut().zip(numbers).for_each(|(to, x)| to.add(x)),
    }
}

/// What a buffer holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    #[default]
    F32,
    Bf16,
}

impl Format {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::F32 => "f32",
            Format::Bf16 => "bf16",
        }
    }

    /// Bytes of a number.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Format::F32 => size_of::<f32>(),
            Format::Bf16 => size_of::<Bf16>(),
        }
    }
}

impl Element for f32 {
    const FORMAT: Format = Format::F32;

    #[inline(always)]
    fn get(self) -> f32 {
        self
    }

    #[inline(always)]
    fn of(x: f32) -> f32 {
        x
    }
}

/// bfloat16: the upper half of an f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Bf16(pub(crate) u16);

impl Element for Bf16 {
    const FORMAT: Format = Format::Bf16;

    #[inline(always)]
    fn get(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    #[inline(always)]
    fn of(x: f32) -> Bf16 {
        let bits = x.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
        // Of a number that is none no digit may be carried into the exponent, and one must stay.
        let bits = if x.is_nan() { bits | 0x40_0000 } else { rounded };
        Bf16((bits >> 16) as u16)
    }
}

/// Code that is compiled for each format of the buffer, with a name for its contents.
macro_rules! typed {
    ($buffer:expr, |$name:ident| $code:expr) => {
        match $buffer.format() {
            $crate::element::Format::F32 => {
                type $name = f32;
                $code
            }
            $crate::element::Format::Bf16 => {
                type $name = $crate::element::Bf16;
                $code
            }
        }
    };
}
pub(crate) use typed;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_the_nearest_and_to_even_ones_between() {
        for (x, expected) in [
            (1.0, 1.0),
            (-3.140_625, -3.140_625),
            (1.0 + 1.0 / 256.0, 1.0),
            (1.0 + 3.0 / 256.0, 1.0 + 4.0 / 256.0),
            (1.0 + 1.1 / 256.0, 1.0 + 2.0 / 256.0),
            (f32::MAX, f32::INFINITY),
            (f32::NEG_INFINITY, f32::NEG_INFINITY),
            (-0.0, -0.0),
        ] {
            assert_eq!(Bf16::of(x).get().to_bits(), f32::to_bits(expected), "{x}");
        }
        for bits in [0x7fc0_0000, 0x7f80_0001, 0x7fff_ffff, 0xffff_ffff] {
            assert!(Bf16::of(f32::from_bits(bits)).get().is_nan(), "{bits:x}");
        }
    }
}
