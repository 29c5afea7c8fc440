//! The networks of the `towers` recipes.
//!
//! Each is a function of the number of classes that returns a [`Model`]: a graph for 32x32 RGB images and the value of its
//! logits.
//!
//! ```
//! let model = models::minigooglenet(10)?;
//! let summary = model.summary();
//! assert_eq!((summary.trainable, summary.non_trainable), (1_652_826, 3_424));
//! println!("{summary}");
//! # Ok::<(), layers::Error>(())
//! ```
#![forbid(unsafe_code)]

mod keras_cnn;
mod minigooglenet;
mod small_cnn;

pub use keras_cnn::keras_cnn;
pub use minigooglenet::minigooglenet;
pub use small_cnn::small_cnn;

use layers::{Graph, Mode, Network, Result, Summary, Value};
use tensor::Device;

/// An architecture and where it ends.
#[derive(Debug)]
pub struct Model {
    graph: Graph,
    logits: Value,
}

/// The names that [`by_name`] knows.
pub const NAMES: [&str; 3] = ["keras_cnn", "minigooglenet", "small_cnn"];

/// The network called `name`, for so many classes; `None` if there is no such network.
///
/// # Errors
/// If a layer can't be built for so many classes.
pub fn by_name(name: &str, classes: usize) -> Option<Result<Model>> {
    match name {
        "keras_cnn" => Some(keras_cnn(classes)),
        "minigooglenet" => Some(minigooglenet(classes)),
        "small_cnn" => Some(small_cnn(classes)),
        _ => None,
    }
}

impl Model {
    /// The architecture that ends in `logits`: one vector of class scores a sample.
    pub fn new(graph: Graph, logits: Value) -> Self {
        Model { graph, logits }
    }

    /// The layers.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Layers, shapes and parameter counts.
    pub fn summary(&self) -> Summary {
        self.graph.summary(self.logits)
    }

    /// How many numbers a network needs for activations and their gradients, for batches of up to `batch` samples.
    ///
    /// # Errors
    /// If a layer leads nowhere.
    pub fn activation_len(&self, batch: usize, mode: Mode) -> Result<usize> {
        self.graph.activation_len(self.logits, batch, mode)
    }

    /// The network on a device, for batches of up to `batch` samples.
    ///
    /// # Errors
    /// If the device's memory doesn't suffice.
    pub fn build(&self, device: &Device, batch: usize, mode: Mode) -> Result<Network> {
        self.graph.build(self.logits, device, batch, mode)
    }
}
