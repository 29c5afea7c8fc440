use crate::input::IMAGE;
use crate::resume::values;
use crate::standardization;
use crate::worker::Prepared;
use crate::{Error, Input, Result};
use augment::ImageDataGenerator;
use checkpoint::{Tensors, load_tensors};
use models::Model;
use std::path::{Path, PathBuf};

/// The file of a run directory that holds the trained network.
pub const MODEL_FILE: &str = "model.safetensors";

/// The tensor of a model file with the mean that is subtracted from every picture.
const MEAN: &str = "input/mean";

/// The tensor with what every value is divided by afterwards.
const STD: &str = "input/std";

/// The key of the metadata that says that the names of the classes are assumed.
const ASSUMED: &str = "towers.classes_assumed";

/// The most classes that a model may have.
const MOST_CLASSES: usize = 65_536;

/// A trained network as files hold it: an architecture's name, its parameters, and what inference needs beside them.
#[derive(Clone, Debug)]
pub struct Trained {
    /// Where it came from.
    pub path: PathBuf,
    /// The network, one of [`models::NAMES`].
    pub network: String,
    /// The class names, by label.
    pub classes: Vec<String>,
    /// Whether these names are known, or assumed by the number of classes.
    pub named: bool,
    /// The name of the data set it was trained on.
    pub dataset: String,
    /// What turns a picture into the network's input.
    pub(crate) input: Input,
    /// The steps of `input`, and what the augmentation standardizes beyond them.
    pub(crate) options: ImageDataGenerator,
    /// The parameters under the names of their slots, and maybe others.
    pub(crate) tensors: Tensors,
}

impl Trained {
    /// Reads a model file, or the one in a run directory.
    ///
    /// # Errors
    /// [`Error::Run`] if there is no model, or the file is not one of ours or damaged.
    pub fn read(path: &Path) -> Result<Self> {
        let file = if path.is_dir() { path.join(MODEL_FILE) } else { path.to_owned() };
        let refuse = |reason: &str| Error::Run { path: file.clone(), reason: reason.to_owned() };
        if !file.is_file() {
            return Err(refuse("there is no model here; name a run's folder or its model.safetensors"));
        }
        let tensors = load_tensors(&file)?;
        let metadata = tensors.metadata();
        if metadata.get("format").is_some_and(|format| format == "pt")
            && !metadata.contains_key("towers.model")
        {
            return Err(refuse("its tensors lie as in PyTorch, which `open_model` reads"));
        }
        let about = |key: &str| {
            let missing = || refuse("this is no model of `towers train`: its metadata are missing");
            tensors.metadata().get(key).cloned().ok_or_else(missing)
        };
        let classes: Vec<String> = serde_json::from_str(&about("towers.classes")?)
            .map_err(|_| refuse("the class names in its metadata can't be read"))?;
        let input = match about("towers.preprocessing")?.as_str() {
            "divide-by-255" => Input::DivideBy255,
            "subtract-pixel-mean" => {
                Input::SubtractPixelMean(values(&tensors, &file, MEAN, IMAGE.iter().product())?.to_vec())
            }
            "standardize" => Input::Standardize {
                mean: values(&tensors, &file, MEAN, cifar::CHANNELS)?.to_vec(),
                std: values(&tensors, &file, STD, 1)?[0],
            },
            _ => return Err(refuse("its preprocessing is unknown to this version")),
        };
        let options = input.options(standardization::read(&tensors, &file)?);
        let (network, dataset) = (about("towers.model")?, about("towers.dataset")?);
        let named = !tensors.metadata().contains_key(ASSUMED);
        Ok(Trained { path: file, network, classes, named, dataset, input, options, tensors })
    }

    /// The architecture.
    ///
    /// A network of one's own, of [`train_model`](crate::train_model), has none here: its weights are `checkpoint::load_tensors` of its file.
    ///
    /// # Errors
    /// [`Error::Run`] for a network or a number of classes that there can't be.
    pub fn model(&self) -> Result<Model> {
        let refuse = |reason: &str| Error::Run { path: self.path.clone(), reason: reason.to_owned() };
        if self.classes.is_empty() || self.classes.len() > MOST_CLASSES {
            return Err(refuse("it must have between 1 and 65536 classes"));
        }
        let unknown = || {
            let (network, names) = (&self.network, models::NAMES.join(", "));
            refuse(&format!("its network `{network}` is not one of the built-in ones ({names})"))
        };
        Ok(models::by_name(&self.network, self.classes.len()).ok_or_else(unknown)??)
    }

    /// The content of a model file: the parameters in the order of the layers, and all that is known about the network.
    ///
    /// # Errors
    /// [`Error::Run`] if a parameter is missing.
    pub fn to_tensors(&self) -> Result<Tensors> {
        let mut tensors = Tensors::new();
        for step in self.model()?.steps() {
            for spec in step.params {
                let name = format!("{}/{}", step.name, spec.name);
                let len = spec.shape.iter().product();
                let data = values(&self.tensors, &self.path, &name, len)?.to_vec();
                tensors.insert(name, spec.shape, data)?;
            }
        }
        self.describe(&mut tensors)?;
        Ok(tensors)
    }

    /// Adds what inference needs beside the parameters.
    pub(crate) fn describe(&self, tensors: &mut Tensors) -> Result<()> {
        let Trained { network, classes, dataset, input, options, .. } = self;
        if !self.named {
            tensors.metadata_mut().insert(ASSUMED.to_owned(), "true".to_owned());
        }
        About { network, classes, dataset, input, options }.add_to(tensors)
    }
}

/// What inference needs beside the parameters.
struct About<'a> {
    network: &'a str,
    classes: &'a [String],
    dataset: &'a str,
    input: &'a Input,
    options: &'a ImageDataGenerator,
}

impl About<'_> {
    fn add_to(&self, tensors: &mut Tensors) -> Result<()> {
        let preprocessing = match self.input {
            Input::DivideBy255 => "divide-by-255",
            Input::SubtractPixelMean(mean) => {
                tensors.insert(MEAN, IMAGE, mean.clone())?;
                "subtract-pixel-mean"
            }
            Input::Standardize { mean, std } => {
                tensors.insert(MEAN, [mean.len()], mean.clone())?;
                tensors.insert(STD, [1], vec![*std])?;
                "standardize"
            }
        };
        let classes = serde_json::Value::from(self.classes.to_vec()).to_string();
        let metadata = tensors.metadata_mut();
        for (key, value) in [
            ("towers.model", self.network),
            ("towers.classes", &classes),
            ("towers.dataset", self.dataset),
            ("towers.preprocessing", preprocessing),
        ] {
            metadata.insert(key.to_owned(), value.to_owned());
        }
        standardization::write(self.input, self.options, tensors)
    }
}

/// Adds what inference needs beside the parameters: the architecture's name, the classes, the preprocessing.
pub(crate) fn describe(tensors: &mut Tensors, model: &str, prepared: &Prepared) -> Result<()> {
    let Prepared { classes, dataset, input, augmentation, .. } = prepared;
    About { network: model, classes, dataset, input, options: augmentation }.add_to(tensors)
}
