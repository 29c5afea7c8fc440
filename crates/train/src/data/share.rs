use crate::Result;
use crate::data::image_set::{ImageSet, Rows};
use crate::data::labelling::Labelling;
use core::ops::Range;
use std::cell::RefCell;
use std::rc::Rc;
use towers_augment::{Batch, Loader, LoaderOptions, Pipeline, Samples};
use towers_layers::Network;
use towers_parallel::{Shards, Stage};
use towers_program::{Device, Target};

/// The most threads that make batches for a device. Several replicas on a machine share its cores.
const MOST_WORKERS: usize = 8;

/// The source of batches.
pub(crate) enum Source {
    /// Threads of the host.
    Host(Loader, Labelling),
    /// The device itself, for these shards.
    Device(Rc<RefCell<ImageSet>>, Shards),
    /// Another stage has the images: only labels are needed.
    Labels(Box<Labels>),
}

impl Source {
    /// Batches per epoch.
    pub(crate) fn steps(&self) -> usize {
        match self {
            Source::Host(loader, _) => loader.steps_per_epoch(),
            Source::Device(set, _) => set.borrow().steps(),
            Source::Labels(labels) => labels.options.steps(labels.samples.len()),
        }
    }

    /// The shards of a replica in every batch. A stage without images needs only labels, which the pipeline mixes.
    /// An asynchronous device makes batches itself, since no host is fast enough. The host makes them if images are
    /// read on demand, or if [`towers_program::Backend::load_images`] lacks a step of the pipeline.
    pub(crate) fn new(
        device: &Device,
        stage: &Stage,
        samples: &Samples,
        pipeline: Pipeline,
        options: LoaderOptions,
        shards: &Shards,
        labelling: &Labelling,
    ) -> Result<Self> {
        if !stage.is_first() {
            let (samples, shards, labelling) = (samples.clone(), shards.clone(), labelling.clone());
            return Ok(Source::Labels(Box::new(Labels { samples, pipeline, options, shards, labelling })));
        }
        let (ahead, on_demand) = (device.runs_ahead(), samples.images().is_none());
        if ahead && !on_demand && pipeline.unplaceable().is_none() {
            let set = ImageSet::new(device, samples, pipeline, options, labelling)?;
            return Ok(Source::Device(Rc::new(RefCell::new(set)), shards.clone()));
        }
        // If the device computes, all but one of the cores may make batches. Otherwise the cores compute, but no
        // network should wait for pictures to be decoded.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = match (ahead, on_demand) {
            (true, _) => (cores - 1).clamp(1, MOST_WORKERS),
            (false, true) => cores.min(MOST_WORKERS),
            (false, false) => options.workers,
        };
        // Each makes a batch.
        let prefetch = options.prefetch.max(workers);
        let options = options.workers(workers).prefetch(prefetch).rows(rows_of(shards));
        Ok(Source::Host(Loader::new(samples.clone(), pipeline, options)?, labelling.clone()))
    }

    /// From now on this replica has these shards of every batch.
    pub(crate) fn set_shards(&mut self, shards: &Shards) -> Result<()> {
        match self {
            Source::Host(loader, _) => {
                let options = loader.options().clone().rows(rows_of(shards));
                *loader = Loader::new(loader.samples().clone(), loader.pipeline().clone(), options)?;
            }
            Source::Device(_, own) => own.clone_from(shards),
            Source::Labels(labels) => labels.shards.clone_from(shards),
        }
        Ok(())
    }

    /// The shares in the batches of `epoch`, starting with `step`.
    pub(crate) fn epoch(&mut self, device: &Device, epoch: u64, step: usize) -> Result<Shares<'_>> {
        match self {
            Source::Host(loader, labelling) => {
                let share = |batch| Ok(Share::Images(Box::new(batch?), labelling.clone()));
                Ok(Box::new(loader.epoch(epoch, step)?.map(share)))
            }
            Source::Device(set, shards) => {
                set.borrow_mut().begin_epoch(device, epoch)?;
                let shares = set.borrow().shares(step, shards);
                Ok(Box::new(shares.map(|rows| Ok(Share::Rows(rows, Rc::clone(set))))))
            }
            Source::Labels(labels) => Ok(Box::new(labels.shares(epoch, step))),
        }
    }
}

/// The rows of a replica's shards in a batch of any length.
fn rows_of(shards: &Shards) -> towers_augment::parts::Rows {
    let own = shards.clone();
    towers_augment::parts::Rows::by(move |len| own.own_rows(len))
}

/// The labels of a set, for a stage without images.
pub(crate) struct Labels {
    samples: Samples,
    pipeline: Pipeline,
    options: LoaderOptions,
    shards: Shards,
    labelling: Labelling,
}

