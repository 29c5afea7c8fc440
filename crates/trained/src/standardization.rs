//! The standardization of an augmentation that belongs to a trained network.

use crate::tensors::finite_values;
use crate::{Error, ImageSize, Input, Result};
use std::path::Path;
use towers_augment::parts::{Preprocess, Whitening};
use towers_augment::{ImageDataGenerator, Mean};
use towers_checkpoint::Tensors;
use towers_dataset::Split;

/// The entry of a model file with the options of the standardization, where there is one.
const OPTIONS: &str = "towers.standardization";

// The tensors with the measurements.
const MEAN: &str = "input/channel_mean";
const STD: &str = "input/channel_std";
const WHITENING: &str = "input/whitening";

/// All of these.
pub(crate) const TENSORS: [&str; 3] = [MEAN, STD, WHITENING];

/// The longest image that ZCA is for, in values: 64 x 64 x 3. Its matrix has the square of that, and measuring it takes the cube.
const MOST_WHITENED: usize = 64 * 64 * 3;

/// Refuses options whose measurements would take more memory and time than anybody has, for images of this height, width and
/// channels.
///
/// ```
/// use towers_augment::ImageDataGenerator;
/// use towers_trained::standardization::check;
///
/// let whitening = ImageDataGenerator::new().zca_whitening(true);
/// assert!(check(&whitening, [64, 64, 3]).is_ok() && check(&whitening, [65, 64, 3]).is_err());
/// ```
///
/// # Errors
/// [`Error::Option`].
pub fn check(options: &ImageDataGenerator, image: [usize; 3]) -> Result<()> {
    let len: usize = image.iter().product();
    if !options.zca_whitening || len <= MOST_WHITENED {
        return Ok(());
    }
    let value = format!("given for images of {}", ImageSize::of(image));
    let accepted =
        format!("left out for more than 64x64 pixels: its matrix would have {len} x {len} numbers");
    Err(Error::option("augmentation.zca_whitening", value, accepted))
}

/// Measures the numbers of the augmentation itself on the training images. `seen` is told of the pixels of some images at a
/// time, in up to three passes. Nothing is measured twice.
///
/// # Errors
/// [`Error::Option`] as [`check`]; [`Error::Augment`] if there are no images, they can't be decoded, or `seen` fails.
pub fn fit<E: From<Error> + From<towers_dataset::Error> + ToString>(
    options: ImageDataGenerator,
    train: &Split,
    mut seen: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<ImageDataGenerator> {
    check(&options, train.shape())?;
    if !options.needs_fit() {
        return Ok(options);
    }
    let show = |see: &mut towers_augment::engine::ShowImages<'_>| {
        let shown = train.each(|images| {
            see(images).map_err(Error::from)?;
            seen(images)
        });
        shown.map_err(|error: E| towers_augment::Error::Read { reason: error.to_string() })
    };
    Ok(options.fit_shown(train.shape(), show)?)
}

/// Adds the standardization that the augmentation has beyond the preprocessing `input`, if it has one.
pub(crate) fn write(input: &Input, augmentation: &ImageDataGenerator, tensors: &mut Tensors) -> Result<()> {
    let evaluation = augmentation.evaluation();
    if evaluation == input.options(ImageDataGenerator::new()) {
        return Ok(());
    }
    // Values of the preprocessing are written as its own.
    let mut options = evaluation.preprocess(Preprocess::None);
    let (mean, std, whitening) = (options.mean.take(), options.std.take(), options.whitening.take());
    if let Some(Mean::PerChannel(mean)) = mean.filter(|_| options.centers()) {
        tensors.insert(MEAN, vec![mean.len()], mean)?;
    }
    if let Some(std) = std.filter(|_| options.divides()) {
        tensors.insert(STD, vec![std.len()], std)?;
    }
    if let Some(whitening) = whitening.filter(|_| options.zca_whitening) {
        let len = whitening.matrix().len().isqrt();
        tensors.insert(WHITENING, vec![len, len], whitening.matrix().to_vec())?;
    }
    let text = serde_json::to_string(&options).map_err(|error| Error::Run {
        path: OPTIONS.into(),
        reason: format!("the options can't be written: {error}").into(),
    })?;
    tensors.metadata_mut().insert(OPTIONS.to_owned(), text);
    Ok(())
}

/// The standardization of a model file, for images of this height, width and channels.
pub(crate) fn read(tensors: &Tensors, file: &Path, image: [usize; 3]) -> Result<ImageDataGenerator> {
    let Some(text) = tensors.metadata().get(OPTIONS) else { return Ok(ImageDataGenerator::new()) };
    let mut options: ImageDataGenerator = serde_json::from_str(text).map_err(|_| Error::Run {
        path: file.to_owned(),
        reason: "its standardization is unknown to this version".into(),
    })?;
    let (channels, len) = (image[2], image.iter().product::<usize>());
    if options.centers() {
        options.mean = Some(Mean::PerChannel(finite_values(tensors, file, MEAN, &[channels])?.to_vec()));
    }
    if options.divides() {
        options.std = Some(finite_values(tensors, file, STD, &[channels])?.to_vec());
    }
    if options.zca_whitening {
        let matrix = finite_values(tensors, file, WHITENING, &[len, len])?.to_vec();
        options.whitening = Some(Whitening::new(matrix));
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Preprocessing;

    #[test]
    fn what_was_measured_is_read_again() {
        let data = towers_cifar::synthetic(1, 20, 5);
        let new = ImageDataGenerator::new;
        let image = data.train.shape();
        let mean = Input::SubtractPixelMean { image, mean: vec![9.0; image.iter().product()] };
        let standardized = Input::fit(Preprocessing::Standardize, &data.train).unwrap();
        for (input, options, plain) in [
            (&Input::DivideBy255, new(), true),
            (&Input::DivideBy255, new().rotation_range(9.0), true),
            (&Input::DivideBy255, new().rescale(0.5), false),
            (&Input::DivideBy255, new().samplewise_std_normalization(true), false),
            (&mean, new(), true),
            (&mean, new().rescale(1.0 / 255.0), false),
            (&mean, new().featurewise_std_normalization(true), false),
            (&standardized, new().featurewise_std_normalization(true), false),
            (&standardized, new().featurewise_center(true), false),
        ] {
            let fitted = input.options(options).fit(data.train.images.view()).unwrap();
            let mut tensors = Tensors::new();
            write(input, &fitted, &mut tensors).unwrap();
            assert_eq!(tensors.metadata().is_empty(), plain);
            let read = read(&tensors, Path::new("model"), image).unwrap();
            assert_eq!(input.options(read), fitted.evaluation());
        }
    }
}
