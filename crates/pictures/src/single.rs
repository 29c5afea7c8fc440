//! Reading of picture files by themselves.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use towers_dataset::{BoxError, Decode};

use crate::decode::{self, Decoder};
use crate::error::Result;

impl Decoder {
    /// Decodes one picture: the bytes of its pixels, row by row.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) or [`Error::Image`](crate::Error::Image) if it can't be read or decoded, or is too large.
    pub fn decode(&self, file: impl AsRef<Path>) -> Result<Vec<u8>> {
        let mut pixels = vec![0; decode::bytes_of(self.shape)];
        decode::one(file.as_ref(), self, &mut pixels)?;
        Ok(pixels)
    }

    /// Decodes pictures on all cores. One that can't be decoded has its error.
    pub fn decode_all(&self, files: &[impl AsRef<Path> + Sync]) -> Vec<Result<Vec<u8>>> {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let share = files.len().div_ceil(threads).max(1);
        thread::scope(|scope| {
            let mut shares = Vec::new();
            for share in files.chunks(share) {
                let decode = move || share.iter().map(|file| self.decode(file)).collect::<Vec<_>>();
                // Without another thread this one decodes.
                shares.push(thread::Builder::new().spawn_scoped(scope, decode).map_err(|_| decode()));
            }
            let join = |share: Result<thread::ScopedJoinHandle<_>, _>| match share {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(decoded) => decoded,
            };
            shares.into_iter().flat_map(join).collect()
        })
    }
}

/// Pictures that stay in their files are decoded like others.
impl Decode for Decoder {
    fn decode(&self, files: &[PathBuf], shape: [usize; 3], pixels: &mut [u8]) -> Result<(), BoxError> {
        let mut decoder = *self;
        decoder.shape = shape;
        if let [file] = files {
            return Ok(decode::one(file, &decoder, pixels)?);
        }
        let bad = decode::all(files, &decoder, pixels, &mut |_| {})?;
        Ok(decode::refuse(bad.into_iter().map(|(_, error)| error).collect())?)
    }
}

/// Reads one picture of any size, turns it and stretches it to `[height, width, channels]` as the pictures of a folder are: the
/// bytes of its pixels, row by row. It has 3 channels, or 1 for grey.
///
/// ```no_run
/// let pixels = towers_pictures::picture("cat.jpg", [32, 32, 3])?;
/// # Ok::<(), towers_pictures::Error>(())
/// ```
///
/// # Errors
/// Those of [`Decoder::new`] and [`Decoder::decode`].
pub fn picture(file: impl AsRef<Path>, shape: [usize; 3]) -> Result<Vec<u8>> {
    Decoder::new(shape)?.decode(file)
}
