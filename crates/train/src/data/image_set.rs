use crate::Result;
use crate::data::labelling::Labelling;
use std::mem::take;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::thread::{self, available_parallelism};
use towers_augment::{Draws, LoaderOptions, Pipeline, Samples};
use towers_layers::Network;
use towers_parallel::Shards;
use towers_program::{Bytes, Device, Ints, LoadImages, Place, Storage, Target};

/// A data set in a device's memory: the device makes batches of it and augments them.
///
/// The random draws for each image are made on the host, once per epoch for the whole set. The code is that
/// of batches made by the host, and so are the numbers.
pub(crate) struct ImageSet {
    samples: Samples,
    pipeline: Pipeline,
    options: LoaderOptions,
    load: LoadImages,
    images: Bytes,
    labels: Ints,
    planes: Storage,
    draws: Ints,
    /// The draws to copy to the device: 2 words for each row and column of an image.
    table: Vec<u32>,
    has_targets: bool,
}

/// A replica's share of a batch of an [`ImageSet`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rows {
    /// Its first position in the epoch's order.
    pub(crate) first: usize,
    /// Its number of samples.
    pub(crate) own: usize,
    /// Samples of the whole batch.
    pub(crate) global: usize,
}

impl ImageSet {
    /// Of samples in memory.
    pub(crate) fn new(
        device: &Device,
        samples: &Samples,
        pipeline: Pipeline,
        options: LoaderOptions,
        labelling: &Labelling,
    ) -> Result<Self> {
        let [height, width, channels] = samples.shape();
        let image = height * width * channels;
        let (constant, scale) = (pipeline.options().cval, pipeline.scale());
        let labels = samples.labels().iter().map(|&label| u32::from(label));
        let (labels, label): (Vec<u32>, usize) = match labelling {
            Labelling::Labels => (labels.collect(), 1),
            Labelling::Weighted(_) => {
                let words = |label| labelling.target(label, None).to_words();
                (labels.flat_map(words).collect(), Target::WORDS)
            }
            Labelling::MultiHot(rows) => (rows.all().to_vec(), rows.words()),
        };
        let load = LoadImages { height, width, channels, constant, scale, label };
        let mut set = ImageSet {
            samples: samples.clone(),
            images: device.alloc_bytes(samples.len() * image)?,
            labels: device.alloc_ints(labels.len())?,
            planes: device.alloc(3 * image)?,
            draws: device.alloc_ints(samples.len() * load.words())?,
            table: vec![0; samples.len() * load.words()],
            load,
            pipeline,
            options,
            has_targets: labelling.is_weighted(),
        };
        let images = samples.images();
        let pixels = images.as_ref().and_then(|images| images.as_slice()).unwrap_or_default();
        device.upload_bytes(pixels, &mut set.images, 0)?;
        device.upload_ints(&labels, &mut set.labels)?;
        device.upload(&set.pipeline.planes(), &mut set.planes, 0)?;
        Ok(set)
    }

