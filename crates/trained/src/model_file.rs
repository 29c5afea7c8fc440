use crate::standardization;
use crate::tensors::{finite_values, is_training_state, parameter};
use crate::{ClassNames, ColorMode, Error, ImageSize, Input, Preprocessing, Resizing, Result, Task};
use std::borrow::Cow;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use towers_augment::ImageDataGenerator;
use towers_checkpoint::{Tensors, load_tensors};
use towers_interchange::{Imported, pytorch};
use towers_models::{Architecture, LayerSpec, Model};
use towers_options::{Message, message};

/// The tensor of a model file with the mean that is subtracted from every picture.
const MEAN: &str = "input/mean";

/// The tensor with the divisor of every value afterwards.
const STD: &str = "input/std";

/// The key of the metadata that says that the names of the classes are assumed.
const ASSUMED: &str = "towers.classes_assumed";

/// The key of the metadata with the height and width of the images; files without it are of 32x32.
const IMAGE_SIZE: &str = "towers.image_size";
/// The entry with the number of channels, where it is not 3.
const CHANNELS: &str = "towers.channels";

/// The key of the metadata with the layers of a network that is not built in, as JSON.
const ARCHITECTURE: &str = "towers.architecture";

/// The key of the metadata that says that an image has any number of classes.
const MULTI_LABEL: &str = "towers.multi_label";

/// The longest such JSON that is read, in bytes.
const LONGEST_ARCHITECTURE: usize = 4 << 20;

/// What a model may be.
/// The name of the model file in a run's folder.
pub const MODEL_FILE: &str = "model.safetensors";

const NO_MODEL: &str = "this is no model; name a run's folder, its model.safetensors, a checkpoint's folder, or weights of Keras \
                        (.keras, .h5) or PyTorch (.safetensors)";

/// Why a network of a single output without a sigmoid is refused: nothing says that it tells two classes apart.
pub(crate) fn single() -> Message {
    message!(
        "it has a single output without a sigmoid, which tells no classes apart; a training with it as ",
        ["model"],
        " gives its layers a new head with an output for each class"
    )
}

/// The most classes that a model may have.
const MOST_CLASSES: usize = 65_536;

/// A trained network as in files: an architecture's name, its parameters, and the description that inference
/// needs.
#[derive(Clone, Debug)]
pub struct Trained {
    /// Where it came from.
    pub path: PathBuf,
    /// The network's name: one of [`towers_models::NAMES`], or the name of a custom network.
    pub network: String,
    /// The layers of a custom network, if the file has them.
    pub(crate) architecture: Architecture,
    /// The class names, by label.
    pub classes: Vec<String>,
    /// Whether these names are known, or assumed by the number of classes.
    pub named: bool,
    /// Whether an image has any number of classes: each has a sigmoid of its own. The layers may say so too.
    pub(crate) multi_label: bool,
    /// The name of the data set it was trained on.
    pub dataset: String,
    /// Height, width and channels of its images.
    pub(crate) image: [usize; 3],
    /// What turns a picture into the network's input.
    pub(crate) input: Input,
    /// The steps of `input`, and the standardization of the augmentation after them.
    pub(crate) options: ImageDataGenerator,
    /// How pictures get the size of its images.
    pub(crate) resize: Resizing,
    /// What people should know about its file, a sentence each.
    pub(crate) told: Vec<String>,
    /// The preprocessing that is assumed, as a sentence, where the file does not have it.
    pub(crate) assumed: Option<String>,
    /// A custom network, which has no built-in name.
    pub(crate) own: Option<Model>,
    /// The parameters under the names of their slots, and maybe others.
    pub(crate) tensors: Tensors,
}

/// Its network without the weights, for a new run.
impl From<Trained> for Imported {
    fn from(trained: Trained) -> Self {
        let Trained { network: name, architecture, classes, image: [height, width, channels], .. } = trained;
        let (classes, image, channels) = (Some(classes.len()), Some([height, width]), Some(channels));
        let mut imported = Imported::new(name, architecture);
        (imported.classes, imported.image, imported.channels) = (classes, image, channels);
        imported
    }
}

