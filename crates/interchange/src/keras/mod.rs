//! Weights of Keras' files.
//!
//! Keras has written weights in several ways, and this reads them all:
//!
//! | file | written by | the layers' order |
//! | --- | --- | --- |
//! | `x.weights.h5` | `model.save_weights`, Keras 3 and late versions of `tf.keras` 2 | from names: `conv2d`, `conv2d_1`, ... |
//! | `x.keras` | `model.save`: a ZIP archive of such a file and the model's configuration | the same |
//! | `x.h5` | `model.save`, or `model.save_weights` of Keras 2 | from its attributes |
//!
//! Names are of no use beyond that: a second model of a session has a `conv2d_19` where the first has a `conv2d`. So layers are
//! matched by their kind, shapes and order, see [`KerasWeights::assign`].
//!
//! Files are hostile: sizes are bounded, and a mismatch is an error of one sentence.

mod archive;
mod assign;
mod config;
mod convolution;
mod graph;
mod h5;
mod layer;
mod pooling;
#[cfg(test)]
mod refusals;
mod unit;

pub use crate::file::MAX_FILE;

use crate::{Error, Result, file};
use checkpoint::Tensors;
use layers::Step;
use std::path::{Path, PathBuf};
use unit::Unit;

/// The weights of a file, layer by layer, and the model's configuration where the file has it. Their values are read when
/// they are [assigned](KerasWeights::assign), since a small file may claim any number of them.
#[derive(Debug)]
pub struct KerasWeights {
    path: PathBuf,
    units: Vec<Unit>,
    /// Whether `units` have the order of the model's layers, or that of names somebody chose.
    ordered: bool,
    config: Option<serde_json::Value>,
}

impl KerasWeights {
    /// Reads a file of any name: its first bytes tell the format.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::File`] if it is none of Keras', is too large or damaged, or of images with
    /// their channels first.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = file::read(path)?;
        let (bytes, config) = match bytes.starts_with(b"PK") {
            true => archive::open(path, bytes).map(|(bytes, config)| (bytes, Some(config)))?,
            false => (bytes, None),
        };
        if !bytes.starts_with(b"\x89HDF\r\n\x1a\n") {
            return Err(Error::file(
                path,
                "it is no file of Keras' weights: neither HDF5 nor a .keras archive",
            ));
        }
        let (units, ordered, own) = h5::read(path, bytes)?;
        if units.is_empty() {
            return Err(Error::file(path, "there are no weights in it"));
        }
        let config = config.or(own);
        if let Some(config) = &config {
            config::check_axes(config).map_err(|reason| Error::file(path, reason))?;
        }
        Ok(KerasWeights { path: path.to_owned(), units, ordered, config })
    }

    /// The outputs of the last dense layer: the number of classes.
    pub fn classes(&self) -> Option<usize> {
        self.units.iter().rev().find_map(Unit::units)
    }

    /// Height and width of the images, where the file has the model's configuration and that says it.
    pub fn image_size(&self) -> Option<[usize; 2]> {
        config::image_size(self.config.as_ref()?)
    }

    /// The tensors of a network with these layers, under the names of its slots.
    ///
    /// Convolutions, normalizations and dense layers of one shape correspond in their order; where every convolution has a
    /// normalization, the two are matched as one. If the file has the model's configuration, strides, paddings, dilations, groups,
    /// activations, poolings and the normalizations' epsilon are compared too.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with the first thing that differs.
    pub fn assign(&self, steps: &[Step]) -> Result<Tensors> {
        let tensors = assign::assign(&self.units, self.ordered, self.config.as_ref(), steps);
        tensors.map_err(|reason| Error::Mismatch { path: self.path.clone(), reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, Read as _, Write as _};
    use zip::write::SimpleFileOptions;
    use zip::{ZipArchive, ZipWriter};

    /// Before anything is read from the shape of their images.
    #[test]
    fn channels_first_are_refused() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/keras/small_cnn.keras");
        let mut archive = ZipArchive::new(std::fs::File::open(golden).unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let read = |archive: &mut ZipArchive<_>, axes: &str| {
            let mut changed = ZipWriter::new(Cursor::new(Vec::new()));
            for name in ["config.json", "model.weights.h5"] {
                let mut bytes = Vec::new();
                archive.by_name(name).unwrap().read_to_end(&mut bytes).unwrap();
                if name == "config.json" {
                    let text = String::from_utf8(bytes).unwrap();
                    assert!(text.contains("channels_last") && text.contains("[null, 32, 32, 3]"), "{text}");
                    let text = text.replace("[null, 32, 32, 3]", "[null, 3, 32, 32]");
                    bytes = text.replace("channels_last", axes).into_bytes();
                }
                changed.start_file(name, SimpleFileOptions::default()).unwrap();
                changed.write_all(&bytes).unwrap();
            }
            let path = folder.path().join("changed.keras");
            std::fs::write(&path, changed.finish().unwrap().into_inner()).unwrap();
            KerasWeights::read(&path)
        };
        assert_eq!(read(&mut archive, "channels_last").unwrap().image_size(), Some([3, 32]));
        let told = read(&mut archive, "channels_first").unwrap_err().to_string();
        assert!(
            told.contains("its layer `") && told.contains("has data_format=\"channels_first\""),
            "{told}"
        );
    }
}
