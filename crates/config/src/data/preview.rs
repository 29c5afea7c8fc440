use crate::data::batch_picture::{pictures_only, png};
use crate::data::load::samples;
use crate::{Error, Result};
use image::RgbImage;
use image::imageops::{FilterType, crop_imm, resize};
use std::path::Path;
use towers_augment::{ImageDataGenerator, LoaderOptions, Pipeline};
use towers_dataset::Split;
use towers_options::message;
use towers_trained::standardization;

/// The largest picture: more would need too much memory, and few programs could show it.
const MOST_PIXELS: usize = 100_000_000;

/// The options of a preview: one row for each of the first `samples` images of a set. Of a set that is sorted
/// by class, it takes as many images of each class. The first column is the original, the others are `columns
/// - 1` draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The number of training images, one per row.
    pub samples: usize,
    /// Pictures per row.
    pub columns: usize,
    /// The random seed.
    pub seed: u64,
    /// The size of a pixel in the picture.
    pub zoom: u32,
}

impl Preview {
    /// Refuses an empty preview, and one that is too large.
    ///
    /// # Errors
    /// [`Error::Option`] with the option, the value and the accepted values.
    pub fn check(&self) -> Result<()> {
        let Preview { samples, columns, zoom, .. } = *self;
        for (option, value, most) in
            [("samples", samples, 1000), ("columns", columns, 1000), ("zoom", zoom as usize, 64)]
        {
            if value == 0 || value > most {
                return Err(Error::option(option, value, format!("between 1 and {most}")));
            }
        }
        Ok(())
    }
}

/// Writes a PNG with a grid of augmented training images. Creates the file's folder if it does not exist.
///
/// With `save`, a folder and a prefix, each augmented picture also has a file, called `PREFIX_SAMPLE_EPOCH.png` as
/// by a run's loader, with values stretched to 0..=255. Returns the number of these files.
///
/// # Errors
/// If the options don't fit, or a file can't be written.
pub fn preview(
    augmentation: &ImageDataGenerator,
    split: Split,
    preview: &Preview,
    path: &Path,
    save: Option<(&Path, &str)>,
) -> Result<usize> {
    preview.check()?;
    check_ending(path)?;
    let Preview { columns, seed, zoom, .. } = *preview;
    let places = places(&split, preview.samples);
    let rows = places.len();
    let [height, width, _] = split.shape();
    let pixels = (rows * columns * height * width).saturating_mul((zoom * zoom) as usize);
    if pixels > MOST_PIXELS {
        let value = format!("{rows} x {columns} images, enlarged {zoom} times");
        let accepted = message!(
            "at most {MOST_PIXELS} pixels; give smaller ",
            ["samples"],
            ", ",
            ["columns"],
            " or ",
            ["zoom"]
        );
        return Err(Error::about("the picture", value, accepted));
    }
    let pipeline =
        standardization::fit(augmentation.clone(), &split, |_| Ok::<_, Error>(()))?.build(split.shape())?;
    let saved = match save {
        Some(to) => save_pictures(pipeline.clone(), split.select(&places), preview, to)?,
        None => 0,
    };
    let places: Vec<u32> = places.into_iter().map(|place| place as u32).collect();
    let grid = pipeline.preview(&samples(split)?, &places, columns, seed)?;
    let (h, w, _) = grid.dim();
    let (w, h) = (w as u32, h as u32);
    let pixels = grid.into_raw_vec_and_offset().0;
    let small =
        RgbImage::from_raw(w, h, pixels).ok_or_else(|| Error::run(path, "the grid is no whole picture"))?;
    let large = resize(&small, w * zoom, h * zoom, FilterType::Nearest);
    towers_files::write_output(path, &png(&large, path)?)?;
    Ok(saved)
}

