//! From the files of class folders to pixels, on all cores.

use std::io::{self, Cursor, Read as _};
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use image::error::{DecodingError, ImageFormatHint, LimitError, LimitErrorKind};
use image::metadata::Orientation;
use image::{
    DynamicImage, ImageBuffer, ImageDecoder, ImageError, ImageFormat, ImageReader, ImageResult, Limits,
    Pixel, RgbImage,
};

use towers_dataset::{MOST_ASIDE, Resize, caught, check_shape, grey};
use towers_files::open_regular;

use crate::error::{Error, Result};
use crate::jpeg;

/// Tells how many bytes of memory are free, if that is known.
pub(crate) type Free = fn() -> Option<u64>;

/// The most memory that decoding one picture may take on each thread.
pub(crate) const MAX_DECODED: u64 = 256 << 20;
/// The most for a larger picture, of which one is decoded at a time.
const MAX_LARGE: u64 = 1 << 30;

/// How often it is told how many pictures are done.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// Decodes picture files of any size to one shape: turns each as its EXIF orientation says, makes it grey or RGB, and resizes it.
///
/// ```no_run
/// let decoder = towers_pictures::Decoder::new([64, 64, 3])?;
/// for error in decoder.decode_all(&["cat.jpg", "dog.jpg"]).iter().filter_map(|picture| picture.as_ref().err()) {
///     eprintln!("{error}");
/// }
/// # Ok::<(), towers_pictures::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    pub(crate) shape: [usize; 3],
    resize: Resize,
    free: Free,
}

impl Decoder {
    /// For pictures of this height, width and channels: 3, or 1 for grey.
    ///
    /// # Errors
    /// Those of [`check_shape`].
    pub fn new(shape: [usize; 3]) -> Result<Decoder> {
        check_shape(shape)?;
        Ok(Decoder { shape, resize: Resize::Stretch, free: || None })
    }

    /// How pictures get their rows and columns; by default they are stretched.
    pub fn resize(self, resize: Resize) -> Self {
        Decoder { resize, ..self }
    }

    /// A function that tells how many bytes of memory are free, or `None`. A picture may take a quarter of them, up to 1 GiB. By
    /// default it may take 256 MiB.
    pub fn free_memory(self, free: fn() -> Option<u64>) -> Self {
        Decoder { free, ..self }
    }
}