impl Trained {
    /// Reads a model file, or the one in a run directory.
    ///
    /// # Errors
    /// [`Error::Run`] if there is no model, or the file is not one of ours or damaged.
    pub fn read(path: &Path) -> Result<Self> {
        let file = if path.is_dir() { path.join(MODEL_FILE) } else { path.to_owned() };
        let refuse = |reason: &str| Error::run(&file, reason.to_owned());
        if path.join("saved_model.pb").is_file() {
            return Err(refuse(
                "it is a SavedModel of TensorFlow; save the model by model.save(\"x.keras\")",
            ));
        }
        if !file.is_file() {
            return Err(refuse("there is no model here; name a run's folder or its model.safetensors"));
        }
        if pytorch::is_pickle(&file) {
            return Err(refuse(pytorch::PICKLE));
        }
        let is_called_so = file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("safetensors"));
        let tensors = load_tensors(&file).map_err(|error| match error {
            towers_checkpoint::Error::Format { .. } | towers_checkpoint::Error::Damaged { .. }
                if !is_called_so =>
            {
                refuse(NO_MODEL)
            }
            error => error.into(),
        })?;
        let metadata = tensors.metadata();
        if metadata.get("format").is_some_and(|format| format == "pt")
            && !metadata.contains_key("towers.model")
        {
            return Err(refuse(if path.is_dir() {
                "its tensors lie as in PyTorch, so it is not the run's model, which its checkpoints have; name this file itself \
                 to read it"
            } else {
                "its tensors lie as in PyTorch, which `open_model` reads"
            }));
        }
        Self::described(file, tensors)
    }

    /// The network of these tensors, whose metadata describe it as in a model file. `file` is where they came from.
    ///
    /// # Errors
    /// [`Error::Run`] if the description is incomplete or damaged.
    pub fn described(file: PathBuf, tensors: Tensors) -> Result<Self> {
        let refuse = |reason: &str| Error::run(&file, reason.to_owned());
        let about = |key| about(&file, &tensors, key);
        let classes: Vec<String> = serde_json::from_str(&about("towers.classes")?)
            .map_err(|_| refuse("the class names in its metadata can't be read"))?;
        let image = image_of(&file, &tensors)?;
        let (input, options) = described_preprocessing(&file, &tensors)?;
        let (network, dataset) = (about("towers.model")?, about("towers.dataset")?);
        let named = !tensors.metadata().contains_key(ASSUMED);
        let multi_label = tensors.metadata().contains_key(MULTI_LABEL);
        let unknown = || refuse("how it resizes pictures is unknown to this version");
        let resize = Resizing::of(&tensors).ok_or_else(unknown)?;
        let architecture = match tensors.metadata().get(ARCHITECTURE) {
            None => Architecture::default(),
            Some(text) if text.len() > LONGEST_ARCHITECTURE => {
                return Err(refuse("the layers in its metadata take more than 4 MiB"));
            }
            Some(text) => {
                serde_json::from_str(text).map_err(|_| refuse("the layers in its metadata can't be read"))?
            }
        };
        Ok(Trained {
            path: file,
            network,
            architecture,
            classes,
            named,
            multi_label,
            dataset,
            image,
            input,
            options,
            resize,
            told: Vec::new(),
            assumed: None,
            own: None,
            tensors,
        })
    }

    /// A network whose parameters are among `tensors`, under the names of its slots; `path` is where they came from.
    ///
    /// ```
    /// # use towers_trained::{Description, Input, Trained};
    /// let classes = ["cat".to_owned(), "dog".to_owned()];
    /// let about = Description::new("small_cnn", [32, 32, 3], &classes).input(&Input::DivideBy255);
    /// let trained = Trained::new("memory", &about, towers_checkpoint::Tensors::new());
    /// let error = trained.model().unwrap_err().to_string();
    /// assert_eq!(error, "memory: there is no tensor `conv2d/kernel`");
    /// ```
    pub fn new(path: impl Into<PathBuf>, about: &Description<'_>, tensors: Tensors) -> Self {
        Trained {
            path: path.into(),
            network: about.network.to_owned(),
            architecture: Architecture { layers: about.layers.to_vec() },
            classes: about.classes.to_vec(),
            named: true,
            multi_label: about.multi_label,
            dataset: about.dataset.to_owned(),
            image: about.image,
            input: about.input.clone(),
            options: about.generator().evaluation(),
            resize: Resizing::default(),
            told: Vec::new(),
            assumed: None,
            own: None,
            tensors,
        }
    }

    /// How pictures get the size of its images.
    pub fn resizing(&self) -> Resizing {
        self.resize
    }

    /// The same for pictures that are resized in another way.
    #[must_use]
    pub fn with_resizing(self, resize: Resizing) -> Self {
        Trained { resize, ..self }
    }

    /// The same with names for its classes.
    ///
    /// # Errors
    /// [`Error::Option`] if there are more or fewer names than classes.
    pub fn with_class_names(self, names: &ClassNames) -> Result<Self> {
        let classes = names.checked(self.classes.len(), &self.path.display().to_string())?;
        Ok(Trained { classes, named: true, ..self })
    }

    /// Its preprocessing of pixels, and the steps of that with the standardization after it.
    pub fn preprocessing(&self) -> (&Input, &ImageDataGenerator) {
        (&self.input, &self.options)
    }

    /// What people should know about a file of another program, a sentence each: that it has the inner model of one for
    /// several GPUs, or which parts of names are left out.
    pub fn notes(&self) -> &[String] {
        &self.told
    }

    /// The preprocessing of pixels that is assumed, and why, as a sentence. `None` where the file has it, or
    /// somebody named it.
    pub fn assumed_preprocessing(&self) -> Option<&str> {
        self.assumed.as_deref()
    }

    /// Height, width and channels of the images that it takes.
    pub fn image(&self) -> [usize; 3] {
        self.image
    }

    /// The same with the architecture of a custom network, because a file has the parameters alone. Then it
    /// can be [brought onto a device](crate::Classifier::new) and [exported](crate::export()) as any other.
    ///
    /// ```
    /// # use towers_checkpoint::{Tensors, save_tensors};
    /// # use towers_layers::{Dense, Flatten, Graph};
    /// # use towers_models::Model;
    /// # use towers_trained::{Classifier, Description, Input, Trained};
    /// # let folder = tempfile::tempdir()?;
    /// # let file = &folder.path().join("model.safetensors");
    /// fn mine(classes: usize) -> towers_layers::Result<Model> {
    ///     let mut graph = Graph::new("mine", [32, 32, 3]);
    ///     let x = graph.add(Flatten, graph.input())?;
    ///     let logits = graph.add(Dense::new(classes), x)?;
    ///     Ok(Model::new(graph, logits))
    /// }
    ///
    /// # let mut tensors = Tensors::new();
    /// # tensors.insert("dense/kernel", [3072, 2], vec![0.5; 6144])?;
    /// # tensors.insert("dense/bias", [2], vec![0.5; 2])?;
    /// # let classes = ["cat".to_owned(), "dog".to_owned()];
    /// # Description::new("mine", [32, 32, 3], &classes).input(&Input::DivideBy255).add_to(&mut tensors)?;
    /// # save_tensors(file, &tensors, tensors.metadata())?;
    /// let trained = Trained::read(file)?.with_model(mine(2)?)?;
    /// let mut classifier = Classifier::new(&trained, &towers_tensor_cpu::device(1), 1)?;
    /// assert_eq!(classifier.classify(&[0; 32 * 32 * 3])?.len(), 1);
    /// let error = Trained::read(file)?.with_model(towers_models::small_cnn(2)?).unwrap_err().to_string();
    /// assert!(error.contains("the given one has `conv2d/kernel`, which the file has not"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Run`] if it takes other images, tells other classes apart, or has other parameters than the file, by their names and
    /// shapes: none may be missing, and none left over.
    pub fn with_model(self, model: Model) -> Result<Self> {
        match self.unlike(&model) {
            None => Ok(Trained { own: Some(model), ..self }),
            Some(what) => {
                let reason = format!("this is another network than `{}`: {what}", self.network);
                Err(Error::run(&self.path, reason))
            }
        }
    }

    /// The first thing in which a network differs from this one.
    fn unlike(&self, model: &Model) -> Option<String> {
        let own = Task { image: self.image, classes: self.classes.len() };
        let given = Task::of(model);
        if own != given {
            return Some(format!("the file's is for {own}, the given one for {given}"));
        }
        let mut names = HashSet::new();
        for (step, spec) in model.steps().iter().flat_map(|step| step.params.iter().map(move |p| (step, p))) {
            let (name, shape) = (format!("{}/{}", step.name, spec.name), &spec.shape);
            match self.tensors.get(&name).map(|tensor| tensor.shape()) {
                None => return Some(format!("the given one has `{name}`, which the file has not")),
                Some(found) if found != shape => {
                    return Some(format!(
                        "its `{name}` has the shape {found:?}, but the given one's has {shape:?}"
                    ));
                }
                Some(_) => _ = names.insert(name),
            }
        }
        let more = surplus(&self.tensors, &names);
        more.map(|name| format!("the file has `{name}`, which the given one has not"))
    }

    /// The architecture, if the parameters are sound ones of it.
    ///
    /// # Errors [`Error::Run`] for an impossible network or number of classes, a single one among them, and
    /// for a custom network without [`with_model`](Self::with_model). Also for a parameter that is missing or
    /// of another shape, is NaN or infinite, or is a negative variance; and for a tensor that no layer takes.
    pub fn model(&self) -> Result<Model> {
        if self.classes.len() == 1 {
            return Err(Error::run(&self.path, single()));
        }
        let model = match &self.own {
            Some(own) => own.clone(),
            None if !self.architecture.is_empty() => self.described_model()?,
            None => self.named_model()?,
        };
        let model = if self.multi_label { model.multi_label() } else { model };
        let mut names = HashSet::new();
        for step in model.steps() {
            for spec in &step.params {
                parameter(&self.tensors, &self.path, &step.name, spec)?;
                names.insert(format!("{}/{}", step.name, spec.name));
            }
        }
        match surplus(&self.tensors, &names) {
            Some(name) => {
                let reason = format!("it has the tensor `{name}`, which its network lacks");
                Err(Error::run(&self.path, reason))
            }
            None => Ok(model),
        }
    }

    /// The network of the layers in the file.
    fn described_model(&self) -> Result<Model> {
        let refuse = |reason: String| Error::run(&self.path, reason);
        let model = self.architecture.build(&self.network, self.image, self.classes.len());
        let model = model.map_err(|error| refuse(error.to_string()))?;
        let own = Task { image: self.image, classes: self.classes.len() };
        match Task::of(&model) {
            task if task == own => Ok(model),
            task => Err(refuse(format!("its layers are for {task}, but it has the names for {own}"))),
        }
    }

    /// The built-in architecture of this name.
    fn named_model(&self) -> Result<Model> {
        let refuse = |reason: &str| Error::run(&self.path, reason.to_owned());
        if self.classes.is_empty() || self.classes.len() > MOST_CLASSES {
            return Err(refuse("it must have between 2 and 65536 classes"));
        }
        let unknown = || {
            let (network, names) = (&self.network, towers_models::NAMES.join(", "));
            refuse(&format!(
                "its network `{network}` is not one of the built-in ones ({names}); one of your own is opened from Rust, by \
                 `Trained::with_model`"
            ))
        };
        let model = towers_models::by_name_for(&self.network, self.image, self.classes.len());
        Ok(model.ok_or_else(unknown)??)
    }

    /// The content of a model file: the parameters in the order of the layers, and all that is known about the network.
    ///
    /// # Errors [`Error::Run`] as [`model`](Self::model).
    pub fn to_tensors(&self) -> Result<Tensors> {
        let (mut tensors, model) = (Tensors::new(), self.model()?);
        for step in model.steps() {
            for spec in step.params {
                let name = format!("{}/{}", step.name, spec.name);
                let data = finite_values(&self.tensors, &self.path, &name, &spec.shape)?.to_vec();
                tensors.insert(name, spec.shape, data)?;
            }
        }
        self.describe(model.is_multi_label(), &mut tensors)?;
        Ok(tensors)
    }

    /// Adds the description that inference needs.
    fn describe(&self, multi_label: bool, tensors: &mut Tensors) -> Result<()> {
        let Trained { network, architecture, classes, dataset, image, input, options, .. } = self;
        if !self.named {
            tensors.metadata_mut().insert(ASSUMED.to_owned(), "true".to_owned());
        }
        self.resize.add_to(tensors);
        let about = Description::new(network, *image, classes).layers(&architecture.layers).dataset(dataset);
        about.input(input).options(options).multi_label(multi_label).add_to(tensors)
    }
}

