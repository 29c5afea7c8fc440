//! The ranges of random shifts, spelled as in Keras.

use crate::Error;
use std::str::FromStr;
use towers_philox::Philox;

/// How far images are shifted along one axis; the value of Keras' `width_shift_range` and
/// `height_shift_range`.
///
/// Numbers and arrays turn into it by themselves, and as in Keras their type matters:
///
/// ```
/// use towers_augment::ShiftRange;
///
/// assert_eq!(ShiftRange::from(0.1), ShiftRange::Float(0.1)); // up to 10% of the size, in fractions of pixels
/// assert_eq!(ShiftRange::from(2.0), ShiftRange::Float(2.0)); // up to 2 pixels, in fractions of pixels
/// assert_eq!(ShiftRange::from(2), ShiftRange::Int(2)); // -1, 0 or 1 pixels
/// assert_eq!(ShiftRange::from([0, 4]), ShiftRange::Choices(vec![0.0, 4.0])); // 0, -4 or 4 pixels
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(untagged))]
pub enum ShiftRange {
    /// `n`: a whole number of pixels below `n`, to either side.
    Int(i64),
    /// `r`: uniform in [-r, r); a fraction of the size if r < 1, else pixels. 0 means no shift.
    Float(f64),
    /// One of these, times -1 or 1; fractions of the size if all are < 1, else pixels. None means no shift.
    Choices(Vec<f64>),
}

impl Default for ShiftRange {
    fn default() -> Self {
        ShiftRange::Float(0.0)
    }
}

impl ShiftRange {
    /// Refuses numbers that are not finite, and negative ranges. `option` names the range in the error.
    pub(crate) fn check(&self, option: &'static str) -> Result<(), Error> {
        match self {
            ShiftRange::Int(n) if !(0..=i64::from(u32::MAX)).contains(n) => {
                Err(Error::option(option, n, "a number of pixels from 0 up"))
            }
            ShiftRange::Float(r) if !(r.is_finite() && *r >= 0.0) => {
                Err(Error::option(option, r, "a finite number from 0 up (a fraction of the size if below 1)"))
            }
            ShiftRange::Choices(all) if all.iter().any(|choice| !choice.is_finite()) => {
                Err(Error::option(option, format!("{all:?}"), "an array of finite numbers"))
            }
            _ => Ok(()),
        }
    }

    /// A shift in pixels of an axis with `len` pixels.
    pub(crate) fn draw(&self, rng: &mut Philox, len: usize) -> f64 {
        let sign = |shift: f64, rng: &mut Philox| if rng.below(2) == 0 { -shift } else { shift };
        let (shift, largest) = match self {
            ShiftRange::Int(n) => {
                let pixels = f64::from(rng.below(u32::try_from(*n).unwrap_or(0)));
                (sign(pixels, rng), f64::INFINITY)
            }
            ShiftRange::Float(r) => (r * (2.0 * rng.unit_f64() - 1.0), *r),
            ShiftRange::Choices(all) => {
                let choice = all.get(rng.below(all.len() as u32) as usize).copied().unwrap_or(0.0);
                (sign(choice, rng), all.iter().copied().fold(f64::NEG_INFINITY, f64::max))
            }
        };
        if largest < 1.0 { shift * len as f64 } else { shift }
    }
}

impl FromStr for ShiftRange {
    type Err = Error;

    /// As one would write it in Python, whose types count: `0.1` and `2.0` are floats, `2` is an int, `0,4` an array.
    fn from_str(text: &str) -> Result<Self, Error> {
        if let Ok(pixels) = text.parse() {
            return Ok(ShiftRange::Int(pixels));
        }
        let accepted =
            "a float (a fraction of the size if below 1), a whole number of pixels, or some with commas";
        Ok(match *Error::numbers("the range of a shift", text, accepted)? {
            [range] => ShiftRange::Float(range),
            ref choices => ShiftRange::Choices(choices.to_vec()),
        })
    }
}

impl From<f64> for ShiftRange {
    fn from(range: f64) -> Self {
        ShiftRange::Float(range)
    }
}

impl From<i32> for ShiftRange {
    fn from(pixels: i32) -> Self {
        ShiftRange::Int(i64::from(pixels))
    }
}

impl From<Vec<f64>> for ShiftRange {
    fn from(choices: Vec<f64>) -> Self {
        ShiftRange::Choices(choices)
    }
}

impl<const N: usize> From<[f64; N]> for ShiftRange {
    fn from(choices: [f64; N]) -> Self {
        ShiftRange::Choices(choices.to_vec())
    }
}

impl<const N: usize> From<[i32; N]> for ShiftRange {
    fn from(choices: [i32; N]) -> Self {
        ShiftRange::Choices(choices.map(f64::from).to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The shifts of 4000 draws for an axis of 32 pixels.
    fn draws(range: impl Into<ShiftRange>) -> Vec<f64> {
        let range = range.into();
        (0..4000).map(|sample| range.draw(&mut Philox::new(1, 2, [0, sample]), 32)).collect()
    }

    fn values(draws: &[f64]) -> BTreeSet<i64> {
        draws.iter().map(|&x| x as i64).collect()
    }

    #[test]
    fn floats_below_one_are_fractions_of_the_size() {
        let all = draws(0.1);
        let (low, high) = all.iter().fold((0.0_f64, 0.0_f64), |(l, h), &x| (l.min(x), h.max(x)));
        assert!((-3.2..-3.1).contains(&low) && (3.1..3.2).contains(&high), "{low} {high}");
        assert!(all.iter().filter(|x| x.fract() != 0.0).count() > 3990);
    }

    #[test]
    fn floats_from_one_up_are_pixels() {
        let all = draws(1.0);
        assert!(all.iter().all(|x| (-1.0..1.0).contains(x)) && all.iter().any(|x| x.abs() > 0.99));
    }

    #[test]
    fn an_int_n_gives_whole_pixels_below_n() {
        let all = draws(3);
        assert!(all.iter().all(|x| x.fract() == 0.0));
        assert_eq!(values(&all), BTreeSet::from([-2, -1, 0, 1, 2]));
        assert_eq!(values(&draws(0)), BTreeSet::from([0]));
    }

    #[test]
    fn spellings_are_pythons() {
        for (text, range) in [
            ("0.1", ShiftRange::Float(0.1)),
            ("2.0", ShiftRange::Float(2.0)),
            ("2", ShiftRange::Int(2)),
            ("0, 4.5", ShiftRange::Choices(vec![0.0, 4.5])),
        ] {
            assert_eq!(text.parse(), Ok(range));
        }
        assert!("a bit".parse::<ShiftRange>().unwrap_err().to_string().contains("`a bit`"));
    }

    #[test]
    fn choices_come_with_both_signs_and_scale_when_all_are_below_one() {
        assert_eq!(values(&draws([1, 4])), BTreeSet::from([-4, -1, 1, 4]));
        assert_eq!(values(&draws([0.25, 0.5])), BTreeSet::from([-16, -8, 8, 16]));
        assert_eq!(values(&draws(vec![])), BTreeSet::from([0]));
    }
}
