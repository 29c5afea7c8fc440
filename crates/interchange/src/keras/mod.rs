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
//! Files are hostile: sizes are bounded, and what doesn't fit is an error of one sentence.

mod archive;
mod assign;
mod config;
mod h5;
mod unit;

pub use crate::file::MAX_FILE;

use crate::{Error, Result, file};
use checkpoint::Tensors;
use layers::Step;
use std::path::{Path, PathBuf};
use unit::Unit;

/// The weights of a file, layer by layer, and the model's configuration where the file has it.
#[derive(Debug)]
pub struct KerasWeights {
    path: PathBuf,
    units: Vec<Unit>,
    /// Whether `units` have the order of the model's layers, or that of names somebody chose.
    ordered: bool,
    config: Option<serde_json::Value>,
}

impl KerasWeights {
    /// Reads a file, whatever its name: its first bytes say what it is.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::File`] if it is none of Keras', is too large or damaged.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = file::read(path)?;
        let (bytes, config) =
            if bytes.starts_with(b"PK") { archive::open(path, bytes)? } else { (bytes, None) };
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
        Ok(KerasWeights { path: path.to_owned(), units, ordered, config: config.or(own) })
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
    /// normalization, the two are matched as one. If the file has the model's configuration, strides, activations, poolings and the
    /// normalizations' epsilon are compared too.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with the first thing that differs.
    pub fn assign(&self, steps: &[Step]) -> Result<Tensors> {
        let tensors = assign::assign(&self.units, self.ordered, self.config.as_ref(), steps);
        tensors.map_err(|reason| Error::Mismatch { path: self.path.clone(), reason })
    }
}
