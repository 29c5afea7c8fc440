//! The layers of an HDF5 file, in both layouts.

use super::config::{self, MAX_CONFIG, VERSION};
use super::unit::{Array, Unit};
use super::{MAX_FILE, unit};
use crate::text::shortened;
use crate::{Error, Result};
use hdf5_reader::error::Error as Hdf5Error;
use hdf5_reader::group::Group;
use hdf5_reader::{Dataset, Datatype, Hdf5File, OpenOptions};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// No model has more groups inside of each other.
const MAX_DEPTH: usize = 16;
/// Nor more layers, or tensors in one.
const MAX_NAMES: usize = 100_000;

/// The most values of a chunk that is larger than its tensor. Only hostile programs write much larger ones.
const MAX_CHUNK: u64 = 1 << 20;

/// Parts of a model that have weights, but are no layers.
const NOT_LAYERS: [&str; 4] = ["optimizer", "seed_generator", "metrics", "loss_tracker"];

/// A tensor and its name within the layer.
type Named = (String, Dataset);

/// The content of a file.
pub(super) struct Layers {
    /// The layers with weights, in the model's order but for those that are loose.
    pub(super) units: Vec<Unit>,
    /// Whether they have the names of the model's layers, or numbers.
    pub(super) named: bool,
    /// The model's configuration, if it is there.
    pub(super) config: Option<Value>,
}

/// Groups that hold layers, in files of Keras 3 and of late versions of Keras 2.
const HOLDERS: [&str; 3] = ["", "layers", "_layer_checkpoint_dependencies"];

/// Reads the layers with weights, and the model's configuration.
pub(super) fn read(path: &Path, bytes: Vec<u8>) -> Result<Layers> {
    // Each chunk is read once, so that none need be kept.
    let options = OpenOptions::default()
        .with_max_read_bytes(MAX_FILE as usize)
        .with_max_chunk_bytes(MAX_FILE as usize)
        .with_chunk_cache_bytes(0);
    let damaged = |error: Hdf5Error| Error::file(path, format!("the HDF5 file is damaged: {error}"));
    let file = Hdf5File::from_vec_with_options(bytes, options).map_err(damaged)?;
    let root = file.root_group().map_err(damaged)?;
    let config = match root.attribute("model_config").and_then(|config| config.read_string()) {
        Ok(text) if text.len() as u64 > MAX_CONFIG => return Err(config::too_large(path)),
        Ok(text) => Some(with_version(&root, with_compile(&root, config::parse(path, text.as_bytes())?))),
        Err(Hdf5Error::AttributeNotFound(_)) => None,
        Err(error) => return Err(config::unreadable(path, &error)),
    };
    let top = root.group("model_weights").unwrap_or_else(|_| root.clone());
    let mut reader = Reader { path, left: MAX_FILE / 4, groups: MAX_NAMES, units: Vec::new() };
    if let Some(layers) = names(&top, "layer_names") {
        for layer in layers {
            reader.listed(&top, &layer)?;
        }
        unit::mark_loose(&mut reader.units);
        return Ok(Layers { units: reader.units, named: true, config });
    }
    reader.walk(&root, "", 0)?;
    unit::mark_loose(&mut reader.units);
    Ok(Layers { units: reader.units, named: false, config })
}

/// A model's configuration with the version of Keras, as in the text of `model.to_json`.
fn with_version(root: &Group, mut config: Value) -> Value {
    let version = root.attribute("keras_version").and_then(|version| version.read_string());
    if let (Ok(version), Some(config)) = (version, config.as_object_mut()) {
        config.insert(VERSION.to_owned(), version.into());
    }
    config
}

/// A model's configuration with that of its training, as in `.keras`. Without one that can be read, the model is taken alone.
fn with_compile(root: &Group, mut config: Value) -> Value {
    let text = root.attribute("training_config").and_then(|text| text.read_string()).unwrap_or_default();
    let compile = serde_json::from_str(&text).ok().filter(|_| text.len() as u64 <= MAX_CONFIG);
    if let (Some(compile), Some(config)) = (compile, config.as_object_mut()) {
        config.insert("compile_config".to_owned(), compile);
    }
    config
}

struct Reader<'a> {
    path: &'a Path,
    /// Values that there may still be.
    left: u64,
    /// Groups that may still be entered: a hostile file has each inside of all others.
    groups: usize,
    units: Vec<Unit>,
}

