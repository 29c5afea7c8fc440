use crate::input::IMAGE;
use crate::resume::values;
use crate::{Input, Result, Trained};
use augment::{Draws, Pipeline, Scratch, TestTime};
use layers::{Mode, Network};
use std::path::Path;
use tensor::{Device, View};

/// A trained network, ready to classify pictures.
pub struct Classifier {
    /// The class names, by label.
    pub classes: Vec<String>,
    /// Whether the names of the classes are known. Weights of other programs have none: theirs are assumed by their number.
    pub named: bool,
    /// The name of the data set it was trained on.
    pub dataset: String,
    network: Network,
    input: Input,
    pipeline: Pipeline,
    views: Vec<(Draws, f32)>,
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
    /// [`Error::Run`](crate::Error::Run) if there is no model, or the file is not one of ours or damaged.
    pub fn load(path: &Path, device: &Device, batch: usize) -> Result<Self> {
        Classifier::new(&Trained::read(path)?, device, batch)
    }

    /// Brings a trained network onto a device, for batches of up to `batch` pictures.
    ///
    /// # Errors
    /// [`Error::Run`](crate::Error::Run) if a parameter is missing; what the device says.
    pub fn new(trained: &Trained, device: &Device, batch: usize) -> Result<Self> {
        let mut network = trained.model()?.build(device, batch, Mode::Inference)?;
        for slot in network.arena().slots().to_vec() {
            let values = values(&trained.tensors, &trained.path, &slot.name, slot.span.len)?;
            network.arena_mut().load(device, &slot, values)?;
        }
        Ok(Classifier {
            classes: trained.classes.clone(),
            named: trained.named,
            dataset: trained.dataset.clone(),
            network,
            input: trained.input.clone(),
            pipeline: trained.options.build(IMAGE)?,
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

    /// Has the network see several views of every picture from now on, whose probabilities are averaged, each view's with its weight.
    pub fn set_test_time(&mut self, kind: TestTime) {
        self.views = kind.views();
    }

    /// The class scores of pictures of 32 x 32 x 3 bytes each, before softmax: as many as classes for each picture.
    ///
    /// # Errors
    /// If the bytes are no whole number of pictures.
    pub fn logits(&mut self, pictures: &[u8]) -> Result<Vec<f32>> {
        let len: usize = IMAGE.iter().product();
        let (mut all, classes) = (Vec::new(), self.classes.len());
        for batch in pictures.chunks(self.network.max_batch() * len) {
            self.see(Draws::default(), batch)?;
            self.network.predict()?;
            let (device, View { data, layout }) = (self.network.device(), self.network.logits());
            let rows = data.to_vec(device, layout.offset, batch.len() / len * layout.stride)?;
            all.extend(rows.chunks(layout.stride).flat_map(|row| &row[..classes]));
        }
        Ok(all)
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
            for view in 0..self.views.len() {
                let (draws, weight) = self.views[view];
                self.see(draws, batch)?;
                sum.iter_mut().zip(self.network.predict()?).for_each(|(sum, p)| *sum += weight * p);
            }
            predictions.extend(sum.chunks(classes).map(|row| Prediction { probabilities: row.to_vec() }));
        }
        Ok(predictions)
    }

    /// Makes the network's input of a batch of pictures.
    fn see(&mut self, view: Draws, batch: &[u8]) -> Result<()> {
        let len: usize = IMAGE.iter().product();
        self.images.resize(batch.len(), 0.0);
        for (picture, image) in batch.chunks(len).zip(self.images.chunks_mut(len)) {
            self.pipeline.apply(&view, picture, image, &mut self.scratch)?;
        }
        Ok(self.network.set_input(&self.images, &vec![0; batch.len() / len])?)
    }
}
