//! Operations on bytes: Pillow's, rounding included, which torchvision calls for pictures.

use crate::{hue, moved};
use std::fmt;

/// One operation on the bytes of an image, of those that RandAugment and its relatives draw from.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// Nothing.
    #[default]
    Identity,
    /// Each row moves by so many of its distance from the top.
    ShearX(f64),
    /// Each column moves by so many of its distance from the left.
    ShearY(f64),
    /// Moves so many pixels to the right.
    TranslateX(i32),
    /// Moves so many pixels down.
    TranslateY(i32),
    /// Turns by so many degrees, counterclockwise, about the middle.
    Rotate(f64),
    /// A mixture with black: 0 is black, 1 the image.
    Brightness(f64),
    /// A mixture with the grey image: 0 is grey, 1 the image.
    Color(f64),
    /// A mixture with the mean grey: 0 is all of one grey, 1 the image.
    Contrast(f64),
    /// A mixture with a smoothed image: 0 is smooth, 1 the image.
    Sharpness(f64),
    /// Keeps so many bits of every value.
    Posterize(u32),
    /// Inverts values from this one on.
    Solarize(f64),
    /// Stretches each channel to 0..=255.
    AutoContrast,
    /// Evens out each channel's histogram.
    Equalize,
    /// Makes 255 - x of every value x.
    Invert,
    /// Turns the hue by this share of the circle of colours, from -0.5 to 0.5.
    Hue(f64),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Operation::Identity => f.write_str("identity"),
            Operation::ShearX(x) => write!(f, "shear_x {x:.2}"),
            Operation::ShearY(x) => write!(f, "shear_y {x:.2}"),
            Operation::TranslateX(x) => write!(f, "translate_x {x} px"),
            Operation::TranslateY(x) => write!(f, "translate_y {x} px"),
            Operation::Rotate(x) => write!(f, "rotate {x:.2} degrees"),
            Operation::Brightness(x) => write!(f, "brightness {x:.2}"),
            Operation::Color(x) => write!(f, "color {x:.2}"),
            Operation::Contrast(x) => write!(f, "contrast {x:.2}"),
            Operation::Sharpness(x) => write!(f, "sharpness {x:.2}"),
            Operation::Posterize(bits) => write!(f, "posterize {bits}"),
            Operation::Solarize(x) => write!(f, "solarize {x:.0}"),
            Operation::AutoContrast => f.write_str("auto_contrast"),
            Operation::Equalize => f.write_str("equalize"),
            Operation::Invert => f.write_str("invert"),
            Operation::Hue(x) => write!(f, "hue {x:+.2}"),
        }
    }
}

impl Operation {
    /// The number that it has, if any.
    pub(crate) fn number(self) -> f64 {
        match self {
            Operation::Identity | Operation::AutoContrast | Operation::Equalize | Operation::Invert => 0.0,
            Operation::TranslateX(pixels) | Operation::TranslateY(pixels) => f64::from(pixels),
            Operation::Posterize(bits) => f64::from(bits),
            Operation::ShearX(by) | Operation::ShearY(by) => by,
            Operation::Rotate(degrees) => degrees,
            Operation::Solarize(threshold) => threshold,
            Operation::Brightness(factor)
            | Operation::Color(factor)
            | Operation::Contrast(factor)
            | Operation::Sharpness(factor)
            | Operation::Hue(factor) => factor,
        }
    }

    /// Where the output at (x, y) shows the input, as in [`moved::nearest`]; `None` if all pixels stay.
    fn map(self, [h, w, _]: [usize; 3]) -> Option<[f64; 6]> {
        Some(match self {
            Operation::ShearX(by) => [1.0, by, 0.0, 0.0, 1.0, 0.0],
            Operation::ShearY(by) => [1.0, 0.0, 0.0, by, 1.0, 0.0],
            Operation::TranslateX(by) => [1.0, 0.0, -f64::from(by), 0.0, 1.0, 0.0],
            Operation::TranslateY(by) => [1.0, 0.0, 0.0, 0.0, 1.0, -f64::from(by)],
            Operation::Rotate(degrees) => {
                let (sin, cos) = (-degrees.to_radians()).sin_cos();
                let (x, y) = (w as f64 / 2.0, h as f64 / 2.0);
                [cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y]
            }
            _ => return None,
        })
    }

    /// [`apply`](Self::apply), but with a bilinear mixture of pixels where it moves them.
    pub(crate) fn apply_bilinear(self, shape: [usize; 3], image: &mut [u8], spare: &mut Vec<u8>) {
        match self.map(shape) {
            Some([a, b, c, d, e, f]) => {
                moved::bilinear(shape, image, spare, |[x, y]| [a * x + b * y + c, d * x + e * y + f])
            }
            None => self.apply(shape, image, spare),
        }
    }

