//! Layers and weights of Keras' files.
//!
//! Keras has written weights in several ways, and this reads them all:
//!
//! | file | written by | the layers' order |
//! | --- | --- | --- |
//! | `x.weights.h5` | `model.save_weights`, Keras 3 and late versions of `tf.keras` 2 | from names: `conv2d`, `conv2d_1`, ... |
//! | `x.keras` | `model.save`: a ZIP archive of such a file and the model's configuration | the same |
//! | `x.h5` | `model.save`, or `model.save_weights` of Keras 2 | from its attributes |
//!
//! Files of `model.save` have the model's configuration, from which the network is [built](read_network), and weights are
//! assigned in its order. Other files have weights alone. Their names are of no use: a second model of a session has a
//! `conv2d_19` where the first has a `conv2d`. So layers are matched by their kind, shapes and order, see
//! [`KerasWeights::assign`].
//!
//! Files are hostile: sizes are bounded, and a mismatch is an error of one sentence.

mod archive;
mod assign;
mod compile;
mod config;
mod h5;
mod layer;
mod model;
mod place;
mod unit;

pub use crate::file::MAX_FILE;
pub(crate) use layer::shortened;

use crate::{Error, Imported, Result, file};
use checkpoint::Tensors;
use layers::Step;
use model::Read;
use std::path::{Path, PathBuf};
use unit::Unit;

/// Reads the layers in a file of `model.save` or `model.to_json`.
///
/// # Errors
/// [`Error::Io`]; [`Error::File`] if it is none of Keras', has weights alone, or has a layer that is not there.
pub fn read_network(path: &Path) -> Result<Imported> {
    let bytes = file::read(path)?;
    let described = match bytes.first() {
        Some(b'{') => {
            let read = model::read(&config::parse(path, &bytes)?, (&[], true));
            Some(read.map_err(|reason| Error::file(path, reason))?)
        }
        _ => KerasWeights::of(path, bytes)?.described,
    };
    let reason = "it has weights alone, and no layers; save the whole model by model.save(\"x.keras\")";
    described.map(|read| read.network).ok_or_else(|| Error::file(path, reason))
}

/// Checks that the bytes are of an HDF5 file.
fn hdf5(path: &Path, bytes: Vec<u8>) -> Result<Vec<u8>> {
    if bytes.starts_with(b"\x89HDF\r\n\x1a\n") {
        return Ok(bytes);
    }
    Err(Error::file(path, "it is no file of Keras' weights: neither HDF5 nor a .keras archive"))
}

/// The weights of a file, layer by layer, and the model's layers where the file has its configuration. Their values are
/// read when they are [assigned](KerasWeights::assign), since a small file may claim any number of them.
#[derive(Debug)]
pub struct KerasWeights {
    path: PathBuf,
    units: Vec<Unit>,
    /// Whether `units` have the order of the model's layers, or that of names somebody chose.
    ordered: bool,
    /// Whether layers have their own names, as in `.h5`, or are numbered by their classes.
    named: bool,
    described: Option<Read>,
}

impl KerasWeights {
    /// Reads a file of any name: its first bytes tell the format.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::File`] if it is none of Keras', is too large or damaged, or of images with
    /// their channels first.
    pub fn read(path: &Path) -> Result<Self> {
        KerasWeights::of(path, file::read(path)?)
    }

    fn of(path: &Path, bytes: Vec<u8>) -> Result<Self> {
        let (bytes, config) = match bytes.starts_with(b"PK") {
            true => archive::open(path, bytes).map(|(bytes, config)| (bytes, Some(config)))?,
            false => (bytes, None),
        };
        let h5::Layers { mut units, ordered, named, config: own } = h5::read(path, hdf5(path, bytes)?)?;
        if units.is_empty() {
            return Err(Error::file(path, "there are no weights in it"));
        }
        let described = config.or(own).map(|config| model::read(&config, (&units, named))).transpose();
        let described = described.map_err(|reason| Error::file(path, reason))?;
        let mut adapted = described.iter().flat_map(|read| &read.adapted).copied().collect::<Vec<_>>();
        adapted.sort_unstable();
        adapted.dedup();
        adapted.iter().rev().for_each(|&unit| drop(units.remove(unit)));
        Ok(KerasWeights { path: path.to_owned(), units, ordered, named, described })
    }

    /// The network that the file describes. `None` if it has weights alone.
    pub fn network(&self) -> Option<&Imported> {
        self.described.as_ref().map(|read| &read.network)
    }

    /// The outputs of the last dense layer: the number of classes.
    pub fn classes(&self) -> Option<usize> {
        self.units.iter().rev().find_map(Unit::units)
    }

    /// Whether weights of these kinds and shapes are those of a network with these layers.
    pub fn fits(&self, steps: &[Step]) -> bool {
        assign::fits(&self.units, self.ordered, steps)
    }

    /// The tensors of a network with these layers, under the names of its slots.
    ///
    /// Layers with the names of the [described](KerasWeights::network) network have its weights. Otherwise convolutions,
    /// normalizations and dense layers of one shape correspond in their order; where every convolution has a
    /// normalization, the two are matched as one.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with the first thing that differs.
    pub fn assign(&self, steps: &[Step]) -> Result<Tensors> {
        let tensors = match &self.described {
            Some(read) if assign::has(&read.places, steps) => {
                assign::described(&self.units, self.named, &read.places, steps)
            }
            _ => assign::by_shape(&self.units, self.ordered, steps),
        };
        tensors.map_err(|reason| Error::Mismatch { path: self.path.clone(), reason })
    }
}
