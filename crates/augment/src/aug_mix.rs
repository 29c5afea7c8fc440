//! AugMix: an image mixed with versions of itself that passed chains of operations.

use crate::mix::log_gamma;
use crate::strengths::{Kind, Reach, Space, linspace};
use crate::text::{self, Field, Listed};
use crate::{Drawn, Draws, Effect, Error, Operation, Pipeline, Transform, compose};
use std::fmt;
use towers_philox::{Philox, domain};

/// Mixes the image with versions of itself that passed chains of operations: D. Hendrycks et al., "AugMix: A Simple Data Processing
/// Method to Improve Robustness and Uncertainty" (2020). Operations, strengths and defaults are those of torchvision's `AugMix`; the
/// operations have Pillow's bytes, with a bilinear mixture of pixels and black beyond the edge. The paper's loss for three
/// versions of an image is no part of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AugMix {
    /// The largest strength, from 1 to 10 (default 3).
    pub severity: u32,
    /// How many chains (default 3, at most 16).
    pub mixture_width: u32,
    /// How many operations in a chain, at most 16; 0 for 1 to 3 by chance (default).
    pub chain_depth: u32,
    /// The alpha of the shares, which are from a Dirichlet distribution (default 1).
    pub alpha: f64,
    /// Whether brightness, colour, contrast and sharpness are among the operations (default: yes).
    pub all_ops: bool,
}

impl Default for AugMix {
    fn default() -> Self {
        AugMix { severity: 3, mixture_width: 3, chain_depth: 0, alpha: 1.0, all_ops: true }
    }
}

/// torchvision's order; the last four are left out without `all_ops`.
const KINDS: [Kind; 13] = [
    Kind::ShearX,
    Kind::ShearY,
    Kind::TranslateX,
    Kind::TranslateY,
    Kind::Rotate,
    Kind::Posterize,
    Kind::Solarize,
    Kind::AutoContrast,
    Kind::Equalize,
    Kind::Brightness,
    Kind::Color,
    Kind::Contrast,
    Kind::Sharpness,
];

const BINS: u32 = 10;
const SPACE: Space =
    Space { shear: 0.3, translate: Reach::Share(1.0 / 3.0), rotate: 30.0, color: 0.9, bits: [4.0, 4.0] };

impl Listed for AugMix {
    const NAME: &str = "aug-mix";

    fn fields(&mut self) -> Vec<(&'static str, &mut dyn Field)> {
        vec![
            ("severity", &mut self.severity),
            ("mixture-width", &mut self.mixture_width),
            ("chain-depth", &mut self.chain_depth),
            ("alpha", &mut self.alpha),
            ("all-ops", &mut self.all_ops),
        ]
    }
}

impl Transform for AugMix {
    fn draw(&self, [h, w, _]: [usize; 3], seed: u64, epoch: u64, sample: u32) -> Draws {
        let mut rng = Philox::new(seed, const { domain("aug_mix") }, [epoch, u64::from(sample)]);
        let shares = dirichlet(2, self.alpha, &mut rng);
        let chains = dirichlet(self.mixture_width, self.alpha, &mut rng).into_iter().map(|share| {
            let depth = if self.chain_depth > 0 { self.chain_depth } else { 1 + rng.below(3) };
            let chain = (0..depth).map(|_| {
                let kind = KINDS[rng.below(if self.all_ops { 13 } else { 9 }) as usize];
                let (bin, negative) = (rng.below(self.severity), rng.below(2) == 1);
                SPACE.operation(kind, negative, [h, w], |from, to| linspace(from, to, BINS, bin))
            });
            (share * shares[1], chain.collect())
        });
        Draws {
            effect: Some(Drawn::new(Mixture { own: shares[0], chains: chains.collect() })),
            ..Draws::default()
        }
    }

    fn build(&self, shape: [usize; 3]) -> Result<Pipeline, Error> {
        let AugMix { severity, mixture_width, chain_depth, alpha, .. } = *self;
        let counts = (1..=10).contains(&severity) && (1..=16).contains(&mixture_width) && chain_depth <= 16;
        if !(counts && alpha > 0.0 && alpha.is_finite()) {
            let accepted =
                "with a severity from 1 to 10, 1 to 16 chains of at most 16 operations, and a positive alpha";
            return Err(text::refuse(text::write(self), accepted));
        }
        compose::of_bytes(text::write(self), shape)
    }

    fn text(&self) -> Option<String> {
        Some(text::write(self))
    }
}

/// Shares from the Dirichlet distribution whose parameters are all `alpha`.
fn dirichlet(count: u32, alpha: f64, rng: &mut Philox) -> Vec<f32> {
    let logarithms: Vec<f64> = (0..count).map(|_| log_gamma(alpha, rng)).collect();
    // Small alphas would make gammas vanish.
    let most = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let gammas: Vec<f64> = logarithms.iter().map(|logarithm| (logarithm - most).exp()).collect();
    let sum: f64 = gammas.iter().sum();
    gammas.iter().map(|gamma| (gamma / sum) as f32).collect()
}

