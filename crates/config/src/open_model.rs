//! Opens trained networks: runs, checkpoints, files of Keras and of PyTorch.

use crate::{ColorMode, Config, DataSet, Error, ImageSize, RECIPES, Result, Saved, recipe};
use serde::de::IgnoredAny;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use towers_callbacks::CHECKPOINTS;
use towers_checkpoint::{Checkpoint, Search, Skipped, Store};
use towers_dataset::Dataset;
use towers_interchange::Imported;
use towers_interchange::keras;
use towers_interchange::pytorch::is_state_dict;
use towers_options::message;
use towers_trained::{Assumed, ForeignWeights, Preprocessing, Trained, Weights};

/// Reads the trained network at `path`, which may be a run's folder, a model file, or a checkpoint; a folder
/// of checkpoints stands for the newest. It may also be a model or weights of Keras (`.keras`, `.weights.h5`,
/// `.h5`), a state dict of PyTorch for an exported network (`.safetensors`), or an ONNX graph (`.onnx`). The text of
/// `model.to_json` needs a file of [weights](Assumed::weights) too.
///
/// `load` loads the data for values that files of other programs lack, such as the mean of the training images. They must
/// be the training data of the network, whatever it is evaluated on later.
///
/// # Errors
/// [`Error::Run`] if there is no model at `path`; [`Error::Interchange`] if weights of another program don't fit the network;
/// [`Error::Option`] for an unknown network, data with another number of classes, or anything assumed of what towers trained.
pub fn open_model(
    path: &Path,
    assumed: &Assumed,
    load: impl FnOnce(DataSet) -> Result<Dataset>,
) -> Result<Trained> {
    if let Some(file) = assumed.weights.as_ref().filter(|_| ModelKind::of(path) == ModelKind::KerasLayers) {
        let weights = ForeignWeights::keras(file, Some(path))?;
        return foreign(weights, file, assumed, load);
    }
    assumed.refuse_weights(path)?;
    if let Some(weights) = read_foreign(path)? {
        return foreign(weights, path, assumed, load);
    }
    let (trained, _) = own(path)?;
    assumed.refuse_beside(path)?;
    Ok(trained)
}

/// A warning for each damaged checkpoint that [`open_model`] passes over in a folder of checkpoints, with the one that
/// it takes instead.
pub fn skipped_checkpoints(path: &Path) -> Vec<String> {
    if !path.is_dir() || folder_name(path) != CHECKPOINTS {
        return Vec::new();
    }
    let search = Store::open(path).and_then(|store| store.newest_valid::<IgnoredAny>());
    let Ok(Search { found: Some(found), skipped, .. }) = search else { return Vec::new() };
    let warning = |skipped: Skipped| {
        format!("a checkpoint was skipped: {}; {} is taken instead", skipped.why, found.path.display())
    };
    skipped.into_iter().map(warning).collect()
}

/// The network of a run, a model file or a checkpoint.
fn own(path: &Path) -> Result<(Trained, PathBuf)> {
    if !is_checkpoint(path) {
        let trained = Trained::read(path)?;
        let file = trained.path.clone();
        return Ok((trained, file));
    }
    let checkpoint = checkpoint(path)?;
    let file = checkpoint.tensors_file();
    let Checkpoint { path, mut tensors, state: Saved { model, .. }, .. } = checkpoint;
    *tensors.metadata_mut() = model;
    Ok((Trained::described(path, tensors)?, file))
}

/// The weights of another program at `path`; `None` if there is something else.
fn read_foreign(path: &Path) -> Result<Option<ForeignWeights>> {
    Ok(Some(match ModelKind::of(path) {
        ModelKind::Keras => ForeignWeights::keras(path, None)?,
        ModelKind::PyTorch => ForeignWeights::pytorch(path)?,
        ModelKind::Onnx => ForeignWeights::onnx(path)?,
        ModelKind::KerasLayers => {
            let reason = message!(
                "it has the layers of a model and no weights; name it as the model, and by ",
                ["weights"],
                " the file of model.save_weights"
            );
            return Err(Error::run(path, reason.to_owned()));
        }
        ModelKind::Towers | ModelKind::Checkpoint => return Ok(None),
    }))
}

