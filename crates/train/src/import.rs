//! Trained networks from wherever they are: runs, checkpoints, files of Keras and of PyTorch.

use crate::data::split;
use crate::fit::measure;
use crate::foreign::Foreign;
use crate::{CHECKPOINTS, DataOptions, Error, Preprocessing, Result, Saved, Trained};
use checkpoint::{Checkpoint, Store};
use cifar::Dataset;
use interchange::keras::KerasWeights;
use interchange::pytorch::{TorchWeights, is_state_dict};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// What a file that holds weights alone doesn't say.
#[derive(Clone, Debug, Default)]
pub struct Assumed {
    /// The network, one of [`models::NAMES`]; by default the one that the weights fit.
    pub network: Option<String>,
    /// What happens to pixels first; by default as in the network's recipe.
    pub preprocessing: Option<Preprocessing>,
    /// The data set that it was trained on; by default CIFAR-10 or CIFAR-100, by the number of classes. A checkpoint says it by itself,
    /// unless the folder is gone.
    pub dataset: Option<String>,
    /// How many of its training samples; by default all.
    pub limit_train: Option<usize>,
}

/// Reads the trained network at `path`: a run's folder or model file, a checkpoint (its folder, or the folder of all for the
/// newest), weights of Keras (`.keras`, `.weights.h5`, `.h5`), or a state dict of PyTorch for an exported network (`.safetensors`).
///
/// `load` gets the data for what neither a checkpoint nor such files hold, such as the mean of the training images: those that the
/// network was trained on, whatever it is measured on later.
///
/// # Errors
/// [`Error::Run`] if there is no model at `path`; [`Error::Interchange`] if weights of another program don't fit the network;
/// [`Error::Option`] for an unknown network, or data with another number of classes; [`Error::OtherData`] if a checkpoint's training
/// data have changed.
pub fn open_model(
    path: &Path,
    assumed: &Assumed,
    load: impl FnOnce(DataOptions) -> Result<Dataset>,
) -> Result<Trained> {
    if path.is_dir() {
        return match checkpoint(path)? {
            Some(found) => from_checkpoint(found, assumed, load),
            None => Trained::read(path),
        };
    }
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("onnx")) {
        let reason = "ONNX files are written, not read; name the model that it was exported from".to_owned();
        return Err(Error::Run { path: path.to_owned(), reason });
    }
    let mut start = [0; 4];
    let sniffed = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    match sniffed.map(|()| start) {
        Ok(start) if start == *b"\x89HDF" || start == *b"PK\x03\x04" => {
            Foreign::Keras(KerasWeights::read(path)?).open(path, assumed, load)
        }
        Ok(_) if is_state_dict(path) => Foreign::PyTorch(TorchWeights::read(path)?).open(path, assumed, load),
        // A safetensors file, or none at all: it says so.
        _ => Trained::read(path),
    }
}

/// The checkpoint in a folder, or the newest of a folder of checkpoints; `None` where there is nothing of that kind.
fn checkpoint(folder: &Path) -> Result<Option<Checkpoint<Saved>>> {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let name = absolute.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if name == CHECKPOINTS {
        let search = Store::open(&absolute)?.newest_valid()?;
        let reason = "there is no valid checkpoint here".to_owned();
        return search.found.map(Some).ok_or(Error::Run { path: folder.to_owned(), reason });
    }
    match absolute.parent() {
        Some(root) if folder.join("complete.json").is_file() => Ok(Some(Store::open(root)?.load(&name)?)),
        _ => Ok(None),
    }
}

fn from_checkpoint(
    found: Checkpoint<Saved>,
    assumed: &Assumed,
    load: impl FnOnce(DataOptions) -> Result<Dataset>,
) -> Result<Trained> {
    let Saved { config, state } = found.state;
    let mut options = config.data.clone();
    if let Err(moved) = options.check_folder("the run's config.json") {
        options.dataset = assumed.dataset.clone().ok_or(moved)?;
    }
    let data = load(options)?;
    state.data.as_ref().map_or(Ok(()), |fingerprint| fingerprint.check(&data))?;
    let (classes, dataset) = (data.classes.clone(), data.name.clone());
    let (input, augmentation) = measure(&config, &split(&config, data)?.train)?;
    Ok(Trained {
        path: found.path,
        network: config.model,
        classes,
        named: true,
        dataset,
        input,
        options: augmentation.evaluation(),
        tensors: found.tensors,
    })
}