/// The image's own share, and the share of each chain with its operations.
#[derive(Debug)]
struct Mixture {
    own: f32,
    chains: Vec<(f32, Vec<Operation>)>,
}

impl fmt::Display for Mixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "aug_mix {:.2}", self.own)?;
        for (share, operations) in &self.chains {
            write!(f, " + {share:.2} (")?;
            for (k, operation) in operations.iter().enumerate() {
                write!(f, "{}{operation}", if k > 0 { ", " } else { "" })?;
            }
            f.write_str(")")?;
        }
        Ok(())
    }
}

impl Effect for Mixture {
    fn paint(&self, shape: [usize; 3], image: &mut [u8], spare: &mut Vec<u8>) {
        let mut mix: Vec<f32> = image.iter().map(|&value| self.own * f32::from(value)).collect();
        let mut changed = Vec::with_capacity(image.len());
        for (share, operations) in &self.chains {
            changed.clear();
            changed.extend_from_slice(image);
            operations.iter().for_each(|operation| operation.apply_bilinear(shape, &mut changed, spare));
            mix.iter_mut().zip(&changed).for_each(|(mix, &value)| *mix += share * f32::from(value));
        }
        // Cut to whole numbers, as a cast of PyTorch does.
        image.iter_mut().zip(mix).for_each(|(value, mix)| *value = mix as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{bytes, golden, list, shape, wrong};

    #[test]
    fn strengths_are_torchvisions() {
        SPACE.check("mix", |k, from, to| linspace(from, to, BINS, k));
    }

    #[test]
    fn mixtures_have_the_bytes_of_torchvision() {
        let golden = golden();
        for case in golden["mixtures"].as_array().unwrap() {
            let (own, shares): (f64, Vec<f32>) = (list(&case["own"]), list(&case["shares"]));
            let chains: Vec<Vec<(String, f64)>> = list(&case["chains"]);
            let operation = |(name, x): &(String, f64)| match Kind::named(name) {
                Kind::Rotate => Operation::Rotate(*x),
                Kind::ShearX => Operation::ShearX(*x),
                Kind::TranslateY => Operation::TranslateY(*x as i32),
                Kind::Equalize => Operation::Equalize,
                Kind::Solarize => Operation::Solarize(*x),
                Kind::Color => Operation::Color(1.0 + x),
                Kind::Brightness => Operation::Brightness(1.0 + x),
                Kind::Posterize => Operation::Posterize(*x as u32),
                other => panic!("{other:?}"),
            };
            let chains = chains.iter().map(|chain| chain.iter().map(operation).collect());
            let shares = shares.iter().map(|share| share * (1.0 - own) as f32);
            let mixture = Mixture { own: own as f32, chains: shares.zip(chains).collect() };
            let mut image = bytes(&golden["image"]);
            mixture.paint(shape(&golden), &mut image, &mut Vec::new());
            assert_eq!(wrong(&image, &bytes(&case["out"])), 0, "{mixture}");
        }
    }

    #[test]
    fn shares_are_of_the_distribution() {
        for alpha in [0.2, 1.0, 5.0] {
            let all: Vec<Vec<f32>> =
                (0..20_000).map(|k| dirichlet(3, alpha, &mut Philox::new(3, 1, [0, k]))).collect();
            assert!(all.iter().all(|shares| (shares.iter().sum::<f32>() - 1.0).abs() < 1e-6));
            for k in 0..3 {
                let mean = all.iter().map(|shares| f64::from(shares[k])).sum::<f64>() / 2e4;
                let variance =
                    all.iter().map(|shares| (f64::from(shares[k]) - mean).powi(2)).sum::<f64>() / 2e4;
                let expected = 2.0 / 9.0 / (3.0 * alpha + 1.0);
                assert!((mean - 1.0 / 3.0).abs() < 0.01, "{alpha}: {mean}");
                assert!((variance - expected).abs() < 0.05 * expected, "{alpha}: {variance}, not {expected}");
            }
        }
        let tiny = dirichlet(3, 1e-9, &mut Philox::new(3, 1, [0, 0]));
        assert!(tiny.iter().all(|share| (0.0..=1.0).contains(share)), "{tiny:?}");
    }

    #[test]
    fn chains_have_the_depth_and_operations_that_were_asked_for() {
        let mix = AugMix { mixture_width: 2, chain_depth: 4, all_ops: false, ..AugMix::default() };
        for sample in 0..200 {
            let text = mix.draw([32, 32, 3], 1, 0, sample).to_string();
            assert_eq!(text.matches(", ").count(), 6, "{text}");
            assert!(
                !["brightness", "color", " contrast", "(contrast", "sharpness"]
                    .iter()
                    .any(|name| text.contains(name))
            );
        }
        let depths =
            |sample| AugMix::default().draw([32, 32, 3], 1, 0, sample).to_string().matches(", ").count();
        let depths: Vec<_> = (0..300).map(depths).collect();
        assert_eq!((depths.iter().min(), depths.iter().max()), (Some(&0), Some(&6)));
    }
}
