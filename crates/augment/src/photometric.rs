//! What changes the values of an image but moves nothing: Keras' channel shift and brightness.

use crate::many::{floor, greater, lesser};

/// Adds `intensity` to every value and clips at the image's own smallest and largest one: Keras' `apply_channel_shift`.
pub(crate) fn shift_channels(image: &mut [f32], intensity: f32) {
    let (low, high) = bounds(image);
    image.iter_mut().for_each(|value| *value = (*value + intensity).clamp(low, high));
}

/// Keras' `apply_brightness_shift`: the values are stretched to 0..=255, cut to whole numbers, multiplied by `factor`, and cut to
/// bytes again. Whatever the image's range was, it is 0..=255 now. The fourth of four channels is opacity, and stays.
pub(crate) fn brighten(image: &mut [f32], channels: usize, factor: f32) {
    let (low, high) = bounds(image);
    let range = if high == low { 1.0 } else { high - low };
    image.iter_mut().for_each(|value| *value = byte((*value - low) / range * 255.0));
    match channels {
        4 => image.chunks_exact_mut(4).for_each(|pixel| multiply(&mut pixel[..3], factor)),
        _ => multiply(image, factor),
    }
}

fn multiply(bytes: &mut [f32], factor: f32) {
    bytes.iter_mut().for_each(|value| *value = byte(*value * factor));
}

/// Clamped to 0..=255 and without its fraction, as Pillow does. So does a cast to `u8`, but one value at a time.
fn byte(value: f32) -> f32 {
    floor(lesser(greater(value, 0.0), 255.0))
}

/// The smallest and the largest value; 0 for both where there are only NaNs.
fn bounds(image: &[f32]) -> (f32, f32) {
    // In lanes, since a comparison waits for the one before it.
    let mut lanes = [(f32::INFINITY, f32::NEG_INFINITY); 8];
    let (chunks, rest) = image.as_chunks::<8>();
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, &x)| *lane = (lesser(x, lane.0), greater(x, lane.1)));
    }
    rest.iter().for_each(|&x| lanes[0] = (lesser(x, lanes[0].0), greater(x, lanes[0].1)));
    let (low, high) = lanes.iter().fold(lanes[0], |(low, high), lane| (low.min(lane.0), high.max(lane.1)));
    if low <= high { (low, high) } else { (0.0, 0.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_clipped_at_the_images_own_range() {
        let mut image = [1.0, 5.0, 3.0];
        shift_channels(&mut image, 3.0);
        assert_eq!(image, [4.0, 5.0, 5.0]);
        shift_channels(&mut image, -0.5);
        assert_eq!(image, [4.0, 4.5, 4.5]);
        let mut lost = [f32::NAN; 3];
        shift_channels(&mut lost, 1.0);
        assert!(lost.iter().all(|value| value.is_nan()));
    }

    #[test]
    fn bytes_are_those_of_a_cast() {
        let steps = (-100..26_000).map(|k| k as f32 / 100.0);
        let whole =
            (0..=256_u16).flat_map(|k| [f32::from(k).next_down(), f32::from(k), f32::from(k).next_up()]);
        let far = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1e-40, -0.0];
        for value in steps.chain(whole).chain(far) {
            assert_eq!(byte(value), f32::from(value as u8), "{value}");
        }
    }

    #[test]
    fn brightness_stretches_first_and_keeps_opacity() {
        let mut image = [0.0, 0.5, 1.0, 1.0];
        brighten(&mut image, 1, 0.5);
        assert_eq!(image, [0.0, 63.0, 127.0, 127.0]);
        let mut image = [0.0, 255.0, 10.0, 100.0];
        brighten(&mut image, 4, 2.0);
        assert_eq!(image, [0.0, 255.0, 20.0, 100.0]);
        let mut flat = [7.0; 3];
        brighten(&mut flat, 3, 1.5);
        assert_eq!(flat, [0.0; 3]);
    }
}
