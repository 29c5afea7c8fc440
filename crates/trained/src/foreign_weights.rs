//! Trained networks from weights of other programs, which don't say all that is needed.

use crate::image_size::SIDES;
use crate::model_file::single;
use crate::pixels::{Measured, of_pixels, plain};
use crate::{ColorMode, Error, ImageSize, Input, Preprocessing, Resizing, Result, Trained};
use std::path::{Path, PathBuf};
use towers_checkpoint::Tensors;
use towers_cifar::{Kind, class_names};
use towers_dataset::{CHANNELS, Dataset};
use towers_interchange::pytorch::{Named, TorchWeights};
use towers_interchange::{Imported, WeightsFile};
use towers_layers::Step;
use towers_models::Architecture;
use towers_options::{Message, message};

/// The classes of ImageNet.
const IMAGENET: usize = 1000;

/// Assumptions about a file that holds weights alone. A file of towers needs none but its data.
#[derive(Clone, Debug, Default)]
pub struct Assumed {
    /// The file of Keras with the weights, for a model that is the text of `model.to_json`.
    pub weights: Option<PathBuf>,
    /// The network, one of [`towers_models::NAMES`]; by default the one that the weights fit.
    pub network: Option<String>,
    /// Height and width of its images; by default those in the file or, for weights alone, 32x32.
    pub image_size: Option<ImageSize>,
    /// The channels of its images; by default those in the file or, for weights alone, red, green and blue.
    pub color_mode: Option<ColorMode>,
    /// What happens to pixels first; by default as in the network's recipe.
    pub preprocessing: Option<Preprocessing>,
    /// The data set that it was trained on; by default CIFAR-10 or CIFAR-100, by the number of classes, or MNIST for images of one channel.
    pub dataset: Option<String>,
}

impl Assumed {
    /// Refuses weights in another file than the model at `path`.
    ///
    /// # Errors
    /// [`Error::Option`] if there are any.
    pub fn refuse_weights(&self, path: &Path) -> Result<()> {
        let Some(weights) = &self.weights else { return Ok(()) };
        let accepted = format!(
            "left out with {}: only a model.json of Keras has its weights in another file",
            path.display()
        );
        Err(Error::option("weights", weights.display(), accepted))
    }

    /// Refuses an assumption that the file at `path` answers by itself.
    ///
    /// # Errors
    /// [`Error::Option`] for a network, a preprocessing or an image size.
    pub fn refuse_beside(&self, path: &Path) -> Result<()> {
        let (option, value) = match (&self.network, self.preprocessing) {
            (Some(network), _) => ("network", format!("`{network}`")),
            (None, Some(preprocessing)) => ("preprocessing", serde_json::json!(preprocessing).to_string()),
            (None, None) => match self.image_size {
                Some(size) => ("data.image_size", size.to_string()),
                None => return Ok(()),
            },
        };
        let accepted = format!("left out with {}: what towers trained says it by itself", path.display());
        Err(Error::option(option, value.replace('"', "`"), accepted))
    }
}

/// Weights of another program, read from a file.
///
/// ```no_run
/// use std::path::Path;
/// use towers_trained::{Assumed, Error, ForeignWeights, Preprocessing};
///
/// let path = Path::new("small_cnn.keras");
/// let weights = ForeignWeights::keras(path, None)?;
/// let usual = |_: &str| Some(Preprocessing::DivideBy255);
/// let trained =
///     weights.open(path, &Assumed::default(), usual, |_, _| -> Result<_, Error> { panic!("no data are needed") })?;
/// println!("{}", trained.network);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct ForeignWeights(Box<dyn WeightsFile>);

impl ForeignWeights {
    /// Weights of a file that was read.
    pub fn new(file: impl WeightsFile + 'static) -> Self {
        ForeignWeights(Box::new(file))
    }

    /// Reads weights of Keras. `layers` is the text of `model.to_json`, for a file of weights alone.
    ///
    /// # Errors
    /// [`Error::Interchange`] for a file that can't be read; [`Error::Run`] without the feature `keras`.
    pub fn keras(path: &Path, layers: Option<&Path>) -> Result<Self> {
        #[cfg(feature = "keras")]
        return Ok(match layers {
            Some(layers) => Self::new(towers_interchange::keras::KerasWeights::read_for(layers, path)?),
            None => Self::new(towers_interchange::keras::KerasWeights::read(path)?),
        });
        #[cfg(not(feature = "keras"))]
        return Err(without("keras", layers.unwrap_or(path)));
    }

    /// Reads a state dict of PyTorch.
    ///
    /// # Errors
    /// [`Error::Interchange`] for a file that can't be read.
    pub fn pytorch(path: &Path) -> Result<Self> {
        Ok(Self::new(TorchWeights::read(path)?))
    }

