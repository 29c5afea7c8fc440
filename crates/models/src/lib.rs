//! The networks of the `towers` recipes.
//!
//! Each is a function of the number of classes that returns a [`Model`]: a graph for 32x32 RGB images and the value of its
//! logits. [`by_name_for`] makes them for images of another size. An [`Architecture`] is any other network,
//! as a list of layers in Keras' terms.
//!
//! ```
//! let model = towers_models::minigooglenet(10)?;
//! let summary = model.summary();
//! assert_eq!((summary.trainable, summary.non_trainable), (1_652_826, 3_424));
//! println!("{summary}");
//! # Ok::<(), towers_layers::Error>(())
//! ```
#![forbid(unsafe_code)]

mod airbench94;
mod architecture;
mod keras_cnn;
mod minigooglenet;
mod model;
mod resnet18;
mod small_cnn;

pub use airbench94::{airbench94, airbench94_muon};
pub use architecture::{Architecture, CLASSES, IMAGES, LayerSpec, Normalization, initializer_of, options_of};
pub use keras_cnn::keras_cnn;
pub use minigooglenet::minigooglenet;
pub use model::{IMAGE, Model};
pub use resnet18::{resnet18, resnet18_group_norm};
pub use small_cnn::small_cnn;

use towers_layers::{Error, Result};

/// The names that [`by_name`] knows.
pub const NAMES: [&str; 7] = [
    "airbench94",
    "airbench94_muon",
    "keras_cnn",
    "minigooglenet",
    "resnet18",
    "resnet18_group_norm",
    "small_cnn",
];

/// The name among [`NAMES`] that this one stands for: recipes write `-` where networks write `_`.
///
/// ```
/// assert_eq!(towers_models::built_in("keras-cnn"), Some("keras_cnn"));
/// assert_eq!(towers_models::built_in("cnn.keras"), None);
/// ```
pub fn built_in(name: &str) -> Option<&'static str> {
    let name = name.replace('-', "_");
    NAMES.into_iter().find(|known| *known == name)
}

/// The network called `name`, for 32x32 RGB images and this number of classes. `None` if there is no such
/// network.
///
/// # Errors
/// If a layer can't be built for this number of classes.
pub fn by_name(name: &str, classes: usize) -> Option<Result<Model>> {
    by_name_for(name, IMAGE, classes)
}

/// The network called `name`, for images of `[height, width, channels]`. `None` if there is no such network.
///
/// `minigooglenet` and both `resnet18`s end with an average over the image, so images of any size need the
/// same parameters. The others flatten it: their first dense layer grows with the images.
///
/// ```
/// let parameters = |name, image| Some(towers_models::by_name_for(name, image, 10)?.ok()?.summary().trainable);
/// assert_eq!(parameters("resnet18", [96, 64, 3]), parameters("resnet18", [32, 32, 3]));
/// assert_eq!((parameters("small_cnn", [48, 40, 3]), parameters("small_cnn", [32, 32, 3])), (Some(43_018), Some(34_058)));
/// let error = towers_models::by_name_for("airbench94", [48, 24, 3], 10).unwrap().unwrap_err();
/// assert_eq!(error.to_string(), "airbench94 can't take images of 48x24 (height x width): it needs at least 25x25");
/// ```
///
/// # Errors
/// [`Error::Images`] for images that are too small for the network's poolings and convolutions, with the
/// smallest possible size.
pub fn by_name_for(name: &str, image: [usize; 3], classes: usize) -> Option<Result<Model>> {
    let build = match name {
        "airbench94" => airbench94::for_images,
        "airbench94_muon" => airbench94::muon_for_images,
        "keras_cnn" => keras_cnn::for_images,
        "minigooglenet" => minigooglenet::for_images,
        "resnet18" => resnet18::for_images,
        "resnet18_group_norm" => resnet18::group_norm_for_images,
        "small_cnn" => small_cnn::for_images,
        _ => return None,
    };
    let takes = |side| build([side, side, image[2]], classes).is_ok();
    Some(build(image, classes).map_err(|error| too_small(name, takes, IMAGE[0], image).unwrap_or(error)))
}

/// The error for images that are too small, if that is the cause. Squares are tried up to the side `most`.
fn too_small(name: &str, takes: impl Fn(usize) -> bool, most: usize, [h, w, _]: [usize; 3]) -> Option<Error> {
    let smallest = (1..=most).find(|&side| takes(side)).filter(|&side| h.min(w) < side)?;
    Some(Error::Images {
        network: name.to_owned(),
        given: format!("{h}x{w}"),
        smallest: format!("{smallest}x{smallest}"),
    })
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
