//! Pixels of other channels and sizes.

use crate::scale::scale;
use crate::shape::CHANNELS;

/// Grey of red, green and blue: the luma of ITU-R 601-2 with the weights and the rounding of Pillow's `convert("L")`. Equal
/// values of the three stay what they are.
pub fn grey(rgb: &[u8]) -> Vec<u8> {
    let luma = |[red, green, blue]: [u8; 3]| {
        let [red, green, blue] = [red, green, blue].map(u32::from);
        ((red * 19_595 + green * 38_470 + blue * 7_471 + (1 << 15)) >> 16) as u8
    };
    rgb.as_chunks::<CHANNELS>().0.iter().map(|&pixel| luma(pixel)).collect()
}

/// Red, green and blue of grey: the same value thrice.
pub(crate) fn repeated(grey: &[u8]) -> Vec<u8> {
    grey.iter().flat_map(|&value| [value; CHANNELS]).collect()
}

/// Images of `[height, width, channels]`, one after the other, in another shape.
pub(crate) fn reshaped(images: Vec<u8>, old: [usize; 3], new: [usize; 3]) -> Vec<u8> {
    let images = match (old[2], new[2]) {
        (CHANNELS, 1) => grey(&images),
        (1, CHANNELS) => repeated(&images),
        _ => images,
    };
    let ([height, width, _], [rows, columns, channels]) = (old, new);
    if [height, width] == [rows, columns] || images.is_empty() {
        return images;
    }
    let (from, to) = (height * width * channels, rows * columns * channels);
    let mut scaled = vec![0; images.len() / from * to];
    let scale = if channels == 1 { scale::<1> } else { scale::<CHANNELS> };
    for (old, new) in images.chunks_exact(from).zip(scaled.chunks_exact_mut(to)) {
        scale(old, [height, width], [rows, columns], new);
    }
    scaled
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of `Image.new("RGB", (1, 1), pixel).convert("L")` in Pillow 12.
    #[test]
    fn grey_is_that_of_pillow() {
        for (pixel, luma) in [
            ([255, 0, 0], 76),
            ([0, 255, 0], 150),
            ([0, 0, 255], 29),
            ([255, 255, 255], 255),
            ([1, 2, 3], 2),
            ([200, 100, 50], 124),
            ([77, 77, 77], 77),
        ] {
            assert_eq!(grey(&pixel), [luma], "{pixel:?}");
        }
        assert!((0..=255).all(|value| grey(&repeated(&[value])) == [value]));
    }

    #[test]
    fn images_are_reshaped_one_by_one() {
        let images: Vec<u8> = [[10; 12], [200; 12]].concat();
        let small = reshaped(images.clone(), [2, 2, 3], [4, 3, 1]);
        assert_eq!(small, [[10; 12], [200; 12]].concat());
        assert_eq!(reshaped(small, [4, 3, 1], [2, 2, 3]), images);
    }
}