    /// Changes `image` (HWC of `shape`). `spare` is memory.
    pub(crate) fn apply(self, shape: [usize; 3], image: &mut [u8], spare: &mut Vec<u8>) {
        if let Some(map) = self.map(shape) {
            return moved::nearest(map, shape, image, spare);
        }
        let c = shape[2];
        match self {
            Operation::Brightness(factor) => {
                image.iter_mut().for_each(|value| *value = blend(0, *value, factor));
            }
            Operation::Color(factor) if c == 3 => {
                for pixel in image.as_chunks_mut::<3>().0 {
                    let grey = grey(*pixel);
                    pixel.iter_mut().for_each(|value| *value = blend(grey, *value, factor));
                }
            }
            Operation::Contrast(factor) => {
                let mean = mean_grey(image, c);
                image.iter_mut().for_each(|value| *value = blend(mean, *value, factor));
            }
            Operation::Sharpness(factor) => sharpen(factor, shape, image, spare),
            Operation::Posterize(bits) => {
                let mask = u8::MAX.checked_shl(8 - bits.min(8)).unwrap_or(0);
                image.iter_mut().for_each(|value| *value &= mask);
            }
            Operation::Solarize(threshold) => image
                .iter_mut()
                .filter(|value| f64::from(**value) >= threshold)
                .for_each(|value| *value = 255 - *value),
            Operation::AutoContrast => each_channel(image, c, stretched),
            Operation::Equalize => each_channel(image, c, equalized),
            Operation::Invert => image.iter_mut().for_each(|value| *value = 255 - *value),
            // In 255ths of a turn.
            Operation::Hue(by) if c == 3 => hue::turn(image, (by * 255.0) as i32 as u8),
            _ => {}
        }
    }
}

/// The mixture of two values; beyond 1 it leads away from `from`.
fn blend(from: u8, to: u8, factor: f64) -> u8 {
    // In single precision and cut to a whole number, as Pillow does; `as` clamps to 0..=255.
    let (from, to) = (f32::from(from), f32::from(to));
    (from + factor as f32 * (to - from)) as u8
}

/// The luma of ITU-R 601, as Pillow rounds it.
fn grey([r, g, b]: [u8; 3]) -> u8 {
    ((u32::from(r) * 19595 + u32::from(g) * 38470 + u32::from(b) * 7471 + 0x8000) >> 16) as u8
}

fn mean_grey(image: &[u8], c: usize) -> u8 {
    let sum: u64 = match c {
        3 => image.as_chunks::<3>().0.iter().map(|&pixel| u64::from(grey(pixel))).sum(),
        _ => image.iter().map(|&value| u64::from(value)).sum(),
    };
    let count = (image.len() / if c == 3 { 3 } else { 1 }) as f64;
    (sum as f64 / count + 0.5) as u8
}

/// The mixture with the mean of 3 x 3 pixels, of which the middle one counts five times; pixels at the edge stay.
fn sharpen(factor: f64, [h, w, c]: [usize; 3], image: &mut [u8], spare: &mut Vec<u8>) {
    spare.clear();
    spare.extend_from_slice(image);
    for y in 1..h.saturating_sub(1) {
        for at in (y * w + 1) * c..((y + 1) * w).saturating_sub(1) * c {
            let row =
                |start: usize| [start - c, start, start + c].map(|k| u32::from(spare[k])).iter().sum::<u32>();
            let sum = row(at - w * c) + row(at) + row(at + w * c) + 4 * u32::from(spare[at]);
            image[at] = blend(((2 * sum + 13) / 26) as u8, spare[at], factor);
        }
    }
}

/// Gives each channel the values of a table that is made of its histogram.
fn each_channel(image: &mut [u8], c: usize, table: fn(&[u32; 256]) -> [u8; 256]) {
    for channel in 0..c {
        let mut histogram = [0; 256];
        image.iter().skip(channel).step_by(c).for_each(|&value| histogram[usize::from(value)] += 1);
        let table = table(&histogram);
        let values = image.iter_mut().skip(channel).step_by(c);
        values.for_each(|value| *value = table[usize::from(*value)]);
    }
}

fn identity() -> [u8; 256] {
    core::array::from_fn(|value| value as u8)
}

fn stretched(histogram: &[u32; 256]) -> [u8; 256] {
    let low = histogram.iter().position(|&count| count > 0).unwrap_or(0);
    let high = histogram.iter().rposition(|&count| count > 0).unwrap_or(0);
    if high <= low {
        return identity();
    }
    let scale = 255.0 / (high - low) as f64;
    let offset = -(low as f64) * scale;
    core::array::from_fn(|value| (value as f64 * scale + offset) as u8)
}

fn equalized(histogram: &[u32; 256]) -> [u8; 256] {
    let last = histogram.iter().rev().find(|&&count| count > 0).copied().unwrap_or(0);
    let step = (histogram.iter().sum::<u32>() - last) / 255;
    if step == 0 {
        return identity();
    }
    let mut sum = step / 2;
    histogram.map(|count| {
        let value = (sum / step).min(255) as u8;
        sum += count;
        value
    })
}
