use crate::{Error, Result};
use augment::{ImageDataGenerator, Mean, Pipeline};
use cifar::Split;
use serde::{Deserialize, Serialize};

/// What happens to pixels first, in training and in evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preprocessing {
    /// `x / 255`: from 0 to 1.
    #[serde(rename = "divide-by-255")]
    DivideBy255,
    /// Subtract the training images' mean, pixel by pixel, from values of 0 to 255.
    SubtractPixelMean,
    /// Subtract each channel's mean over the training images, and divide by the standard deviation of all their values.
    Standardize,
}

/// A [`Preprocessing`] with its measurements of the training data. It turns a picture into a network's input.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// `x / 255`.
    DivideBy255,
    /// `x - mean`.
    SubtractPixelMean {
        /// Height, width and channels of the images.
        image: [usize; 3],
        /// A number from 0 to 255 for each value of an image, in the order of the pixels.
        mean: Vec<f32>,
    },
    /// `(x - mean) / std`, for values of 0 to 255.
    Standardize {
        /// Of each channel.
        mean: Vec<f32>,
        /// Of all values.
        std: f32,
    },
}

impl Input {
    /// Measures `preprocessing` on the training data.
    ///
    /// # Errors
    /// If there are no images.
    pub fn fit(preprocessing: Preprocessing, train: &Split) -> Result<Self> {
        match preprocessing {
            Preprocessing::DivideBy255 => Ok(Input::DivideBy255),
            Preprocessing::SubtractPixelMean => match Mean::per_pixel(train.images.view())? {
                Mean::PerPixel { shape: image, values: mean } => Ok(Input::SubtractPixelMean { image, mean }),
                other => Err(Error::Option {
                    option: "the mean",
                    value: format!("{other:?}"),
                    accepted: "one number a pixel".into(),
                }),
            },
            Preprocessing::Standardize => match train.images.as_slice() {
                Some(values) if !values.is_empty() => Ok(standardize(values)),
                _ => Err(augment::Error::EmptySet { op: "standardize" }.into()),
            },
        }
    }

    /// The preprocessing that these are measurements of.
    pub fn kind(&self) -> Preprocessing {
        match self {
            Input::DivideBy255 => Preprocessing::DivideBy255,
            Input::SubtractPixelMean { .. } => Preprocessing::SubtractPixelMean,
            Input::Standardize { .. } => Preprocessing::Standardize,
        }
    }

    /// The augmentation `options` with these steps before it, in training and in evaluation.
    pub fn options(&self, options: ImageDataGenerator) -> ImageDataGenerator {
        match self {
            // A factor of the options' own takes the place.
            Input::DivideBy255 => {
                let factor = options.rescale.unwrap_or(1.0 / 255.0);
                options.rescale(factor)
            }
            Input::Standardize { mean, std } => {
                let mean = mean.iter().map(|mean| mean / std).collect();
                options.rescale(1.0 / std).mean(Mean::PerChannel(mean))
            }
            Input::SubtractPixelMean { image, mean } => {
                options.subtract_mean_first(Mean::PerPixel { shape: *image, values: mean.clone() })
            }
        }
    }

    /// The pipeline from pictures of this height, width and channels to inputs, with the augmentation `options`.
    ///
    /// # Errors
    /// If the options don't fit the images.
    pub fn pipeline(&self, options: ImageDataGenerator, image: [usize; 3]) -> Result<Pipeline> {
        Ok(self.options(options).build(image)?)
    }
}

/// Numbers that are added up together: whole pixels, and a few registers.
const LANES: usize = 16 * cifar::CHANNELS;
/// So many squares of bytes add up to less than 2^32.
const ROWS: usize = 1 << 16;

/// The mean of each channel and the standard deviation of all values. The sums are whole numbers, and so exact.
fn standardize(values: &[u8]) -> Input {
    let (mut sums, mut squares) = ([0_u64; LANES], 0_u64);
    for block in values.chunks(ROWS * LANES) {
        let (mut sum, mut square) = ([0_u32; LANES], [0_u32; LANES]);
        for row in block.chunks(LANES) {
            for ((sum, square), &value) in sum.iter_mut().zip(&mut square).zip(row) {
                *sum += u32::from(value);
                *square += u32::from(value) * u32::from(value);
            }
        }
        sums.iter_mut().zip(sum).for_each(|(total, sum)| *total += u64::from(sum));
        squares += square.into_iter().map(u64::from).sum::<u64>();
    }
    let count = values.len() as f64;
    let channel = |c: usize| sums.iter().skip(c).step_by(cifar::CHANNELS).sum::<u64>() as f64;
    let channels: Vec<f64> = (0..cifar::CHANNELS).map(channel).collect();
    let mean = channels.iter().sum::<f64>() / count;
    let variance = (squares as f64 / count - mean * mean).max(0.0);
    // Images of one grey are left as they are.
    let std = if variance > 0.0 { variance.sqrt() } else { 1.0 };
    let per_channel = count / cifar::CHANNELS as f64;
    Input::Standardize {
        mean: channels.iter().map(|sum| (sum / per_channel) as f32).collect(),
        std: std as f32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standardized_values_have_mean_0_and_deviation_1() {
        // Longer than a block, and no whole number of rows.
        let values: Vec<u8> =
            (0..(ROWS + 7) * LANES + 15).map(|k| (k * k % 251 / (k % 3 + 1)) as u8).collect();
        let Input::Standardize { mean, std } = standardize(&values) else { panic!("another input") };
        for (c, mean) in mean.iter().enumerate() {
            let own: Vec<f64> = values.iter().skip(c).step_by(3).map(|&value| f64::from(value)).collect();
            let expected = own.iter().sum::<f64>() / own.len() as f64;
            assert!((f64::from(*mean) - expected).abs() < 1e-4, "channel {c}: {mean}, not {expected}");
        }
        let all = values.iter().map(|&value| f64::from(value)).sum::<f64>() / values.len() as f64;
        let square = |&value: &u8| (f64::from(value) - all).powi(2);
        let expected = (values.iter().map(square).sum::<f64>() / values.len() as f64).sqrt();
        assert!((f64::from(std) - expected).abs() < 1e-4, "{std}, not {expected}");
        let grey = standardize(&[7; 48]);
        assert_eq!(grey, Input::Standardize { mean: vec![7.0; 3], std: 1.0 });
    }
}
