use crate::tensors::values;
use crate::{Error, ImageSize, Input, Resizing, Result, Trained};
use std::path::Path;
use towers_augment::{Draws, Pipeline, Scratch, TestTime};
use towers_layers::{Mode, Network};
use towers_program::{Device, View};

/// A trained network, ready to classify pictures.
pub struct Classifier {
    /// The class names, by label.
    pub classes: Vec<String>,
    /// Whether the names of the classes are known. Weights of other programs have none: theirs are assumed by their number.
    pub named: bool,
    /// The name of the data set it was trained on.
    pub dataset: String,
    image: [usize; 3],
    resize: Resizing,
    network: Network,
    input: Input,
    pipeline: Pipeline,
    views: Vec<(Draws, f32)>,
    scratch: Scratch,
    images: Vec<f32>,
}

/// What a classifier thinks of one picture.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Prediction {
    /// A probability for each class, by label. They sum to 1, unless a picture has [any number of
    /// classes](Classifier::is_multi_label).
    pub probabilities: Vec<f32>,
    /// Their logarithms, also of those that are no numbers of 32 bits any more.
    pub log_probabilities: Vec<f64>,
    /// The logarithms of the probabilities that the picture lacks each class, if it may have any number of them; else empty.
    pub log_absences: Vec<f64>,
}

impl Prediction {
    /// The labels with their probabilities, the likeliest first.
    pub fn ranked(&self) -> Vec<(usize, f32)> {
        let mut ranked: Vec<(usize, f32)> = self.probabilities.iter().copied().enumerate().collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        ranked
    }

    /// The labels whose probability is above `threshold`, with their probabilities, the likeliest first.
    pub fn above(&self, threshold: f32) -> Vec<(usize, f32)> {
        let mut ranked = self.ranked();
        ranked.retain(|&(_, probability)| probability > threshold);
        ranked
    }
}

impl Classifier {
    /// Reads the model file at `path`, or in the run directory `path`, onto a device, for batches of up to `batch` pictures.
    ///
    /// # Errors
    /// [`Error::Run`] if there is no model, or the file is not one of ours or damaged.
    pub fn load(path: &Path, device: &Device, batch: usize) -> Result<Self> {
        Classifier::new(&Trained::read(path)?, device, batch)
    }

    /// Brings a trained network onto a device, for batches of up to `batch` pictures.
    ///
    /// # Errors
    /// [`Error::Run`] as [`Trained::model`]; [`Error::Option`] for batches of 0; errors of the device.
    pub fn new(trained: &Trained, device: &Device, batch: usize) -> Result<Self> {
        if batch == 0 {
            return Err(Error::about("the size of a batch", 0, "at least 1"));
        }
        let mut network = trained.model()?.build(device, batch, Mode::Inference)?;
        for slot in network.arena().slots().to_vec() {
            let values = values(&trained.tensors, &trained.path, &slot.name, &slot.shape)?;
            network.arena_mut().load(device, &slot, values)?;
        }
        Ok(Classifier {
            classes: trained.classes.clone(),
            named: trained.named,
            dataset: trained.dataset.clone(),
            image: trained.image,
            resize: trained.resize,
            network,
            input: trained.input.clone(),
            pipeline: trained.options.build(trained.image)?,
            views: TestTime::None.views(),
            scratch: Scratch::default(),
            images: Vec::new(),
        })
    }

    /// A classifier that shares the weights of this one, for another thread. Each has memory for its own batch. While they share,
    /// [`network_mut`](Self::network_mut) can't change the weights.
    ///
    /// ```
    /// use std::thread;
    /// use towers_trained::{Classifier, Result, Trained};
    ///
    /// fn in_two_threads(trained: &Trained, pictures: &[u8]) -> Result<()> {
    ///     let mut one = Classifier::new(trained, &towers_tensor_cpu::device(1), 16)?;
    ///     let mut other = one.share()?;
    ///     thread::scope(|scope| {
    ///         let predictions = scope.spawn(move || other.classify(pictures));
    ///         assert_eq!(one.classify(pictures)?, predictions.join().expect("it does not panic")?);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of the device.
    pub fn share(&self) -> Result<Self> {
        Ok(Classifier {
            classes: self.classes.clone(),
            named: self.named,
            dataset: self.dataset.clone(),
            image: self.image,
            resize: self.resize,
            network: self.network.share()?,
            input: self.input.clone(),
            pipeline: self.pipeline.clone(),
            views: self.views.clone(),
            scratch: Scratch::default(),
            images: Vec::new(),
        })
    }

