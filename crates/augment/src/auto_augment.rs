//! AutoAugment: pairs of operations that were searched for on a data set.

use crate::strengths::{Kind, Reach, Space, linspace};
use crate::text::{self, Field, Listed};
use crate::{Draws, Error, Pipeline, Transform, compose};
use towers_philox::{Philox, domain};

/// Applies one of 25 pairs of operations, each operation with a probability and a strength of its own: E. D. Cubuk et al.,
/// "AutoAugment: Learning Augmentation Policies from Data" (2019). The pairs are those of torchvision's `AutoAugment`, with nearest
/// pixels and black beyond the edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AutoAugment {
    /// The data set that the pairs were found on (default: ImageNet).
    pub policy: Policy,
}

/// The pairs of operations of [`AutoAugment`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// For photographs.
    #[default]
    ImageNet,
    /// For CIFAR-10 and its like.
    Cifar10,
    /// For the digits of Street View House Numbers.
    Svhn,
}

impl Policy {
    const ALL: [(Policy, &str); 3] =
        [(Policy::ImageNet, "imagenet"), (Policy::Cifar10, "cifar10"), (Policy::Svhn, "svhn")];

    fn pairs(self) -> &'static [SubPolicy; 25] {
        match self {
            Policy::ImageNet => &IMAGENET,
            Policy::Cifar10 => &CIFAR10,
            Policy::Svhn => &SVHN,
        }
    }
}

impl Field for Policy {
    fn read(&mut self, text: &str) -> Result<(), &'static str> {
        let found = Policy::ALL.into_iter().find(|(_, name)| *name == text);
        *self = found.ok_or("imagenet, cifar10 or svhn")?.0;
        Ok(())
    }

    fn write(&self) -> String {
        Policy::ALL.into_iter().filter(|(policy, _)| policy == self).map(|(_, name)| name).collect()
    }
}

/// Two operations, the probability of each, and its strength of 0 to 9.
type SubPolicy = [(Kind, f64, u32); 2];

const BINS: u32 = 10;
const SPACE: Space =
    Space { shear: 0.3, translate: Reach::Share(150.0 / 331.0), rotate: 30.0, color: 0.9, bits: [8.0, 4.0] };

impl Listed for AutoAugment {
    const NAME: &str = "auto-augment";

    fn fields(&mut self) -> Vec<(&'static str, &mut dyn Field)> {
        vec![("policy", &mut self.policy)]
    }
}

impl Transform for AutoAugment {
    fn draw(&self, [h, w, _]: [usize; 3], seed: u64, epoch: u64, sample: u32) -> Draws {
        let mut rng = Philox::new(seed, const { domain("auto_augment") }, [epoch, u64::from(sample)]);
        let pair = self.policy.pairs()[rng.below(25) as usize];
        let operations = pair.map(|(kind, probability, bin)| {
            let (acts, negative) = (rng.unit_f64() < probability, rng.below(2) == 1);
            let kind = if acts { kind } else { Kind::Identity };
            SPACE.operation(kind, negative, [h, w], |from, to| linspace(from, to, BINS, bin))
        });
        Draws::of(&operations)
    }

    fn build(&self, shape: [usize; 3]) -> Result<Pipeline, Error> {
        compose::of_bytes(text::write(self), shape)
    }

    fn text(&self) -> Option<String> {
        Some(text::write(self))
    }
}

