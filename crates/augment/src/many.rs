//! Minimum, maximum and floor for loops over many numbers: each becomes one vector instruction or a few. On the baseline of a
//! processor family, those of the standard library are calls, or spend as much again on numbers that are none.

use core::ops::{Add, Sub};

/// `f32` or `f64`.
pub(crate) trait Float:
    Copy + PartialOrd + Add<Output = Self> + Sub<Output = Self> + From<u8>
{
    /// Numbers from here to its double have no room for a fraction; their last bits are a whole number's.
    const WHOLE: Self;
}

impl Float for f32 {
    const WHOLE: f32 = (1 << 23) as f32;
}

impl Float for f64 {
    const WHOLE: f64 = (1_u64 << 52) as f64;
}

/// The lesser of two; `b`, if `a` is not a number.
#[inline]
pub(crate) fn lesser<T: Float>(a: T, b: T) -> T {
    if a < b { a } else { b }
}

/// The greater of two; `b`, if `a` is not a number.
#[inline]
pub(crate) fn greater<T: Float>(a: T, b: T) -> T {
    if a > b { a } else { b }
}

/// The whole number below `x`, which must lie between 0 and [`WHOLE`](Float::WHOLE).
#[inline]
pub(crate) fn floor<T: Float>(x: T) -> T {
    let nearest = (x + T::WHOLE) - T::WHOLE;
    if nearest > x { nearest - T::from(1) } else { nearest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_are_exact() {
        for whole in (0..100).chain([1 << 20, u32::MAX - 1]).map(f64::from) {
            for x in [whole, whole.next_up(), whole + 0.5, (whole + 1.0).next_down()] {
                assert_eq!(floor(x), x.floor(), "{x}");
            }
        }
    }
}
