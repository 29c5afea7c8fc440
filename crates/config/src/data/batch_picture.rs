//! The augmented images of a batch, as a picture.

use crate::{Error, Result};
use image::{ImageFormat, Rgb, RgbImage};
use std::io::Cursor;
use std::path::Path;
use towers_augment::{ImageDataGenerator, Loader, LoaderOptions, Samples};
use towers_callbacks::Picture;

/// Images per row.
const COLUMNS: u32 = 8;
/// White pixels between them.
const GAP: u32 = 2;

/// The first `count` augmented images of an epoch's first batch, eight per row, in the order and with the seed of
/// `options`. Only visible steps are applied: centering, normalization and whitening are left out.
pub fn draw(
    samples: &Samples,
    augmentation: &ImageDataGenerator,
    options: LoaderOptions,
    epoch: u64,
    count: usize,
) -> Result<Picture> {
    let [h, w, c] = samples.shape();
    let (height, width) = (h as u32, w as u32);
    let count = count.clamp(1, samples.len());
    let options = options.batch_size(count).workers(1);
    let mut loader = Loader::new(samples.clone(), pictures_only(augmentation).build([h, w, c])?, options)?;
    let batch = loader.epoch(epoch, 0)?.next().transpose()?;
    let columns = COLUMNS.min(count as u32);
    let rows = (count as u32).div_ceil(columns);
    let (full_width, full_height) = (columns * (width + GAP) - GAP, rows * (height + GAP) - GAP);
    let mut sheet = RgbImage::from_pixel(full_width, full_height, Rgb([255; 3]));
    if let Some(batch) = &batch {
        for ((k, y, x, channel), value) in batch.images().indexed_iter() {
            let (row, column) = (k as u32 / columns, k as u32 % columns);
            let at = (column * (width + GAP) + x as u32, row * (height + GAP) + y as u32);
            // `as` clamps to 0..=255.
            let pixel = &mut sheet.get_pixel_mut(at.0, at.1).0;
            match c {
                1 => *pixel = [value.round() as u8; 3],
                _ => pixel[channel] = value.round() as u8,
            }
        }
    }
    let png = png(&sheet, Path::new("the augmented batch"))?;
    Ok(Picture { width: full_width, height: full_height, png })
}

/// A picture as PNG, for the file `path`.
pub(super) fn png(picture: &RgbImage, path: &Path) -> Result<Vec<u8>> {
    let mut png = Cursor::new(Vec::new());
    picture.write_to(&mut png, ImageFormat::Png).map_err(|error| Error::Run {
        path: path.to_owned(),
        reason: format!("can't be encoded: {error}").into(),
    })?;
    Ok(png.into_inner())
}

/// The augmentation without the steps that only shift and scale values.
pub(super) fn pictures_only(augmentation: &ImageDataGenerator) -> ImageDataGenerator {
    let mut options = augmentation.clone();
    (options.featurewise_center, options.featurewise_std_normalization) = (false, false);
    (options.samplewise_center, options.samplewise_std_normalization) = (false, false);
    (options.zca_whitening, options.whitening) = (false, None);
    options.reverse_channels = false;
    (options.rescale, options.mean, options.std) = (None, None, None);
    (options.preprocess, options.preprocessing_function) = (towers_augment::parts::Preprocess::None, None);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_those_of_the_batch() {
        let data = towers_cifar::synthetic(1, 20, 1).train;
        let samples = Samples::new(data.images.clone(), data.labels.to_vec()).unwrap();
        let flip = ImageDataGenerator::new().horizontal_flip(true);
        let draw = |generator: &ImageDataGenerator, epoch| {
            draw(&samples, generator, LoaderOptions::new().seed(7), epoch, 10).unwrap()
        };
        let picture = draw(&flip, 3);
        assert_eq!((picture.width, picture.height), (8 * 34 - 2, 2 * 34 - 2));
        let sheet = image::load_from_memory(&picture.png).unwrap().to_rgb8();
        // The order and the random draws of the run.
        let options = LoaderOptions::new().batch_size(20).seed(7);
        let mut loader = Loader::new(samples.clone(), flip.build([32, 32, 3]).unwrap(), options).unwrap();
        let batch = loader.epoch(3, 0).unwrap().next().unwrap().unwrap();
        for k in 0..10 {
            let (top, left) = (k as u32 / 8 * 34, k as u32 % 8 * 34);
            let cell = image::imageops::crop_imm(&sheet, left, top, 32, 32).to_image();
            let own =
                batch.images().index_axis_move(towers_dataset::ndarray::Axis(0), k).mapv(|value| value as u8);
            assert_eq!(cell.into_raw(), own.iter().copied().collect::<Vec<_>>(), "image {k}");
        }
        assert_ne!(draw(&flip, 4), picture, "another epoch");
        let normalized = flip.rescale(0.1).samplewise_std_normalization(true).zca_whitening(true);
        assert_eq!(draw(&normalized, 3), picture);
    }
}