const IMAGENET: [SubPolicy; 25] = [
    [(Kind::Posterize, 0.4, 8), (Kind::Rotate, 0.6, 9)],
    [(Kind::Solarize, 0.6, 5), (Kind::AutoContrast, 0.6, 0)],
    [(Kind::Equalize, 0.8, 0), (Kind::Equalize, 0.6, 0)],
    [(Kind::Posterize, 0.6, 7), (Kind::Posterize, 0.6, 6)],
    [(Kind::Equalize, 0.4, 0), (Kind::Solarize, 0.2, 4)],
    [(Kind::Equalize, 0.4, 0), (Kind::Rotate, 0.8, 8)],
    [(Kind::Solarize, 0.6, 3), (Kind::Equalize, 0.6, 0)],
    [(Kind::Posterize, 0.8, 5), (Kind::Equalize, 1.0, 0)],
    [(Kind::Rotate, 0.2, 3), (Kind::Solarize, 0.6, 8)],
    [(Kind::Equalize, 0.6, 0), (Kind::Posterize, 0.4, 6)],
    [(Kind::Rotate, 0.8, 8), (Kind::Color, 0.4, 0)],
    [(Kind::Rotate, 0.4, 9), (Kind::Equalize, 0.6, 0)],
    [(Kind::Equalize, 0.0, 0), (Kind::Equalize, 0.8, 0)],
    [(Kind::Invert, 0.6, 0), (Kind::Equalize, 1.0, 0)],
    [(Kind::Color, 0.6, 4), (Kind::Contrast, 1.0, 8)],
    [(Kind::Rotate, 0.8, 8), (Kind::Color, 1.0, 2)],
    [(Kind::Color, 0.8, 8), (Kind::Solarize, 0.8, 7)],
    [(Kind::Sharpness, 0.4, 7), (Kind::Invert, 0.6, 0)],
    [(Kind::ShearX, 0.6, 5), (Kind::Equalize, 1.0, 0)],
    [(Kind::Color, 0.4, 0), (Kind::Equalize, 0.6, 0)],
    [(Kind::Equalize, 0.4, 0), (Kind::Solarize, 0.2, 4)],
    [(Kind::Solarize, 0.6, 5), (Kind::AutoContrast, 0.6, 0)],
    [(Kind::Invert, 0.6, 0), (Kind::Equalize, 1.0, 0)],
    [(Kind::Color, 0.6, 4), (Kind::Contrast, 1.0, 8)],
    [(Kind::Equalize, 0.8, 0), (Kind::Equalize, 0.6, 0)],
];

const CIFAR10: [SubPolicy; 25] = [
    [(Kind::Invert, 0.1, 0), (Kind::Contrast, 0.2, 6)],
    [(Kind::Rotate, 0.7, 2), (Kind::TranslateX, 0.3, 9)],
    [(Kind::Sharpness, 0.8, 1), (Kind::Sharpness, 0.9, 3)],
    [(Kind::ShearY, 0.5, 8), (Kind::TranslateY, 0.7, 9)],
    [(Kind::AutoContrast, 0.5, 0), (Kind::Equalize, 0.9, 0)],
    [(Kind::ShearY, 0.2, 7), (Kind::Posterize, 0.3, 7)],
    [(Kind::Color, 0.4, 3), (Kind::Brightness, 0.6, 7)],
    [(Kind::Sharpness, 0.3, 9), (Kind::Brightness, 0.7, 9)],
    [(Kind::Equalize, 0.6, 0), (Kind::Equalize, 0.5, 0)],
    [(Kind::Contrast, 0.6, 7), (Kind::Sharpness, 0.6, 5)],
    [(Kind::Color, 0.7, 7), (Kind::TranslateX, 0.5, 8)],
    [(Kind::Equalize, 0.3, 0), (Kind::AutoContrast, 0.4, 0)],
    [(Kind::TranslateY, 0.4, 3), (Kind::Sharpness, 0.2, 6)],
    [(Kind::Brightness, 0.9, 6), (Kind::Color, 0.2, 8)],
    [(Kind::Solarize, 0.5, 2), (Kind::Invert, 0.0, 0)],
    [(Kind::Equalize, 0.2, 0), (Kind::AutoContrast, 0.6, 0)],
    [(Kind::Equalize, 0.2, 0), (Kind::Equalize, 0.6, 0)],
    [(Kind::Color, 0.9, 9), (Kind::Equalize, 0.6, 0)],
    [(Kind::AutoContrast, 0.8, 0), (Kind::Solarize, 0.2, 8)],
    [(Kind::Brightness, 0.1, 3), (Kind::Color, 0.7, 0)],
    [(Kind::Solarize, 0.4, 5), (Kind::AutoContrast, 0.9, 0)],
    [(Kind::TranslateY, 0.9, 9), (Kind::TranslateY, 0.7, 9)],
    [(Kind::AutoContrast, 0.9, 0), (Kind::Solarize, 0.8, 3)],
    [(Kind::Equalize, 0.8, 0), (Kind::Invert, 0.1, 0)],
    [(Kind::TranslateY, 0.7, 9), (Kind::AutoContrast, 0.9, 0)],
];

