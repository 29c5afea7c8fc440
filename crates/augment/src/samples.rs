//! A labelled set of images, shared between threads.

use crate::Error;
use ndarray::{Array4, ArrayView4};
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
        Ok(Samples { images, labels })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Never true: an empty set is refused.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Height, width and channels of the images.
    pub fn shape(&self) -> [usize; 3] {
        let (_, h, w, c) = self.images.dim();
        [h, w, c]
    }

    /// All images (N, H, W, C).
    pub fn images(&self) -> ArrayView4<'_, u8> {
        self.images.view()
    }

    /// All labels.
    pub fn labels(&self) -> &[u16] {
        &self.labels
    }

    /// The pixels of one image (HWC).
    ///
    /// # Panics
    /// If `sample` is not below [`len`](Self::len).
    pub fn image(&self, sample: usize) -> &[u8] {
        let all = self.images.as_slice().expect("`new` saw to the standard layout");
        let [h, w, c] = self.shape();
        &all[sample * h * w * c..][..h * w * c]
    }
}
