//! Networks as PyTorch modules: a Python file with the class `Network`, and a state dict for it; and the way back.
//!
//! The module takes `(N, 3, height, width)` of values from 0 to 255 and gives logits; the preprocessing is in it, as two
//! buffers. Layers keep their names, as far as Python can say them; parameters have PyTorch's.

mod about;
mod module;
mod weights;

pub use about::Named;
pub(crate) use about::read as named;
pub use module::importable;
pub use weights::{TorchWeights, is_state_dict, names_classes};

use crate::{Result, Source};
use checkpoint::Tensors;

/// The tensors of the module that [`module`] writes, for its `load_state_dict`. Their metadata name the
/// classes, and say how large the images are.
///
/// # Errors
/// [`Error::Tensor`](crate::Error::Tensor) for a missing tensor.
pub fn state_dict(source: &Source<'_>) -> Result<Tensors> {
    let mut tensors = Tensors::new();
    let mut all = vec![source.scale(), source.shift()];
    for (step, layer) in source.steps.iter().zip(module::identifiers(&source.steps)) {
        all.extend(source.weights(step, &layer)?);
    }
    for weights in all {
        tensors.insert(weights.name, weights.shape, weights.data)?;
    }
    about::write(source, &mut tensors);
    Ok(tensors)
}

/// The text of a Python file with the class `Network`, whose [`state_dict`] is in the file `weights`.
///
/// # Errors
/// [`Error::Export`](crate::Error::Export) for a layer that is not a single op.
pub fn module(source: &Source<'_>, weights: &str) -> Result<String> {
    module::write(source, weights)
}