/// A tensor of a file that is neither a parameter with one of these names, nor a part of the preprocessing, nor for
/// training alone.
pub(crate) fn surplus<'t>(tensors: &'t Tensors, names: &HashSet<String>) -> Option<&'t str> {
    let mut others = tensors.iter().map(|tensor| tensor.name);
    others.find(|name| {
        !names.contains(*name)
            && ![MEAN, STD].contains(name)
            && !standardization::TENSORS.contains(name)
            && !is_training_state(name, names)
    })
}

/// What inference needs beside the parameters.
///
/// ```
/// use towers_checkpoint::Tensors;
/// use towers_trained::{Description, Input};
///
/// let mut tensors = Tensors::new();
/// let classes = ["cat".to_owned(), "dog".to_owned()];
/// let about = Description::new("small_cnn", [32, 32, 3], &classes).dataset("pets");
/// about.input(&Input::DivideBy255).add_to(&mut tensors)?;
/// assert_eq!(tensors.metadata()["towers.classes"], r#"["cat","dog"]"#);
/// # Ok::<(), towers_trained::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    /// The network's name: one of [`towers_models::NAMES`], or any other for a custom network.
    network: &'a str,
    /// The layers of a custom network, if they are known; none for a built-in one.
    layers: &'a [LayerSpec],
    /// The class names, by label.
    classes: &'a [String],
    /// The name of the training data set.
    dataset: &'a str,
    /// Height, width and channels of the images.
    image: [usize; 3],
    /// What turns a picture into the network's input.
    input: &'a Input,
    /// The augmentation, with the steps of `input` and the measurements of its standardization.
    options: Option<&'a ImageDataGenerator>,
    /// Whether an image has any number of classes.
    multi_label: bool,
}

