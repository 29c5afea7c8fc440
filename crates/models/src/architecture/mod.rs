//! Architectures as data: what recipes, `config.json`, model files and files of other programs hold.

mod build;
mod classes;
mod depthwise;
mod ends;
mod options;
mod site;
mod zeros;

pub use classes::{CLASSES, options_of};
pub use ends::Normalization;
pub use options::initializer_of;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The name of the images, as an input of a layer.
pub const IMAGES: &str = "input";

/// An architecture as a list of layers in Keras' terms: the `[[layer]]` tables of a recipe.
///
/// Each layer comes after its inputs, and the last one gives one vector of class scores a sample.
///
/// ```
/// use towers_models::Architecture;
///
/// let layers = serde_json::json!([
///     {"class": "Conv2D", "filters": 16, "kernel_size": 3, "padding": "same", "activation": "relu"},
///     {"class": "MaxPooling2D"},
///     {"class": "Flatten"},
///     {"class": "Dense"},
/// ]);
/// let architecture: Architecture = serde_json::from_value(layers)?;
/// let model = architecture.build("mine", [32, 32, 3], 10)?;
/// assert_eq!(model.summary().trainable, 27 * 16 + 16 + 4096 * 10 + 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Architecture {
    /// The layers, in an order in which they can be computed.
    pub layers: Vec<LayerSpec>,
}

/// One layer of an [`Architecture`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LayerSpec {
    /// Keras' name of its class, one of [`CLASSES`].
    pub class: String,
    /// Its name; by default numbered as Keras does: `conv2d`, `conv2d_1`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The names of the layers that it reads, or [`IMAGES`]; by default the layer before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<String>,
    /// Its options by Keras' names. Missing ones have Keras' defaults.
    #[serde(flatten)]
    pub options: Map<String, Value>,
}

impl Architecture {
    /// Whether it has no layers.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }
}
