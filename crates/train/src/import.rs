//! Trained networks from wherever they are: runs, checkpoints, files of Keras.

use crate::data::split;
use crate::fit::measure;
use crate::spelling::unknown_network;
use crate::{CHECKPOINTS, DataOptions, Error, Input, Preprocessing, RECIPES, Result, Saved, Trained, recipe};
use augment::ImageDataGenerator;
use checkpoint::{Checkpoint, Store, Tensors};
use cifar::{Dataset, Kind, class_names};
use interchange::keras::KerasWeights;
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
    /// The data set that it was trained on; by default CIFAR-10 or CIFAR-100, by the number of classes.
    pub dataset: Option<String>,
}

/// Reads the trained network at `path`: a run's folder or model file, a checkpoint (its folder, or the folder of all for the
/// newest), or weights of Keras (`.keras`, `.weights.h5`, `.h5`).
///
/// `load` gets the data for what neither a checkpoint nor Keras' files hold, such as the mean of the training images.
///
/// # Errors
/// [`Error::Run`] if there is no model at `path`; [`Error::Interchange`] if weights of Keras don't fit the network;
/// [`Error::Option`] for an unknown network, or data with another number of classes.
pub fn open_model(
    path: &Path,
    assumed: &Assumed,
    load: impl FnOnce(DataOptions) -> Result<Dataset>,
) -> Result<Trained> {
    if path.is_dir() {
        return match checkpoint(path)? {
            Some(found) => from_checkpoint(found, load),
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
        Ok(start) if start == *b"\x89HDF" || start == *b"PK\x03\x04" => from_keras(path, assumed, load),
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
    load: impl FnOnce(DataOptions) -> Result<Dataset>,
) -> Result<Trained> {
    let Saved { config, .. } = found.state;
    let data = load(config.data.clone())?;
    let (classes, dataset) = (data.classes.clone(), data.name.clone());
    let (input, augmentation) = measure(&config, &split(&config, data)?.train)?;
    Ok(Trained {
        path: found.path,
        network: config.model,
        classes,
        dataset,
        input,
        options: augmentation.evaluation(),
        tensors: found.tensors,
    })
}

fn from_keras(
    path: &Path,
    assumed: &Assumed,
    load: impl FnOnce(DataOptions) -> Result<Dataset>,
) -> Result<Trained> {
    let weights = KerasWeights::read(path)?;
    let reason = || "it has no dense layer at its end, which would tell the number of classes".to_owned();
    let classes = weights.classes().ok_or_else(|| Error::Run { path: path.to_owned(), reason: reason() })?;
    let (network, tensors) = fitting(path, &weights, classes, assumed.network.as_deref())?;
    let preprocessing =
        assumed.preprocessing.or_else(|| of_recipe(&network)).unwrap_or(Preprocessing::DivideBy255);
    let dataset = match (&assumed.dataset, classes) {
        (Some(dataset), _) => dataset.clone(),
        (None, 100) => "cifar100".to_owned(),
        (None, _) => "cifar10".to_owned(),
    };
    let known = match dataset.as_str() {
        "auto" | "cifar10" => Some(class_names(Kind::Cifar10)),
        "cifar100" => Some(class_names(Kind::Cifar100)),
        _ => None,
    };
    let names = known.map(|names| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
    let (input, names) = match (preprocessing, names) {
        // Nothing has to be measured.
        (Preprocessing::DivideBy255, Some(names)) => (Input::DivideBy255, names),
        (preprocessing, _) => {
            let data = load(DataOptions { dataset: dataset.clone(), ..DataOptions::default() })?;
            (Input::fit(preprocessing, &data.train)?, data.classes)
        }
    };
    if names.len() != classes {
        return Err(Error::Option {
            option: "--dataset",
            value: format!("{dataset} with {} classes", names.len()),
            accepted: format!("the data with the {classes} classes of {}", path.display()),
        });
    }
    let options = input.options(ImageDataGenerator::new());
    Ok(Trained { path: path.to_owned(), network, classes: names, dataset, input, options, tensors })
}

/// The network called `wanted` with these weights, or the one that they fit.
fn fitting(
    path: &Path,
    weights: &KerasWeights,
    classes: usize,
    wanted: Option<&str>,
) -> Result<(String, Tensors)> {
    // Memory for a network is taken before its weights are compared.
    if classes == 0 || classes > 65_536 {
        let reason = format!(
            "its last dense layer has {classes} outputs, but there must be between 1 and 65536 classes"
        );
        return Err(Error::Run { path: path.to_owned(), reason });
    }
    let of = |name: &str| -> Result<Option<Tensors>> {
        let Some(model) = models::by_name(name, classes) else { return Ok(None) };
        Ok(Some(weights.assign(&model?.steps())?))
    };
    if let Some(wanted) = wanted {
        let tensors = of(wanted)?.ok_or_else(|| unknown_network("--network", wanted))?;
        return Ok((wanted.to_owned(), tensors));
    }
    let fit = models::NAMES.into_iter().find_map(|name| Some((name.to_owned(), of(name).ok()??)));
    fit.ok_or_else(|| {
        let names = models::NAMES.join(", ");
        let reason = format!(
            "its weights fit none of {names}; name the one that is meant by --network, to be told why"
        );
        Error::Run { path: path.to_owned(), reason }
    })
}

/// The preprocessing of the first recipe with this network.
fn of_recipe(network: &str) -> Option<Preprocessing> {
    let configs = RECIPES.into_iter().filter_map(|(name, _)| recipe(name).ok());
    configs.into_iter().find(|config| config.model == network).map(|config| config.preprocessing)
}
