//! Images that stay in their files until they are needed.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{BoxError, Error, Result};
use crate::shape::check_shape;

/// Decodes files of images.
pub trait Decode: fmt::Debug + Send + Sync {
    /// Decodes files one after the other into `pixels`, each to this height, width and channels: several on all cores, one on this
    /// thread. `pixels` has that many bytes.
    ///
    /// # Errors
    /// About all files that can't be decoded.
    fn decode(&self, files: &[PathBuf], shape: [usize; 3], pixels: &mut [u8]) -> Result<(), BoxError>;
}

/// The images of a split that are decoded on demand, all of one shape. Cloning them is cheap.
///
/// ```
/// use towers_dataset::{BoxError, Decode, Files, Split};
/// use std::path::PathBuf;
///
/// /// Files of raw pixels.
/// #[derive(Debug)]
/// struct Raw;
///
/// impl Decode for Raw {
///     fn decode(&self, files: &[PathBuf], [h, w, c]: [usize; 3], pixels: &mut [u8]) -> Result<(), BoxError> {
///         for (file, pixels) in files.iter().zip(pixels.chunks_exact_mut(h * w * c)) {
///             pixels.copy_from_slice(&std::fs::read(file)?);
///         }
///         Ok(())
///     }
/// }
///
/// let files = Files::new(vec![PathBuf::from("a.raw"), PathBuf::from("b.raw")], [8, 8, 1], Raw)?;
/// let split = Split::of_files(files, vec![0, 1])?;
/// assert!(split.batches(2).next().unwrap().is_err(), "there are no such files");
/// # Ok::<(), towers_dataset::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Files {
    paths: Arc<[PathBuf]>,
    shape: [usize; 3],
    decoder: Arc<dyn Decode>,
}

/// Files are equal if they are decoded to the same shape by the same decoder.
impl PartialEq for Files {
    fn eq(&self, other: &Files) -> bool {
        self.paths == other.paths && self.shape == other.shape && Arc::ptr_eq(&self.decoder, &other.decoder)
    }
}

impl Eq for Files {}

impl Files {
    /// These files, decoded to this height, width and channels.
    ///
    /// # Errors
    /// [`Error::Size`] and [`Error::Channels`] for a shape that no picture can have.
    pub fn new(
        paths: impl Into<Arc<[PathBuf]>>,
        shape: [usize; 3],
        decoder: impl Decode + 'static,
    ) -> Result<Self> {
        check_shape(shape)?;
        Ok(Files { paths: paths.into(), shape, decoder: Arc::new(decoder) })
    }

    /// Height, width and channels.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// The same files, with another height, width and channels.
    pub(crate) fn reshaped(self, shape: [usize; 3]) -> Self {
        Files { shape, ..self }
    }

    /// The number of images.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// The file of an image.
    ///
    /// # Panics
    /// If there is no such image.
    pub fn path(&self, image: usize) -> &Path {
        &self.paths[image]
    }

    /// Decodes an image into `pixels` on this thread.
    ///
    /// # Errors
    /// [`Error::Decode`].
    ///
    /// # Panics
    /// If there is no such image, or `pixels` has another length than one.
    pub fn read(&self, image: usize, pixels: &mut [u8]) -> Result<()> {
        self.read_all(image..image + 1, pixels)
    }

    /// Decodes images one after the other into `pixels`, on all cores.
    pub(crate) fn read_all(&self, images: Range<usize>, pixels: &mut [u8]) -> Result<()> {
        let [height, width, channels] = self.shape;
        let len = images.len() * height * width * channels;
        assert_eq!(pixels.len(), len, "the pixels of a picture of {height}x{width} are wanted");
        self.decoder.decode(&self.paths[images], self.shape, pixels).map_err(Error::Decode)
    }

    /// Some of them, in this order.
    pub(crate) fn select(&self, images: &[usize]) -> Self {
        let paths = images.iter().map(|&k| self.paths[k].clone()).collect();
        Files { paths, ..self.clone() }
    }
}
