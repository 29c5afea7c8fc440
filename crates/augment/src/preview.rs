//! Augmented images laid out for people to look at.

use crate::{Draws, Error, Pipeline, Scratch};
use ndarray::{Array3, ArrayView4};

/// White pixels between the cells of a preview.
const GAP: usize = 2;

/// A grid of augmented images as one RGB image (height, width, 3).
///
/// Row i belongs to the i-th of `images`, which is sample `samples[i]` of the set. The first column shows
/// it as it is, the column after that as the pipeline makes it in epoch 0 under `seed`, then epoch 1, and so
/// on: `columns` in all. Only what changes the picture is done; rescaling and mean subtraction are left out,
/// `cval` counts on the scale of 0..=255, and cutout leaves a black square.
///
/// ```
/// use augment::{ImageDataGenerator, preview};
/// use ndarray::Array4;
///
/// let images = Array4::from_elem((2, 8, 8, 3), 100);
/// let pipeline = ImageDataGenerator::new().width_shift_range(0.2).build([8, 8, 3])?;
/// let grid = preview(&pipeline, images.view(), &[0, 1], 5, 42)?;
/// assert_eq!(grid.dim(), (2 * (8 + 2) + 2, 5 * (8 + 2) + 2, 3));
/// # Ok::<(), augment::Error>(())
/// ```
///
/// # Errors
/// [`Error::Shape`] if the images are not those of the pipeline or `samples` has another length;
/// [`Error::Option`] for 0 columns or images that have neither 1 nor 3 channels.
pub fn preview(
    pipeline: &Pipeline,
    images: ArrayView4<'_, u8>,
    samples: &[u32],
    columns: usize,
    seed: u64,
) -> Result<Array3<u8>, Error> {
    let (n, h, w, c) = images.dim();
    if [h, w, c] != pipeline.shape() {
        return Err(Error::Shape {
            what: "the images of the preview",
            got: vec![h, w, c],
            expected: pipeline.shape().to_vec(),
        });
    }
    Error::check_len("the array of sample numbers", samples.len(), n)?;
    if columns == 0 {
        return Err(Error::option("columns", 0, "at least 1"));
    }
    if c != 1 && c != 3 {
        return Err(Error::option("channels", c, "1 (grey) or 3 (RGB) for a preview"));
    }
    let mut grid = Array3::from_elem((n * (h + GAP) + GAP, columns * (w + GAP) + GAP, 3), 255);
    let (mut out, mut scratch) = (vec![0.0; h * w * c], Scratch::default());
    for (row, (image, &sample)) in images.outer_iter().zip(samples).enumerate() {
        let image: Vec<u8> = image.iter().copied().collect();
        for column in 0..columns {
            let draws = match column.checked_sub(1) {
                None => Draws::default(),
                Some(epoch) => pipeline.draw(seed, epoch as u64, sample),
            };
            pipeline.apply_raw(&draws, &image, &mut out, &mut scratch);
            let (top, left) = (GAP + row * (h + GAP), GAP + column * (w + GAP));
            for (y, x, channel) in ndarray::indices((h, w, 3)) {
                // `as` clamps to 0..=255.
                grid[[top + y, left + x, channel]] = out[(y * w + x) * c + channel.min(c - 1)].round() as u8;
            }
        }
    }
    Ok(grid)
}