impl Reader<'_> {
    fn damaged(&self, what: &str, error: Hdf5Error) -> Error {
        Error::file(self.path, format!("`{}` can't be read: {error}", shortened(what)))
    }

    /// A layer of the list that files of Keras 2 have. A model inside of the model is one entry: then the names of the
    /// tensors tell its layers apart. Their order is none of the model's, for Keras lists those that are trained first.
    fn listed(&mut self, top: &Group, layer: &str) -> Result<()> {
        let group = below(top, layer).map_err(|error| self.damaged(layer, error))?;
        let mut parts: Vec<(String, Vec<Named>)> = Vec::new();
        let mut places = HashMap::new();
        for name in names(&group, "weight_names").unwrap_or_default() {
            let dataset = inside(&group, &name).map_err(|error| self.damaged(&name, error))?;
            let (owner, tensor) = name.rsplit_once('/').unwrap_or((layer, &name));
            let named = (tensor.to_owned(), dataset);
            let place = *places.entry(owner.to_owned()).or_insert(parts.len());
            if place == parts.len() {
                parts.push((owner.to_owned(), Vec::new()));
            }
            parts[place].1.push(named);
        }
        let first = self.units.len();
        for (owner, tensors) in parts {
            // TensorFlow numbers the outputs of its nodes: `kernel:0`.
            let parameter = |tensor: &str| Some(tensor.split(':').next()?.to_owned());
            self.unit(&owner, layer, tensors, parameter)?;
        }
        self.units[first..].sort_by_key(|unit| unit::number(&unit.name));
        Ok(())
    }

    /// The layers below a group: each has its tensors in a group `vars`, numbered.
    fn walk(&mut self, group: &Group, path: &str, depth: usize) -> Result<()> {
        let (mut groups, _) = group.members().map_err(|error| self.damaged(path, error))?;
        let left = self.groups.checked_sub(1 + groups.len()).filter(|_| depth <= MAX_DEPTH);
        self.groups = left.ok_or_else(|| Error::file(self.path, "it has more groups than any model does"))?;
        groups.sort_by_key(|group| unit::number(group.name()));
        for child in &groups {
            let name = child.name();
            if name == "vars" {
                let mut tensors = child.datasets().map_err(|error| self.damaged(path, error))?;
                tensors.sort_by_key(|tensor| unit::number(tensor.name()));
                let tensors = tensors.into_iter().map(|tensor| (tensor.name().to_owned(), tensor)).collect();
                let parts: Vec<&str> = path.split('/').filter(|part| !HOLDERS.contains(part)).collect();
                let around = parts[..parts.len().saturating_sub(1)].join("/");
                self.unit(&parts.join("/"), &around, tensors, |_| None)?;
            } else if !NOT_LAYERS.contains(&name) {
                self.walk(child, &format!("{path}/{name}"), depth + 1)?;
            }
        }
        Ok(())
    }

    /// Adds the layer at `path`, if it has weights. `parameter` gives a tensor's parameter by its name.
    fn unit(
        &mut self,
        path: &str,
        group: &str,
        tensors: Vec<Named>,
        parameter: impl Fn(&str) -> Option<String>,
    ) -> Result<()> {
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        let mut arrays = Vec::new();
        for (tensor, dataset) in tensors {
            // Counters, and states of random numbers.
            if !matches!(dataset.dtype(), Datatype::FixedPoint { .. }) {
                arrays.push(self.array(format!("{name}/{tensor}"), parameter(&tensor), dataset)?);
            }
        }
        if !arrays.is_empty() {
            let (path, group) = (path.to_owned(), group.to_owned());
            self.units.push(Unit { name, path, group, is_loose: false, arrays });
        }
        Ok(())
    }

    /// A tensor without a look at its values.
    fn array(&mut self, name: String, parameter: Option<String>, dataset: Dataset) -> Result<Array> {
        let len = dataset.num_elements().map_err(|error| self.damaged(&name, error))?;
        let size = dataset.raw_element_size().map_err(|error| self.damaged(&name, error))?;
        let refuse = |what: String| Error::file(self.path, format!("`{}` {what}", shortened(&name)));
        if size != size_of::<f32>() {
            return Err(refuse(format!("has values of {size} bytes, but must have float32")));
        }
        let chunk =
            dataset.chunks().unwrap_or_default().iter().fold(1, |n: u64, &m| n.saturating_mul(m.into()));
        if chunk > len.max(MAX_CHUNK) {
            return Err(refuse(format!("has {len} values in chunks of {chunk}")));
        }
        let too_many = || refuse(format!("would make more than {} MiB of weights", MAX_FILE >> 20));
        self.left = self.left.checked_sub(len).ok_or_else(too_many)?;
        let shape = dataset.shape().iter().map(|&extent| extent as usize).collect();
        Ok(Array { name, parameter, shape, dataset })
    }
}

/// The group at a path below another: a layer's name may have slashes.
fn below(group: &Group, path: &str) -> hdf5_reader::error::Result<Group> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    if parts.len() > MAX_DEPTH {
        return Err(Hdf5Error::GroupNotFound(path.to_owned()));
    }
    parts.into_iter().try_fold(group.clone(), |group, part| group.group(part))
}

/// The dataset at a path below a group.
fn inside(group: &Group, path: &str) -> hdf5_reader::error::Result<Dataset> {
    match path.rsplit_once('/') {
        Some((around, name)) => below(group, around)?.dataset(name),
        None => group.dataset(path),
    }
}

/// A list of names in an attribute, or in several numbered ones where it was too long for one.
fn names(group: &Group, attribute: &str) -> Option<Vec<String>> {
    let read = |name: &str| group.attribute(name).and_then(|names| names.read_strings()).ok();
    let names = read(attribute).or_else(|| {
        let parts = (0..MAX_NAMES).map_while(|part| read(&format!("{attribute}{part}")));
        Some(parts.flatten().take(MAX_NAMES).collect::<Vec<_>>()).filter(|names| !names.is_empty())
    });
    names.filter(|names| names.len() <= MAX_NAMES)
}
