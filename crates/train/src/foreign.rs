//! Trained networks from weights of other programs, which don't say all that is needed.

use crate::spelling::unknown_network;
use crate::{Assumed, DataOptions, Error, Input, Preprocessing, RECIPES, Result, Trained, recipe};
use augment::ImageDataGenerator;
use checkpoint::Tensors;
use cifar::{Dataset, Kind, class_names};
use interchange::keras::KerasWeights;
use interchange::pytorch::TorchWeights;
use layers::Step;
use std::path::Path;

/// Weights of another program.
pub(crate) enum Foreign {
    Keras(KerasWeights),
    PyTorch(TorchWeights),
}

impl Foreign {
    fn classes(&self) -> Option<usize> {
        match self {
            Foreign::Keras(weights) => weights.classes(),
            Foreign::PyTorch(weights) => weights.classes(),
        }
    }

    fn assign(&self, steps: &[Step]) -> Result<Tensors> {
        Ok(match self {
            Foreign::Keras(weights) => weights.assign(steps)?,
            Foreign::PyTorch(weights) => weights.assign(steps)?,
        })
    }

    /// What turns pictures into the network's input, where the file says it: an exported module has it in it.
    fn input(&self, path: &Path) -> Result<Option<Input>> {
        let Foreign::PyTorch(weights) = self else { return Ok(None) };
        let Some(pixels) = weights.pixels() else { return Ok(None) };
        let reason = || {
            "its pixel_scale and pixel_shift are none of the preprocessings here; name one by --preprocessing"
                .to_owned()
        };
        let input = Input::of_pixels(&pixels);
        input.map(Some).ok_or_else(|| Error::Run { path: path.to_owned(), reason: reason() })
    }

    /// The network at `path`, which these weights are of; `load` gets the data for what has to be measured.
    pub(crate) fn open(
        self,
        path: &Path,
        assumed: &Assumed,
        load: impl FnOnce(DataOptions) -> Result<Dataset>,
    ) -> Result<Trained> {
        let reason = || "it has no dense layer at its end, which would tell the number of classes".to_owned();
        let classes = self.classes().ok_or_else(|| Error::Run { path: path.to_owned(), reason: reason() })?;
        let (network, tensors) = self.fitting(path, classes, assumed.network.as_deref())?;
        let preprocessing =
            assumed.preprocessing.or_else(|| of_recipe(&network)).unwrap_or(Preprocessing::DivideBy255);
        let input = match assumed.preprocessing {
            Some(Preprocessing::DivideBy255) => Some(Input::DivideBy255),
            Some(_) => None,
            None => self
                .input(path)?
                .or((preprocessing == Preprocessing::DivideBy255).then_some(Input::DivideBy255)),
        };
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
        let (input, names) = match (input, names) {
            // Nothing has to be measured.
            (Some(input), Some(names)) => (input, names),
            (input, _) => {
                let data = load(DataOptions { dataset: dataset.clone(), ..DataOptions::default() })?;
                let input = input.map_or_else(|| Input::fit(preprocessing, &data.train), Ok)?;
                (input, data.classes)
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
        let (path, named) = (path.to_owned(), assumed.dataset.is_some());
        Ok(Trained { path, network, classes: names, named, dataset, input, options, tensors })
    }

    /// The network called `wanted` with these weights, or the one that they fit.
    fn fitting(&self, path: &Path, classes: usize, wanted: Option<&str>) -> Result<(String, Tensors)> {
        // Memory for a network is taken before its weights are compared.
        if classes == 0 || classes > 65_536 {
            let reason = format!(
                "its last dense layer has {classes} outputs, but there must be between 1 and 65536 classes"
            );
            return Err(Error::Run { path: path.to_owned(), reason });
        }
        let of = |name: &str| -> Result<Option<Tensors>> {
            let Some(model) = models::by_name(name, classes) else { return Ok(None) };
            Ok(Some(self.assign(&model?.steps())?))
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
}

/// The preprocessing of the first recipe with this network.
fn of_recipe(network: &str) -> Option<Preprocessing> {
    let configs = RECIPES.into_iter().filter_map(|(name, _)| recipe(name).ok());
    configs.into_iter().find(|config| config.model == network).map(|config| config.preprocessing)
}
