//! Batches of augmented images, made ahead of time by worker threads.

use crate::batch::Buffers;
use crate::prefetch::{Pool, Prefetcher};
use crate::{Batch, Draws, Error, LoaderOptions, Pipeline, Samples, Scratch};
use std::mem::take;
use std::sync::Arc;

/// Goes through a set in batches, epoch by epoch.
///
/// What it yields is a pure function of the samples, the pipeline, the seed, the epoch and the step: the
/// number of workers doesn't matter, and neither does the step at which it begins. After the first epoch
/// has begun it allocates nothing, as long as no more than two batches are held at a time.
///
/// ```
/// use towers_augment::{ImageDataGenerator, Loader, LoaderOptions, Samples};
/// use ndarray::Array4;
///
/// let samples = Samples::new(Array4::zeros((10, 4, 4, 3)), vec![0; 10])?;
/// let pipeline = ImageDataGenerator::new().horizontal_flip(true).build(samples.shape())?;
/// let mut loader = Loader::new(samples, pipeline, LoaderOptions::new().batch_size(4).workers(2))?;
/// for batch in loader.epoch(0, 0)? {
///     let batch = batch?;
///     assert_eq!(batch.x.len(), batch.len() * 4 * 4 * 3);
/// }
/// // Goes on exactly where a run stopped: after 5 epochs and 2 steps.
/// assert_eq!(loader.epoch(5, 2)?.count(), 1);
/// # Ok::<(), towers_augment::Error>(())
/// ```
pub struct Loader {
    plan: Arc<Plan>,
    pool: Arc<Pool<Buffers>>,
    prefetcher: Prefetcher<Job, Buffers>,
}

/// An epoch: its number and the order of the samples.
#[derive(Clone)]
struct Job {
    epoch: u64,
    order: Arc<[u32]>,
}

/// All that the content of a batch depends on, but for the epoch and the step.
struct Plan {
    samples: Samples,
    pipeline: Pipeline,
    options: LoaderOptions,
}

/// Batches beside the prefetched ones that a caller can hold before new memory is needed.
const HELD: usize = 2;

impl Loader {
    /// Prepares the memory and starts the workers.
    ///
    /// # Errors
    /// [`Error::Shape`] if `pipeline` was built for images of another shape; [`Error::Option`] for options
    /// that make no sense; [`Error::Spawn`] if a thread can't be started.
    pub fn new(samples: Samples, pipeline: Pipeline, options: LoaderOptions) -> Result<Self, Error> {
        options.check()?;
        if samples.shape() != pipeline.shape() {
            let (got, expected) = (samples.shape().to_vec(), pipeline.shape().to_vec());
            return Err(Error::Shape { what: "the images of the set", got, expected });
        }
        let samples = match options.subset {
            Some(subset) => samples.subset(subset, pipeline.options().validation_split)?,
            None => samples,
        };
        #[cfg(feature = "png")]
        if let Some(folder) = &options.save_to_dir {
            crate::save::prepare(folder, samples.shape())?;
        }
        // A slice of the short last batch may be the longest.
        let whole = options.batch_size.min(samples.len());
        let rows = [whole, samples.len() % whole.max(1)].map(|len| options.rows.of(len).len());
        let rows = rows[0].max(rows[1]);
        let (shape, len) = (samples.shape(), pipeline.image_len());
        let mixed = if pipeline.options().mixes() { rows } else { 0 };
        let buffers = move || Buffers {
            x: vec![0.0; rows * len],
            labels: Vec::with_capacity(rows),
            indices: Vec::with_capacity(rows),
            other_labels: Vec::with_capacity(mixed),
            weights: Vec::with_capacity(mixed),
            scratch: Scratch::for_shape(shape),
            partner: vec![0.0; if mixed > 0 { len } else { 0 }],
        };
        let ahead = if options.workers == 0 { 0 } else { options.prefetch };
        let pool = Arc::new(Pool::new(ahead + HELD, buffers));
        let plan = Arc::new(Plan { samples, pipeline, options });
        let make = Box::new({
            let plan = Arc::clone(&plan);
            move |job: &Job, step: usize, buffers: &mut Buffers| plan.fill(job, step, buffers)
        });
        let prefetcher =
            Prefetcher::new(plan.options.workers, plan.options.prefetch, Arc::clone(&pool), make)?;
        Ok(Loader { plan, pool, prefetcher })
    }

    /// Batches in an epoch.
    pub fn steps_per_epoch(&self) -> usize {
        self.plan.steps()
    }

    /// The set.
    pub fn samples(&self) -> &Samples {
        &self.plan.samples
    }

    /// The pipeline.
    pub fn pipeline(&self) -> &Pipeline {
        &self.plan.pipeline
    }

    /// The options.
    pub fn options(&self) -> &LoaderOptions {
        &self.plan.options
    }

