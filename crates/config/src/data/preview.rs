use crate::data::batch_picture::png;
use crate::data::load::samples;
use crate::{Error, Result};
use image::RgbImage;
use image::imageops::{FilterType, resize};
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
    fn rows_are_of_several_classes() {
        let drawn = towers_cifar::synthetic(1, 30, 0).train;
        assert_eq!(places(&drawn, 3), [0, 1, 2]);
        let mut sorted = drawn;
        sorted.labels = (0..30).map(|k| k / 10).collect();
        assert_eq!(places(&sorted, 7), [0, 1, 2, 10, 11, 20, 21]);
        assert_eq!(places(&sorted, 99).len(), 30);
    }
}
