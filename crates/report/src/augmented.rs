//! Training images before and after a run's augmentation.

use crate::pictures;
use image::imageops::{replace, thumbnail};
use image::{DynamicImage, RgbImage, RgbaImage};
use std::fmt::Write;

/// The largest side of an image in pixels: larger ones are shrunk.
const SIDE: u32 = 64;

/// Transparent pixels between images.
const GAP: u32 = 2;

/// One picture of all images: a column for each, the original above its draws.
pub(crate) fn strip(columns: &[Vec<RgbImage>]) -> RgbaImage {
    let small = |image: &RgbImage| {
        let (width, height) = image.dimensions();
        let larger = width.max(height).max(SIDE);
        let [width, height] = [width, height].map(|side| (side * SIDE / larger).max(1));
        let image = if larger > SIDE { thumbnail(image, width, height) } else { image.clone() };
        DynamicImage::from(image).into_rgba8()
    };
    let columns: Vec<Vec<RgbaImage>> =
        columns.iter().map(|column| column.iter().map(small).collect()).collect();
    let (width, height) =
        columns.first().and_then(|column| column.first()).map_or((0, 0), RgbaImage::dimensions);
    let rows = columns.first().map_or(0, Vec::len) as u32;
    let full = |count: u32, side: u32| (count * (side + GAP)).saturating_sub(GAP);
    let mut strip = RgbaImage::new(full(columns.len() as u32, width), full(rows, height));
    for (x, column) in (0_i64..).zip(&columns) {
        for (y, image) in (0_i64..).zip(column) {
            replace(&mut strip, image, x * i64::from(width + GAP), y * i64::from(height + GAP));
        }
    }
    strip
}

pub(crate) fn write(strip: &RgbaImage, out: &mut String) {
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "<h3>Augmented training images</h3>\n<img class=\"strip\" src=\"{}\" alt=\"augmented training images\">\n\
         <p class=\"note\">The images as they are, and below as in the first epochs.</p>",
        pictures::address(strip)
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{Rgb, Rgba};

    #[test]
    fn images_stand_in_columns() {
        let image = |value: u8, width, height| RgbImage::from_pixel(width, height, Rgb([value; 3]));
        let drawn = strip(&[vec![image(1, 3, 2), image(2, 3, 2)], vec![image(3, 3, 2), image(4, 3, 2)]]);
        assert_eq!(drawn.dimensions(), (3 + 2 + 3, 2 + 2 + 2));
        for (at, value) in [([0, 0], 1), ([2, 5], 2), ([5, 1], 3), ([7, 4], 4)] {
            assert_eq!(drawn.get_pixel(at[0], at[1]), &Rgba([value, value, value, 255]));
        }
        assert_eq!((drawn.get_pixel(3, 0).0[3], drawn.get_pixel(0, 2).0[3]), (0, 0));
        assert_eq!(strip(&[vec![image(1, 256, 128)]]).dimensions(), (64, 32));
        assert_eq!(strip(&[]).dimensions(), (0, 0));
    }
}
