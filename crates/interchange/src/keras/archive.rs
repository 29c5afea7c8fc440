//! `.keras`: a ZIP archive with `config.json` and `model.weights.h5`.

use crate::file::{bounded, too_large};
use crate::{Error, Result};
use serde_json::Value;
use std::io::Cursor;
use std::path::Path;
use zip::ZipArchive;

/// The bytes of the weights, and the model's configuration.
pub(super) fn open(path: &Path, bytes: Vec<u8>) -> Result<(Vec<u8>, Option<Value>)> {
    let damaged =
        |error: &dyn std::fmt::Display| Error::file(path, format!("the archive is damaged: {error}"));
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|error| damaged(&error))?;
    let mut entry = |name: &str| -> Result<Option<Vec<u8>>> {
        let Ok(entry) = archive.by_name(name) else { return Ok(None) };
        let len = entry.size();
        let bytes = bounded(entry, len).map_err(|error| damaged(&error))?;
        bytes.ok_or_else(|| too_large(path)).map(Some)
    };
    let Some(weights) = entry("model.weights.h5")? else {
        let torch = archive.file_names().flatten().any(|name| name.ends_with("/data.pkl"));
        let reason = match torch {
            true => {
                "it is a pickle of torch.save, which may run anything; save the state dict by safetensors.torch.save_file"
            }
            false => "there is no model.weights.h5 in the archive, so it is none of model.save",
        };
        return Err(Error::file(path, reason));
    };
    let config = entry("config.json")?.and_then(|text| serde_json::from_slice(&text).ok());
    Ok((weights, config))
}