    /// The batches from `step` on of the epoch after `epoch` others: the first epoch has the key 0. Workers begin at once; dropping the iterator calls them off.
    ///
    /// # Errors
    /// [`Error::Step`] if the epoch has fewer than `step` steps.
    pub fn epoch(&mut self, epoch: u64, step: usize) -> Result<Epoch<'_>, Error> {
        let left = self.begin(epoch, step)?;
        Ok(Epoch { loader: self, epoch, left })
    }

    /// Has the workers begin with `step` of `epoch`; gives the number of steps from there.
    pub(crate) fn begin(&mut self, epoch: u64, step: usize) -> Result<usize, Error> {
        let steps = self.plan.steps();
        if step > steps {
            return Err(Error::Step { step, steps });
        }
        let order = self.plan.options.order(epoch, self.plan.samples.labels());
        self.prefetcher.start(Job { epoch, order: order.into() }, step, steps);
        Ok(steps - step)
    }

    /// The next batch of `epoch`, which was begun; `None` after its last one. After an error nothing is left.
    pub(crate) fn take(&mut self, epoch: u64) -> Option<Result<Batch, Error>> {
        let (step, made) = self.prefetcher.next()?;
        let global_len = self.plan.global_rows(step).len();
        let shape = self.plan.options.layout.dims(self.plan.pipeline.shape());
        let batch = made.map(|buffers| Batch::new(buffers, epoch, step, global_len, shape, &self.pool));
        if batch.is_err() {
            self.prefetcher.cancel();
        }
        Some(batch)
    }
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loader").field("options", &self.plan.options).finish_non_exhaustive()
    }
}

impl Plan {
    fn steps(&self) -> usize {
        self.options.steps(self.samples.len())
    }

    /// The samples of a batch, as places in the epoch's order.
    fn global_rows(&self, step: usize) -> std::ops::Range<usize> {
        self.options.batch(step, self.samples.len())
    }

    fn fill(&self, job: &Job, step: usize, buffers: &mut Buffers) -> Result<(), Error> {
        let global = self.global_rows(step);
        let indices = &job.order[global.clone()][self.options.rows.of(global.len())];
        let len = self.pipeline.image_len();
        let Buffers { x, labels, indices: kept, other_labels, weights, scratch, partner } = buffers;
        kept.clear();
        kept.extend(indices.iter().map(|sample| sample % self.samples.len() as u32));
        labels.clear();
        labels.extend(indices.iter().map(|&sample| self.label(sample)));
        other_labels.clear();
        weights.clear();
        x.resize(indices.len() * len, 0.0);
        for (&sample, out) in indices.iter().zip(x.chunks_exact_mut(len)) {
            self.make(job.epoch, sample, out, scratch)?;
            let LoaderOptions { seed, augment, .. } = self.options;
            let mix = self.pipeline.mix(seed, job.epoch, sample, self.samples.len() as u32);
            if let Some(mix) = mix.filter(|_| augment) {
                partner.resize(len, 0.0);
                let other = self.options.partner(&job.order, mix.partner);
                self.make(job.epoch, other, partner, scratch)?;
                mix.apply(self.pipeline.shape(), out, partner);
                other_labels.push(self.label(other));
                weights.push(mix.weight);
            }
            #[cfg(feature = "png")]
            if let Some(folder) = &self.options.save_to_dir {
                let name = format!("{}_{sample}_{}.png", self.options.save_prefix, job.epoch);
                crate::save::picture(&folder.join(name), self.pipeline.shape(), out)?;
            }
            scratch.arrange(self.options.layout, self.pipeline.shape(), out);
        }
        Ok(())
    }

    fn label(&self, sample: u32) -> u32 {
        self.samples.labels()[sample as usize % self.samples.len()].into()
    }

    /// The image of one sample, ready for the network.
    fn make(&self, epoch: u64, sample: u32, out: &mut [f32], scratch: &mut Scratch) -> Result<(), Error> {
        let draws = if self.options.augment {
            self.pipeline.draw(self.options.seed, epoch, sample)
        } else {
            Draws::default()
        };
        let mut pixels = take(&mut scratch.pixels);
        self.pipeline.apply(
            &draws,
            self.samples.image(sample as usize % self.samples.len(), &mut pixels)?,
            out,
            scratch,
        )?;
        scratch.pixels = pixels;
        Ok(())
    }
}

/// The batches of one epoch, in order; made by [`Loader::epoch`]. Ends after an error.
#[derive(Debug)]
pub struct Epoch<'a> {
    loader: &'a mut Loader,
    epoch: u64,
    left: usize,
}

impl Iterator for Epoch<'_> {
    type Item = Result<Batch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.loader.take(self.epoch);
        self.left = if matches!(batch, Some(Ok(_))) { self.left - 1 } else { 0 };
        batch
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Epoch<'_> {}

impl Drop for Epoch<'_> {
    fn drop(&mut self) {
        self.loader.prefetcher.cancel();
    }
}
