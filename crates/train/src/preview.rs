use crate::input::IMAGE;
use crate::{Error, Result};
use augment::ImageDataGenerator;
use cifar::Split;
use image::imageops::{FilterType, resize};
use image::{ImageFormat, RgbImage};
use std::path::Path;

/// A bigger picture would fill the memory, and few programs could show it.
const MOST_PIXELS: usize = 100_000_000;

/// Writes a PNG with a grid of augmented training images: a row each for the first `samples` images, the original in the first
/// column, then `columns - 1` draws; every pixel enlarged `zoom` times. The file's folder is made where it is missing.
///
/// # Errors
/// If the options don't fit, or the file can't be written.
pub fn preview(
    augmentation: &ImageDataGenerator,
    split: &Split,
    samples: usize,
    columns: usize,
    seed: u64,
    zoom: u32,
    path: &Path,
) -> Result<()> {
    for (option, value, most) in
        [("--samples", samples, 1000), ("--columns", columns, 1000), ("--zoom", zoom as usize, 64)]
    {
        if value == 0 || value > most {
            let accepted = format!("between 1 and {most}");
            return Err(Error::Option { option, value: value.to_string(), accepted });
        }
    }
    let samples = samples.min(split.len());
    let pixels = (samples * columns * IMAGE[0] * IMAGE[1]).saturating_mul((zoom * zoom) as usize);
    if pixels > MOST_PIXELS {
        let value = format!("{samples} x {columns} images, enlarged {zoom} times");
        let accepted = format!("at most {MOST_PIXELS} pixels; give smaller --samples, --columns or --zoom");
        return Err(Error::Option { option: "the picture", value, accepted });
    }
    let pipeline = augmentation.clone().build(IMAGE)?;
    let places: Vec<u32> = (0..samples as u32).collect();
    let grid = augment::preview(&pipeline, split.take(samples).images.view(), &places, columns, seed)?;
    let (h, w, _) = grid.dim();
    let (w, h) = (w as u32, h as u32);
    let refuse = |reason: String| Error::Picture { path: path.to_owned(), reason };
    let pixels = grid.into_raw_vec_and_offset().0;
    let small =
        RgbImage::from_raw(w, h, pixels).ok_or_else(|| refuse("the grid is no whole picture".into()))?;
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(Error::io("make the folder", folder))?;
    }
    let large = resize(&small, w * zoom, h * zoom, FilterType::Nearest);
    large
        .save_with_format(path, ImageFormat::Png)
        .map_err(|error| refuse(format!("can't be written: {error}")))
}
