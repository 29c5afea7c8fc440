//! A trained image classifier: its file, its preprocessing, classifying, evaluating, and weights of other programs.
//!
//! [`Trained`] is a network as files hold it: read from `model.safetensors`, or from weights of Keras and PyTorch. A [`Classifier`] has
//! it on a device and classifies pictures. [`evaluate`] measures it on labelled pictures, and [`export`](export()) writes it for PyTorch
//! and ONNX. The crate knows nothing of training.
//!
//! ```
//! use towers_layers::Mode;
//! use towers_trained::{Classifier, Description, Input, Trained, evaluate};
//!
//! // A network that has learnt nothing.
//! let device = towers_tensor_cpu::device(1);
//! let mut network = towers_models::small_cnn(10)?.build(&device, 1, Mode::Inference)?;
//! network.init(1)?;
//! let tensors = towers_interchange::tensors(&network)?;
//!
//! let data = towers_cifar::synthetic(1, 10, 20);
//! let about = Description::new("small_cnn", data.test.shape(), &data.classes).input(&Input::DivideBy255);
//! let mut classifier = Classifier::new(&Trained::new("memory", &about, tensors), &device, 20)?;
//! let evaluation = evaluate(&mut classifier, &data, |_, _| {})?;
//! assert_eq!(evaluation.samples, 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod class_names;
mod classifier;
mod color_mode;
mod error;
mod evaluate;
mod export;
mod family;
mod foreign_weights;
mod grad_cam;
mod image_size;
mod input;
mod model_file;
mod normalized;
mod pixels;
mod replicas;
mod resizing;
mod reversed;
pub mod standardization;
mod task;
mod tensors;
mod weights;

pub use class_names::ClassNames;
pub use classifier::{Classifier, Prediction};
pub use color_mode::ColorMode;
pub use error::{Error, Result};
pub use evaluate::{
    ClassScores, Evaluation, Mistake, evaluate, evaluate_on, listed, measured_on, split_name, thousands,
};
pub use export::{Format, export};
pub use foreign_weights::{Assumed, ForeignWeights};
pub use grad_cam::ClassMaps;
pub use image_size::ImageSize;
pub use input::{Input, InputFit, Preprocessing};
pub use model_file::{Description, MODEL_FILE, Trained, described_preprocessing};
pub use replicas::classify_batches;
pub use resizing::Resizing;
pub use task::{Task, check_labels};
pub use tensors::{AVERAGE, LOSS_SCALE, OPTIMIZER_STEPS, values};
pub use towers_interchange::pytorch::names_classes;
pub use weights::{Weights, head_of};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
