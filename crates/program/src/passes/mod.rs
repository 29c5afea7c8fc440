//! Passes over programs, each from program to program. [`training`] and [`inference`] are their orders.
//!
//! | pass | what it does |
//! | --- | --- |
//! | [`leave_out_biases`] | a bias before batch normalization is not added |
//! | [`synchronize`] | batch normalization over all replicas |
//! | [`differentiate`] | the backward pass |
//! | [`mask_pooled`] | the gradient of a ReLU before a max pooling is that of fewer numbers |
//! | [`recompute`] | cheap outputs are computed again, not kept |
//! | [`accumulate`] | gradients that come together are added where they lie |
//! | [`fold`] | a convolution does the batch normalization behind it, in inference |
//! | [`share`] | sums in place, concatenations and slices without copies |
//! | [`bucket`] | sums of gradients over all replicas start during the backward pass |

mod accumulate;
mod bias;
mod bucket;
mod differentiate;
mod fold;
mod gradients;
mod pooled;
mod recompute;
mod share;
mod synchronize;

pub use accumulate::accumulate;
pub use bias::leave_out_biases;
pub use bucket::{BUCKET, bucket};
pub use differentiate::differentiate;
pub use fold::fold;
pub use gradients::Gradients;
pub use pooled::mask_pooled;
pub use recompute::recompute;
pub(crate) use share::is_executable;
pub use share::share;
pub use synchronize::synchronize;

use crate::{Program, Result, TensorId};

/// The options of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Training {
    /// Whether the gradient of the input is computed too.
    pub input_gradient: bool,
    /// Whether cheap outputs are computed again instead of kept.
    pub recompute: bool,
    /// For synchronized batch normalization: this replica's rank, and the number of replicas.
    pub sync_batch_norm: Option<[usize; 2]>,
    /// For asynchronous all-reduces of gradients: the least elements of a [`bucket`].
    pub bucket: Option<usize>,
}

/// The training step of a forward program that ends with its loss, or with a [`Send`](crate::ops::Send) to the next stage.
///
/// # Errors
/// As [`differentiate`].
pub fn training(forward: Program, training: Training) -> Result<Program> {
    let forward = leave_out_biases(forward);
    let forward = match training.sync_batch_norm {
        Some([rank, replicas]) => synchronize(forward, rank, replicas)?,
        None => forward,
    };
    let step = mask_pooled(differentiate(forward, training.input_gradient)?);
    let step = if training.recompute { recompute(step) } else { step };
    let step = share(accumulate(step));
    Ok(match training.bucket {
        Some(least) => bucket(step, least),
        None => step,
    })
}

/// The inference pass of a forward program.
pub fn inference(forward: Program) -> Program {
    share(fold(forward))
}

/// Whether no step behind step `k`, nor a caller, reads a tensor's memory.
fn is_dead_after(program: &Program, id: TensorId, k: usize) -> bool {
    let read = program.steps[k + 1..].iter().flat_map(|step| step.reads()).chain(program.kept());
    !read.into_iter().any(|read| program.overlap(read, id))
}