impl<'a> Description<'a> {
    /// A network for images of this height, width and channels, which tells these classes apart. By default pixels go in as
    /// they are, and the data set has no name.
    pub fn new(network: &'a str, image: [usize; 3], classes: &'a [String]) -> Self {
        let (layers, dataset, input) = (&[][..], "", &Input::None);
        Description { network, layers, classes, dataset, image, input, options: None, multi_label: false }
    }

    /// The layers of a custom network.
    pub fn layers(self, layers: &'a [LayerSpec]) -> Self {
        Description { layers, ..self }
    }

    /// Whether an image has any number of classes, each with a sigmoid; otherwise an image has one class.
    pub fn multi_label(self, multi_label: bool) -> Self {
        Description { multi_label, ..self }
    }

    /// The name of the training data set.
    pub fn dataset(self, dataset: &'a str) -> Self {
        Description { dataset, ..self }
    }

    /// The preprocessing, from a picture to the network's input.
    pub fn input(self, input: &'a Input) -> Self {
        Description { input, ..self }
    }

    /// The augmentation of training, with the steps of the input and the measurements of its standardization. By default it has
    /// the steps of the input alone.
    pub fn options(self, options: &'a ImageDataGenerator) -> Self {
        Description { options: Some(options), ..self }
    }

    fn generator(&self) -> Cow<'a, ImageDataGenerator> {
        let own = || Cow::Owned(self.input.options(ImageDataGenerator::new()));
        self.options.map_or_else(own, Cow::Borrowed)
    }

    /// Adds it to the tensors and metadata of a model file.
    ///
    /// # Errors
    /// [`Error::File`] for a tensor that is there already.
    pub fn add_to(&self, tensors: &mut Tensors) -> Result<()> {
        let preprocessing = match self.input {
            Input::SubtractPixelMean { image, mean } => {
                tensors.insert(MEAN, *image, mean.clone())?;
                "subtract-pixel-mean"
            }
            Input::Standardize { mean, std } => {
                tensors.insert(MEAN, [mean.len()], mean.clone())?;
                tensors.insert(STD, [1], vec![*std])?;
                "standardize"
            }
            constant => constant.kind().name(),
        };
        let classes = serde_json::Value::from(self.classes.to_vec()).to_string();
        let (size, [_, _, channels]) = (ImageSize::of(self.image).to_string(), self.image);
        let metadata = tensors.metadata_mut();
        for (key, value) in [
            ("towers.model", self.network),
            ("towers.classes", &classes),
            ("towers.dataset", self.dataset),
            (IMAGE_SIZE, &size),
            ("towers.preprocessing", preprocessing),
        ] {
            metadata.insert(key.to_owned(), value.to_owned());
        }
        if self.multi_label {
            metadata.insert(MULTI_LABEL.to_owned(), "true".to_owned());
        }
        if channels != towers_dataset::CHANNELS {
            metadata.insert(CHANNELS.to_owned(), channels.to_string());
        }
        if !self.layers.is_empty() {
            metadata.insert(ARCHITECTURE.to_owned(), serde_json::json!(self.layers).to_string());
        }
        standardization::write(self.input, &self.generator(), tensors)
    }
}

