//! Mixup and cutmix: two samples become one, with a label of both.

use crate::{ImageDataGenerator, Pipeline};
use core::ops::Range;
use towers_philox::{Philox, domain};

/// How a sample is mixed with another one: a pure function of (seed, epoch, sample). The partner comes from the whole set, each
/// with the same chance, so neither the size of a batch nor the slice of a replica matters.
///
/// ```
/// use towers_augment::ImageDataGenerator;
///
/// let pipeline = ImageDataGenerator::new().mixup(0.2).build([32, 32, 3])?;
/// let mix = pipeline.mix(1, 0, 41, 50_000).expect("`mixup` is on");
/// assert!(mix.partner < 50_000 && (0.0..=1.0).contains(&mix.weight));
/// # Ok::<(), towers_augment::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// The other sample.
    pub partner: u32,
    /// How much of the result, and of its label, is the sample itself; the rest is the partner.
    pub weight: f32,
    /// The rows and columns that show the partner, for cutmix; `None` for mixup.
    pub patch: Option<[Range<usize>; 2]>,
}

impl Mix {
    /// Mixes the partner's image into the sample's, both ready for the network (HWC of `shape`). An image of another length is
    /// mixed as far as it goes.
    pub fn apply(&self, [_, w, c]: [usize; 3], image: &mut [f32], partner: &[f32]) {
        match &self.patch {
            None => {
                let (own, other) = (self.weight, 1.0 - self.weight);
                image.iter_mut().zip(partner).for_each(|(to, from)| *to = own * *to + other * from);
            }
            Some([rows, columns]) => {
                for y in rows.clone() {
                    let run = (y * w + columns.start) * c..(y * w + columns.end) * c;
                    if let (Some(to), Some(from)) = (image.get_mut(run.clone()), partner.get(run)) {
                        to.copy_from_slice(from);
                    }
                }
            }
        }
    }
}

impl ImageDataGenerator {
    /// Whether samples are mixed.
    pub fn mixes(&self) -> bool {
        self.mixup > 0.0 || self.cutmix > 0.0
    }
}

impl Pipeline {
    /// How `sample` of a set of `len` is mixed in `epoch`; `None` where neither `mixup` nor `cutmix` is on.
    pub fn mix(&self, seed: u64, epoch: u64, sample: u32, len: u32) -> Option<Mix> {
        let options = self.options();
        if !options.mixes() {
            return None;
        }
        let mut rng = Philox::new(seed, const { domain("mix") }, [epoch, u64::from(sample)]);
        let partner = rng.below(len);
        let coin = rng.below(2) == 1;
        let cuts = options.mixup == 0.0 || coin && options.cutmix > 0.0;
        if !cuts {
            let weight = beta(options.mixup, &mut rng) as f32;
            return Some(Mix { partner, weight, patch: None });
        }
        let side = (1.0 - beta(options.cutmix, &mut rng)).sqrt();
        let [h, w, _] = self.shape();
        // Around a random pixel, and clipped at the edges, as in the paper; the area that is left counts.
        let patch = [h, w].map(|len| {
            let (centre, half) = (rng.below(len as u32) as usize, (len as f64 * side) as usize / 2);
            centre.saturating_sub(half)..(centre + half).min(len)
        });
        let covered = patch.iter().map(|run| run.len()).product::<usize>() as f64 / (h * w) as f64;
        Some(Mix { partner, weight: (1.0 - covered) as f32, patch: Some(patch) })
    }
}

/// A number from the distribution Beta(alpha, alpha).
fn beta(alpha: f64, rng: &mut Philox) -> f64 {
    // From the logarithms of two gammas, which small alphas would make vanish.
    let (a, b) = (log_gamma(alpha, rng), log_gamma(alpha, rng));
    1.0 / (1.0 + (b - a).exp())
}

/// The logarithm of a number from the distribution Gamma(alpha, 1): G. Marsaglia and W. W. Tsang, "A simple method for generating
/// gamma variables" (2000), with their way for an alpha below 1.
pub(crate) fn log_gamma(alpha: f64, rng: &mut Philox) -> f64 {
    let d = alpha + 1.0 - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    let boost = (1.0 - rng.unit_f64()).ln() / alpha;
    loop {
        let x = rng.normal();
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && (1.0 - rng.unit_f64()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return (d * v).ln() + boost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_have_the_mean_and_variance_of_the_distribution() {
        for alpha in [0.1, 0.2, 1.0, 4.0] {
            let n = 20_000;
            let draw = |k| beta(alpha, &mut Philox::new(7, 1, [0, k]));
            let all: Vec<f64> = (0..n).map(draw).collect();
            let mean = all.iter().sum::<f64>() / n as f64;
            let variance = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
            let expected = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            assert!((mean - 0.5).abs() < 0.01, "{alpha}: {mean}");
            assert!((variance - expected).abs() < 0.03 * expected, "{alpha}: {variance}, not {expected}");
        }
        assert!((0..100).all(|k| (0.0..=1.0).contains(&beta(1e-9, &mut Philox::new(7, 1, [0, k])))));
    }

    #[test]
    fn a_patch_shows_the_partner_and_weighs_what_it_covers() {
        let pipeline = ImageDataGenerator::new().cutmix(1.0).build([6, 5, 2]).unwrap();
        for sample in 0..500 {
            let mix = pipeline.mix(3, 1, sample, 9).unwrap();
            let mut image = [1.0; 60];
            mix.apply([6, 5, 2], &mut image, &[0.0; 60]);
            let left = image.iter().sum::<f32>() / 60.0;
            assert!((left - mix.weight).abs() < 1e-6 && mix.partner < 9, "{mix:?}");
        }
    }

    #[test]
    fn mixup_is_a_weighted_mean() {
        let mix = Mix { partner: 0, weight: 0.25, patch: None };
        let mut image = [4.0, 8.0];
        mix.apply([1, 2, 1], &mut image, &[0.0, 4.0]);
        assert_eq!(image, [1.0, 5.0]);
    }

    #[test]
    fn with_both_a_coin_decides() {
        let both = ImageDataGenerator::new().cutmix(1.0).mixup(1.0).build([6, 5, 2]).unwrap();
        let cuts = (0..1000).filter(|&sample| both.mix(3, 1, sample, 9).unwrap().patch.is_some()).count();
        assert!((430..570).contains(&cuts));
        assert!(ImageDataGenerator::new().build([6, 5, 2]).unwrap().mix(3, 1, 2, 9).is_none());
    }
}
