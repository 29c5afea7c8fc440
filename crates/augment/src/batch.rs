//! What a loader hands out.

use crate::Scratch;
use crate::prefetch::Pool;
use ndarray::{Array4, ArrayView4};
use std::mem::take;
use std::sync::Arc;

/// The memory of a batch.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub x: Vec<f32>,
    pub labels: Vec<u32>,
    pub indices: Vec<u32>,
    pub other_labels: Vec<u32>,
    pub weights: Vec<f32>,
    pub scratch: Scratch,
    /// The image that another one is mixed with.
    pub partner: Vec<f32>,
}

/// A batch of augmented images. Dropping it gives its memory back to the loader, for a later batch.
#[derive(Debug)]
pub struct Batch {
    /// The images, ready for the network: (N, H, W, C), or as [`LoaderOptions::layout`](crate::LoaderOptions::layout) says.
    pub x: Vec<f32>,
    /// The label of each image.
    pub labels: Vec<u32>,
    /// The index of each image in the set.
    pub indices: Vec<u32>,
    /// With mixup or cutmix the label of the image that each is mixed with; empty otherwise.
    pub other_labels: Vec<u32>,
    /// With mixup or cutmix how much each image's own label counts, the other one having the rest; empty otherwise.
    pub weights: Vec<f32>,
    /// The number of epochs before this one: the key that the images were drawn with.
    pub epoch: u64,
    /// The number of the batch in the epoch, from 0.
    pub step: usize,
    /// Images in the whole batch, of which these may be a slice: see [`Rows`](crate::parts::Rows).
    pub global_len: usize,
    /// The axes of an image.
    shape: [usize; 3],
    scratch: Scratch,
    partner: Vec<f32>,
    home: Arc<Pool<Buffers>>,
}

impl Batch {
    pub(crate) fn new(
        buffers: Buffers,
        epoch: u64,
        step: usize,
        global_len: usize,
        shape: [usize; 3],
        home: &Arc<Pool<Buffers>>,
    ) -> Self {
        let Buffers { x, labels, indices, other_labels, weights, scratch, partner } = buffers;
        let home = Arc::clone(home);
        Batch {
            x,
            labels,
            indices,
            other_labels,
            weights,
            epoch,
            step,
            global_len,
            shape,
            scratch,
            partner,
            home,
        }
    }

    /// The images as an array with the axes of [`x`](Self::x); empty once [`x`](Self::x) was taken away.
    pub fn images(&self) -> ArrayView4<'_, f32> {
        let [a, b, c] = self.shape;
        let n = self.x.len() / (a * b * c);
        ArrayView4::from_shape((n, a, b, c), &self.x[..n * a * b * c])
            .expect("as many values as the shape has")
    }

    /// The images as an owned array. The loader allocates new memory for a later batch.
    pub fn into_images(mut self) -> Array4<f32> {
        let [a, b, c] = self.shape;
        let n = self.x.len() / (a * b * c);
        Array4::from_shape_vec((n, a, b, c), take(&mut self.x)).unwrap_or_default()
    }

    /// Images in this batch (or slice of one).
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether it holds no image, as a slice of a short last batch may.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.home.put(Buffers {
            x: take(&mut self.x),
            labels: take(&mut self.labels),
            indices: take(&mut self.indices),
            other_labels: take(&mut self.other_labels),
            weights: take(&mut self.weights),
            scratch: take(&mut self.scratch),
            partner: take(&mut self.partner),
        });
    }
}
