//! From the files of class folders to pixels, on all cores.

use std::io::{self, Cursor, Read as _};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use image::error::{DecodingError, ImageFormatHint};
use image::metadata::Orientation;
use image::{
    DynamicImage, ImageBuffer, ImageDecoder, ImageError, ImageFormat, ImageReader, ImageResult, Limits,
    Pixel, RgbImage,
};

use crate::error::{Error, Result};
use crate::files::open;
use crate::panics::caught;
use crate::progress::{Listener, Progress};
use crate::resize::resize;
use crate::sizes::CHANNELS;

/// The widest and highest picture that is decoded, or scaled to.
const MAX_PIXELS_ASIDE: u32 = 16_384;
/// The most memory that decoding one picture may take.
const MAX_DECODED: u64 = 256 << 20;

/// How often it is told how many pictures are done.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// Decodes the pictures of a folder, split by split.
pub(crate) struct Decoder<'l, 'a> {
    /// The height and width that they get.
    pub(crate) size: [usize; 2],
    /// How many are done, of the splits before.
    pub(crate) done: usize,
    /// How many there are, in all splits.
    pub(crate) total: usize,
    /// Why pictures can't be decoded.
    pub(crate) bad: Vec<Error>,
    pub(crate) listener: &'l mut Listener<'a>,
}

impl Decoder<'_, '_> {
    /// The pixels of all of them, except for the bad ones.
    pub(crate) fn decode(&mut self, paths: &[PathBuf]) -> Result<Vec<u8>> {
        let mut images = vec![0; paths.len() * bytes_of(self.size)];
        let (before, total) = (self.done, self.total);
        let mut tell = |done| (self.listener)(Progress::Decoding { done: before + done, total });
        self.bad.extend(all(paths, self.size, &mut images, &mut tell)?);
        self.done += paths.len();
        Ok(images)
    }
}

/// Decodes pictures into `images`, on all cores. The result doesn't depend on their number. Now and then it tells
/// how many are done. Returns why pictures can't be decoded, in their order.
pub(crate) fn all(
    paths: &[PathBuf],
    size: [usize; 2],
    images: &mut [u8],
    tell: &mut dyn FnMut(usize),
) -> Result<Vec<Error>> {
    let bytes = bytes_of(size);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = paths.len().div_ceil(threads).max(1);
    let done = AtomicUsize::new(0);
    let failures = thread::scope(|scope| {
        let (ends, all_ended) = channel::<()>();
        let shares = paths.chunks(share).zip(images.chunks_mut(share * bytes));
        let workers = shares.map(|(paths, images)| {
            let (done, ends) = (&done, ends.clone());
            let work = move || {
                // Goes with the thread, however that ends.
                let _ends = ends;
                let decode = |(path, image): (&PathBuf, _)| {
                    done.fetch_add(1, Ordering::Relaxed);
                    one(path, size, image).err()
                };
                paths.iter().zip(images.chunks_mut(bytes)).filter_map(decode).collect::<Vec<Error>>()
            };
            thread::Builder::new().spawn_scoped(scope, work)
        });
        let workers: Vec<_> = workers.collect();
        drop(ends);
        while all_ended.recv_timeout(TELL_EVERY) == Err(RecvTimeoutError::Timeout) {
            tell(done.load(Ordering::Relaxed));
        }
        let join = |worker: io::Result<thread::ScopedJoinHandle<'_, _>>| {
            worker.map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
        };
        workers.into_iter().map(join).collect::<Vec<_>>()
    });
    let mut bad = Vec::new();
    for (failures, share) in failures.into_iter().zip(paths.chunks(share)) {
        bad.extend(failures.map_err(Error::io("start a thread to decode", &share[0]))?);
    }
    Ok(bad)
}

/// The error about these pictures, if there are some.
pub(crate) fn refuse(mut bad: Vec<Error>) -> Result<()> {
    match bad.len() {
        0 => Ok(()),
        1 => Err(bad.remove(0)),
        _ => Err(Error::Pictures(bad)),
    }
}

/// Refuses a height and width that no picture can be scaled to.
pub(crate) fn check_size([height, width]: [usize; 2]) -> Result<()> {
    let sides = 1..=MAX_PIXELS_ASIDE as usize;
    match sides.contains(&height) && sides.contains(&width) {
        true => Ok(()),
        false => Err(Error::Size { height, width, most: MAX_PIXELS_ASIDE }),
    }
}

/// The bytes of a picture of this height and width.
pub(crate) fn bytes_of([height, width]: [usize; 2]) -> usize {
    height * width * CHANNELS
}

/// Decodes one picture into `to`, the bytes of a picture of this size.
pub(crate) fn one(path: &Path, size: [usize; 2], to: &mut [u8]) -> Result<()> {
    let picture = read(path)?;
    let own = [picture.height() as usize, picture.width() as usize];
    resize(picture.as_raw(), own, size, to);
    Ok(())
}