    /// The network.
    pub fn network_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    /// Whether a picture has any number of classes: their probabilities are independent.
    pub fn is_multi_label(&self) -> bool {
        self.network.is_multi_label()
    }

    /// Height, width and channels of the pictures that it classifies: those of the network's images.
    /// `picture` of the crate `pictures` makes them of a file.
    pub fn image(&self) -> [usize; 3] {
        self.image
    }

    /// Height and width of the pictures.
    pub fn image_size(&self) -> ImageSize {
        ImageSize::of(self.image)
    }

    /// How pictures get the size of its images.
    pub fn resizing(&self) -> Resizing {
        self.resize
    }

    /// The bytes of a picture.
    fn picture(&self) -> usize {
        self.image.iter().product()
    }

    /// What turns a picture into the network's input.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// Has the network see several views of every picture from now on, whose probabilities are averaged, each view's with its weight.
    pub fn set_test_time(&mut self, kind: TestTime) {
        self.views = kind.views();
    }

    /// The class scores of pictures of height x width x channels bytes each, as [`image`](Self::image) says, before softmax or
    /// sigmoids: as many as classes for each picture. Of a network with one sigmoid output they are 0 and its logit.
    ///
    /// # Errors
    /// If the bytes are no whole number of pictures.
    pub fn logits(&mut self, pictures: &[u8]) -> Result<Vec<f32>> {
        let mut all = Vec::new();
        for batch in pictures.chunks(self.network.max_batch() * self.picture()) {
            all.extend(self.logits_of(Draws::default(), batch)?);
        }
        Ok(all)
    }

    /// Classifies pictures of height x width x channels bytes each, as [`image`](Self::image) says.
    ///
    /// # Errors
    /// If the bytes are no whole number of pictures.
    pub fn classify(&mut self, pictures: &[u8]) -> Result<Vec<Prediction>> {
        let classes = self.classes.len();
        let mut predictions = Vec::new();
        for batch in pictures.chunks(self.network.max_batch() * self.picture()) {
            let none = || vec![f64::NEG_INFINITY; batch.len() / self.picture() * classes];
            let (mut logs, mut absences) = (none(), if self.is_multi_label() { none() } else { Vec::new() });
            for view in 0..self.views.len() {
                let (draws, weight) = self.views[view].clone();
                let logits = self.logits_of(draws, batch)?;
                let log_weight = f64::from(weight).ln();
                if self.is_multi_label() {
                    for ((log, absence), &logit) in logs.iter_mut().zip(&mut absences).zip(&logits) {
                        let logit = f64::from(logit);
                        // The logarithm of a sigmoid.
                        let [has, lacks] = [logit, -logit].map(|x| -log_of_sum([0.0, -x].into_iter()));
                        *log = log_of_sum([*log, has + log_weight].into_iter());
                        *absence = log_of_sum([*absence, lacks + log_weight].into_iter());
                    }
                    continue;
                }
                for (logs, logits) in logs.chunks_mut(classes).zip(logits.chunks(classes)) {
                    let total = log_of_sum(logits.iter().map(|&x| f64::from(x)));
                    for (log, &logit) in logs.iter_mut().zip(logits) {
                        let of_view = f64::from(logit) - total + log_weight;
                        *log = log_of_sum([*log, of_view].into_iter());
                    }
                }
            }
            let mut absences = absences.chunks(classes);
            predictions.extend(logs.chunks(classes).map(|logs| Prediction {
                probabilities: logs.iter().map(|log| log.exp() as f32).collect(),
                log_probabilities: logs.to_vec(),
                log_absences: absences.next().unwrap_or_default().to_vec(),
            }));
        }
        Ok(predictions)
    }

