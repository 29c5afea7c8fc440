//! Files with the layers of a network, as the value of `model`.

use crate::check::is_plain;
use crate::open_model::read_network;
use crate::{ColorMode, Config, Error, ImageSize, Preprocessing, Result};
use serde::Deserialize;
use std::path::Path;
use towers_interchange::{Compiled, Imported, keras};
use towers_models::Architecture;
use towers_options::{Message, message};

/// The endings of such files.
const ENDINGS: [&str; 7] = ["keras", "h5", "hdf5", "json", "onnx", "safetensors", "toml"];

/// The content of a file with a network, except for the layers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OfFile {
    /// Options of training that are not taken over, a sentence each.
    pub notes: Vec<Message>,
    /// The optimizer that it was compiled with, or why it can't be taken.
    pub compiled: Option<Result<Compiled, String>>,
}

impl Config {
    /// Reads the layers of the network, if `model` names a file in `folder` rather than a built-in network: a model of
    /// Keras (`.keras`, `.h5`, JSON), an ONNX graph, the `[[layer]]` tables of a TOML file, or anything else that
    /// [`open_model`](crate::open_model) takes. Then `model` is the name in the file.
    /// Returns the rest of the file. Its optimizer is for [`take_compiled`](Config::take_compiled).
    ///
    /// A network that normalizes pixels by itself gets the [preprocessing that it
    /// expects](Preprocessing::of). A sigmoid of several outputs is left out, since its head gets new weights and the labels decide what is behind it. If
    /// `sized` is true, pictures of class folders are scaled to the size in the file, unless the
    /// configuration has one. Pictures of class folders get its channels, unless the configuration has a color mode.
    ///
    /// # Errors
    /// [`Error::Interchange`] or [`Error::Recipe`] for a file that can't be read, or with a layer that is not there;
    /// [`Error::Option`] for images of other channels.
    pub fn read_layers(&mut self, folder: &Path, sized: bool) -> Result<OfFile> {
        let Some(file) = self.layers_file(folder)? else {
            return Ok(OfFile::default());
        };
        let Imported { name, mut architecture, image, channels, notes, compiled, .. } = file;
        let mut notes: Vec<Message> = notes.into_iter().map(Message::from).collect();
        let expected = Preprocessing::of(&architecture);
        if architecture.take_sigmoid() {
            notes.push(
                "the sigmoid at its end is left out: the labels decide between a softmax and sigmoids".into(),
            );
        }
        if architecture.ends_in_sigmoid() {
            notes.push("its one sigmoid output tells two classes apart, by binary cross-entropy".into());
        }
        let training = &mut self.training;
        training.model = name;
        training.layer = architecture;
        if let Some([height, width]) = image {
            let (own, data) = (ImageSize { height, width }, &mut training.data);
            if sized && !data.is_named() && data.image_size.is_none() {
                data.image_size = Some(own);
            }
            let size = ImageSize::of(data.image());
            if own != size {
                notes.push(message!(
                    "the network is for images of {own} (height x width) there, and for {size} here"
                ));
            }
        }
        if let Some(channels) = channels {
            let data = &mut training.data;
            if !data.is_named() && data.color_mode.is_none() && channels != data.image()[2] {
                data.color_mode = ColorMode::of(channels);
                notes.push("the network is for images of 1 channel, so pictures are read in grey".into());
            }
            let network = format!("the network {}", towers_callbacks::shortened(&training.model));
            ColorMode::check(training.data.image()[2], &network, channels)?;
        }
        if let Some((preprocessing, why)) = expected {
            training.preprocessing = preprocessing;
            let name = preprocessing.name();
            notes.push(message!("{why}, so ", ["preprocessing"], " is {name}"));
        }
        Ok(OfFile { notes, compiled })
    }

    /// Takes over the optimizer, the learning rate and its schedule that a file of Keras was compiled with.
    ///
    /// # Errors
    /// [`Error::Optimizer`] or [`Error::Option`] for a value that is out of range; then nothing has changed.
    pub fn take_compiled(&mut self, compiled: &Compiled) -> Result<()> {
        let mut taken = self.clone();
        taken.training.optimizer = compiled.optimizer.parse()?;
        if let Some(schedule) = &compiled.schedule {
            taken.training.schedule = schedule.parse()?;
        }
        taken.set("lr", &compiled.lr.into())?;
        *self = taken;
        Ok(())
    }

    /// The network in the file that `model` names in `folder`. `None` if it names no file. An unnamed network
    /// gets the name of the file.
    ///
    /// # Errors
    /// As [`read_layers`](Config::read_layers).
    pub fn layers_file(&self, folder: &Path) -> Result<Option<Imported>> {
        let path = folder.join(&self.training.model);
        let ending = path.extension().map(|ending| ending.to_ascii_lowercase());
        let ends_so = ending.is_some_and(|own| ENDINGS.iter().any(|ending| own == *ending));
        let is_file =
            !towers_models::NAMES.contains(&self.training.model.as_str()) && (ends_so || path.exists());
        if !is_file {
            return Ok(None);
        }
        std::fs::metadata(&path).map_err(Error::io("read", &path))?;
        let mut network = match path.extension().and_then(|ending| ending.to_str()) {
            Some("toml") => from_toml(&path)?,
            Some("json") => keras::read_network(&path)?,
            _ => read_network(&path, self.training.data.image())?,
        };
        if !is_plain(&network.name) {
            network.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        }
        Ok(Some(network))
    }
}

/// The `[[layer]]` tables of a file, which may be a recipe.
fn from_toml(path: &Path) -> Result<Imported> {
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        model: String,
        layer: Architecture,
    }
    let text = towers_files::read_text(path)?;
    let refuse = |error: toml::de::Error| Error::Run {
        path: path.to_owned(),
        reason: format!("its [[layer]] tables can't be read: {}", error.message()).into(),
    };
    let File { model: name, layer: architecture } = toml::from_str(&text).map_err(refuse)?;
    Ok(Imported::new(name, architecture))
}
