//! What a loader hands out.

use crate::Scratch;
use crate::prefetch::Pool;
use std::mem::take;
use std::sync::Arc;

/// The memory of a batch.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub x: Vec<f32>,
    pub labels: Vec<u32>,
    pub indices: Vec<u32>,
    pub scratch: Scratch,
}

/// A batch of augmented images. Dropping it gives its memory back to the loader, for a later batch.
#[derive(Debug)]
pub struct Batch {
    /// The images (N, H, W, C), ready for the network.
    pub x: Vec<f32>,
    /// The label of each image.
    pub labels: Vec<u32>,
    /// The index of each image in the set.
    pub indices: Vec<u32>,
    /// The epoch that the images were drawn for.
    pub epoch: u64,
    /// The number of the batch in the epoch, from 0.
    pub step: usize,
    /// Images in the whole batch, of which these may be a slice: see [`Rows`](crate::Rows).
    pub global_len: usize,
    scratch: Scratch,
    home: Arc<Pool<Buffers>>,
}

impl Batch {
    pub(crate) fn new(
        buffers: Buffers,
        epoch: u64,
        step: usize,
        global_len: usize,
        home: &Arc<Pool<Buffers>>,
    ) -> Self {
        let Buffers { x, labels, indices, scratch } = buffers;
        Batch { x, labels, indices, epoch, step, global_len, scratch, home: Arc::clone(home) }
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
            scratch: take(&mut self.scratch),
        });
    }
}
