//! The network of a command that needs no data.

use crate::data::image_size;
use std::path::Path;
use towers_config::{ColorMode, Config, ImageSize};

/// The network of `towers bench` and `towers program`.
#[derive(Debug, clap::Args)]
pub struct NetworkArgs {
    /// The recipe with the network
    #[arg(long, value_name = "NAME|FILE.toml", default_value = "minigooglenet")]
    pub recipe: String,
    /// Instead of the recipe's network: a built-in one; a model of Keras (.keras, .h5, .json), an ONNX graph, a TOML file with
    /// layers; or a run
    #[arg(long, value_name = "NAME|FILE|RUN")]
    pub model: Option<String>,
    /// Height and width of the images, as in 64 or 48x40; by default those of the file or the recipe
    #[arg(long, value_name = "N|HxW", allow_hyphen_values = true, value_parser = image_size)]
    pub image_size: Option<ImageSize>,
}

impl NetworkArgs {
    /// The recipe with this network.
    pub fn config(&self) -> anyhow::Result<Config> {
        let mut config = towers_config::find_recipe(&self.recipe)?;
        match &self.model {
            Some(model) => {
                config.training.layer = Default::default();
                config.set("model", &model.as_str().into())?;
                take_network(&mut config, self.image_size)?;
            }
            None => {
                let data = &mut config.training.data;
                data.image_size = self.image_size.or(data.image_size);
            }
        }
        Ok(config)
    }
}

/// Takes the layers of the file that `model` names, if it names one, for images of `size` or else of the size there. Returns the
/// number of classes there, or 10.
pub fn take_network(config: &mut Config, size: Option<ImageSize>) -> anyhow::Result<usize> {
    let network = config.layers_file(Path::new(""))?;
    let training = &mut config.training;
    let of_file = network.as_ref().and_then(|network| network.image);
    let of_file = of_file.map(|[height, width]| ImageSize { height, width });
    training.data.image_size = size.or(of_file).or(training.data.image_size);
    let channels = network.as_ref().and_then(|network| network.channels);
    training.data.color_mode = channels.and_then(ColorMode::of).or(training.data.color_mode);
    let Some(network) = network else { return Ok(10) };
    (training.model, training.layer) = (network.name, network.architecture);
    Ok(network.classes.unwrap_or(10))
}