impl Labels {
    fn shares(&self, epoch: u64, step: usize) -> impl Iterator<Item = Result<Share>> + '_ {
        let Labels { samples, options, shards, .. } = self;
        let order = options.order(epoch, samples.labels());
        (step..options.steps(samples.len())).map(move |step| {
            let batch = options.batch(step, samples.len());
            let own = shards.own_rows(batch.len());
            let places = &order[batch.start + own.start..batch.start + own.end];
            Ok(Share::Labels { targets: self.targets(epoch, &order, places), global: batch.len() })
        })
    }

    /// The targets of these samples. Mixing depends only on (seed, epoch, sample), so the stage with the
    /// images and this one agree without communication.
    fn targets(&self, epoch: u64, order: &[u32], places: &[u32]) -> Targets {
        let Labels { samples, pipeline, options, labelling, .. } = self;
        if let Some(rows) = labelling.multi_hot() {
            let words = |&place: &u32| rows.of(place as usize % samples.len()).iter().copied();
            return Targets::Labels { words: rows.words(), labels: places.iter().flat_map(words).collect() };
        }
        let label = |place: u32| u32::from(samples.labels()[place as usize % samples.len()]);
        let mixes = options.augment && pipeline.options().mixes();
        let targets = places.iter().map(|&place| {
            let mix =
                if mixes { pipeline.mix(options.seed, epoch, place, samples.len() as u32) } else { None };
            let mix = mix.map(|mix| (label(options.partner(order, mix.partner)), mix.weight));
            labelling.target(label(place), mix)
        });
        if mixes || labelling.is_weighted() {
            Targets::Whole(targets.collect())
        } else {
            Targets::Labels { words: 1, labels: targets.map(|target| target.label).collect() }
        }
    }
}

/// The targets of the samples.
pub(crate) enum Targets {
    /// A label each, of this number of integers.
    Labels { words: usize, labels: Vec<u32> },
    /// Two labels each, with mixup and cutmix, or weights.
    Whole(Vec<Target>),
}

/// This replica's share of a batch: the rows of its shards, one after the other.
pub(crate) enum Share {
    /// Images and labels in host memory, and what they are compared with.
    Images(Box<Batch>, Labelling),
    /// Positions of a set on the device.
    Rows(Rows, Rc<RefCell<ImageSet>>),
    /// Only the labels, and the samples of the whole batch.
    Labels { targets: Targets, global: usize },
}

impl Share {
    /// Samples of the whole batch.
    pub(crate) fn global(&self) -> usize {
        match self {
            Share::Images(batch, _) => batch.global_len,
            Share::Rows(rows, _) => rows.global,
            Share::Labels { global, .. } => *global,
        }
    }

    /// The rows of the replica's shard `own`, counted from its first one.
    pub(crate) fn piece_of(&self, shards: &Shards, own: usize) -> Piece<'_> {
        let start = shards.own_rows(self.global()).start;
        let Range { start: first, end } = shards.rows(self.global(), shards.own().start + own);
        Piece { share: self, rows: first - start..end - start, first_sample: first as u32 }
    }
}

/// Some rows of a share, for one pass.
pub(crate) struct Piece<'a> {
    share: &'a Share,
    rows: Range<usize>,
    /// Its first sample in the whole batch.
    pub(crate) first_sample: u32,
}

impl Piece<'_> {
    /// Its first position in the epoch's order, for a device that has the set.
    pub(crate) fn first(&self) -> u32 {
        match self.share {
            Share::Images(..) | Share::Labels { .. } => 0,
            Share::Rows(rows, _) => (rows.first + self.rows.start) as u32,
        }
    }

    /// Sets the size of the network's batch and the kind of its labels, and copies nothing.
    pub(crate) fn set_batch(&self, network: &mut Network) -> Result<()> {
        let targets = match self.share {
            Share::Images(batch, labelling) => !batch.weights.is_empty() || labelling.is_weighted(),
            Share::Labels { targets, .. } => matches!(targets, Targets::Whole(_)),
            Share::Rows(_, set) => set.borrow().has_targets(),
        };
        Ok(network.set_batch(self.rows.len(), targets)?)
    }

    /// Copies the part that the host has to the network.
    pub(crate) fn send(&self, network: &mut Network) -> Result<()> {
        match self.share {
            Share::Images(batch, labelling) => {
                let Range { start, end } = self.rows;
                let len = network.sample_len();
                let images = &batch.x[start * len..end * len];
                if let Some(rows) = labelling.multi_hot() {
                    let words = |&sample: &u32| rows.of(sample as usize).iter().copied();
                    let labels: Vec<u32> = batch.indices[start..end].iter().flat_map(words).collect();
                    return Ok(network.set_input(images, &labels)?);
                }
                let mixes = !batch.weights.is_empty();
                if !(mixes || labelling.is_weighted()) {
                    return Ok(network.set_input(images, &batch.labels[start..end])?);
                }
                let mix = |row: usize| mixes.then(|| (batch.other_labels[row], batch.weights[row]));
                let target = |row: usize| labelling.target(batch.labels[row], mix(row));
                let targets: Vec<Target> = (start..end).map(target).collect();
                Ok(network.set_input_with_targets(images, &targets)?)
            }
            Share::Rows(..) => self.set_batch(network),
            Share::Labels { targets: Targets::Labels { words, labels }, .. } => {
                Ok(network.set_labels(&labels[self.rows.start * words..self.rows.end * words])?)
            }
            Share::Labels { targets: Targets::Whole(targets), .. } => {
                Ok(network.set_targets(&targets[self.rows.clone()])?)
            }
        }
    }

    /// Makes the device load its part.
    pub(crate) fn load(&self, network: &mut Network) -> Result<()> {
        match self.share {
            Share::Images(..) | Share::Labels { .. } => Ok(()),
            Share::Rows(rows, set) => {
                let (device, first) = (network.device().clone(), rows.first + self.rows.start);
                set.borrow().load(&device, Rows { first, own: self.rows.len(), ..*rows }, network)
            }
        }
    }
}

/// Shares of consecutive batches.
pub(crate) type Shares<'a> = Box<dyn Iterator<Item = Result<Share>> + 'a>;
