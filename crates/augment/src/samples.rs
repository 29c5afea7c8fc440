//! A labelled set of images, shared between threads.

use crate::Error;
use core::ops::Range;
use ndarray::{Array4, ArrayView4, Axis, Slice};
use std::sync::Arc;

/// Images (N, H, W, C) with a label each, in memory or [read on demand](Self::on_demand). Cloning it is cheap.
///
/// ```
/// use towers_augment::Samples;
/// use ndarray::Array4;
///
/// let samples = Samples::new(Array4::zeros((2, 32, 32, 3)), vec![0, 7])?;
/// assert_eq!((samples.len(), samples.shape()), (2, [32, 32, 3]));
/// # Ok::<(), towers_augment::Error>(())
/// ```
#[derive(Clone)]
pub struct Samples {
    images: Images,
    shape: [usize; 3],
    labels: Arc<[u16]>,
    /// Which of them.
    range: Range<usize>,
}

#[derive(Clone)]
enum Images {
    /// In standard layout.
    InMemory(Arc<Array4<u8>>),
    OnDemand(Arc<ReadImage>),
}

/// Writes the pixels (HWC) of an image of a set.
type ReadImage = dyn Fn(usize, &mut [u8]) -> Result<(), Error> + Send + Sync;

/// A part of a set that [`validation_split`](crate::ImageDataGenerator::validation_split) cuts in two; Keras' `subset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subset {
    /// What is left.
    Training,
    /// The first samples of the set.
    Validation,
}

impl Samples {
    /// Takes an array or an [`Arc`] of one, and as many labels as there are images. An array that is not in
    /// standard layout (row by row, channels together) is copied into it.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of labels; [`Error::EmptySet`] without images;
    /// [`Error::Option`] for more than 2^32 - 1 of them.
    pub fn new(images: impl Into<Arc<Array4<u8>>>, labels: impl Into<Arc<[u16]>>) -> Result<Self, Error> {
        let (mut images, labels) = (images.into(), labels.into());
        let (n, h, w, c) = images.dim();
        Error::check_len("the array of labels", labels.len(), n)?;
        if !images.is_standard_layout() {
            images = Arc::new(images.as_standard_layout().into_owned());
        }
        Samples::of(Images::InMemory(images), [h, w, c], labels)
    }

    /// A set that need not fit in memory: `read(sample, pixels)` writes the pixels (HWC) of an image of this
    /// height, width and channels. A [`Loader`](crate::Loader) calls it on its worker threads, in the order of its epochs.
    ///
    /// ```
    /// use towers_augment::{ImageDataGenerator, Loader, LoaderOptions, Samples};
    ///
    /// let samples = Samples::on_demand([4, 4, 3], vec![0; 10], |sample, pixels| {
    ///     pixels.fill(sample as u8); // of a file, if it fails `Error::Read`
    ///     Ok(())
    /// })?;
    /// let pipeline = ImageDataGenerator::new().build(samples.shape())?;
    /// let mut loader = Loader::new(samples, pipeline, LoaderOptions::new().workers(2))?;
    /// for batch in loader.epoch(0, 0)? {
    ///     let batch = batch?;
    ///     assert_eq!(batch.x[0], batch.indices[0] as f32);
    /// }
    /// # Ok::<(), towers_augment::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn on_demand(
        shape: [usize; 3],
        labels: impl Into<Arc<[u16]>>,
        read: impl Fn(usize, &mut [u8]) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        Samples::of(Images::OnDemand(Arc::new(read)), shape, labels.into())
    }

    fn of(images: Images, shape: [usize; 3], labels: Arc<[u16]>) -> Result<Self, Error> {
        let n = labels.len();
        if n == 0 || shape.contains(&0) {
            return Err(Error::EmptySet { op: "samples" });
        }
        if u32::try_from(n).is_err() {
            return Err(Error::option("images", n, "at most 2^32 - 1"));
        }
        Ok(Samples { images, shape, labels, range: 0..n })
    }

    /// One part of the set, whose first `validation_split` (a share, rounded down) are kept for validation, as in Keras: shuffle a
    /// set that is sorted by label first.
    ///
    /// ```
    /// use towers_augment::{Samples, parts::Subset};
    /// use ndarray::Array4;
    ///
    /// let samples = Samples::new(Array4::zeros((10, 4, 4, 3)), vec![0; 10])?;
    /// assert_eq!(samples.subset(Subset::Validation, 0.25)?.len(), 2);
    /// assert_eq!(samples.subset(Subset::Training, 0.25)?.len(), 8);
    /// # Ok::<(), towers_augment::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Option`] for a share that leaves one of the parts empty, and if the parts have unlike classes.
    pub fn subset(&self, subset: Subset, validation_split: f64) -> Result<Self, Error> {
        let cut = (self.len() as f64 * validation_split) as usize;
        if !(1..self.len()).contains(&cut) {
            let accepted = format!("a share that leaves some of the {} samples for each part", self.len());
            return Err(Error::option("validation_split", validation_split, accepted));
        }
        let at = self.range.start + cut;
        let part = |range| Samples { range, ..self.clone() };
        let (validation, training) = (part(self.range.start..at), part(at..self.range.end));
        if validation.classes() != training.classes() {
            let accepted = "of a set whose parts have the same classes; shuffle it first";
            return Err(Error::option("validation_split", validation_split, accepted));
        }
        Ok(if subset == Subset::Validation { validation } else { training })
    }

    fn classes(&self) -> Vec<u16> {
        let mut classes = self.labels().to_vec();
        classes.sort_unstable();
        classes.dedup();
        classes
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Never true: an empty set is refused.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Height, width and channels of the images.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// All images (N, H, W, C); `None` if they are read on demand.
    pub fn images(&self) -> Option<ArrayView4<'_, u8>> {
        match &self.images {
            Images::InMemory(images) => Some(images.slice_axis(Axis(0), Slice::from(self.range.clone()))),
            Images::OnDemand(_) => None,
        }
    }

    /// All labels.
    pub fn labels(&self) -> &[u16] {
        &self.labels[self.range.clone()]
    }

    /// The pixels of one image (HWC): those in memory, or read into `buffer`.
    ///
    /// # Errors
    /// If it can't be read.
    ///
    /// # Panics
    /// If `sample` is not below [`len`](Self::len).
    pub fn image<'a>(&'a self, sample: usize, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], Error> {
        assert!(sample < self.len(), "there is no sample {sample} among {}", self.len());
        let (place, len) = (self.range.start + sample, self.shape.iter().product());
        match &self.images {
            Images::InMemory(images) => {
                let all = images.as_slice().expect("`new` saw to the standard layout");
                Ok(&all[place * len..][..len])
            }
            Images::OnDemand(read) => {
                buffer.resize(len, 0);
                read(place, buffer)?;
                Ok(buffer)
            }
        }
    }
}

impl core::fmt::Debug for Samples {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let in_memory = matches!(self.images, Images::InMemory(_));
        let mut of = f.debug_struct("Samples");
        of.field("len", &self.len()).field("shape", &self.shape).field("in_memory", &in_memory).finish()
    }
}
