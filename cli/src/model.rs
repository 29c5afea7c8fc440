//! The trained network that a command line names.

use crate::args::DataArgs;
use crate::data;
use clap::ValueEnum;
use std::path::Path;
use train::{Assumed, Preprocessing, Trained, open_model};

/// What a file that holds weights alone doesn't say.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Weights of Keras (.keras, .weights.h5, .h5)")]
pub struct WeightsArgs {
    /// The network; by default the one that the weights fit
    #[arg(long, value_name = "NAME")]
    pub network: Option<String>,
    /// What happens to pixels first; by default as in the network's recipe
    #[arg(long, value_enum)]
    pub preprocessing: Option<First>,
}

/// `--preprocessing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum First {
    /// x / 255
    #[value(name = "divide-by-255")]
    DivideBy255,
    /// The mean of the training images is subtracted, pixel by pixel
    SubtractPixelMean,
    /// Each channel's mean is subtracted, then the standard deviation of all values divides
    Standardize,
}

impl From<First> for Preprocessing {
    fn from(first: First) -> Self {
        match first {
            First::DivideBy255 => Preprocessing::DivideBy255,
            First::SubtractPixelMean => Preprocessing::SubtractPixelMean,
            First::Standardize => Preprocessing::Standardize,
        }
    }
}

/// Reads the network at `path`, and data where its file doesn't say enough.
pub fn open(path: &Path, weights: &WeightsArgs, data: &DataArgs) -> train::Result<Trained> {
    let assumed = Assumed {
        network: weights.network.clone(),
        preprocessing: weights.preprocessing.map(Into::into),
        dataset: data.dataset.clone(),
    };
    open_model(path, &assumed, |mut options| {
        data.apply(&mut options);
        data::load(&options, true)
    })
}
