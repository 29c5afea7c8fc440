//! TrivialAugment: one operation of a list, of any strength.

use crate::strengths::{Kind, Reach, Space, linspace};
use crate::text::{self, Field, Listed};
use crate::{Draws, Error, Pipeline, Transform, compose};
use towers_philox::{Philox, domain};

/// Applies one operation, drawn from 14 with equal chances, with a strength from 0 to the largest: S. G. Müller and F. Hutter,
/// "TrivialAugment: Tuning-free Yet State-of-the-Art Data Augmentation" (2021). List and strengths are those of torchvision's
/// `TrivialAugmentWide`, with nearest pixels and black beyond the edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrivialAugmentWide {
    /// How many strengths there are (default 31).
    pub num_magnitude_bins: u32,
}

impl Default for TrivialAugmentWide {
    fn default() -> Self {
        TrivialAugmentWide { num_magnitude_bins: 31 }
    }
}

const SPACE: Space =
    Space { shear: 0.99, translate: Reach::Pixels(32.0), rotate: 135.0, color: 0.99, bits: [8.0, 6.0] };

impl Listed for TrivialAugmentWide {
    const NAME: &str = "trivial-augment-wide";

    fn fields(&mut self) -> Vec<(&'static str, &mut dyn Field)> {
        vec![("num-magnitude-bins", &mut self.num_magnitude_bins)]
    }
}

impl Transform for TrivialAugmentWide {
    fn draw(&self, [h, w, _]: [usize; 3], seed: u64, epoch: u64, sample: u32) -> Draws {
        let mut rng = Philox::new(seed, const { domain("trivial_augment") }, [epoch, u64::from(sample)]);
        let (kind, bin, negative) = (rng.below(14), rng.below(self.num_magnitude_bins), rng.below(2) == 1);
        let at = |from, to| linspace(from, to, self.num_magnitude_bins, bin);
        Draws::of(&[SPACE.operation(Kind::ALL[kind as usize], negative, [h, w], at)])
    }

    fn build(&self, shape: [usize; 3]) -> Result<Pipeline, Error> {
        if self.num_magnitude_bins < 2 {
            return Err(text::refuse(text::write(self), "with at least 2 strengths"));
        }
        compose::of_bytes(text::write(self), shape)
    }

    fn text(&self) -> Option<String> {
        Some(text::write(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Operation;
    use std::collections::BTreeSet;

    #[test]
    fn strengths_are_torchvisions() {
        SPACE.check("trivial", |k, from, to| linspace(from, to, 31, k));
    }

    #[test]
    fn every_operation_comes_up_at_every_strength() {
        let transform = TrivialAugmentWide::default();
        let all: Vec<Operation> =
            (0..20_000).map(|sample| transform.draw([32, 32, 3], 1, 0, sample).operations[0]).collect();
        let seen: BTreeSet<String> = all.iter().map(|operation| format!("{operation:?}")).collect();
        // 31 strengths of 2 signs, of which 0 and -0 may be one and pixels coincide; 7 of posterize; 31 of solarize.
        let count = |kind: &str| seen.iter().filter(|text| text.starts_with(kind)).count();
        for (kind, expected) in [
            ("Rotate", 62),
            ("ShearX", 62),
            ("Brightness", 61),
            ("TranslateX", 61),
            ("Posterize", 7),
            ("Solarize", 31),
        ] {
            assert_eq!(count(kind), expected, "{kind}");
        }
        let equalized = all.iter().filter(|operation| **operation == Operation::Equalize).count();
        assert!((1280..1580).contains(&equalized), "{equalized}");
    }
}
