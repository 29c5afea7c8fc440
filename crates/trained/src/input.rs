use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use towers_augment::{ImageDataGenerator, Mean, Pipeline, engine::PixelSums};
use towers_dataset::Split;

/// What Keras adds to a standard deviation before it divides by it.
pub(crate) const EPSILON: f64 = 1e-6;

/// What happens to pixels first, in training and in evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Preprocessing {
    /// Nothing: the network takes values from 0 to 255.
    None,
    /// `x / 255`: from 0 to 1.
    #[serde(rename = "divide-by-255")]
    DivideBy255,
    /// Subtract the training images' mean, pixel by pixel, from values of 0 to 255.
    SubtractPixelMean,
    /// Subtract each channel's mean over the training images, and divide by the standard deviation of all their values.
    Standardize,
    /// Blue, green, red, less the mean of ImageNet, 103.939, 116.779, 123.68: `preprocess_input` of Keras' VGG and ResNet.
    Caffe,
    /// `x / 127.5 - 1`: from -1 to 1, as for Keras' Inception, Xception, MobileNet, and ResNet V2.
    Tf,
    /// `x / 255`, less the mean of ImageNet, by its deviation, for each channel: torchvision, and Keras' DenseNet.
    Torch,
}

impl Preprocessing {
    /// All names, as in files.
    pub const NAMES: [&'static str; 7] =
        ["none", "divide-by-255", "subtract-pixel-mean", "standardize", "caffe", "tf", "torch"];

    /// Refuses images of other channels than it has numbers for.
    ///
    /// ```
    /// use towers_trained::Preprocessing;
    ///
    /// assert!(Preprocessing::Tf.check([28, 28, 1]).is_ok() && Preprocessing::Caffe.check([28, 28, 3]).is_ok());
    /// let error = Preprocessing::Caffe.check([28, 28, 1]).unwrap_err().to_string();
    /// assert!(error.starts_with("`preprocessing` is `caffe`, but must be one of none, "), "{error}");
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`].
    pub fn check(self, [.., channels]: [usize; 3]) -> Result<()> {
        let is_of_colours = matches!(self, Preprocessing::Caffe | Preprocessing::Torch);
        if !is_of_colours || channels == MEAN.len() {
            return Ok(());
        }
        let accepted = format!(
            "one of none, divide-by-255, subtract-pixel-mean, standardize, tf for images of {channels} channels: it has numbers \
             for red, green and blue"
        );
        Err(Error::option("preprocessing", format!("`{}`", self.name()), accepted))
    }
}

/// The mean of ImageNet's red, green and blue, from 0 to 1, and their deviations, as torchvision has them.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const STD: [f64; 3] = [0.229, 0.224, 0.225];
/// The mean of its blue, green and red, from 0 to 255, as Caffe's networks have it.
const CAFFE: [f32; 3] = [103.939, 116.779, 123.68];

/// A [`Preprocessing`] with its measurements of the training data. It turns a picture into a network's input.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Input {
    /// `x`, from 0 to 255.
    None,
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
    /// [`Preprocessing::Caffe`].
    Caffe,
    /// [`Preprocessing::Tf`].
    Tf {
        /// The channels of the images.
        channels: usize,
    },
    /// [`Preprocessing::Torch`].
    Torch,
}

impl Input {
    /// Measures `preprocessing` on the training data.
    ///
    /// # Errors
    /// If there are no images, or they can't be decoded.
    pub fn fit(preprocessing: Preprocessing, train: &Split) -> Result<Self> {
        let mut fit = InputFit::new(preprocessing, train.shape());
        fit.add_all(train, |_| Ok::<_, Error>(()))?;
        fit.input()
    }

    /// The preprocessing that these are measurements of.
    pub fn kind(&self) -> Preprocessing {
        match self {
            Input::None => Preprocessing::None,
            Input::DivideBy255 => Preprocessing::DivideBy255,
            Input::SubtractPixelMean { .. } => Preprocessing::SubtractPixelMean,
            Input::Standardize { .. } => Preprocessing::Standardize,
            Input::Caffe => Preprocessing::Caffe,
            Input::Tf { .. } => Preprocessing::Tf,
            Input::Torch => Preprocessing::Torch,
        }
    }

    /// The input of a preprocessing that measures nothing, for images of this height, width and channels.
    pub(crate) fn constant(preprocessing: Preprocessing, [.., channels]: [usize; 3]) -> Option<Self> {
        match preprocessing {
            Preprocessing::None => Some(Input::None),
            Preprocessing::DivideBy255 => Some(Input::DivideBy255),
            Preprocessing::Caffe => Some(Input::Caffe),
            Preprocessing::Tf => Some(Input::Tf { channels }),
            Preprocessing::Torch => Some(Input::Torch),
            Preprocessing::SubtractPixelMean | Preprocessing::Standardize => None,
        }
    }

    /// The augmentation `options` with these steps before it, in training and in evaluation.
    pub fn options(&self, options: ImageDataGenerator) -> ImageDataGenerator {
        // A mean or a deviation of the options' own takes the place, and so does a factor.
        let with_mean = |options: ImageDataGenerator, mean: Vec<f32>| {
            let mean = options.mean.clone().unwrap_or(Mean::PerChannel(mean));
            options.mean(mean)
        };
        match self {
            Input::None => options,
            Input::Caffe => with_mean(options.reverse_channels(true), CAFFE.to_vec()),
            Input::Tf { channels } => {
                let factor = options.rescale.unwrap_or(1.0 / 127.5);
                with_mean(options.rescale(factor), vec![1.0; *channels])
            }
            Input::Torch => {
                let factor = options.rescale.unwrap_or(1.0 / 255.0);
                let own = || STD.iter().map(|std| (std - EPSILON) as f32).collect();
                let std = options.std.clone().unwrap_or_else(own);
                with_mean(options.rescale(factor).std(std), MEAN.to_vec())
            }
            // A factor of the options' own takes the place.
            Input::DivideBy255 => {
                let factor = options.rescale.unwrap_or(1.0 / 255.0);
                options.rescale(factor)
            }
            Input::Standardize { mean, std } => {
                // So does a mean, which the featurewise options measure after the factor.
                let own = || Mean::PerChannel(mean.iter().map(|mean| mean / std).collect());
                let mean = options.mean.clone().unwrap_or_else(own);
                options.rescale(1.0 / std).mean(mean)
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

/// [`Input::fit`] for training images that are seen some at a time.
///
/// ```
/// use towers_trained::{Input, InputFit, Preprocessing};
///
/// let mut fit = InputFit::new(Preprocessing::Standardize, [1, 2, 3]);
/// fit.add(&[0, 0, 0, 10, 10, 10]);
/// assert_eq!(fit.input()?, Input::Standardize { mean: vec![5.0; 3], std: 5.0 });
/// # Ok::<(), towers_trained::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct InputFit(Sums);

#[derive(Clone, Debug)]
enum Sums {
    Constant(Input),
    Pixels(PixelSums),
    Values(ValueSums),
}

impl InputFit {
    /// Before any image of this height, width and channels.
    pub fn new(preprocessing: Preprocessing, image: [usize; 3]) -> Self {
        InputFit(match Input::constant(preprocessing, image) {
            Some(input) => Sums::Constant(input),
            None if preprocessing == Preprocessing::SubtractPixelMean => Sums::Pixels(PixelSums::new(image)),
            None => Sums::Values(ValueSums::of(image[2])),
        })
    }

    /// Adds the pixels of whole images.
    pub fn add(&mut self, images: &[u8]) {
        match &mut self.0 {
            Sums::Constant(_) => {}
            Sums::Pixels(sums) => sums.add(images),
            Sums::Values(sums) => sums.add(images),
        }
    }

    /// Adds all images of a split, and tells `seen` of their pixels, some images at a time. Images that the input does not
    /// depend on are not read.
    ///
    /// # Errors
    /// If they can't be decoded, and those of `seen`.
    pub fn add_all<E: From<towers_dataset::Error>>(
        &mut self,
        split: &Split,
        mut seen: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if matches!(self.0, Sums::Constant(_)) {
            return Ok(());
        }
        split.each(|images| {
            self.add(images);
            seen(images)
        })
    }

    /// The input for the images so far.
    ///
    /// # Errors
    /// If it depends on the images, and there was none.
    pub fn input(&self) -> Result<Input> {
        match &self.0 {
            Sums::Constant(input) => Ok(input.clone()),
            Sums::Pixels(sums) => match sums.mean()? {
                Mean::PerPixel { shape: image, values: mean } => Ok(Input::SubtractPixelMean { image, mean }),
                other => Err(Error::about("the mean", format!("{other:?}"), "one number a pixel")),
            },
            Sums::Values(ValueSums { count: 0, .. }) => {
                Err(towers_augment::Error::EmptySet { op: "standardize" }.into())
            }
            Sums::Values(sums) => Ok(sums.input()),
        }
    }
}

/// Numbers that are added up together: whole pixels of 1 or 3 channels, and a few registers.
const LANES: usize = 16 * towers_dataset::CHANNELS;
/// So many squares of bytes add up to less than 2^32.
const ROWS: usize = 1 << 16;

/// What the mean of each channel and the standard deviation of all values need. The sums are whole numbers, and so
/// exact.
#[derive(Clone, Debug)]
struct ValueSums {
    /// One each, 1 or 3.
    channels: Vec<u64>,
    squares: u64,
    count: usize,
}

impl ValueSums {
    fn of(channels: usize) -> Self {
        ValueSums { channels: vec![0; channels], squares: 0, count: 0 }
    }

    /// Adds the values of whole pixels.
    fn add(&mut self, values: &[u8]) {
        for block in values.chunks(ROWS * LANES) {
            let (mut sum, mut square) = ([0_u32; LANES], [0_u32; LANES]);
            for row in block.chunks(LANES) {
                for ((sum, square), &value) in sum.iter_mut().zip(&mut square).zip(row) {
                    *sum += u32::from(value);
                    *square += u32::from(value) * u32::from(value);
                }
            }
            let channels = self.channels.len();
            for (lane, sum) in sum.into_iter().enumerate() {
                self.channels[lane % channels] += u64::from(sum);
            }
            self.squares += square.into_iter().map(u64::from).sum::<u64>();
        }
        self.count += values.len();
    }

    fn input(&self) -> Input {
        let count = self.count as f64;
        let channels: Vec<f64> = self.channels.iter().map(|&sum| sum as f64).collect();
        let mean = channels.iter().sum::<f64>() / count;
        let variance = (self.squares as f64 / count - mean * mean).max(0.0);
        // Images of one grey are left as they are.
        let std = if variance > 0.0 { variance.sqrt() } else { 1.0 };
        let per_channel = count / channels.len() as f64;
        Input::Standardize {
            mean: channels.iter().map(|sum| (sum / per_channel) as f32).collect(),
            std: std as f32,
        }
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
        // In two parts.
        let standardize = |values: &[u8]| {
            let (a, b) = values.split_at(values.len() / 6 * 3);
            let mut sums = ValueSums::of(3);
            sums.add(a);
            sums.add(b);
            sums.input()
        };
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
        let mut sums = ValueSums::of(1);
        sums.add(&values);
        let Input::Standardize { mean, std: of_one } = sums.input() else { panic!("another input") };
        assert!(mean.len() == 1 && (f64::from(mean[0]) - all).abs() < 1e-4 && of_one == std, "{mean:?}");
    }
}
