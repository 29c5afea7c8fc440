//! What the metadata of a state dict say about its images and classes.

use crate::{Error, Result, Source};
use std::collections::BTreeMap;
use std::path::Path;
use towers_checkpoint::Tensors;

/// The key of the metadata with the height and width of the images.
pub(super) const IMAGE_SIZE: &str = "towers.image_size";

/// The key of the metadata that says that an image has any number of classes.
pub(super) const MULTI_LABEL: &str = "towers.multi_label";

const CLASSES: &str = "towers.classes";
const DATASET: &str = "towers.dataset";

/// The longest name in bytes. File systems, where the names of class folders come from, have 255.
const LONGEST: usize = 1024;

/// The longest text with all names: 65536 of them as long as they are in practice.
const MOST_TEXT: usize = 8 << 20;

/// What a state dict that was exported here says about its classes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Named {
    /// Their names, by label.
    pub classes: Vec<String>,
    /// The data set that they are of.
    pub dataset: Option<String>,
}

/// Whether the metadata name the classes.
pub(super) fn names_classes(metadata: &BTreeMap<String, String>) -> bool {
    metadata.contains_key(CLASSES)
}

/// Height and width of the images.
fn size(source: &Source<'_>) -> String {
    let [h, w, _] = source.image;
    format!("{h}x{w}")
}

/// Writes the format, the size of the images, and the classes where they are known.
pub(super) fn write(source: &Source<'_>, tensors: &mut Tensors) {
    let metadata = tensors.metadata_mut();
    metadata.insert("format".to_owned(), "pt".to_owned());
    metadata.insert(IMAGE_SIZE.to_owned(), size(source));
    if source.multi_label {
        metadata.insert(MULTI_LABEL.to_owned(), "true".to_owned());
    }
    let Some(dataset) = source.dataset else { return };
    let classes = serde_json::Value::from(source.classes.to_vec()).to_string();
    metadata.insert(CLASSES.to_owned(), classes);
    metadata.insert(DATASET.to_owned(), dataset.to_owned());
}

/// The lines of Python with the same metadata, for `safetensors.torch.save_file`.
pub(super) fn lines(source: &Source<'_>) -> String {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let named = source.dataset.map_or_else(String::new, |dataset| {
        format!(", {}: json.dumps(CLASSES), {}: {}", text(CLASSES), text(DATASET), text(dataset))
    });
    let several =
        if source.multi_label { format!(", {}: \"true\"", text(MULTI_LABEL)) } else { String::new() };
    let (key, size) = (text(IMAGE_SIZE), text(&size(source)));
    format!("METADATA = {{\"format\": \"pt\", {key}: {size}{several}{named}}}")
}

/// What the `metadata` of the file at `path` say about the classes of a network with `outputs` of them.
pub(crate) fn read(
    path: &Path,
    metadata: &BTreeMap<String, String>,
    outputs: usize,
) -> Result<Option<Named>> {
    let Some(text) = metadata.get(CLASSES) else { return Ok(None) };
    let refuse = |reason: String| Err(Error::file(path, reason));
    let sound = |name: &str| !name.is_empty() && name.len() <= LONGEST && !name.contains(char::is_control);
    let parsed =
        Some(text).filter(|text| text.len() <= MOST_TEXT).and_then(|text| serde_json::from_str(text).ok());
    let Some(classes): Option<Vec<String>> = parsed else {
        return refuse(format!("the names of its classes, `{CLASSES}` in its metadata, are no list in JSON"));
    };
    if classes.len() != outputs {
        return refuse(format!("its metadata name {} classes, but the network has {outputs}", classes.len()));
    }
    let dataset = metadata.get(DATASET).cloned();
    if !classes.iter().chain(&dataset).all(|name| sound(name)) {
        return refuse(format!(
            "names of its classes or its data set, in its metadata, are empty, longer than {LONGEST} bytes, or have \
             control characters"
        ));
    }
    Ok(Some(Named { classes, dataset }))
}