/// The preprocessing of pixels in the metadata and tensors of a model file, with its measurements, and the standardization
/// after it. `file` is where they came from.
///
/// # Errors
/// [`Error::Run`] if they are incomplete or damaged.
pub fn described_preprocessing(file: &Path, tensors: &Tensors) -> Result<(Input, ImageDataGenerator)> {
    let image = image_of(file, tensors)?;
    let input = match about(file, tensors, "towers.preprocessing")?.as_str() {
        "subtract-pixel-mean" => {
            let mean = finite_values(tensors, file, MEAN, &image)?.to_vec();
            Input::SubtractPixelMean { image, mean }
        }
        "standardize" => Input::Standardize {
            mean: finite_values(tensors, file, MEAN, &[image[2]])?.to_vec(),
            std: finite_values(tensors, file, STD, &[1])?[0],
        },
        name => {
            let known: Option<Preprocessing> = serde_json::from_value(name.into()).ok();
            let input = known.filter(|known| known.check(image).is_ok());
            let reason = || "its preprocessing is unknown to this version".to_owned();
            let unknown = || Error::run(file, reason());
            input.and_then(|known| Input::constant(known, image)).ok_or_else(unknown)?
        }
    };
    let options = input.options(standardization::read(tensors, file, image)?);
    Ok((input, options))
}