/// Training images with their augmentation: for each of the first `samples` images of a set, as in a [`Preview`], the original, then its
/// draws of `epochs` epochs under a run's seed. Steps that only shift and scale values are left out.
///
/// # Errors
/// If the options don't fit the images, or these can't be read.
pub fn augmented(
    augmentation: &ImageDataGenerator,
    split: Split,
    samples: usize,
    epochs: usize,
    seed: u64,
) -> Result<Vec<Vec<RgbImage>>> {
    let places = places(&split, samples);
    let [height, width, _] = split.shape();
    let pipeline = pictures_only(augmentation).build(split.shape())?;
    let split = self::samples(split)?;
    let draw = |place: usize| {
        let row = pipeline.preview(&split, &[place as u32], 1 + epochs, seed)?;
        let (full_height, full_width, _) = row.dim();
        let gap = ((full_height - height) / 2) as u32;
        let (height, width) = (height as u32, width as u32);
        let row = RgbImage::from_raw(full_width as u32, full_height as u32, row.into_raw_vec_and_offset().0);
        let row = row.unwrap_or_default();
        let cell = |k: u32| crop_imm(&row, gap + k * (width + gap), gap, width, height).to_image();
        Ok((0..=epochs as u32).map(cell).collect())
    };
    places.into_iter().map(draw).collect()
}

/// Refuses a file extension other than that of PNG.
fn check_ending(path: &Path) -> Result<()> {
    let other = path.extension().filter(|ending| !ending.eq_ignore_ascii_case("png"));
    let refuse = |_| Err(Error::option("output", path.display(), "a file that ends in .png"));
    other.map_or(Ok(()), refuse)
}

/// Writes every augmented picture of these images to a file, and returns their number.
fn save_pictures(
    pipeline: Pipeline,
    images: Split,
    preview: &Preview,
    (folder, prefix): (&Path, &str),
) -> Result<usize> {
    let options = LoaderOptions::new().seed(preview.seed).save_to_dir(folder).save_prefix(prefix);
    let mut loader = towers_augment::Loader::new(samples(images)?, pipeline, options)?;
    let mut pictures = 0;
    for epoch in 0..preview.columns as u64 - 1 {
        for batch in loader.epoch(epoch, 0)? {
            pictures += batch?.len();
        }
    }
    Ok(pictures)
}

/// The samples that get a row. The first ones of a set that is sorted by class would all be of one class.
fn places(split: &Split, samples: usize) -> Vec<usize> {
    match split.labels.as_slice() {
        Some(labels) if labels.is_sorted() => towers_dataset::evenly(labels, samples),
        _ => (0..samples.min(split.len())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn originals_stand_beside_their_draws() {
        let train = towers_cifar::synthetic(1, 9, 0).train;
        let flip =
            ImageDataGenerator::new().vertical_flip(true).rescale(1.0 / 255.0).featurewise_center(true);
        let rows = augmented(&flip, train.clone(), 3, 5, 7).unwrap();
        assert_eq!(rows.len(), 3);
        let mut flipped = 0;
        for (row, sample) in rows.iter().zip(0..) {
            assert_eq!(
                (row.len(), row[0].as_raw().as_slice()),
                (6, train.pixels(sample..sample + 1, &mut Vec::new()).unwrap())
            );
            for draw in &row[1..] {
                let is_flipped = *draw == image::imageops::flip_vertical(&row[0]);
                assert!(is_flipped || *draw == row[0]);
                flipped += usize::from(is_flipped);
            }
        }
        assert!(0 < flipped && flipped < 15);
        assert_eq!(augmented(&flip, train, 99, 0, 7).unwrap().len(), 9);
    }

    #[test]
    fn rows_are_of_several_classes() {
        let drawn = towers_cifar::synthetic(1, 30, 0).train;
        assert_eq!(places(&drawn, 3), [0, 1, 2]);
        let mut sorted = drawn;
        sorted.labels = (0..30).map(|k| k / 10).collect();
        assert_eq!(places(&sorted, 7), [0, 1, 2, 10, 11, 20, 21]);
        assert_eq!(places(&sorted, 99).len(), 30);
    }
}
