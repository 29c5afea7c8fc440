//! Trained networks from weights of other programs, which don't say all that is needed.

use crate::image_size::SIDES;
use crate::pixels::{Measured, of_pixels, plain};
use crate::config::unknown_network;
use crate::{Assumed, DataOptions, Error, ImageSize, Input, Preprocessing, RECIPES, Result, Trained, recipe};
use checkpoint::Tensors;
use cifar::{Dataset, Kind, class_names};
use interchange::keras::KerasWeights;
use interchange::pytorch::{Named, TorchWeights};
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

    /// Height, width and channels of the images: what the file says, or what is assumed of one that doesn't.
    fn image(&self, path: &Path, assumed: Option<ImageSize>) -> Result<[usize; 3]> {
        let told = match self {
            Foreign::Keras(weights) => weights.image_size(),
            Foreign::PyTorch(weights) => weights.image_size(),
        };
        let told = told.map(|[height, width]| ImageSize { height, width });
        if let (Some(told), Some(assumed)) = (told, assumed)
            && told != assumed
        {
            let accepted = format!("{told} or left out: the file says so");
            return Err(Error::Option { option: "`data.image_size`", value: assumed.to_string(), accepted });
        }
        let size = told.or(assumed).unwrap_or_default();
        match size.check() {
            Err(_) if told.is_some() => {
                let (least, most) = (SIDES.start(), SIDES.end());
                let reason = format!(
                    "its images are of {size} (height x width), but must have {least} to {most} pixels a side"
                );
                Err(Error::Run { path: path.to_owned(), reason })
            }
            checked => checked.map(|()| size.shape()),
        }
    }

    /// What the file says about its classes.
    fn named(&self) -> Result<Option<Named>> {
        match self {
            Foreign::Keras(_) => Ok(None),
            Foreign::PyTorch(weights) => Ok(weights.named()?),
        }
    }

    /// What turns pictures into the network's input, where the file says it: an exported module has it in it.
    fn input(&self, path: &Path, image: [usize; 3]) -> Result<Option<Measured>> {
        let Foreign::PyTorch(weights) = self else { return Ok(None) };
        let Some(pixels) = weights.pixels() else { return Ok(None) };
        let reason = || {
            "its pixel_scale must be one positive number a channel, and its pixel_shift one number a channel or a value of an \
             image, all of them finite; or name what happens to pixels by --preprocessing"
                .to_owned()
        };
        let measured = of_pixels(&pixels, image);
        measured.map(Some).ok_or_else(|| Error::Run { path: path.to_owned(), reason: reason() })
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
        let image = self.image(path, assumed.image_size)?;
        let (network, tensors) = self.fitting(path, image, classes, assumed.network.as_deref())?;
        let preprocessing =
            assumed.preprocessing.or_else(|| of_recipe(&network)).unwrap_or(Preprocessing::DivideBy255);
        let input = match assumed.preprocessing {
            Some(Preprocessing::DivideBy255) => Some(plain(Input::DivideBy255)),
            Some(_) => None,
            None => self
                .input(path, image)?
                .or((preprocessing == Preprocessing::DivideBy255).then(|| plain(Input::DivideBy255))),
        };
        let own = self.named()?;
        let of_own = own.as_ref().and_then(|named| named.dataset.clone());
        let dataset = match (assumed.dataset.clone().or_else(|| of_own.clone()), classes) {
            (Some(dataset), _) => dataset,
            (None, 100) => "cifar100".to_owned(),
            (None, _) => "cifar10".to_owned(),
        };
        let known = match dataset.as_str() {
            "auto" | "cifar10" => Some(class_names(Kind::Cifar10)),
            "cifar100" => Some(class_names(Kind::Cifar100)),
            _ => None,
        };
        let known = known.map(|names| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        let (named, own) = (own.is_some() || assumed.dataset.is_some(), own.map(|named| named.classes));
        let names = own.clone().or(known);
        let ((input, options), names) = match (input, names) {
            // Nothing has to be measured.
            (Some(measured), Some(names)) => (measured, names),
            (measured, _) => {
                let image_size = ImageSize::of(image);
                let data =
                    load(DataOptions { dataset: dataset.clone(), image_size, ..DataOptions::default() })?;
                let fitted = || Ok(plain(Input::fit(preprocessing, &data.train)?));
                let measured = measured.map_or_else(fitted, Ok::<_, Error>)?;
                (measured, own.filter(|own| own.len() == data.classes.len()).unwrap_or(data.classes))
            }
        };
        if names.len() != classes {
            return Err(Error::Option {
                option: "`data.dataset`",
                value: format!("{dataset} with {} classes", names.len()),
                accepted: format!("the data with the {classes} classes of {}", path.display()),
            });
        }
        let (path, dataset) = (path.to_owned(), of_own.unwrap_or(dataset));
        Ok(Trained {
            path,
            network,
            classes: names,
            named,
            dataset,
            image,
            input,
            options,
            own: None,
            tensors,
        })
    }

    /// The network called `wanted` with these weights, or the one that they fit.
    fn fitting(
        &self,
        path: &Path,
        image: [usize; 3],
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
            let Some(model) = models::by_name_for(name, image, classes) else { return Ok(None) };
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
                "its weights fit none of {names} for images of {}; name the one that is meant by --network, to be told why, or \
                 their size by --image-size",
                ImageSize::of(image)
            );
            Error::Run { path: path.to_owned(), reason }
        })
    }
}

/// The preprocessing of the first recipe with this network.
fn of_recipe(network: &str) -> Option<Preprocessing> {
    let configs = RECIPES.into_iter().filter_map(|(name, _)| recipe(name).ok());
    configs.into_iter().find(|config| config.training.model == network).map(|config| config.training.preprocessing)
}
