//! The trained network that a command line names.

use crate::data::{self, image_size};
use crate::device::warn_of_unused_gpu;
use crate::error::{must_be, usage};
use crate::flags::{Compute, Count, Flags, Source, one_of};
use crate::print::{note, warn};
use crate::spelling::flag_of;
use std::path::{Path, PathBuf};
use towers_augment::TestTime;
use towers_config::{Config, ModelKind, open_model};
use towers_trained::{
    Assumed, ClassNames, Classifier, ColorMode, ImageSize, MODEL_FILE, Preprocessing, Trained, names_classes,
};

/// The properties that a file with only weights does not hold.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Weights of Keras (.keras, .weights.h5, .h5) and PyTorch (.safetensors)")]
pub struct WeightsArgs {
    /// The weights of a model.json of Keras (model.to_json): a .weights.h5 or .h5 of model.save_weights
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// The network; by default the one that fits the weights
    #[arg(long, value_name = "NAME")]
    pub network: Option<String>,
    /// Height and width of the images, as in 64 or 48x40; by default those of the file, or 32x32
    #[arg(long, alias = "crop", value_name = "N|HxW", allow_hyphen_values = true, value_parser = image_size)]
    pub image_size: Option<ImageSize>,
    /// The preprocessing of pixels: none, divide-by-255, subtract-pixel-mean, standardize, caffe, tf or torch; by default that of the file, of its network, or of the recipe
    #[arg(long, value_name = "NAME", value_parser = one_of::<Preprocessing>(&Preprocessing::NAMES), hide_possible_values = true)]
    pub preprocessing: Option<Preprocessing>,
}

/// The flags for opening a trained network on a device.
#[derive(Clone, Debug, clap::Args)]
pub struct ClassifierArgs {
    /// Average over several views of each picture: --tta=flip, or --tta=flip-translate for six
    #[arg(long, value_name = "VIEWS", num_args = 0..=1, require_equals = true, default_value = "none", default_missing_value = "flip", value_parser = test_time)]
    pub tta: TestTime,
    #[command(flatten)]
    pub weights: WeightsArgs,
    #[command(flatten)]
    pub data: Flags<Source>,
    #[command(flatten)]
    pub devices: Flags<(Compute, Count)>,
}

impl ClassifierArgs {
    /// Opens the network at `path` on every device, for batches of up to `batch` pictures.
    pub fn open(&self, path: &Path, batch: usize) -> anyhow::Result<Vec<Classifier>> {
        let config = self.devices.config()?;
        warn_of_unused_gpu(&config.placement.devices);
        let devices = towers_train::open_devices(&config.placement.devices, &config.training.arithmetic)?;
        let trained = open(path, &self.weights, &self.data)?;
        if let Some(mode) = color_mode(&self.data)? {
            ColorMode::check(
                mode.channels(),
                &format!("the network of {}", path.display()),
                trained.image()[2],
            )?;
        }
        let open = |device| {
            let mut classifier = Classifier::new(&trained, device, batch)?;
            classifier.set_test_time(self.tta);
            Ok(classifier)
        };
        devices.iter().map(open).collect()
    }
}

/// Reads the value of `--tta`.
fn test_time(text: &str) -> Result<TestTime, String> {
    let near = || towers_options::hint(text, ["none", "flip", "flip-translate"]);
    text.parse().map_err(|error| format!("{}{}", must_be(&error), near()))
}

/// The channels of the images that flags name.
fn color_mode(data: &Flags<Source>) -> anyhow::Result<Option<ColorMode>> {
    Ok(data.config()?.training.data.color_mode)
}

/// Reads the network at `path`, and the data if its file lacks something that they provide.
pub fn open(path: &Path, weights: &WeightsArgs, data: &Flags<Source>) -> anyhow::Result<Trained> {
    let names = data.get("data.class_names").map(|file| ClassNames::read(Path::new(file))).transpose()?;
    let assumed = Assumed {
        weights: weights.weights.clone(),
        network: weights.network.clone(),
        image_size: weights.image_size,
        color_mode: color_mode(data)?,
        preprocessing: weights.preprocessing,
        // Names of classes need no data.
        dataset: data.data().filter(|_| names.is_none()).map(|(_, data)| data.to_owned()),
    };
    // The folders to search. The data to measure on may differ from the training data.
    let named = ["data.color_mode", "data.class_names", "data.resize"].into_iter();
    let dataset = (!data.has("data.labels")).then_some("data.dataset");
    let places = named.chain(dataset).fold(data.clone(), |flags, key| flags.without(key));
    places.config()?;
    towers_config::skipped_checkpoints(path).iter().for_each(warn);
    let trained = open_model(path, &assumed, |set| {
        let mut config = Config::default();
        config.training.data = set;
        places.apply(&mut config).map_err(|error| towers_config::Error::run(path, error.to_string()))?;
        data::load(&config.training.data, &config.placement.files, true)
    })?;
    let trained = match names {
        Some(names) => trained.with_class_names(&names)?,
        None => trained,
    };
    let trained = match data.has("data.resize") {
        true => trained.with_resizing(data.config()?.training.data.resize),
        false => trained,
    };
    trained.notes().iter().for_each(|told| note(format_args!("{}: {told}", path.display())));
    if let Some(assumed) = trained.assumed_preprocessing() {
        note(format_args!("{}: {assumed}; --preprocessing names another one", path.display()));
    }
    Ok(trained)
}

/// The most recently trained run, for commands without a run's name; prints its folder.
pub fn newest_network() -> towers_runs::Result<PathBuf> {
    let run = towers_runs::newest(&[MODEL_FILE])?;
    note(format_args!("no run is named; taking the newest, {}", run.display()));
    Ok(run)
}

/// Refuses flags for data where none are needed: models of towers hold the names of their classes.
pub fn refuse_data(path: &Path, data: &Flags<Source>) -> anyhow::Result<()> {
    let address = || data.get("data.data_url").map(|url| ("data.data_url", url));
    let Some((key, value)) = data.data().or_else(address) else { return Ok(()) };
    let refuse = |why: &str| {
        let flag = flag_of(key);
        Err(usage(format!("{flag} is {value}, but must be left out with {}: {why}", path.display())))
    };
    match ModelKind::of(path) {
        ModelKind::Towers | ModelKind::Checkpoint => refuse("a model of towers has the names of its classes"),
        ModelKind::PyTorch if names_classes(path) => refuse("its metadata have the names of its classes"),
        _ => Ok(()),
    }
}