    /// Reads an ONNX graph.
    ///
    /// # Errors
    /// [`Error::Interchange`] for a file that can't be read; [`Error::Run`] without the feature `onnx`.
    pub fn onnx(path: &Path) -> Result<Self> {
        #[cfg(feature = "onnx")]
        return Ok(Self::new(towers_interchange::onnx::OnnxNetwork::read(path)?));
        #[cfg(not(feature = "onnx"))]
        return Err(without("onnx", path));
    }

    /// The number of outputs: at most so many that a network of them is built before its weights are
    /// compared.
    pub(crate) fn checked_outputs(&self, path: &Path) -> Result<usize> {
        let refuse = |reason: String| Error::run(path, reason);
        let reason = "it has no dense layer at its end, which would tell the number of classes";
        match self.0.classes() {
            None => Err(refuse(reason.to_owned())),
            Some(classes) if classes == 0 || classes > 65_536 => Err(refuse(format!(
                "its last dense layer has {classes} outputs, but there must be between 1 and 65536 classes"
            ))),
            Some(classes) => Ok(classes),
        }
    }

    /// The number of classes, of which there must be two at least.
    fn checked_classes(&self, path: &Path) -> Result<usize> {
        several(path, self.checked_outputs(path)?)
    }

    pub(crate) fn assign(&self, steps: &[Step]) -> Result<Tensors> {
        Ok(self.0.assign(steps)?)
    }

    /// What people should know about the file, a sentence each.
    pub(crate) fn told(&self) -> Vec<String> {
        self.0.told()
    }

    /// Height and width of the images, where the file has them.
    pub(crate) fn image_size(&self) -> Option<ImageSize> {
        self.0.image_size().map(|[height, width]| ImageSize { height, width })
    }

    /// Height, width and channels of the images: those in the file, or else those of the data.
    pub(crate) fn image_like(&self, path: &Path, data: [usize; 3]) -> Result<[usize; 3]> {
        let channels = self.0.channels().unwrap_or(data[2]);
        self.image(path, self.image_size().or(Some(ImageSize::of(data))), ColorMode::of(channels))
    }

    /// Height, width and channels of the images: those in the file, or else the assumed ones. Weights alone are those of a network
    /// here, whose images are 32x32 in three colours.
    pub(crate) fn image(
        &self,
        path: &Path,
        assumed: Option<ImageSize>,
        color_mode: Option<ColorMode>,
    ) -> Result<[usize; 3]> {
        let channels = match (self.0.channels(), color_mode) {
            (Some(told), Some(mode)) => {
                ColorMode::check(mode.channels(), &format!("the network in {}", path.display()), told)?;
                told
            }
            (told, mode) => told.or(mode.map(ColorMode::channels)).unwrap_or(CHANNELS),
        };
        let told = self.image_size();
        if let (Some(told), Some(assumed)) = (told, assumed)
            && told != assumed
        {
            let accepted = format!("{told} or left out: the file says so");
            return Err(Error::option("data.image_size", assumed, accepted));
        }
        if told.is_none() && assumed.is_none() && self.described().is_some() {
            let reason =
                message!("its network takes images of any size; name the size by ", ["data.image_size"]);
            return Err(Error::run(path, reason));
        }
        let size = told.or(assumed).unwrap_or_default();
        match size.check() {
            Err(_) if told.is_some() => {
                let (least, most) = (SIDES.start(), SIDES.end());
                let reason = format!(
                    "its images are of {size} (height x width), but must have {least} to {most} pixels a side"
                );
                Err(Error::run(path, reason))
            }
            checked => checked.map(|()| size.shape(channels)),
        }
    }

    /// What the file says about its classes.
    pub(crate) fn named(&self, classes: usize) -> Result<Option<Named>> {
        Ok(self.0.named(classes)?)
    }

    /// What turns pictures into the network's input, where the file says it: an exported module has it in it.
    pub(crate) fn input(&self, path: &Path, image: [usize; 3]) -> Result<Option<Measured>> {
        let Some(pixels) = self.0.pixels() else { return Ok(None) };
        let reason = || {
            message!(
                "its pixel_scale must be one positive number a channel, and its pixel_shift one number a channel or a value of \
                 an image, all of them finite; or name what happens to pixels by ",
                ["preprocessing"]
            )
        };
        let measured = of_pixels(&pixels, image);
        measured.map(Some).ok_or_else(|| Error::run(path, reason()))
    }