/// Height, width and channels of the images.
fn image_of(file: &Path, tensors: &Tensors) -> Result<[usize; 3]> {
    let size = tensors.metadata().get(IMAGE_SIZE).map_or(Ok(ImageSize::default()), |text| text.parse());
    let refuse = |reason: &str| Error::run(file, reason.to_owned());
    let size = size.map_err(|_| refuse("the size of its images can't be read"))?;
    let channels = match tensors.metadata().get(CHANNELS) {
        None => towers_dataset::CHANNELS,
        Some(text) => {
            let known = text.parse().ok().filter(|&channels| ColorMode::of(channels).is_some());
            known.ok_or_else(|| refuse("the number of channels of its images can't be read"))?
        }
    };
    Ok(size.shape(channels))
}

/// An entry of the metadata.
fn about(file: &Path, tensors: &Tensors, key: &str) -> Result<String> {
    let reason = "this is no model of `towers train`: its metadata are missing".to_owned();
    let missing = || Error::run(file, reason);
    tensors.metadata().get(key).cloned().ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use towers_layers::{Dense, Flatten, Graph};

    fn mine() -> Model {
        let mut graph = Graph::new("mine", [32, 32, 3]);
        let x = graph.add(Flatten, graph.input()).unwrap();
        let logits = graph.add_named("head/dense", Dense::new(2), x).unwrap();
        Model::new(graph, logits)
    }

    /// A trained network, with the tensors of these names besides its own.
    fn trained(others: &[&str]) -> Trained {
        let mut tensors = Tensors::new();
        tensors.insert("head/dense/kernel", vec![3072, 2], vec![0.5; 6144]).unwrap();
        for name in ["head/dense/bias"].iter().chain(others) {
            tensors.insert(*name, vec![2], vec![0.5; 2]).unwrap();
        }
        let (path, network, dataset) = ("a.safetensors".into(), "mine".into(), "mine".into());
        let (input, options) = (Input::DivideBy255, ImageDataGenerator::new());
        let (classes, named, own, image) = (vec!["a".into(), "b".into()], true, None, [32, 32, 3]);
        let (architecture, assumed) = (Architecture::default(), None);
        Trained {
            path,
            network,
            architecture,
            classes,
            named,
            multi_label: false,
            dataset,
            image,
            input,
            options,
            resize: Resizing::default(),
            told: Vec::new(),
            assumed,
            own,
            tensors,
        }
    }

    /// NaN, infinities, negative variances and other shapes would give answers without a meaning.
    #[test]
    fn unsound_parameters_are_refused() {
        let model = towers_models::small_cnn(2).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let with = |name: &str, shape: &[usize], value: f32| {
            let mut tensors = Tensors::new();
            for step in model.steps() {
                for spec in step.params {
                    let own = format!("{}/{}", step.name, spec.name);
                    let changed = own == name;
                    let shape = if changed { shape } else { &spec.shape };
                    let mut data = vec![0.5; shape.iter().product()];
                    data[0] = if changed { value } else { 0.5 };
                    tensors.insert(own, shape, data).unwrap();
                }
            }
            let trained = Trained { network: "small_cnn".into(), tensors, ..trained(&[]) };
            let device = towers_tensor_cpu::device(1);
            let told = [
                crate::Classifier::new(&trained, &device, 1).err(),
                crate::export(&trained, &folder.path().join("net.onnx")).err(),
                trained.to_tensors().err(),
            ];
            let [first, second, third] = told.map(|told| told.map(|error| error.to_string()));
            assert!(first == second && first == third, "{first:?} {second:?} {third:?}");
            first.unwrap_or_default()
        };
        let kernel = [3, 3, 3, 16];
        let has = |what: &str| format!("a.safetensors: the tensor `conv2d/kernel` has the {what}");
        assert_eq!(with("conv2d/kernel", &kernel, -0.5), "");
        assert_eq!(with("batch_normalization/moving_variance", &[16], -0.0), "");
        let failed = ", but must be finite; a training that failed leaves such values";
        assert_eq!(with("conv2d/kernel", &kernel, f32::NAN), has(&format!("value NaN{failed}")));
        assert_eq!(with("conv2d/kernel", &kernel, f32::INFINITY), has(&format!("value inf{failed}")));
        let told = with("batch_normalization/moving_variance", &[16], -1.0);
        assert!(told.ends_with("_variance` has the value -1, which is no variance"), "{told}");
        for other in [&[16, 3, 3, 3][..], &[432], &[3, 3, 3, 16, 1]] {
            let must = format!("shape {other:?}, but must have [3, 3, 3, 16]");
            assert_eq!(with("conv2d/kernel", other, 0.5), has(&must));
        }
    }

    #[test]
    fn tensors_that_no_layer_takes_are_refused() {
        let beside = [
            "loss_scale",
            "optimizer_steps",
            "velocity/head/dense/kernel",
            "mean_square/head/dense/bias",
            "ema/head/dense/bias",
            "input/mean",
            "input/channel_std",
        ];
        trained(&beside).with_model(mine()).expect("the same network");
        for other in [
            "block/look/kernel",
            "block/1/look/kernel",
            "block/head/dense/kernel",
            "velocity/look/kernel",
            "input/kernel",
            "scale",
        ] {
            let told = trained(&[other]).with_model(mine()).unwrap_err().to_string();
            let says = format!("network than `mine`: the file has `{other}`, which the given one has not");
            assert!(told.contains(&says), "{told}");
            // Without a look at another network too.
            let own = Trained { own: Some(mine()), ..trained(&[other]) };
            let told = own.model().unwrap_err().to_string();
            assert_eq!(told, format!("a.safetensors: it has the tensor `{other}`, which its network lacks"));
        }
    }
}
