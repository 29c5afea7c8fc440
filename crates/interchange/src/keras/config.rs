//! The JSON text of a model's configuration.

use crate::{Error, Result};
use serde_json::Value;
use std::fmt::Display;
use std::path::Path;

/// The longest configuration that is read, in bytes of JSON: as numbers in memory it may take 16 times as much.
pub(super) const MAX_CONFIG: u64 = 16 << 20;

/// Where a configuration has the version of Keras that wrote it.
pub(super) const VERSION: &str = "keras_version";

pub(super) fn too_large(path: &Path) -> Error {
    let most = MAX_CONFIG >> 20;
    Error::file(path, format!("its model's configuration is longer than {most} MiB, the most that is read"))
}

pub(super) fn unreadable(path: &Path, why: &dyn Display) -> Error {
    let hint = "save the model again, or its weights alone by model.save_weights";
    Error::file(path, format!("its model's configuration can't be read: {why}; {hint}"))
}

/// The configuration in a JSON text: that of any model names its class.
pub(super) fn parse(path: &Path, text: &[u8]) -> Result<Value> {
    if text.len() as u64 > MAX_CONFIG {
        return Err(too_large(path));
    }
    let config: Value = serde_json::from_slice(text).map_err(|error| unreadable(path, &error))?;
    match config["class_name"].is_string() {
        true => Ok(config),
        false => Err(unreadable(path, &"it names no class of a model")),
    }
}
