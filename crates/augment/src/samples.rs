//! A labelled set of images, shared between threads.

use crate::Error;
use core::ops::Range;
use ndarray::{Array4, ArrayView4, Axis, Slice};
use std::sync::Arc;

/// Images (N, H, W, C) with a label each. Cloning it is cheap.
///
/// ```
/// use augment::Samples;
/// use ndarray::Array4;
///
/// let samples = Samples::new(Array4::zeros((2, 32, 32, 3)), vec![0, 7])?;
/// assert_eq!((samples.len(), samples.shape()), (2, [32, 32, 3]));
/// # Ok::<(), augment::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Samples {
    images: Arc<Array4<u8>>,
    labels: Arc<[u16]>,
    /// Which of them.
    range: Range<usize>,
}

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
        let n = images.dim().0;
        Error::check_len("the array of labels", labels.len(), n)?;
        if images.is_empty() {
            return Err(Error::EmptySet { op: "samples" });
        }
        if u32::try_from(n).is_err() {
            return Err(Error::option("images", n, "at most 2^32 - 1"));
        }
        if !images.is_standard_layout() {
            images = Arc::new(images.as_standard_layout().into_owned());
        }
        Ok(Samples { images, labels, range: 0..n })
    }

    /// One part of the set, whose first `validation_split` (a share, rounded down) are kept for validation, as in Keras: shuffle a
    /// set that is sorted by label first.
    ///
    /// ```
    /// use augment::{Samples, Subset};
    /// use ndarray::Array4;
    ///
    /// let samples = Samples::new(Array4::zeros((10, 4, 4, 3)), vec![0; 10])?;
    /// assert_eq!(samples.subset(Subset::Validation, 0.25)?.len(), 2);
    /// assert_eq!(samples.subset(Subset::Training, 0.25)?.len(), 8);
    /// # Ok::<(), augment::Error>(())
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
        let (_, h, w, c) = self.images.dim();
        [h, w, c]
    }

    /// All images (N, H, W, C).
    pub fn images(&self) -> ArrayView4<'_, u8> {
        self.images.slice_axis(Axis(0), Slice::from(self.range.clone()))
    }

    /// All labels.
    pub fn labels(&self) -> &[u16] {
        &self.labels[self.range.clone()]
    }

    /// The pixels of one image (HWC).
    ///
    /// # Panics
    /// If `sample` is not below [`len`](Self::len).
    pub fn image(&self, sample: usize) -> &[u8] {
        assert!(sample < self.len(), "there is no sample {sample} among {}", self.len());
        let all = self.images.as_slice().expect("`new` saw to the standard layout");
        let [h, w, c] = self.shape();
        &all[(self.range.start + sample) * h * w * c..][..h * w * c]
    }
}
