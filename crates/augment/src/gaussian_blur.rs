//! Blurring with a Gaussian kernel.

use crate::text::{self, Field, Listed};
use crate::uniform::between;
use crate::{Drawn, Draws, Effect, Error, Pipeline, Transform, compose};
use std::fmt;
use towers_philox::{Philox, domain};

/// Blurs with a Gaussian kernel of random width: torchvision's `GaussianBlur`, with edges reflected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GaussianBlur {
    /// The side of the kernel in pixels, an odd number (default 3; torchvision has none).
    pub kernel_size: usize,
    /// The smallest and the largest standard deviation in pixels (default 0.1 to 2).
    pub sigma: [f64; 2],
}

impl Default for GaussianBlur {
    fn default() -> Self {
        GaussianBlur { kernel_size: 3, sigma: [0.1, 2.0] }
    }
}

impl Listed for GaussianBlur {
    const NAME: &str = "gaussian-blur";

    fn fields(&mut self) -> Vec<(&'static str, &mut dyn Field)> {
        vec![("kernel-size", &mut self.kernel_size), ("sigma", &mut self.sigma)]
    }
}

impl Transform for GaussianBlur {
    fn draw(&self, _: [usize; 3], seed: u64, epoch: u64, sample: u32) -> Draws {
        let mut rng = Philox::new(seed, const { domain("gaussian_blur") }, [epoch, u64::from(sample)]);
        let blur = Blur { kernel_size: self.kernel_size, sigma: between(self.sigma, &mut rng) };
        Draws { effect: Some(Drawn::new(blur)), ..Draws::default() }
    }

    fn build(&self, shape: [usize; 3]) -> Result<Pipeline, Error> {
        let GaussianBlur { kernel_size, sigma: [low, high] } = *self;
        let side = shape[0].min(shape[1]);
        if kernel_size % 2 == 0 || kernel_size / 2 >= side || !(low > 0.0 && low <= high && high.is_finite())
        {
            let accepted = format!(
                "with an odd `kernel-size` below {}, twice the smaller side of the image, and positive deviations, \
                 the smaller one first",
                2 * side
            );
            return Err(text::refuse(text::write(self), accepted));
        }
        compose::of_bytes(text::write(self), shape)
    }

    fn text(&self) -> Option<String> {
        Some(text::write(self))
    }
}

#[derive(Debug)]
struct Blur {
    kernel_size: usize,
    sigma: f64,
}

impl fmt::Display for Blur {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "blur {:.2} px", self.sigma)
    }
}

impl Blur {
    /// torchvision's, whose outermost points lie at a `sqrt(2)`th of the place that their distance in pixels has.
    fn kernel(&self) -> Vec<f32> {
        let (last, half) = ((self.kernel_size - 1) as f64, (self.kernel_size - 1) as f64 / 8.0_f64.sqrt());
        let at = |k: usize| if last == 0.0 { 0.0 } else { half * (2.0 * k as f64 / last - 1.0) };
        let weights: Vec<f64> =
            (0..self.kernel_size).map(|k| (-(at(k) / self.sigma).powi(2)).exp()).collect();
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| (weight / sum) as f32).collect()
    }
}

impl Effect for Blur {
    fn paint(&self, [h, w, c]: [usize; 3], image: &mut [u8], spare: &mut Vec<u8>) {
        let (kernel, reach) = (self.kernel(), self.kernel_size / 2);
        spare.clear();
        spare.extend_from_slice(image);
        // A place beyond the edge as its mirror image, without the edge itself.
        let reflected = |place: usize, len: usize| {
            let place = place.abs_diff(reach);
            if place < len { place } else { 2 * (len - 1) - place }
        };
        // One row blurred downwards, with as many pixels more at both ends as the kernel reaches.
        let mut row = vec![0.0_f32; (w + 2 * reach) * c];
        for (y, out) in image.chunks_exact_mut(w * c).enumerate() {
            let (before, middle) = row.split_at_mut(reach * c);
            let (middle, after) = middle.split_at_mut(w * c);
            middle.fill(0.0);
            for (k, &weight) in kernel.iter().enumerate() {
                let from = &spare[reflected(y + k, h) * w * c..][..w * c];
                middle.iter_mut().zip(from).for_each(|(sum, &value)| *sum += weight * f32::from(value));
            }
            for x in 0..reach {
                before[x * c..][..c].copy_from_slice(&middle[(reach - x) * c..][..c]);
                after[x * c..][..c].copy_from_slice(&middle[(w - 2 - x) * c..][..c]);
            }
            for (at, out) in out.iter_mut().enumerate() {
                let sum: f32 =
                    kernel.iter().zip(row[at..].iter().step_by(c)).map(|(weight, x)| weight * x).sum();
                *out = sum.round_ties_even() as u8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::{bytes, golden, list, shape, wrong};

    #[test]
    fn blurs_have_the_bytes_of_torchvision() {
        let golden = golden();
        let [h, w, _] = shape(&golden);
        for case in golden["blurs"].as_array().unwrap() {
            let blur = Blur { kernel_size: list(&case["kernel_size"]), sigma: list(&case["sigma"]) };
            let (all, c) = (bytes(&golden["image"]), list(&case["channels"]));
            let mut image = if c == 3 { all } else { all.into_iter().skip(1).step_by(3).collect() };
            blur.paint([h, w, c], &mut image, &mut Vec::new());
            assert_eq!(wrong(&image, &bytes(&case["out"])), 0, "{blur:?} of {c} channels");
        }
    }

    #[test]
    fn a_kernel_may_be_nearly_twice_as_large_as_the_image() {
        let mut image = [10, 20, 30, 200, 100, 0];
        Blur { kernel_size: 3, sigma: 50.0 }.paint([2, 3, 1], &mut image, &mut Vec::new());
        assert!(image.iter().all(|value| (20..150).contains(value)), "{image:?}");
        assert!(GaussianBlur { kernel_size: 5, ..GaussianBlur::default() }.build([2, 3, 1]).is_err());
    }
}
