//! Trained networks to and from other programs.
//!
//! - [`keras`] reads the layers and the weights of Keras' files (`.keras`, `.h5`, `.weights.h5`, JSON);
//! - [`pytorch`] writes a network as a PyTorch module with its state dict, and reads such state dicts;
//! - [`onnx`] writes it as an ONNX graph, and reads such graphs.
//!
//! A [`WeightsFile`] is a file of any of them, with the weights of a network.
//!
//! An export writes a [`Source`]: the steps of a graph, its tensors, and its preprocessing. The exported
//! network takes pictures in PyTorch's layout, `(N, 3, height, width)`, with values from 0 to 255, and gives
//! logits. It needs nothing besides.
//!
//! ```no_run
//! use towers_interchange::{keras, onnx, tensors, Source};
//!
//! keras::to_onnx("net.keras", "net.onnx")?;
//!
//! let loaded = keras::load("net.keras")?; // its model, tensors and notes
//! loaded.told.iter().for_each(|note| eprintln!("{note}"));
//! let mut network = loaded.model.build(&towers_tensor_cpu::device(2), 16, towers_layers::Mode::Training)?;
//! loaded.put_into(&mut network)?;
//!
//! // ... and after some training:
//! let trained = tensors(&network)?;
//! let classes = ["cat".to_owned(), "dog".to_owned()];
//! onnx::save("net.onnx", &Source::of(&loaded.model, &trained).classes(&classes))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//! `keras` and `onnx`, both on by default, bring what reads HDF5 and zip, and protobuf. State dicts of PyTorch need no more than
//! [`checkpoint`](towers_checkpoint) has.
#![forbid(unsafe_code)]

mod compiled;
#[cfg(any(feature = "keras", feature = "onnx"))]
mod described;
mod error;
#[cfg(any(feature = "keras", feature = "onnx"))]
mod file;
mod imported;
#[cfg(feature = "keras")]
pub mod keras;
mod layout;
mod loaded;
#[cfg(feature = "onnx")]
pub mod onnx;
pub mod pytorch;
mod source;
mod text;
mod weights_file;

pub use compiled::Compiled;
pub use error::{Error, Result};
pub use imported::Imported;
pub use loaded::{Loaded, tensors};
pub use source::{Pixels, Source};
pub use weights_file::WeightsFile;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
