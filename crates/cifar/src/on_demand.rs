//! Pictures that stay in their files until they are needed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::decode;
use crate::error::Result;
use crate::fitting::Resize;

/// The pictures of a split that are decoded on demand, all scaled to one size. Cloning them is cheap.
///
/// ```no_run
/// // As soon as the pixels would take more than 8 GB.
/// let pets = cifar::folder::ClassFolders::new("pets").image_size(224, 224).on_demand_above(8 << 30).read()?;
/// if let Some(files) = &pets.train.files {
///     let mut pixels = vec![0; 224 * 224 * 3];
///     files.read(0, &mut pixels)?;
/// }
/// # Ok::<(), cifar::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    paths: Arc<[PathBuf]>,
    shape: [usize; 3],
    resize: Resize,
}

impl Files {
    /// Of these files, for pictures of this height, width and channels, which were checked.
    pub(crate) fn new(paths: impl Into<Arc<[PathBuf]>>, shape: [usize; 3], resize: Resize) -> Self {
        Files { paths: paths.into(), shape, resize }
    }

    /// Height, width and channels.
    pub(crate) fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// The same files, with another height, width and channels.
    pub(crate) fn reshaped(self, shape: [usize; 3]) -> Self {
        Files { shape, ..self }
    }

    /// The number of pictures.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// The file of a picture.
    ///
    /// # Panics
    /// If there is no such picture.
    pub fn path(&self, picture: usize) -> &Path {
        &self.paths[picture]
    }

    /// Decodes a picture into `pixels`, as [`folder::picture`](crate::folder::picture) does.
    ///
    /// # Errors
    /// As [`folder::picture`](crate::folder::picture).
    ///
    /// # Panics
    /// If there is no such picture, or `pixels` has another length than one.
    pub fn read(&self, picture: usize, pixels: &mut [u8]) -> Result<()> {
        decode::one(&self.paths[picture], self.shape, self.resize, pixels)
    }

    /// Decodes pictures one after the other into `pixels`, on all cores.
    ///
    /// # Errors
    /// Those of all pictures that can't be decoded.
    pub(crate) fn read_all(&self, pictures: core::ops::Range<usize>, pixels: &mut [u8]) -> Result<()> {
        let bad = decode::all(&self.paths[pictures], self.shape, self.resize, pixels, &mut |_| {})?;
        decode::refuse(bad.into_iter().map(|(_, error)| error).collect())
    }

    /// Some of them, in this order.
    pub(crate) fn select(&self, pictures: &[usize]) -> Self {
        let paths = pictures.iter().map(|&k| self.paths[k].clone()).collect::<Vec<_>>();
        Files::new(paths, self.shape, self.resize)
    }
}