/// A picture in its own size.
fn read(path: &Path) -> Result<RgbImage> {
    let (file, len) = open(path)?;
    if len == 0 {
        return Err(Error::io("decode the picture", path)(io::Error::other("it is empty")));
    }
    // All formats are decoded from memory: the compiler builds the decoders once for each kind of reader.
    let mut bytes = Vec::with_capacity(len.min(MAX_DECODED) as usize);
    file.take(MAX_DECODED).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    let reader = ImageReader::new(Cursor::new(&bytes[..])).with_guessed_format();
    let reader = reader.map_err(Error::io("read", path))?;
    let bad = |source| Error::Image { path: path.into(), source };
    let format = reader.format();
    // The decoder paints missing parts gray.
    if format == Some(ImageFormat::Jpeg) && !comes_to_its_end(&bytes) {
        return Err(bad(ImageError::IoError(io::ErrorKind::UnexpectedEof.into())));
    }
    let decoded = caught(|| upright(reader));
    let panicked = |message| {
        let format = format.map_or(ImageFormatHint::Unknown, ImageFormatHint::Exact);
        Err(ImageError::Decoding(DecodingError::new(format, format!("the decoder panicked: {message}"))))
    };
    decoded.unwrap_or_else(panicked).map_err(bad)
}

/// Decodes a picture and turns it as its EXIF orientation says. Damaged EXIF data turn nothing.
fn upright(mut reader: ImageReader<Cursor<&[u8]>>) -> ImageResult<RgbImage> {
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_PIXELS_ASIDE);
    limits.max_image_height = Some(MAX_PIXELS_ASIDE);
    limits.max_alloc = Some(MAX_DECODED);
    reader.limits(limits.clone());
    let mut decoder = reader.into_decoder()?;
    // As `ImageReader::decode` does: the decoder may take the memory that the pixels leave.
    limits.reserve(decoder.total_bytes())?;
    decoder.set_limits(limits)?;
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut picture = DynamicImage::ImageRgb8(rgb(DynamicImage::from_decoder(decoder)?));
    picture.apply_orientation(orientation);
    Ok(picture.into_rgb8())
}

/// A picture in 8 bits of red, green and blue. Of 16 bits the upper 8 count, as in Pillow and TensorFlow.
fn rgb(picture: DynamicImage) -> RgbImage {
    match picture {
        DynamicImage::ImageLuma16(deep) => DynamicImage::ImageLuma8(upper(deep)),
        DynamicImage::ImageLumaA16(deep) => DynamicImage::ImageLumaA8(upper(deep)),
        DynamicImage::ImageRgb16(deep) => DynamicImage::ImageRgb8(upper(deep)),
        DynamicImage::ImageRgba16(deep) => DynamicImage::ImageRgba8(upper(deep)),
        picture => picture,
    }
    .into_rgb8()
}

/// The upper 8 bits of every value.
fn upper<P, Q>(deep: ImageBuffer<P, Vec<u16>>) -> ImageBuffer<Q, Vec<u8>>
where
    P: Pixel<Subpixel = u16>,
    Q: Pixel<Subpixel = u8>,
{
    let (width, height) = deep.dimensions();
    let values = deep.into_raw().into_iter().map(|value| (value >> 8) as u8).collect();
    ImageBuffer::from_raw(width, height, values).unwrap_or_default()
}

/// Whether a JPEG file has the marker of its end, of ITU-T T.81, B.1.1: that of a preview within one of its segments is another's.
fn comes_to_its_end(jpeg: &[u8]) -> bool {
    let mut rest = jpeg;
    loop {
        let skipped = match rest {
            [0xff, 0xd9, ..] => return true,
            // A marker by itself, or a byte of compressed data that looks like one.
            [0xff, 0x00 | 0x01 | 0xd0..=0xd8, ..] => 2,
            [0xff, 0x02..=0xfe, high, low, ..] => 2 + usize::from(u16::from_be_bytes([*high, *low])),
            // Compressed data, or padding.
            [_, after @ ..] => 1 + after.iter().position(|&byte| byte == 0xff).unwrap_or(after.len()),
            _ => return false,
        };
        rest = rest.get(skipped..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jpeg_ends_where_its_own_marker_is() {
        const START: &[u8] = &[0xff, 0xd8];
        const END: &[u8] = &[0xff, 0xd9];
        // A segment with a whole file in it, the header of a scan, and compressed data with a restart.
        let segment = [&[0xff, 0xe1, 0, 6], START, END].concat();
        let scan = [0xff, 0xda, 0, 4, 1, 2, 7, 0xff, 0x00, 8, 0xff, 0xd0, 9];
        let whole = [START, &segment, &[0xff], &scan, END].concat();
        assert!(comes_to_its_end(&whole));
        assert!(comes_to_its_end(&[&whole[..], &[0; 9]].concat()), "something may follow");
        for len in 0..whole.len() {
            assert!(!comes_to_its_end(&whole[..len]), "{len} bytes");
        }
    }

    /// So many pictures take longer than it takes until something is told.
    #[test]
    fn long_decoding_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large.png");
        RgbImage::from_fn(1500, 1500, |x, y| image::Rgb([x as u8, y as u8, (x * y) as u8]))
            .save(&path)
            .unwrap();
        let mut pictures = vec![path; 8];
        let mut told = Vec::new();
        // However fast the machine is.
        while told.is_empty() {
            let mut listener = |progress: Progress<'_>| match progress {
                Progress::Decoding { done, total } => told.push((done, total)),
                other => panic!("{other}"),
            };
            let total = 100 + pictures.len();
            let mut decoder =
                Decoder { size: [8, 8], done: 100, total, bad: Vec::new(), listener: &mut listener };
            assert_eq!(decoder.decode(&pictures).unwrap().len(), pictures.len() * 8 * 8 * 3);
            assert!(decoder.done == total && decoder.bad.is_empty());
            pictures.extend_from_within(..);
        }
        assert!(told.iter().all(|(done, total)| (100..=*total).contains(done)), "{told:?}");
        assert!(told.is_sorted());
    }
}
