//! `.keras`: a ZIP archive with `config.json` and `model.weights.h5`.

use super::config::{self, MAX_CONFIG};
use crate::file::{MAX_FILE, bounded, too_large};
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
    let mut entry = |name: &str, most: u64, too_large: fn(&Path) -> Error| -> Result<Option<Vec<u8>>> {
        let Ok(entry) = archive.by_name(name) else { return Ok(None) };
        let len = entry.size();
        let bytes = bounded(entry, len, most).map_err(|error| damaged(&error))?;
        bytes.ok_or_else(|| too_large(path)).map(Some)
    };
    let Some(weights) = entry("model.weights.h5", MAX_FILE, too_large)? else {
        let torch = archive.file_names().flatten().any(|name| name.ends_with("/data.pkl"));
        let reason = match torch {
            true => {
                "it is a pickle of torch.save, which may run anything; save the state dict by safetensors.torch.save_file"
            }
            false => "there is no model.weights.h5 in the archive, so it is none of model.save",
        };
        return Err(Error::file(path, reason));
    };
    let config = entry("config.json", MAX_CONFIG, config::too_large)?;
    let config = config.and_then(|text| serde_json::from_slice(&text).ok());
    Ok((weights, config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    /// Few bytes that become many, and as JSON many more.
    #[test]
    fn a_configuration_that_fills_the_memory_is_refused() {
        for (len, fits) in [(1000, true), (MAX_CONFIG as usize / 2 + 1, false)] {
            let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
            for (name, bytes) in [
                ("model.weights.h5", b"weights".to_vec()),
                ("config.json", [b"[0", b",0".repeat(len).as_slice(), b"]"].concat()),
            ] {
                archive.start_file(name, SimpleFileOptions::default()).unwrap();
                archive.write_all(&bytes).unwrap();
            }
            let bytes = archive.finish().unwrap().into_inner();
            assert!(bytes.len() < 1 << 20);
            match open(Path::new("a.keras"), bytes) {
                Ok((weights, config)) => assert!(fits && weights == b"weights" && config.is_some()),
                Err(error) => {
                    let told =
                        "a.keras: its model's configuration is longer than 16 MiB, the most that is read";
                    assert!(!fits && error.to_string() == told, "{error}");
                }
            }
        }
    }
}
