use crate::color_mode::counted;
use crate::model_file::surplus;
use crate::tensors::parameter;
use crate::{ColorMode, Error, ForeignWeights, ImageSize, Input, Preprocessing, Result, Task, Trained};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use towers_augment::ImageDataGenerator;
use towers_checkpoint::Tensors;
use towers_models::Model;
use towers_options::{Message, message};

/// A trained network's values as the first ones of a new run: from a file of ours, of Keras or of PyTorch.
///
/// ```
/// # use towers_checkpoint::Tensors;
/// # use towers_layers::{Dense, Flatten, Graph};
/// # use towers_models::Model;
/// use towers_trained::{Description, Input, Trained, Weights};
///
/// fn linear(classes: usize) -> towers_layers::Result<Model> {
///     let mut graph = Graph::new("linear", [8, 8, 3]);
///     let x = graph.add(Flatten, graph.input())?;
///     let logits = graph.add(Dense::new(classes), x)?;
///     Ok(Model::new(graph, logits))
/// }
/// # let classes = ["cat".to_owned(), "dog".to_owned()];
/// # let about = Description::new("linear", [8, 8, 3], &classes).input(&Input::DivideBy255);
/// # let mut tensors = Tensors::new();
/// # tensors.insert("dense/kernel", [192, 2], vec![0.5; 384])?;
/// # tensors.insert("dense/bias", [2], vec![0.5; 2])?;
/// let cats_and_dogs = Weights::from(Trained::new("pets.safetensors", &about, tensors));
/// assert_eq!(cats_and_dogs.fit(&linear(2)?, false)?.len(), 2);
/// let error = cats_and_dogs.fit(&linear(5)?, false).unwrap_err().to_string();
/// assert!(error.contains("`new_head`"), "{error}");
/// assert_eq!(cats_and_dogs.fit(&linear(5)?, true)?.len(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Weights {
    /// The file.
    pub path: PathBuf,
    /// The network, if the file names it.
    pub network: Option<String>,
    /// The class names by label, if the file has them.
    pub names: Option<Vec<String>>,
    /// What people should know about the file, a sentence each.
    pub notes: Vec<String>,
    classes: usize,
    image: [usize; 3],
    preprocessing: Option<(Input, ImageDataGenerator)>,
    assumed: Option<(Preprocessing, String)>,
    tensors: Tensors,
}

impl From<Trained> for Weights {
    fn from(trained: Trained) -> Self {
        let Trained { path, network, classes, named, image, input, options, tensors, told, .. } = trained;
        Weights {
            path,
            network: Some(network),
            notes: told,
            classes: classes.len(),
            names: Some(classes).filter(|_| named),
            image,
            preprocessing: Some((input, options)),
            assumed: None,
            tensors,
        }
    }
}

impl ForeignWeights {
    /// The values of a network with these weights, which were read from `path`. `build` makes the network for images of
    /// `[height, width, channels]` and a number of classes; `data` is the shape of the images, for what the file does not say.
    ///
    /// # Errors
    /// [`Error::Interchange`] if the weights don't fit the network; [`Error::Run`] for a file without a dense layer.
    pub fn weights<E: From<Error>>(
        &self,
        path: &Path,
        data: [usize; 3],
        build: impl FnOnce([usize; 3], usize) -> Result<Model, E>,
    ) -> Result<Weights, E> {
        let classes = self.checked_outputs(path)?;
        let image = self.image_like(path, data)?;
        let tensors = self.assign(&build(image, classes)?.steps())?;
        let names = self.named(classes)?.map(|named| named.classes).filter(|names| names.len() == classes);
        let preprocessing = self.input(path, image)?;
        // A network that normalizes pixels by itself says so where its layers are read.
        let by_itself = self.described().and_then(|network| Preprocessing::of(&network.architecture));
        let assumed = if by_itself.is_none() { self.family(classes) } else { None };
        let (path, notes) = (path.to_owned(), self.told());
        Ok(Weights { path, network: None, notes, classes, names, image, preprocessing, assumed, tensors })
    }
}

impl Weights {
    /// The preprocessing of pixels, with its measurements and the standardization after it, for images of this height, width
    /// and channels. `None` if the file has none, or measured it for each pixel of images of another size.
    pub fn preprocessing_for(&self, image: [usize; 3]) -> Option<(&Input, &ImageDataGenerator)> {
        let (input, options) = self.preprocessing.as_ref()?;
        let of_pixels = matches!(input, Input::SubtractPixelMean { .. }) || options.zca_whitening;
        (!of_pixels || self.image == image).then_some((input, options))
    }