    /// The network of these weights, which were read from `path`. `usual` is the preprocessing in training
    /// the named network. `load` loads the named data set with images of this height, width and channels, if something has to be
    /// measured on it.
    ///
    /// # Errors
    /// [`Error::Interchange`] if the weights don't fit the network; [`Error::Option`] for what can't be
    /// assumed of them; [`Error::Run`] for a file that is no network; and the errors of `load`.
    pub fn open<E: From<Error>>(
        self,
        path: &Path,
        assumed: &Assumed,
        usual: impl Fn(&str) -> Option<Preprocessing>,
        load: impl FnOnce(String, [usize; 3]) -> Result<Dataset, E>,
    ) -> Result<Trained, E> {
        let image = self.image(path, assumed.image_size, assumed.color_mode)?;
        let Fit { network, architecture, classes, like, tensors } = match self.described() {
            Some(described) => self.fit_described(described, path, image, assumed)?,
            None => self.fit(path, image, assumed)?,
        };
        let by_itself = Preprocessing::of(&architecture);
        let in_training = like.and_then(|like| Some((usual(&like)?, format!("as {like} is trained"))));
        let default =
            || (Preprocessing::DivideBy255, "the file does not say what happens to pixels first".to_owned());
        let (usual, why) = by_itself.or_else(|| self.family(classes)).or(in_training).unwrap_or_else(default);
        let preprocessing = assumed.preprocessing.unwrap_or(usual);
        preprocessing.check(image)?;
        let constant = Input::constant(preprocessing, image).map(plain);
        let own = if assumed.preprocessing.is_none() { self.input(path, image)? } else { None };
        let is_assumed = assumed.preprocessing.is_none() && own.is_none();
        let note = is_assumed.then(|| format!("preprocessing is assumed to be {}: {why}", usual.name()));
        let input = own.or(constant);
        let own = self.named(classes)?;
        let of_own = own.as_ref().and_then(|named| named.dataset.clone());
        let dataset = match (assumed.dataset.clone().or_else(|| of_own.clone()), classes) {
            (Some(dataset), _) => dataset,
            (None, 100) => "cifar100".to_owned(),
            (None, _) if image[2] == 1 => "mnist".to_owned(),
            (None, _) => "cifar10".to_owned(),
        };
        let kind = if dataset == "auto" { Some(Kind::Cifar10) } else { Kind::named(&dataset) };
        let known = kind.map(class_names);
        let known = known.map(|names| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        // Nothing says the names of the classes: their numbers stand for them.
        let unnamed = assumed.dataset.is_none() && own.is_none();
        let numbers = || (0..classes).map(|class| class.to_string()).collect();
        let known = known.map(|names| if unnamed && names.len() != classes { numbers() } else { names });
        let (named, own) = (own.is_some() || assumed.dataset.is_some(), own.map(|named| named.classes));
        let names = own.clone().or(known);
        let ((input, options), names) = match (input, names) {
            // Nothing has to be measured.
            (Some(measured), Some(names)) => (measured, names),
            (measured, _) => {
                let data = load(dataset.clone(), image)?;
                let fitted = || Ok(plain(Input::fit(preprocessing, &data.train)?));
                let measured = measured.map_or_else(fitted, Ok::<_, Error>)?;
                (measured, own.filter(|own| own.len() == data.classes.len()).unwrap_or(data.classes))
            }
        };
        if names.len() != classes {
            let value = format!("{dataset} with {} classes", names.len());
            let accepted = format!("the data with the {classes} classes of {}", path.display());
            return Err(Error::option("data.dataset", value, accepted).into());
        }
        let (path, dataset) = (path.to_owned(), of_own.unwrap_or(dataset));
        let multi_label = self.0.is_multi_label();
        Ok(Trained {
            path,
            network,
            architecture,
            classes: names,
            named,
            multi_label,
            dataset,
            image,
            input,
            options,
            resize: Resizing::default(),
            told: self.told(),
            assumed: note,
            own: None,
            tensors,
        })
    }

    /// The network of these weights, which were read from `path`: the one that the file describes, or the built-in one
    /// that they fit. `data` is the shape of the images, for what the file does not say.
    ///
    /// # Errors
    /// [`Error::Run`] if they fit no built-in network.
    pub fn network(&self, path: &Path, data: [usize; 3]) -> Result<Imported> {
        if let Some(described) = self.described() {
            return Ok(described.clone());
        }
        let image = self.image_like(path, data)?;
        let Fit { network, architecture, classes, .. } = self.fit(path, image, &Assumed::default())?;
        let [height, width, channels] = image;
        let (image, channels) = (Some([height, width]), Some(channels));
        let mut imported = Imported::new(network, architecture);
        (imported.classes, imported.image, imported.channels) = (Some(classes), image, channels);
        Ok(imported)
    }

    /// The preprocessing that networks of this name or origin have, and why, as a sentence.
    pub(crate) fn family(&self, classes: usize) -> Option<(Preprocessing, String)> {
        let network = self.described()?;
        let names = || std::iter::once(&network.name).chain(&network.parts).map(String::as_str);
        let of_torch = || {
            let is_of_imagenet = classes == IMAGENET && self.0.is_of_pytorch();
            let why = || {
                "as torchvision and timm prepare pixels for networks of ImageNet's 1000 classes".to_owned()
            };
            is_of_imagenet.then(|| (Preprocessing::Torch, why()))
        };
        Preprocessing::of_family(names()).or_else(of_torch)
    }

    /// The network that the file describes, besides its weights.
    pub(crate) fn described(&self) -> Option<&Imported> {
        self.0.network()
    }

    /// The described network with its weights.
    fn fit_described(
        &self,
        described: &Imported,
        path: &Path,
        image: [usize; 3],
        assumed: &Assumed,
    ) -> Result<Fit> {
        if let Some(network) = &assumed.network {
            let accepted = format!("left out with {}: it has the layers of its network", path.display());
            return Err(Error::option("network", format!("`{network}`"), accepted));
        }
        let refuse = |error: towers_layers::Error| Error::run(path, error.to_string());
        let Imported { name, architecture, classes, .. } = described.clone();
        several(path, classes.unwrap_or(2))?;
        let sigmoid = architecture.ends_in_sigmoid();
        let model = architecture
            .build(&name, image, classes.unwrap_or(if sigmoid { 2 } else { 1 }))
            .map_err(refuse)?;
        let outputs = model.graph().shape(model.logits()).per_sample();
        let classes = if sigmoid { model.classes() } else { several(path, outputs)? };
        let tensors = self.assign(&model.steps())?;
        let like =
            towers_models::NAMES.into_iter().find(|name| self.fits(name, image, classes)).map(str::to_owned);
        Ok(Fit { network: name, architecture, classes, like, tensors })
    }

    /// The built-in network with these weights: the assumed one, or the one that they fit.
    fn fit(&self, path: &Path, image: [usize; 3], assumed: &Assumed) -> Result<Fit> {
        let refuse = |reason: Message| Error::run(path, reason);
        let classes = self.checked_classes(path)?;
        let fit = |name: &str| -> Result<Option<Fit>> {
            let Some(model) = towers_models::by_name_for(name, image, classes) else { return Ok(None) };
            let (network, architecture) = (name.to_owned(), Architecture::default());
            let tensors = self.assign(&model?.steps())?;
            Ok(Some(Fit { like: Some(network.clone()), network, architecture, classes, tensors }))
        };
        if let Some(wanted) = &assumed.network {
            let built_in = towers_models::built_in(wanted).unwrap_or(wanted);
            return fit(built_in)?.ok_or_else(|| Error::unknown_network("network", wanted, ""));
        }
        // One that fits by its shapes may lack an order of its layers, which is told.
        let tried = towers_models::NAMES.into_iter().find_map(|name| match fit(name) {
            Ok(fit) => fit.map(Ok),
            Err(error) => self.fits(name, image, classes).then_some(Err(error)),
        });
        tried.unwrap_or_else(|| Err(refuse(self.unfit(image))))
    }

    /// Whether the weights have the kinds and shapes of those of a built-in network.
    fn fits(&self, network: &str, image: [usize; 3], classes: usize) -> bool {
        let model = towers_models::by_name_for(network, image, classes);
        model.is_some_and(|model| model.is_ok_and(|model| self.0.fits(&model.steps())))
    }

    /// That no built-in network has these weights, and what to do.
    fn unfit(&self, image: [usize; 3]) -> Message {
        let (names, size) = (towers_models::NAMES.join(", "), ImageSize::of(image));
        let why = match self.0.way_in() {
            Some(way_in) => format!("if they are not of towers export, {way_in}").into(),
            None => message!(
                "name the one that is meant by ",
                ["network"],
                ", or the file with its layers by ",
                ["model"],
                " of a training, to be told why; or the size of its images by ",
                ["data.image_size"]
            ),
        };
        Message::from(format!("its weights fit none of {names} for images of {size}; ")).and(why)
    }
}

/// That a file needs a feature of this crate, which has the name of the other program or format.
#[cfg(not(all(feature = "keras", feature = "onnx")))]
pub(crate) fn without(feature: &str, path: &Path) -> Error {
    let reason = format!("this kind of file needs the feature `{feature}` of the crate `trained`");
    Error::run(path, reason)
}

/// A number of classes, unless it is one.
fn several(path: &Path, classes: usize) -> Result<usize> {
    match classes {
        1 => Err(Error::run(path, single())),
        classes => Ok(classes),
    }
}

/// A network with weights of a file.
struct Fit {
    network: String,
    /// The layers of a network that is not built in.
    architecture: Architecture,
    classes: usize,
    /// The built-in network whose preprocessing is likely.
    like: Option<String>,
    tensors: Tensors,
}
