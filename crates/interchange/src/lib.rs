//! Trained networks to and from other programs.
//!
//! - [`keras`] reads the layers and the weights of Keras' files (`.keras`, `.h5`, `.weights.h5`, JSON);
//! - [`pytorch`] writes a network as a PyTorch module with its state dict, and reads such state dicts;
//! - [`onnx`] writes it as an ONNX graph, and reads such graphs.
//!
//! An export writes a [`Source`]: the steps of a graph, its tensors, and its preprocessing. The exported
//! network takes pictures in PyTorch's layout, `(N, 3, height, width)`, with values from 0 to 255, and gives
//! logits. It needs nothing besides.
//!
//! ```
//! use checkpoint::Tensors;
//! use interchange::{Pixels, Source, onnx};
//! use layers::Mode;
//!
//! let model = models::small_cnn(2)?;
//! let mut network = model.build(&tensor_cpu::device(1), 1, Mode::Inference)?;
//! network.init(1)?;
//! let mut tensors = Tensors::new();
//! for slot in network.arena().slots() {
//!     let values = network.arena().storage(slot).to_vec(network.device(), slot.span.offset, slot.span.len)?;
//!     tensors.insert(&slot.name, slot.shape.clone(), values)?;
//! }
//!
//! let source = Source {
//!     name: "small_cnn",
//!     image: [32, 32, 3],
//!     input: model.graph().input(),
//!     steps: model.steps(),
//!     logits: model.logits(),
//!     tensors: &tensors,
//!     pixels: Pixels { scale: vec![1.0 / 255.0; 3], shift: vec![0.0; 3] },
//!     classes: &["cat".to_owned(), "dog".to_owned()],
//!     dataset: Some("pets"),
//! };
//! let bytes = onnx::write(&source)?;
//! assert!(bytes.len() > 4 * 24_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod compiled;
mod error;
mod file;
mod imported;
pub mod keras;
mod layout;
pub mod onnx;
pub mod pytorch;
mod source;
mod text;

pub use compiled::Compiled;
pub use error::{Error, Result};
pub use imported::Imported;
pub use source::{Pixels, Source};
