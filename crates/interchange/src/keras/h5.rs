//! The layers of an HDF5 file, in both layouts.

use super::config::{self, MAX_CONFIG};
use super::unit::{Array, Unit};
use super::{MAX_FILE, unit};
use crate::{Error, Result};
use hdf5_reader::error::Error as Hdf5Error;
use hdf5_reader::group::Group;
use hdf5_reader::{Dataset, Hdf5File, OpenOptions};
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
    /// The layers with weights.
    pub(super) units: Vec<Unit>,
    /// Whether their order is the model's.
    pub(super) ordered: bool,
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
        Ok(text) => Some(with_compile(&root, config::parse(path, text.as_bytes())?)),
        Err(Hdf5Error::AttributeNotFound(_)) => None,
        Err(error) => return Err(config::unreadable(path, &error)),
    };
    let top = root.group("model_weights").unwrap_or_else(|_| root.clone());
    let mut reader = Reader { path, left: MAX_FILE / 4, groups: MAX_NAMES, units: Vec::new() };
    if let Some(layers) = names(&top, "layer_names") {
        for layer in layers {
            reader.listed(&top, &layer)?;
        }
        return Ok(Layers { units: reader.units, ordered: true, named: true, config });
    }
    reader.walk(&root, "", 0)?;
    let ordered = unit::are_numbered(&reader.units);
    Ok(Layers { units: reader.units, ordered, named: false, config })
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
        Error::file(self.path, format!("`{what}` can't be read: {error}"))
    }

    /// A layer of the list that files of Keras 2 have. A model inside of the model is one entry: then the names of the
    /// tensors tell its layers apart.
    fn listed(&mut self, top: &Group, layer: &str) -> Result<()> {
        let group = top.group(layer).map_err(|error| self.damaged(layer, error))?;
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
        parts.into_iter().try_for_each(|(owner, tensors)| self.unit(&owner, tensors))
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
                self.unit(path, tensors)?;
            } else if !NOT_LAYERS.contains(&name) {
                self.walk(child, &format!("{path}/{name}"), depth + 1)?;
            }
        }
        Ok(())
    }

    /// Adds the layer of the groups in `path`.
    fn unit(&mut self, path: &str, tensors: Vec<Named>) -> Result<()> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let arrays: Result<Vec<Array>> = tensors
            .into_iter()
            .map(|(tensor, dataset)| self.array(format!("{name}/{tensor}"), dataset))
            .collect();
        let arrays = arrays?;
        if !arrays.is_empty() {
            let parts: Vec<&str> = path.split('/').filter(|part| !HOLDERS.contains(part)).collect();
            self.units.push(Unit { name: name.to_owned(), path: parts.join("/"), arrays });
        }
        Ok(())
    }

    /// A tensor without a look at its values.
    fn array(&mut self, name: String, dataset: Dataset) -> Result<Array> {
        let len = dataset.num_elements().map_err(|error| self.damaged(&name, error))?;
        let size = dataset.raw_element_size().map_err(|error| self.damaged(&name, error))?;
        let refuse = |what: String| Error::file(self.path, format!("`{name}` {what}"));
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
        Ok(Array { name, shape, dataset })
    }
}

/// The dataset at a path below a group.
fn inside(group: &Group, path: &str) -> hdf5_reader::error::Result<Dataset> {
    let mut group = group.clone();
    let mut rest = path;
    let mut depth = 0;
    while let Some((first, behind)) = rest.split_once('/').filter(|_| depth < MAX_DEPTH) {
        group = group.group(first)?;
        rest = behind;
        depth += 1;
    }
    group.dataset(rest)
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