const SVHN: [SubPolicy; 25] = [
    [(Kind::ShearX, 0.9, 4), (Kind::Invert, 0.2, 0)],
    [(Kind::ShearY, 0.9, 8), (Kind::Invert, 0.7, 0)],
    [(Kind::Equalize, 0.6, 0), (Kind::Solarize, 0.6, 6)],
    [(Kind::Invert, 0.9, 0), (Kind::Equalize, 0.6, 0)],
    [(Kind::Equalize, 0.6, 0), (Kind::Rotate, 0.9, 3)],
    [(Kind::ShearX, 0.9, 4), (Kind::AutoContrast, 0.8, 0)],
    [(Kind::ShearY, 0.9, 8), (Kind::Invert, 0.4, 0)],
    [(Kind::ShearY, 0.9, 5), (Kind::Solarize, 0.2, 6)],
    [(Kind::Invert, 0.9, 0), (Kind::AutoContrast, 0.8, 0)],
    [(Kind::Equalize, 0.6, 0), (Kind::Rotate, 0.9, 3)],
    [(Kind::ShearX, 0.9, 4), (Kind::Solarize, 0.3, 3)],
    [(Kind::ShearY, 0.8, 8), (Kind::Invert, 0.7, 0)],
    [(Kind::Equalize, 0.9, 0), (Kind::TranslateY, 0.6, 6)],
    [(Kind::Invert, 0.9, 0), (Kind::Equalize, 0.6, 0)],
    [(Kind::Contrast, 0.3, 3), (Kind::Rotate, 0.8, 4)],
    [(Kind::Invert, 0.8, 0), (Kind::TranslateY, 0.0, 2)],
    [(Kind::ShearY, 0.7, 6), (Kind::Solarize, 0.4, 8)],
    [(Kind::Invert, 0.6, 0), (Kind::Rotate, 0.8, 4)],
    [(Kind::ShearY, 0.3, 7), (Kind::TranslateX, 0.9, 3)],
    [(Kind::ShearX, 0.1, 6), (Kind::Invert, 0.6, 0)],
    [(Kind::Solarize, 0.7, 2), (Kind::TranslateY, 0.6, 7)],
    [(Kind::ShearY, 0.8, 4), (Kind::Invert, 0.8, 0)],
    [(Kind::ShearX, 0.7, 9), (Kind::TranslateY, 0.8, 3)],
    [(Kind::ShearY, 0.8, 5), (Kind::AutoContrast, 0.7, 0)],
    [(Kind::ShearX, 0.7, 2), (Kind::Invert, 0.1, 0)],
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{bytes, digest, golden, list, shape};
    use std::collections::BTreeSet;

    #[test]
    fn strengths_are_torchvisions() {
        SPACE.check("auto", |k, from, to| linspace(from, to, BINS, k));
    }

    #[test]
    fn all_pairs_have_the_probabilities_and_bytes_of_torchvision() {
        let golden = golden();
        let shape @ [h, w, _] = shape(&golden);
        for (policy, name) in Policy::ALL {
            let expected = golden["policies"][name].as_array().unwrap();
            assert_eq!(expected.len(), 25);
            for (k, (pair, expected)) in policy.pairs().iter().zip(expected).enumerate() {
                let probabilities: Vec<f64> = list(&expected[0]);
                assert_eq!(probabilities, [pair[0].1, pair[1].1]);
                let mut image = bytes(&golden["image"]);
                for (place, (kind, _, bin)) in pair.iter().enumerate() {
                    let negative = (k + place) % 2 == 1;
                    let at = |from, to| linspace(from, to, BINS, *bin);
                    SPACE.operation(*kind, negative, [h, w], at).apply(shape, &mut image, &mut Vec::new());
                }
                assert_eq!(digest(&image), expected[1].as_str().unwrap(), "{name} {k}: {pair:?}");
            }
        }
    }

    #[test]
    fn pairs_and_their_operations_come_up_as_often_as_they_should() {
        let transform = AutoAugment { policy: Policy::Svhn };
        let draw = |sample| transform.draw([32, 32, 3], 3, 1, sample).operations;
        let all: Vec<_> = (0..10_000).map(draw).collect();
        assert!(all.iter().all(|operations| operations[2..] == draw(0)[2..]));
        let share = |kind: Kind| {
            let pairs = SVHN.iter().flatten().filter(|(own, ..)| *own == kind);
            pairs.map(|(_, probability, _)| probability / 25.0).sum::<f64>()
        };
        for (kind, name) in [(Kind::Invert, "Invert"), (Kind::Equalize, "Equalize"), (Kind::ShearY, "ShearY")]
        {
            let count =
                all.iter().flatten().filter(|operation| format!("{operation:?}").starts_with(name)).count();
            assert!((count as f64 / 1e4 - share(kind)).abs() < 0.02, "{name}: {count}, not {}", share(kind));
        }
        let seen: BTreeSet<String> = all.iter().map(|operations| format!("{operations:?}")).collect();
        assert!(seen.len() > 75, "{}", seen.len());
    }
}
