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
//! assigned by the places of its layers. Other files have weights alone. Their names may be of no use: a second model of a
//! session has a `conv2d_19` where the first has a `conv2d`. So layers are matched by their names where all are the same, and
//! else by their kind, shapes and order, see [`KerasWeights::assign`].
//!
//! Files are hostile: sizes are bounded, and a mismatch is an error of one sentence.

mod archive;
mod assign;
mod calls;
mod compile;
mod config;
mod h5;
mod layer;
mod model;
mod parallel;
mod place;
mod root;
mod unit;

pub use crate::file::MAX_FILE;
pub(crate) use crate::text::shortened;

use crate::described::model_of;
use crate::{Error, Imported, Loaded, Result, file};
use model::Read;
use serde_json::Value;
use std::path::{Path, PathBuf};
use towers_checkpoint::Tensors;
use towers_layers::Step;
use unit::Unit;

/// Reads the layers in a file of `model.save` or `model.to_json`.
///
/// # Errors
/// [`Error::Io`]; [`Error::File`] if it is none of Keras', has weights alone, or has a layer that is not there.
pub fn read_network(path: &Path) -> Result<Imported> {
    let bytes = file::read(path)?;
    let described = match is_text(&bytes) {
        true => {
            let read = model::read(&config::parse(path, &bytes)?, (&[], true));
            Some(read.map_err(|reason| Error::file(path, reason))?)
        }
        false => KerasWeights::of(path, bytes, None)?.described,
    };
    let reason = "it has weights alone, and no layers; save the whole model by model.save(\"x.keras\")";
    described.map(|read| read.network).ok_or_else(|| Error::file(path, reason))
}

/// Whether a file is the text of `model.to_json`: the layers of a model.
pub fn is_model_text(path: &Path) -> bool {
    file::read(path).is_ok_and(|bytes| is_text(&bytes) && config::parse(path, &bytes).is_ok())
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.first() == Some(&b'{')
}

/// Checks that the bytes are of an HDF5 file.
fn hdf5(path: &Path, bytes: Vec<u8>) -> Result<Vec<u8>> {
    if bytes.starts_with(b"\x89HDF\r\n\x1a\n") {
        return Ok(bytes);
    }
    Err(Error::file(path, "it is no file of Keras' weights: neither HDF5 nor a .keras archive"))
}

/// Reads a model with its weights: `.keras`, or `.h5` of `model.save`.
///
/// # Errors
/// As [`KerasWeights::read`] and [`KerasWeights::assign`]; [`Error::File`] if the file has weights alone, or its model says no
/// size of the images or no number of classes.
pub fn load(path: impl AsRef<Path>) -> Result<Loaded> {
    load_at(path.as_ref(), None)
}

/// The same for images of another height and width, or where the model takes any.
///
/// # Errors
/// As [`load`].
pub fn load_for(path: impl AsRef<Path>, image: [usize; 2]) -> Result<Loaded> {
    load_at(path.as_ref(), Some(image))
}

fn load_at(path: &Path, image: Option<[usize; 2]>) -> Result<Loaded> {
    let weights = KerasWeights::read(path)?;
    let alone =
        || Error::file(path, "it has weights alone; save the whole model, by model.save(\"net.keras\")");
    let network = weights.network().ok_or_else(alone)?;
    let model = model_of(path, network, image)?;
    let tensors = weights.assign(&model.steps())?;
    let told = weights.told().into_iter().chain(network.notes.iter().cloned()).collect();
    Ok(Loaded { model, tensors, pixels: None, classes: None, told })
}

/// Writes a model of Keras as an ONNX graph, which takes pixels as the model does, but gives logits where the model ends in a
/// softmax. Returns notes on the file, a sentence each.
///
/// # Errors
/// As [`load`] and [`onnx::save`](crate::onnx::save).
#[cfg(feature = "onnx")]
pub fn to_onnx(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Vec<String>> {
    let loaded = load(from)?;
    crate::onnx::save(to, &loaded.source())?;
    Ok(loaded.told)
}

/// The weights of a file, layer by layer, and the model's layers where the file has its configuration. Their values are
/// read when they are [assigned](KerasWeights::assign), since a small file may claim any number of them.
#[derive(Debug)]
pub struct KerasWeights {
    path: PathBuf,
    units: Vec<Unit>,
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
        KerasWeights::of(path, file::read(path)?, None)
    }

    /// Reads the weights in a file for the model whose layers are in another one: the text of `model.to_json`.
    ///
    /// # Errors
    /// As [`read`](KerasWeights::read) and [`read_network`], each with the file that is wrong.
    pub fn read_for(model: &Path, path: &Path) -> Result<Self> {
        let config = config::parse(model, &file::read(model)?)?;
        KerasWeights::of(path, file::read(path)?, Some((model, config)))
    }

    /// `model` has the configuration instead of the file, and where it is from.
    fn of(path: &Path, bytes: Vec<u8>, model: Option<(&Path, Value)>) -> Result<Self> {
        let (bytes, config) = match bytes.starts_with(b"PK") {
            true => archive::open(path, bytes).map(|(bytes, config)| (bytes, Some(config)))?,
            false => (bytes, None),
        };
        let h5::Layers { mut units, named, config: own } = h5::read(path, hdf5(path, bytes)?)?;
        if units.is_empty() {
            return Err(Error::file(path, "there are no weights in it"));
        }
        let model = model.or(config.or(own).map(|config| (path, config)));
        let read = |(path, config): (&Path, Value)| {
            model::read(&config, (&units, named)).map_err(|reason| Error::file(path, reason))
        };
        let described = model.map(read).transpose()?;
        let mut adapted = described.iter().flat_map(|read| &read.adapted).copied().collect::<Vec<_>>();
        adapted.sort_unstable();
        adapted.dedup();
        adapted.iter().rev().for_each(|&unit| drop(units.remove(unit)));
        Ok(KerasWeights { path: path.to_owned(), units, named, described })
    }

    /// The network that the file describes. `None` if it has weights alone.
    pub fn network(&self) -> Option<&Imported> {
        self.described.as_ref().map(|read| &read.network)
    }

    /// What people should know about the file, a sentence each: that it has the inner model of one for several GPUs.
    pub fn told(&self) -> Vec<String> {
        match &self.described {
            Some(read) => read.told.clone(),
            None => root::around(&self.units, self.named).map(parallel::of_weights).into_iter().collect(),
        }
    }

    /// The number of classes: the outputs of the last dense layer, if it is known which one that is.
    pub fn classes(&self) -> Option<usize> {
        match self.network() {
            Some(network) => network.classes,
            None => unit::last_outputs(&self.units, self.named),
        }
    }

    /// Whether weights of these kinds and shapes are those of a network with these layers.
    pub fn fits(&self, steps: &[Step]) -> bool {
        assign::fits(&self.units, steps)
    }

    /// The tensors of a network with these layers, under the names of its slots.
    ///
    /// Layers with the names of the [described](KerasWeights::network) network have its weights, and so have layers whose
    /// names are all those of the file. Otherwise convolutions, normalizations and dense layers of one shape correspond in their
    /// order; where every convolution has a normalization, the two are matched as one.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with the first thing that differs, and where neither names nor shapes nor the file's order tell
    /// which layer is which.
    pub fn assign(&self, steps: &[Step]) -> Result<Tensors> {
        let tensors = match &self.described {
            Some(read) if assign::has(&read.places, steps) => {
                assign::described(&self.units, self.named, &read.places, steps)
            }
            _ => assign::undescribed(&self.units, self.named, steps),
        };
        tensors.map_err(|reason| Error::Mismatch { path: self.path.clone(), reason })
    }
}