/// The network of anything that [`open_model`] takes, without its weights. `data` is the shape of the images, for what the file
/// does not say.
pub(crate) fn read_network(path: &Path, data: [usize; 3]) -> Result<Imported> {
    if ModelKind::of(path) == ModelKind::KerasLayers {
        return Ok(keras::read_network(path)?);
    }
    match read_foreign(path)? {
        Some(weights) => Ok(weights.network(path, data)?),
        None => Ok(own(path)?.0.into()),
    }
}

/// The weights at `path`, of any file that [`open_model`] takes, for a run of `config`; and the file that has the values.
pub fn open_weights(path: &Path, config: &Config) -> Result<(Weights, PathBuf)> {
    if let Some(weights) = read_foreign(path)? {
        let build = |image, classes| config.network(image, classes);
        let weights = weights.weights(path, config.training.data.image(), build)?;
        return Ok((weights, path.to_owned()));
    }
    let (trained, file) = own(path)?;
    Ok((trained.into(), file))
}

/// The kind of model at a path for [`open_model`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// A run's folder or a model file of towers, which describes the whole network; or nothing at all.
    Towers,
    /// A checkpoint, or a folder of checkpoints.
    Checkpoint,
    /// Weights of Keras.
    Keras,
    /// The layers of a model of Keras without weights: the text of `model.to_json`.
    KerasLayers,
    /// A state dict of PyTorch.
    PyTorch,
    /// An ONNX graph.
    Onnx,
}

impl ModelKind {
    /// The kind of model at `path`, from its first bytes.
    pub fn of(path: &Path) -> Self {
        if path.is_dir() {
            return if is_checkpoint(path) { ModelKind::Checkpoint } else { ModelKind::Towers };
        }
        // A pipe is not read: it may never end.
        if !path.is_file() {
            return ModelKind::Towers;
        }
        let mut start = [0; 4];
        let sniffed = File::open(path).and_then(|mut file| file.read_exact(&mut start));
        match sniffed.map(|()| start) {
            Ok(start) if start == *b"\x89HDF" || start == *b"PK\x03\x04" => ModelKind::Keras,
            Ok(_) if has_ending(path, "onnx") => ModelKind::Onnx,
            Ok(start) if start[0] == b'{' && keras::is_model_text(path) => ModelKind::KerasLayers,
            Ok(_) if is_state_dict(path) => ModelKind::PyTorch,
            // A safetensors file, or an invalid one, which is reported when it is read.
            _ => ModelKind::Towers,
        }
    }
}

/// The network for weights of another program. The preprocessing is that of the first recipe with this
/// network.
fn foreign(
    weights: ForeignWeights,
    path: &Path,
    assumed: &Assumed,
    load: impl FnOnce(DataSet) -> Result<Dataset>,
) -> Result<Trained> {
    let load = |dataset, image: [usize; 3]| {
        let own = DataSet { dataset, ..DataSet::default() };
        let size = Some(ImageSize::of(image)).filter(|size| *size != ImageSize::of(own.image()));
        load(DataSet { image_size: size, color_mode: ColorMode::of(image[2]), ..own })
    };
    weights.open(path, assumed, preprocessing_of, load)
}

/// The preprocessing of the first recipe with this network.
fn preprocessing_of(network: &str) -> Option<Preprocessing> {
    let configs = RECIPES.into_iter().filter_map(|(name, _)| recipe(name).ok());
    configs
        .into_iter()
        .find(|config| config.training.model == network)
        .map(|config| config.training.preprocessing)
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(ending))
}

/// Whether it is the folder of a checkpoint, or of checkpoints.
fn is_checkpoint(path: &Path) -> bool {
    path.is_dir() && (folder_name(path) == CHECKPOINTS || path.join("complete.json").is_file())
}

/// The checkpoint in a folder, or the newest of a folder of checkpoints.
fn checkpoint(folder: &Path) -> Result<Checkpoint<Saved>> {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let name = folder_name(folder);
    if name != CHECKPOINTS
        && let Some(root) = absolute.parent()
    {
        return Ok(Store::open(root)?.load(&name)?);
    }
    let search = Store::open(&absolute)?.newest_valid()?;
    let reason = "there is no valid checkpoint here".to_owned();
    search.found.ok_or(Error::run(folder, reason))
}

fn folder_name(folder: &Path) -> String {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    absolute.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
