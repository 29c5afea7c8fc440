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
}

/// A [`Preprocessing`] with what it measured on the training data: what turns a picture into a network's input.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// `x / 255`.
    DivideBy255,
    /// `x - mean`, the mean in the order of the pixels: 32 x 32 x 3 numbers from 0 to 255.
    SubtractPixelMean(Vec<f32>),
}

/// Height, width, channels of every image.
pub(crate) const IMAGE: [usize; 3] = [cifar::SIDE, cifar::SIDE, cifar::CHANNELS];

impl Input {
    /// Measures what `preprocessing` needs on the training data.
    ///
    /// # Errors
    /// If there are no images.
    pub fn fit(preprocessing: Preprocessing, train: &Split) -> Result<Self> {
        match preprocessing {
            Preprocessing::DivideBy255 => Ok(Input::DivideBy255),
            Preprocessing::SubtractPixelMean => match Mean::per_pixel(train.images.view())? {
                Mean::PerPixel { values, .. } => Ok(Input::SubtractPixelMean(values)),
                other => Err(Error::Option {
                    option: "the mean",
                    value: format!("{other:?}"),
                    accepted: "one number a pixel".into(),
                }),
            },
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
            Input::SubtractPixelMean(mean) => {
                options.subtract_mean_first(Mean::PerPixel { shape: IMAGE, values: mean.clone() })
            }
        }
    }

    /// The pipeline from pictures to inputs, with the augmentation `options`.
    ///
    /// # Errors
    /// If the options don't fit the images.
    pub fn pipeline(&self, options: ImageDataGenerator) -> Result<Pipeline> {
        Ok(self.options(options).build(IMAGE)?)
    }
}