    /// The kind of preprocessing, if the file has it.
    pub fn preprocessing(&self) -> Option<Preprocessing> {
        self.preprocessing.as_ref().map(|(input, _)| input.kind())
    }

    /// The preprocessing that their network is known for, and why, as a sentence, if the file does not have it.
    pub fn assumed_preprocessing(&self) -> Option<(Preprocessing, &str)> {
        let (preprocessing, why) = self.assumed.as_ref().filter(|_| self.preprocessing.is_none())?;
        Some((*preprocessing, why))
    }

    /// The values of the parameters and running averages of `model`, by their names. With `new_head` those of the last layer
    /// with parameters are left out, so the number of classes may be another.
    ///
    /// # Errors
    /// [`Error::Run`] if the file is of another network, of other images, or of another number of classes; if a value is not
    /// finite.
    pub fn fit(&self, model: &Model, new_head: bool) -> Result<Tensors> {
        let task = Task::of(model);
        let [own, given] = [self.image[2], task.image[2]];
        if own != given {
            let (has, have) = (counted(own), counted(given));
            let mode = ColorMode::of(own).map_or(Message::default(), |mode| {
                message!("; ", ["data.color_mode"], " {mode} makes them fit")
            });
            let differs = message!("its network takes images of {has}, but the run's have {have}");
            return Err(self.refuse(differs.and(mode)));
        }
        if !new_head && task.classes != self.classes {
            let own = match self.classes {
                1 => "has a single output".to_owned(),
                classes => format!("tells {classes} classes apart"),
            };
            let classes = task.classes;
            return Err(self.refuse(message!(
                "its network {own}, but the data have {classes}; ",
                ["new_head"],
                " begins its last layer anew"
            )));
        }
        let steps = model.steps();
        let head = if new_head { head_of(model) } else { None };
        let (mut values, mut names) = (Tensors::new(), HashSet::new());
        for step in &steps {
            for spec in &step.params {
                let name = format!("{}/{}", step.name, spec.name);
                names.insert(name.clone());
                if head.as_deref() == Some(&step.name) {
                    continue;
                }
                self.check_shape(&name, &spec.shape, model)?;
                let data = parameter(&self.tensors, &self.path, &step.name, spec)?.to_vec();
                values.insert(name, spec.shape.clone(), data)?;
            }
        }
        match surplus(&self.tensors, &names) {
            Some(name) => Err(self.unlike(format!("it has `{name}`, which the network lacks"), model)),
            None => Ok(values),
        }
    }

    fn check_shape(&self, name: &str, shape: &[usize], model: &Model) -> Result<()> {
        let Some(found) = self.tensors.get(name).map(|tensor| tensor.shape()) else {
            return Err(self.unlike(format!("it lacks `{name}`"), model));
        };
        if found == shape {
            return Ok(());
        }
        let differs = format!("its `{name}` has the shape {found:?}, the network's has {shape:?}");
        let (own, given) = (ImageSize::of(self.image), ImageSize::of(model.image()));
        if own != given && !self.is_of_another(model) {
            return Err(self.refuse(message!(
                "{differs}: this network grows with its images, and the weights are for images of {own}; give ",
                ["data.image_size"],
                " {own}, or take a network that ends with a global average"
            )));
        }
        Err(self.unlike(differs, model))
    }

    /// Whether the file names another network.
    fn is_of_another(&self, model: &Model) -> bool {
        self.network.as_ref().is_some_and(|own| own != model.graph().name())
    }

    fn unlike(&self, differs: String, model: &Model) -> Error {
        let (given, path) = (model.graph().name(), self.path.display());
        self.refuse(match &self.network {
            Some(own) if self.is_of_another(model) => message!(
                "these are weights of the network {own}, but the run trains {given} ({differs}); take their network by ",
                ["model"],
                " {path}"
            ),
            _ => message!("these are not weights of the network {given}: {differs}"),
        })
    }

    fn refuse(&self, reason: impl Into<Message>) -> Error {
        Error::run(&self.path, reason)
    }
}

/// The name of a network's last layer with parameters, which computes the class scores.
pub fn head_of(model: &Model) -> Option<String> {
    let mut steps = model.steps();
    steps.retain(|step| !step.params.is_empty());
    steps.pop().map(|step| step.name)
}