    /// The class scores of one view of a batch.
    fn logits_of(&mut self, view: Draws, batch: &[u8]) -> Result<Vec<f32>> {
        self.see(view, batch)?;
        self.network.predict()?;
        let (device, View { data, layout }) = (self.network.device(), self.network.logits());
        let rows = data.to_vec(device, layout.offset, batch.len() / self.picture() * layout.stride)?;
        let of_row = |row: &[f32]| match layout.shape.c {
            // The first of two classes has the logit 0.
            1 if !self.is_multi_label() => vec![0.0, row[0]],
            scores => row[..scores].to_vec(),
        };
        Ok(rows.chunks(layout.stride).flat_map(of_row).collect())
    }

    /// Makes the network's input of a batch of pictures.
    fn see(&mut self, view: Draws, batch: &[u8]) -> Result<()> {
        self.images(&view, batch)?;
        let labels = vec![0; batch.len() / self.picture() * self.network.label_words()];
        Ok(self.network.set_input(&self.images, &labels)?)
    }

    /// The network's input of some pictures.
    pub(crate) fn images(&mut self, view: &Draws, pictures: &[u8]) -> Result<&[f32]> {
        let len = self.picture();
        self.images.resize(pictures.len(), 0.0);
        for (picture, image) in pictures.chunks(len).zip(self.images.chunks_mut(len)) {
            self.pipeline.apply(view, picture, image, &mut self.scratch)?;
        }
        Ok(&self.images)
    }
}

/// The logarithm of the sum of the exponentials; NaN if there is one.
fn log_of_sum(logs: impl Iterator<Item = f64> + Clone) -> f64 {
    let largest = logs.clone().fold(f64::NEG_INFINITY, f64::max);
    largest + logs.map(|log| (log - largest).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Description;
    use std::thread;

    /// Each has its own batch, and sees others in the same batch than alone.
    #[test]
    fn several_threads_share_the_weights() {
        let device = towers_tensor_cpu::device(1);
        let mut network = towers_models::small_cnn(10).unwrap().build(&device, 1, Mode::Inference).unwrap();
        network.init(1).unwrap();
        let data = towers_cifar::synthetic(1, 10, 30);
        let about = Description::new("small_cnn", data.test.shape(), &data.classes);
        let trained = Trained::new("memory", &about, towers_interchange::tensors(&network).unwrap());
        let mut alone = Classifier::new(&trained, &device, 4).unwrap();
        let pixels = data.test.images.as_slice().unwrap();
        let expected = alone.classify(pixels).unwrap();

        let mut shared = vec![alone.share().unwrap(), alone.share().unwrap(), alone];
        shared[0].set_test_time(TestTime::None);
        let weights = |classifier: &Classifier| {
            let arena = classifier.network.arena();
            [&arena.params, &arena.running].map(|memory| memory.host().unwrap().as_ptr())
        };
        assert_eq!(weights(&shared[0]), weights(&shared[2]));
        assert_eq!(weights(&shared[1]), weights(&shared[2]));
        let classify = |classifier: &mut Classifier| {
            (0..3).for_each(|_| assert_eq!(classifier.classify(pixels).unwrap(), expected));
        };
        let classify = &classify;
        thread::scope(|scope| {
            shared.iter_mut().for_each(|classifier| drop(scope.spawn(move || classify(classifier))));
        });

        let change = |classifier: &mut Classifier| {
            let (device, arena) = (classifier.network.device().clone(), classifier.network_mut().arena_mut());
            let slot = arena.slots()[0].clone();
            arena.load(&device, &slot, &vec![0.0; slot.span.len])
        };
        let told = change(&mut shared[0]).unwrap_err().to_string();
        assert!(told.ends_with("memory that is shared can't be written"), "{told}");
        shared.truncate(1);
        change(&mut shared[0]).unwrap();
        assert_ne!(shared[0].classify(pixels).unwrap(), expected);
    }

    #[test]
    fn sums_of_what_no_exponential_can_hold() {
        let sum = |logs: &[f64]| log_of_sum(logs.iter().copied());
        assert_eq!(sum(&[f64::NEG_INFINITY, -3.5]), -3.5);
        assert_eq!(sum(&[-5000.0, -5000.0]), -5000.0 + 2.0_f64.ln());
        assert_eq!(sum(&[5000.0, -5000.0]), 5000.0);
        assert!(sum(&[f64::NAN, 1.0]).is_nan() && sum(&[1.0, f64::NAN]).is_nan());
    }
}
