//! Networks as PyTorch modules: a Python file with the class `Network`, and a state dict for it; and the way back.
//!
//! The module takes `(N, 3, height, width)` of values from 0 to 255 and gives logits; the preprocessing is in it, as two
//! buffers. Layers keep their names, as far as Python can say them; parameters have PyTorch's.

mod about;
mod module;
mod weights;

pub use about::Named;
#[cfg(feature = "onnx")]
pub(crate) use about::read as named;
pub use module::importable;
pub use weights::{TorchWeights, is_state_dict, names_classes};

use crate::{Result, Source};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use towers_checkpoint::Tensors;

/// The line of Python that exports a network of any names and layers.
macro_rules! export {
    () => {
        "torch.onnx.export(network.eval(), (torch.zeros(1, 3, HEIGHT, WIDTH),), \"net.onnx\", dynamo=True)"
    };
}

/// The way in for a network of PyTorch that was not exported here.
pub const BY_ONNX: &str = concat!("export the network to ONNX where it is defined, by ", export!());

/// Why a file of `torch.save` is refused, and the way in.
pub const PICKLE: &str = concat!(
    "it is a pickle of torch.save, which may run any code, and is not read; export the network to ONNX where it is defined, by ",
    export!()
);

/// Whether a file is a pickle, as older versions of `torch.save` wrote it without an archive around it.
pub fn is_pickle(path: &Path) -> bool {
    let mut start = [0; 9];
    let read = path.is_file() && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok();
    // A safetensors file may begin with the same bytes; its header follows.
    read && start[0] == 0x80 && (2..=5).contains(&start[1]) && start[8] != b'{'
}

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