/// Decodes pictures into `images`, on all cores. The result doesn't depend on their number. Now and then it tells
/// how many are done. Returns the places of pictures that can't be decoded and why, in their order.
pub(crate) fn all(
    paths: &[impl AsRef<Path> + Sync],
    decoder: &Decoder,
    images: &mut [u8],
    tell: &mut dyn FnMut(usize),
) -> Result<Vec<(usize, Error)>> {
    let bytes = bytes_of(decoder.shape);
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
                let mut bad = Vec::new();
                for (k, (path, image)) in paths.iter().zip(images.chunks_mut(bytes)).enumerate() {
                    done.fetch_add(1, Ordering::Relaxed);
                    bad.extend(one(path.as_ref(), decoder, image).err().map(|error| (k, error)));
                }
                bad
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
    for (k, failures) in failures.into_iter().enumerate() {
        let first = k * share;
        let failures = failures.map_err(Error::io("start a thread to decode", paths[first].as_ref()))?;
        bad.extend(failures.into_iter().map(|(k, error)| (first + k, error)));
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

/// The bytes of a picture of this height, width and channels.
pub(crate) fn bytes_of(shape: [usize; 3]) -> usize {
    shape.iter().product()
}

/// Decodes one picture into `to`, the bytes of a picture of the decoder's shape.
pub(crate) fn one(path: &Path, decoder: &Decoder, to: &mut [u8]) -> Result<()> {
    let Decoder { shape: [height, width, channels], resize, free } = *decoder;
    let picture = read_within(path, MAX_DECODED, free)?;
    let own = [picture.height() as usize, picture.width() as usize];
    match channels {
        // As in Keras, colours become grey before the picture is scaled.
        1 => resize.apply::<1>(&grey(picture.as_raw()), own, [height, width], to),
        _ => resize.apply::<3>(picture.as_raw(), own, [height, width], to),
    }
    Ok(())
}

/// A picture in its own size, in `most` bytes of memory. A larger picture may take a quarter of the `free` memory, because the
/// decoder and a rotation need memory too. Only one such picture is decoded at a time.
fn read_within(path: &Path, most: u64, free: impl Fn() -> Option<u64>) -> Result<RgbImage> {
    static LARGE: Mutex<()> = Mutex::new(());
    let is_too_large = |error: &Error| matches!(error, Error::Image { source: ImageError::Limits(_), .. });
    match decode(path, most) {
        Err(error) if is_too_large(&error) => {}
        decoded => return decoded,
    }
    let _alone = LARGE.lock().unwrap_or_else(PoisonError::into_inner);
    decode(path, (free().unwrap_or(0) / 4).clamp(most, MAX_LARGE))
}

/// Decodes a picture in `most` bytes of memory.
fn decode(path: &Path, most: u64) -> Result<RgbImage> {
    let (file, len) = open_regular(path)?;
    if len == 0 {
        return Err(Error::io("decode the picture", path)(io::Error::other("it is empty")));
    }
    let bad = |source| Error::Image { path: path.into(), source };
    if len > most {
        return Err(bad(ImageError::Limits(LimitError::from_kind(LimitErrorKind::InsufficientMemory))));
    }
    // All formats are decoded from memory: the compiler builds the decoders once for each kind of reader.
    let mut bytes = Vec::with_capacity(len as usize);
    file.take(most).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    let format = image::guess_format(&bytes).ok();
    if format == Some(ImageFormat::Jpeg) {
        // The decoder paints missing parts gray.
        if !jpeg::comes_to_its_end(&bytes) {
            return Err(bad(ImageError::IoError(io::ErrorKind::UnexpectedEof.into())));
        }
        jpeg::mend(&mut bytes).map_err(|why| bad(undecodable(format, why)))?;
    }
    let reader = ImageReader::new(Cursor::new(&bytes[..])).with_guessed_format();
    let reader = reader.map_err(Error::io("read", path))?;
    let decoded = caught(|| upright(reader, most));
    let panicked = |message| Err(undecodable(format, format!("the decoder panicked: {message}")));
    decoded.unwrap_or_else(panicked).map_err(bad)
}

fn undecodable(format: Option<ImageFormat>, why: String) -> ImageError {
    let format = format.map_or(ImageFormatHint::Unknown, ImageFormatHint::Exact);
    ImageError::Decoding(DecodingError::new(format, why))
}

/// Decodes a picture and turns it as its EXIF orientation says. Damaged EXIF data turn nothing.
fn upright(mut reader: ImageReader<Cursor<&[u8]>>, most: u64) -> ImageResult<RgbImage> {
    let mut limits = Limits::default();
    limits.max_image_width = Some(MOST_ASIDE);
    limits.max_image_height = Some(MOST_ASIDE);
    limits.max_alloc = Some(most);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_picture_is_decoded_where_memory_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large.png");
        RgbImage::from_fn(40, 30, |x, y| image::Rgb([x as u8, y as u8, 7])).save(&path).unwrap();
        let bytes = 40 * 30 * 3;
        assert!(read_within(&path, 2 * bytes, || None).is_ok());
        for most in [bytes - 1, 10] {
            let free = 4 * 2 * bytes;
            assert_eq!(read_within(&path, most, || Some(free)).unwrap().dimensions(), (40, 30));
            for free in [None, Some(0), Some(3 * bytes)] {
                assert!(read_within(&path, most, || free).is_err(), "{free:?}");
            }
        }
    }
}
