//! Keras' `standardize`: the standardization of every image, in training and in evaluation.

use crate::preprocess::PreprocessingFunction;
use crate::whitening::Whitening;
use crate::{Error, ImageDataGenerator};
use ndarray::ArrayViewMut3;

/// What Keras adds to a standard deviation before it divides by it.
pub(crate) const EPSILON: f32 = 1e-6;

/// The steps, ready for images of one shape.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Standardizer {
    shape: [usize; 3],
    function: Option<PreprocessingFunction>,
    reverse: bool,
    pub(crate) factor: Option<f32>,
    samplewise_center: bool,
    samplewise_std: bool,
    /// One value for each of an image's, as in `divisor`: a flat loop is faster than one that knows channels.
    pub(crate) center: Option<Vec<f32>>,
    pub(crate) divisor: Option<Vec<f32>>,
    whitening: Option<Whitening>,
}

impl Standardizer {
    pub(crate) fn new(options: &ImageDataGenerator, shape: [usize; 3]) -> Result<Self, Error> {
        let [h, w, c] = shape;
        let fitted = |on: bool, option: &'static str, there: bool| match on && !there {
            true => Err(Error::NotFitted { option }),
            false => Ok(on),
        };
        let mean = fitted(options.centers(), "featurewise_center", options.mean.is_some())?;
        let std = fitted(options.divides(), "featurewise_std_normalization", options.std.is_some())?;
        let zca = fitted(options.zca_whitening, "zca_whitening", options.whitening.is_some())?;
        let center = options.mean.as_ref().filter(|_| mean);
        let divisor = options.std.as_ref().filter(|_| std);
        if let Some(std) = divisor {
            Error::check_len("the deviation of `featurewise_std_normalization`", std.len(), c)?;
            if let Some(bad) = std.iter().find(|std| !(std.is_finite() && **std >= 0.0)) {
                return Err(Error::option("std", bad, "finite and at least 0 for every channel"));
            }
        }
        let whitening = options.whitening.clone().filter(|_| zca);
        if let Some(whitening) = &whitening {
            whitening.check(h * w * c)?;
        }
        Ok(Standardizer {
            shape,
            function: options.preprocessing_function.clone(),
            reverse: options.reverse_channels,
            factor: options.factor(),
            samplewise_center: options.samplewise_center || options.samplewise_std_normalization,
            samplewise_std: options.samplewise_std_normalization,
            center: center.map(|mean| mean.expand(shape, "the mean of `featurewise_center`")).transpose()?,
            divisor: divisor.map(|std| std.iter().map(|std| std + EPSILON).collect::<Vec<_>>().repeat(h * w)),
            whitening,
        })
    }

    /// `spare` is memory for whitening.
    pub(crate) fn apply(&self, image: &mut [f32], spare: &mut Vec<f32>) {
        let [h, w, c] = self.shape;
        if let Some(function) = &self.function
            && let Ok(view) = ArrayViewMut3::from_shape((h, w, c), &mut *image)
        {
            function.call(view);
        }
        if self.reverse {
            image.chunks_exact_mut(c).for_each(<[f32]>::reverse);
        }
        if let Some(factor) = self.factor {
            image.iter_mut().for_each(|value| *value *= factor);
        }
        if self.samplewise_center {
            let mean = (sum(image, |x| x) / image.len() as f64) as f32;
            image.iter_mut().for_each(|value| *value -= mean);
        }
        if self.samplewise_std {
            // The mean is 0 by now but for rounding, which the difference of squares takes away.
            let count = image.len() as f64;
            let mean = sum(image, |x| x) / count;
            let variance = (sum(image, |x| x * x) / count - mean * mean).max(0.0);
            let divisor = variance.sqrt() as f32 + EPSILON;
            image.iter_mut().for_each(|value| *value /= divisor);
        }
        if let Some(mean) = &self.center {
            image.iter_mut().zip(mean).for_each(|(value, mean)| *value -= mean);
        }
        if let Some(divisor) = &self.divisor {
            image.iter_mut().zip(divisor).for_each(|(value, divisor)| *value /= divisor);
        }
        if let Some(whitening) = &self.whitening {
            whitening.apply(image, spare);
        }
    }
}

/// The sum of `f` over all values, in eight lanes: as exact as it need be, and the same on every machine.
fn sum(values: &[f32], f: impl Fn(f64) -> f64) -> f64 {
    let mut lanes = [0.0; 8];
    let (chunks, rest) = values.as_chunks::<8>();
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, &x)| *lane += f(x.into()));
    }
    lanes.iter().sum::<f64>() + rest.iter().map(|&x| f(x.into())).sum::<f64>()
}
