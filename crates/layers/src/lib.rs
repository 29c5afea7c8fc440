//! Neural-network layers, and the [`Network`] they form.
//!
//! A [`Graph`] is an architecture: layers under Keras' names and defaults, their connections and shapes. It
//! owns no memory. [`Graph::build`] makes a [`Network`] of it on a device: a program of ops, in which every
//! activation, gradient and parameter has its place. No training step after the first allocates anything.
//!
//! ```
//! use towers_layers::{Conv2D, Dense, Draws, Flatten, Graph, MaxPooling2D, Mode};
//! use towers_program::Activation;
//!
//! let mut graph = Graph::new("tiny", [8, 8, 3]);
//! let x = graph.input();
//! let x = graph.add(Conv2D::new(4, 3).same().activation(Activation::Relu), x)?;
//! let x = graph.add(MaxPooling2D::new(2), x)?;
//! let x = graph.add(Flatten, x)?;
//! let logits = graph.add(Dense::new(10), x)?;
//! assert_eq!(graph.summary(logits).trainable, 3 * 3 * 3 * 4 + 4 + 64 * 10 + 10);
//!
//! let mut network = graph.build(logits, &towers_tensor_cpu::device(1), 2, Mode::Training)?;
//! network.init(7)?;
//! network.set_input(&[0.5; 2 * 8 * 8 * 3], &[1, 2])?;
//! network.train_pass(Draws { seed: 7, step: 0, first_sample: 0 }, 0.0, 2)?;
//! let metrics = network.metrics()?;
//! // The optimizer's step goes here, and then the running averages move.
//! network.finish_step(2)?;
//! assert!(metrics.loss_sum / 2.0 > 1.0 && metrics.loss_sum / 2.0 < 4.0);
//! # Ok::<(), towers_layers::Error>(())
//! ```
//!
//! Gradients are those of the loss summed over this network's samples and divided by the *global* sample
//! count. So the gradients of replicas simply add up.
#![forbid(unsafe_code)]

mod activation;
mod add;
mod channels;
mod concatenate;
mod conv2d;
mod dense;
mod depthwise_conv2d;
mod dropout;
mod error;
mod flatten;
mod init;
mod layer;
mod layer_scale;
mod multiply;
mod network;
mod normalization;
mod parameter;
mod pixel_norm;
mod pooling;
mod prelu;
mod rescaling;
mod reshape;
mod sides;

pub use add::Add;
pub use channels::{ChannelShuffle, ChannelSlice};
pub use concatenate::Concatenate;
pub use conv2d::{Conv2D, Padding};
pub use dense::Dense;
pub use depthwise_conv2d::{DepthwiseConv2D, SeparableConv2D};
pub use dropout::Dropout;
pub use error::{Error, Result};
pub use flatten::Flatten;
pub use init::Initializer;
pub use layer::{Draws, Layer, Lower};
pub use layer_scale::LayerScale;
pub use multiply::Multiply;
pub use network::{
    Arena, Comparison, Cut, Exchange, GradCam, Graph, Metrics, Mode, Network, Slot, Step, Summary,
    SummaryRow, Tolerance, Traced, Value, Work, keras_name,
};
pub use normalization::*;
pub use parameter::{ParamSpec, Role};
pub use pixel_norm::{LayerNormalization, LocalResponseNormalization};
pub use pooling::{AveragePooling2D, GlobalAveragePooling2D, MaxPooling2D};
pub use prelu::PReLU;
pub use rescaling::Rescaling;
pub use reshape::Reshape;
pub use sides::{Cropping2D, UpSampling2D, ZeroPadding2D};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
