use crate::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::{ImageBuffer, ImageFormat, PixelWithColorType, Rgb, RgbImage, RgbaImage};
use std::io::Cursor;
use towers_dataset::Split;
use towers_trained::Classifier;

/// A first layer with more filters than these shows the first of them.
const FILTERS: usize = 256;

/// A picture as the address of an `img`.
pub(crate) fn address(picture: &ImageBuffer<impl PixelWithColorType<Subpixel = u8>, Vec<u8>>) -> String {
    let mut png = Cursor::new(Vec::new());
    // Encoding into memory has no reason to fail; a page with a gap would still be a page.
    let _ = picture.write_to(&mut png, ImageFormat::Png);
    format!("data:image/png;base64,{}", STANDARD.encode(png.into_inner()))
}

/// The pixels of a sample.
pub(crate) fn pixels(split: &Split, sample: usize) -> Option<Vec<u8>> {
    Some(split.pixels(sample..sample + 1, &mut Vec::new()).ok()?.to_vec())
}

/// The picture of a sample with these pixels, of height, width and channels.
pub(crate) fn of_pixels(pixels: Vec<u8>, [height, width, channels]: [usize; 3]) -> Option<RgbImage> {
    let colours = match channels {
        1 => pixels.into_iter().flat_map(|grey| [grey; 3]).collect(),
        _ => pixels,
    };
    RgbImage::from_raw(width as u32, height as u32, colours)
}

/// A class activation map to be laid over its picture: a pixel for each number, the more visible the higher that is. A map of zeros has
/// none.
pub(crate) fn heat(map: &[f32], [height, width]: [usize; 2]) -> Option<RgbaImage> {
    let highest = map.iter().copied().fold(0.0, f32::max);
    let pixel = |value: &f32| {
        let share = value / highest;
        // Yellow to red.
        [255, (220.0 * (1.0 - share)) as u8, 0, (160.0 * share) as u8]
    };
    let pixels = (highest > 0.0 && highest.is_finite()).then(|| map.iter().flat_map(pixel).collect());
    RgbaImage::from_raw(width as u32, height as u32, pixels?)
}

/// The filters of the first layer that looks at the images' channels, as pictures of a pixel for each weight.
pub(crate) fn filters(classifier: &mut Classifier) -> Result<Vec<RgbImage>> {
    let channels = classifier.image()[2];
    let network = classifier.network_mut();
    let arena = network.arena();
    for slot in arena.slots() {
        if let [h, w, c, count] = slot.shape[..]
            && c == channels
        {
            let (offset, len) = (slot.span.offset, slot.span.len);
            let weights = arena.storage(slot).to_vec(network.device(), offset, len)?;
            let filter =
                |k| draw([h, w], |y, x, c| weights[((y * w + x) * channels + c % channels) * count + k]);
            return Ok((0..count.min(FILTERS)).map(filter).collect());
        }
    }
    Ok(Vec::new())
}

/// A filter as a picture: its least weight is black, its greatest white.
fn draw([h, w]: [usize; 2], weight: impl Fn(usize, usize, usize) -> f32) -> RgbImage {
    let all = || (0..h * w * 3).map(|place| weight(place / (3 * w), place / 3 % w, place % 3));
    let low = all().fold(f32::INFINITY, f32::min);
    let spread = (all().fold(f32::NEG_INFINITY, f32::max) - low).max(f32::MIN_POSITIVE);
    let shade = |y: u32, x: u32, c| {
        let share = (weight(y as usize, x as usize, c) - low) / spread;
        // A cast cuts to 0..=255, and NaN is 0.
        (255.0 * share).round() as u8
    };
    RgbImage::from_fn(w as u32, h as u32, |x, y| Rgb([0, 1, 2].map(|c| shade(y, x, c))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_survives_its_address() {
        let picture = draw([2, 3], |y, x, c| (y * 9 + x * 3 + c) as f32 - 8.0);
        assert_eq!((picture.dimensions(), picture.as_raw()[0], picture.as_raw()[17]), ((3, 2), 0, 255));
        let address = address(&picture);
        let png = STANDARD.decode(address.strip_prefix("data:image/png;base64,").unwrap()).unwrap();
        assert_eq!(image::load_from_memory(&png).unwrap().to_rgb8(), picture);
    }

    #[test]
    fn maps_show_their_highest_numbers() {
        let picture = heat(&[0.0, 0.5, 1.0], [1, 3]).unwrap();
        assert_eq!(picture.as_raw(), &[255, 220, 0, 0, 255, 110, 0, 80, 255, 0, 0, 160]);
        assert!(address(&picture).starts_with("data:image/png;base64,"));
        assert!(heat(&[0.0; 3], [1, 3]).is_none() && heat(&[f32::INFINITY; 3], [1, 3]).is_none());
        assert!(heat(&[f32::NAN; 3], [1, 3]).is_none());
    }

    #[test]
    fn odd_weights_still_make_a_picture() {
        assert_eq!(draw([1, 1], |_, _, _| 0.0).as_raw(), &[0, 0, 0]);
        assert_eq!(draw([1, 1], |_, _, c| if c == 1 { f32::NAN } else { c as f32 }).as_raw(), &[0, 0, 255]);
    }
}
