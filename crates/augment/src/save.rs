//! Saves the images of a loader as pictures: Keras' `save_to_dir`.

use crate::Error;
use crate::preview::stretch;
use png::{BitDepth, ColorType};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// Makes the folder where it is missing.
pub(crate) fn prepare(folder: &Path, [_, _, c]: [usize; 3]) -> Result<(), Error> {
    if c > 4 {
        return Err(Error::option("save_to_dir", format!("given for {c} channels"), "left out beyond 4"));
    }
    std::fs::create_dir_all(folder).map_err(|error| refuse(folder, &error))
}

/// Writes an image (HWC) as a PNG, its values stretched as by Keras' `array_to_img`.
pub(crate) fn picture(path: &Path, shape: [usize; 3], image: &[f32]) -> Result<(), Error> {
    save_picture(path, shape, &stretch(image))
}

/// Writes bytes (HWC of `shape`) as a PNG. Its channels are grey, grey with opacity, RGB, or RGB with opacity.
///
/// # Errors
/// [`Error::Write`] if the file can't be written; [`Error::Shape`] for another number of bytes; [`Error::Option`] for more channels,
/// and for a height or width of 0 or of 2^31 and more, which PNG has not.
pub fn save_picture(path: &Path, shape: [usize; 3], pixels: &[u8]) -> Result<(), Error> {
    for (side, pixels) in [("height", shape[0]), ("width", shape[1])] {
        if !(1..1 << 31).contains(&pixels) {
            return Err(Error::option(side, pixels, "from 1 to 2147483647 for a picture"));
        }
    }
    let color = match shape[2] {
        1 => ColorType::Grayscale,
        2 => ColorType::GrayscaleAlpha,
        3 => ColorType::Rgb,
        4 => ColorType::Rgba,
        channels => return Err(Error::option("channels", channels, "from 1 to 4 for a picture")),
    };
    Error::check_len("the picture", pixels.len(), shape.iter().fold(1, |len, &n| len.saturating_mul(n)))?;
    write(path, shape, color, pixels).map_err(|error| refuse(path, &error))
}

/// Writes a PNG of 8 bits a channel.
fn write(path: &Path, [h, w, _]: [usize; 3], color: ColorType, pixels: &[u8]) -> std::io::Result<()> {
    let file = BufWriter::new(File::create(path)?);
    let mut encoder = png::Encoder::new(file, w as u32, h as u32);
    encoder.set_color(color);
    encoder.set_depth(BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    Ok(writer.finish()?)
}

fn refuse(path: &Path, error: &std::io::Error) -> Error {
    Error::Write { path: path.display().to_string(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_that_png_has_not_are_refused() {
        let path = Path::new("no such folder/a.png");
        for (shape, says) in [
            ([2, 0, 3], "width"),
            ([0, 2, 3], "height"),
            ([1, usize::MAX, 3], "width"),
            ([(1 << 31) - 1, (1 << 31) - 1, 4], "the picture"),
            ([1, 1, 5], "channels"),
        ] {
            let error = save_picture(path, shape, &[]).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn readers_find_the_pixels_again() {
        let folder = std::env::temp_dir();
        let path = folder.join(format!("augment-{}.png", std::process::id()));
        for (shape, color) in [
            ([2, 3, 1], image::ColorType::L8),
            ([3, 2, 2], image::ColorType::La8),
            ([5, 4, 3], image::ColorType::Rgb8),
            ([200, 150, 4], image::ColorType::Rgba8),
        ] {
            let pixels: Vec<u8> =
                (0..shape.iter().product::<usize>()).map(|k| (k * 37 % 251) as u8).collect();
            save_picture(&path, shape, &pixels).unwrap();
            let read = image::open(&path).unwrap();
            assert_eq!(
                (read.height() as usize, read.width() as usize, read.color()),
                (shape[0], shape[1], color)
            );
            assert_eq!(read.into_bytes(), pixels);
        }
        std::fs::remove_file(path).unwrap();
    }
}
