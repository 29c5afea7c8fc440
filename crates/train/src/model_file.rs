use crate::input::IMAGE;
use crate::resume::values;
use crate::standardization;
use crate::worker::Prepared;
use crate::{Error, Input, Result};
use augment::{Draws, Pipeline, Scratch, TestTime};
use checkpoint::{Tensors, load_tensors};
use layers::{Mode, Network};
use std::path::Path;
use tensor::Device;

/// The file of a run directory that holds the trained network.
pub const MODEL_FILE: &str = "model.safetensors";

/// The tensor of a model file with the mean that is subtracted from every picture.
const MEAN: &str = "input/mean";

/// The tensor with what every value is divided by afterwards.
const STD: &str = "input/std";

/// Adds what inference needs beside the parameters: the architecture's name, the classes, the preprocessing.
pub(crate) fn describe(tensors: &mut Tensors, model: &str, prepared: &Prepared) -> Result<()> {
    let preprocessing = match &prepared.input {
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
    let classes = serde_json::Value::from(prepared.classes.clone()).to_string();
    let metadata = tensors.metadata_mut();
    for (key, value) in [
        ("towers.model", model),
        ("towers.classes", &classes),
        ("towers.dataset", &prepared.dataset),
        ("towers.preprocessing", preprocessing),
    ] {
        metadata.insert(key.to_owned(), value.to_owned());
    }
    standardization::write(&prepared.input, &prepared.augmentation, tensors)
}

/// A trained network, ready to classify pictures.
pub struct Classifier {
    /// The class names, by label.
    pub classes: Vec<String>,
    /// The name of the data set it was trained on.
    pub dataset: String,
    network: Network,
    input: Input,
    pipeline: Pipeline,
    views: Vec<Draws>,
    scratch: Scratch,
    images: Vec<f32>,
}

/// What a classifier thinks of one picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// A probability for each class, by label; they sum to 1.
    pub probabilities: Vec<f32>,
}

impl Prediction {
    /// The labels with their probabilities, the likeliest first.
    pub fn ranked(&self) -> Vec<(usize, f32)> {
        let mut ranked: Vec<(usize, f32)> = self.probabilities.iter().copied().enumerate().collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        ranked
    }
}

impl Classifier {
    /// Reads the model file at `path`, or in the run directory `path`, onto a device, for batches of up to `batch` pictures.
    ///
    /// # Errors
    /// [`Error::Run`] if there is no model, or the file is not one of ours or damaged.
    pub fn load(path: &Path, device: &Device, batch: usize) -> Result<Self> {
        let file = if path.is_dir() { path.join(MODEL_FILE) } else { path.to_owned() };
        let refuse = |reason: &str| Error::Run { path: file.clone(), reason: reason.to_owned() };
        if !file.is_file() {
            return Err(refuse("there is no model here; name a run's folder or its model.safetensors"));
        }
        let tensors = load_tensors(&file)?;
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
        if classes.is_empty() || classes.len() > 65_536 {
            return Err(refuse("it must have between 1 and 65536 classes"));
        }
        let model = models::by_name(&about("towers.model")?, classes.len())
            .ok_or_else(|| refuse("its network is unknown to this version"))??;
        let mut network = model.build(device, batch, Mode::Inference)?;
        for slot in network.arena().slots().to_vec() {
            network.arena_mut().load(device, &slot, values(&tensors, &file, &slot.name, slot.span.len)?)?;
        }
        let pipeline = input.pipeline(standardization::read(&tensors, &file)?)?;
        let dataset = about("towers.dataset")?;
        Ok(Classifier {
            classes,
            dataset,
            network,
            input,
            pipeline,
            views: TestTime::None.views(),
            scratch: Scratch::default(),
            images: Vec::new(),
        })
    }

    /// The network.
    pub fn network_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    /// What turns a picture into the network's input.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// Has the network see several views of every picture from now on, whose probabilities are averaged.
    pub fn set_test_time(&mut self, kind: TestTime) {
        self.views = kind.views();
    }

    /// Classifies pictures of 32 x 32 x 3 bytes each.
    ///
    /// # Errors
    /// If the bytes are no whole number of pictures.
    pub fn classify(&mut self, pictures: &[u8]) -> Result<Vec<Prediction>> {
        let len: usize = IMAGE.iter().product();
        let classes = self.classes.len();
        let mut predictions = Vec::new();
        for batch in pictures.chunks(self.network.max_batch() * len) {
            let mut sum = vec![0.0; batch.len() / len * classes];
            for view in &self.views {
                self.images.resize(batch.len(), 0.0);
                for (picture, image) in batch.chunks(len).zip(self.images.chunks_mut(len)) {
                    self.pipeline.apply(view, picture, image, &mut self.scratch)?;
                }
                self.network.set_input(&self.images, &vec![0; batch.len() / len])?;
                sum.iter_mut().zip(self.network.predict()?).for_each(|(sum, p)| *sum += p);
            }
            let views = self.views.len() as f32;
            let mean = |row: &[f32]| row.iter().map(|sum| sum / views).collect();
            predictions.extend(sum.chunks(classes).map(|row| Prediction { probabilities: mean(row) }));
        }
        Ok(predictions)
    }
}
