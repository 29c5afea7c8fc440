//! RandAugment: some operations of a list, all of one strength.

use crate::strengths::{Kind, Reach, Space};
use crate::text::{Field, Listed};
use crate::{Draws, Error, Operation, Pixel};
use std::str::FromStr;
use towers_philox::Philox;

/// Applies `num_ops` operations, drawn from 14 with equal chances, each with the same strength and a random sign: E. D. Cubuk et
/// al., "RandAugment: Practical automated data augmentation with a reduced search space" (2020). List, strengths and defaults are
/// those of torchvision's `RandAugment`, with nearest pixels and black beyond the edge.
///
/// It comes before everything else and works on bytes, so it goes with any standardization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct RandAugment {
    /// How many operations, one after the other (default 2, at most [`Draws::OPERATIONS`]).
    pub num_ops: usize,
    /// The strength, below `num_magnitude_bins` (default 9).
    pub magnitude: u32,
    /// How many strengths there are (default 31).
    pub num_magnitude_bins: u32,
}

impl Default for RandAugment {
    fn default() -> Self {
        RandAugment { num_ops: 2, magnitude: 9, num_magnitude_bins: 31 }
    }
}

impl FromStr for RandAugment {
    type Err = Error;

    /// The number of operations and the magnitude: `2,9`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse =
            || Error::option("rand_augment", format!("`{text}`"), "operations and magnitude, as in 2,9");
        let (num_ops, magnitude) = text.split_once(',').ok_or_else(refuse)?;
        let num_ops = num_ops.trim().parse().map_err(|_| refuse())?;
        let magnitude = magnitude.trim().parse().map_err(|_| refuse())?;
        Ok(RandAugment { num_ops, magnitude, ..RandAugment::default() })
    }
}

impl RandAugment {
    pub(crate) fn check(&self, most: usize, channels: usize) -> Result<(), Error> {
        let RandAugment { num_ops, magnitude, num_magnitude_bins: bins } = *self;
        let refuse = |accepted: String| {
            Err(Error::option("rand_augment", format!("`{num_ops},{magnitude}`"), accepted))
        };
        if num_ops > most {
            return refuse(format!("at most {most} operations and their magnitude, as in 2,9"));
        }
        if bins < 2 {
            return refuse(format!("given with a `num_magnitude_bins` of at least 2, not {bins}"));
        }
        if magnitude >= bins {
            return refuse(format!("operations and a magnitude from 0 to {}, as in 2,9", bins - 1));
        }
        if channels != 1 && channels != 3 {
            return refuse("left out for images that have neither 1 nor 3 channels".to_owned());
        }
        Ok(())
    }

    pub(crate) fn draw(&self, rng: &mut Philox, [h, w]: [usize; 2]) -> [Operation; Draws::OPERATIONS] {
        let mut operations = [Operation::Identity; Draws::OPERATIONS];
        let share = f64::from(self.magnitude) / f64::from(self.num_magnitude_bins - 1);
        for operation in operations.iter_mut().take(self.num_ops) {
            let kind = Kind::ALL[rng.below(14) as usize];
            let negative = rng.below(2) == 1;
            *operation = SPACE.operation(kind, negative, [h, w], |from, to| from + (to - from) * share);
        }
        operations
    }
}

/// In pixels of the paper's pictures, which had 331.
const SPACE: Space =
    Space { shear: 0.3, translate: Reach::Share(150.0 / 331.0), rotate: 30.0, color: 0.9, bits: [8.0, 4.0] };

impl Listed for RandAugment {
    const NAME: &str = "rand-augment";

    fn fields(&mut self) -> Vec<(&'static str, &mut dyn Field)> {
        vec![
            ("num-ops", &mut self.num_ops),
            ("magnitude", &mut self.magnitude),
            ("num-magnitude-bins", &mut self.num_magnitude_bins),
        ]
    }
}

/// Memory for an image that operations change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Canvas {
    image: Vec<u8>,
    spare: Vec<u8>,
}

impl Canvas {
    /// Memory that need not grow for images of `len` bytes.
    pub(crate) fn for_len(len: usize) -> Self {
        Canvas { image: Vec::with_capacity(len), spare: Vec::with_capacity(len) }
    }

    /// The image after the operations and the effect; `None` if they change nothing.
    pub(crate) fn paint<P: Pixel>(&mut self, draws: &Draws, shape: [usize; 3], image: &[P]) -> Option<&[u8]> {
        let Draws { operations, effect, .. } = draws;
        if operations.iter().all(|&operation| operation == Operation::Identity) && effect.is_none() {
            return None;
        }
        let Canvas { image: own, spare } = self;
        own.clear();
        own.extend(image.iter().map(|pixel| pixel.to_byte()));
        for operation in operations {
            operation.apply(shape, own, spare);
        }
        if let Some(effect) = effect {
            effect.paint(shape, own, spare);
        }
        Some(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_policy_is_shown_as_it_is_written() {
        let told = |policy: RandAugment| policy.check(4, 3).unwrap_err().to_string();
        let policy = RandAugment { magnitude: 40, ..RandAugment::default() };
        let says =
            "`rand_augment` is `2,40`, but it must be operations and a magnitude from 0 to 30, as in 2,9";
        assert_eq!(told(policy), says);
        assert!(
            told(RandAugment { num_ops: 5, ..policy })
                .contains("`5,40`, but it must be at most 4 operations")
        );
        assert!(told(RandAugment { num_magnitude_bins: 1, ..policy }).contains("at least 2, not 1"));
    }

    #[test]
    fn all_operations_come_up_with_both_signs() {
        let policy = RandAugment { num_ops: 3, magnitude: 15, num_magnitude_bins: 31 };
        let draw = |sample| policy.draw(&mut Philox::new(1, 2, [0, sample]), [32, 32]);
        let all: Vec<Operation> = (0..4000).flat_map(|sample| draw(sample)[..3].to_vec()).collect();
        assert!((0..100).all(|sample| draw(sample)[3] == Operation::Identity));
        let count = |wanted: Operation| all.iter().filter(|&&operation| operation == wanted).count();
        for wanted in [
            Operation::Identity,
            Operation::Posterize(6),
            Operation::Solarize(127.5),
            Operation::AutoContrast,
            Operation::Equalize,
        ] {
            assert!((740..980).contains(&count(wanted)), "{wanted}: {}", count(wanted));
        }
        for wanted in [Operation::Rotate(15.0), Operation::TranslateX(-7), Operation::Color(0.55)] {
            assert!((350..510).contains(&count(wanted)), "{wanted}: {}", count(wanted));
        }
    }
    #[test]
    fn strengths_are_torchvisions() {
        SPACE.check("rand", |k, from, to| from + (to - from) * f64::from(k) / 30.0);
    }
}