    /// Makes the draws for every image in `epoch`, and copies them to the device.
    pub(crate) fn begin_epoch(&mut self, device: &Device, epoch: u64) -> Result<()> {
        let order = self.options.order(epoch, self.samples.labels());
        let threads = available_parallelism().map_or(1, NonZero::get);
        let (samples, words) = (order.len().div_ceil(threads).max(1), self.load.words());
        let mut table = take(&mut self.table);
        thread::scope(|scope| {
            let parts = order.chunks(samples).zip(table.chunks_mut(samples * words));
            let parts: Vec<_> =
                parts.map(|(samples, rows)| scope.spawn(|| self.write_draws(epoch, samples, rows))).collect();
            parts.into_iter().try_for_each(|part| part.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })?;
        device.upload_ints(&table, &mut self.draws)?;
        self.table = table;
        Ok(())
    }

    /// Writes the rows of some samples into the table.
    fn write_draws(&self, epoch: u64, samples: &[u32], rows: &mut [u32]) -> Result<()> {
        for (row, &sample) in rows.chunks_mut(self.load.words()).zip(samples) {
            let draws = match self.options.augment {
                true => self.pipeline.draw(self.options.seed, epoch, sample),
                false => Draws::default(),
            };
            let places = self.pipeline.places(&draws)?.map(|place| Place {
                position: place.tap.map(|tap| (tap.low as u32, tap.weight)),
                blank: place.blank,
            });
            self.load.write_draw(row, sample % self.samples.len() as u32, places);
        }
        Ok(())
    }

    /// Whether each sample has a [`Target`] instead of a label.
    pub(crate) fn has_targets(&self) -> bool {
        self.has_targets
    }

    /// Batches per epoch.
    pub(crate) fn steps(&self) -> usize {
        self.options.steps(self.samples.len())
    }

    /// The shares of a replica with these shards in the batches of an epoch, starting with `step`.
    pub(crate) fn shares(&self, step: usize, shards: &Shards) -> impl Iterator<Item = Rows> + use<> {
        let (options, len, shards) = (self.options.clone(), self.samples.len(), shards.clone());
        (step..self.steps()).map(move |step| {
            let batch = options.batch(step, len);
            let share = shards.own_rows(batch.len());
            Rows { first: batch.start + share.start, own: share.len(), global: batch.len() }
        })
    }

    /// Makes a share the network's input, on the device.
    pub(crate) fn load(&self, device: &Device, rows: Rows, network: &mut Network) -> Result<()> {
        network.load_input(rows.own, self.has_targets(), |x, labels| -> Result<()> {
            let set =
                towers_program::ImageSet { images: &self.images, labels: &self.labels, planes: &self.planes };
            Ok(device.load_images(&self.load, set, &self.draws, rows.first, x, labels)?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::Array4;
    use towers_augment::{ImageDataGenerator, Loader};
    use towers_layers::Mode;

    /// The labels that the device copies are those of the images, though each has several words.
    #[test]
    fn a_device_loads_the_words_of_multi_hot_labels() {
        let device = towers_tensor_cpu::reference();
        let images =
            Array4::from_shape_fn((11, 16, 16, 3), |(n, y, x, c)| (n * 37 + y * 5 + x * 3 + c * 60) as u8);
        let rows =
            ndarray::Array2::from_shape_fn((11, 40), |(n, class)| u8::from((n * 7 + class * 3) % 5 < 2));
        let split =
            towers_dataset::Split::new(images.clone(), vec![0; 11]).unwrap().multi_label(rows).unwrap();
        let labelling = Labelling::of(&split);
        let samples = Samples::new(images, split.labels.to_vec()).unwrap();
        let pipeline = ImageDataGenerator::new().rescale(1.0 / 255.0).build([16, 16, 3]).unwrap();
        let model = towers_models::by_name_for("small_cnn", [16, 16, 3], 40).unwrap().unwrap().multi_label();
        let mut network = model.build(&device, 8, Mode::Training).unwrap();
        network.init(1).unwrap();
        let batches = LoaderOptions::new().batch_size(8).seed(3);
        let mut set =
            ImageSet::new(&device, &samples, pipeline.clone(), batches.clone(), &labelling).unwrap();
        set.begin_epoch(&device, 0).unwrap();
        let mut loader = Loader::new(samples, pipeline, batches).unwrap();
        let shards = Shards::new(1, 1, 0);
        for (batch, own) in loader.epoch(0, 0).unwrap().zip(set.shares(0, &shards)) {
            let batch = batch.unwrap();
            let rows = labelling.multi_hot().unwrap();
            let words: Vec<u32> = batch.indices.iter().flat_map(|&k| rows.of(k as usize).to_vec()).collect();
            network.set_input(&batch.x, &words).unwrap();
            network.evaluate_pass().unwrap();
            let of_host = network.metrics().unwrap();
            set.load(&device, own, &mut network).unwrap();
            network.evaluate_pass().unwrap();
            let of_device = network.metrics().unwrap();
            assert_eq!(of_host.correct, of_device.correct);
            assert!((of_host.loss_sum - of_device.loss_sum).abs() < 1e-4, "{of_host:?} {of_device:?}");
        }
    }

    /// Batches made by the device equal those made by the host.
    #[test]
    fn a_device_loads_what_a_loader_loads() {
        for image in [[32, 32, 3], [20, 36, 3]] {
            loads_what_a_loader_loads(image);
        }
    }

    fn loads_what_a_loader_loads(image: [usize; 3]) {
        let device = towers_tensor_cpu::reference();
        let images = Array4::from_shape_fn((11, image[0], image[1], 3), |(n, y, x, c)| {
            (n * 37 + y * 5 + x * 3 + c * 60) as u8
        });
        let samples = Samples::new(images, (0..11).collect::<Vec<u16>>()).unwrap();
        let options =
            ImageDataGenerator::new().width_shift_range(0.1).height_shift_range(0.2).horizontal_flip(true);
        let pipeline = options.rescale(1.0 / 255.0).build(image).unwrap();
        let mut network = towers_models::by_name_for("small_cnn", image, 11)
            .unwrap()
            .unwrap()
            .build(&device, 6, Mode::Training)
            .unwrap();
        let batches = LoaderOptions::new().batch_size(8).seed(3);
        let mut set =
            ImageSet::new(&device, &samples, pipeline.clone(), batches.clone(), &Labelling::default())
                .unwrap();
        let weights = "1,2".parse().unwrap();
        for (shards, epoch) in [
            (Shards::new(2, 2, 0), 0),
            (Shards::new(2, 2, 1), 5),
            (Shards::new(3, 2, 1), 2),
            (Shards::weighted(1, &weights, 1), 1),
        ] {
            let own = shards.clone();
            let share = towers_augment::parts::Rows::by(move |len| own.own_rows(len));
            let mut loader =
                Loader::new(samples.clone(), pipeline.clone(), batches.clone().rows(share)).unwrap();
            set.begin_epoch(&device, epoch).unwrap();
            let mut seen = 0;
            for (batch, rows) in loader.epoch(epoch, 0).unwrap().zip(set.shares(0, &shards)) {
                let batch = batch.unwrap();
                assert_eq!((rows.own, rows.global), (batch.len(), batch.global_len));
                set.load(&device, rows, &mut network).unwrap();
                let x = network.input();
                let x = x.data.to_vec(&device, x.layout.offset, batch.x.len()).unwrap();
                let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-5;
                assert!(x.iter().zip(&batch.x).all(near), "{shards:?}, epoch {epoch}");
                seen += 1;
            }
            assert_eq!(seen, 2);
        }
    }
}
