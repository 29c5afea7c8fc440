//! `.keras`: a ZIP archive with `config.json` and `model.weights.h5`.

use super::config::{self, MAX_CONFIG, VERSION};
use crate::file::{MAX_FILE, bounded, too_large};
use crate::{Error, Result, pytorch};
use serde_json::Value;
use std::io::Cursor;
use std::path::Path;
use zip::ZipArchive;
use zip::result::ZipError;

/// The bytes of the weights, and the model's configuration.
pub(super) fn open(path: &Path, bytes: Vec<u8>) -> Result<(Vec<u8>, Value)> {
    let damaged =
        |error: &dyn std::fmt::Display| Error::file(path, format!("the archive is damaged: {error}"));
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|error| damaged(&error))?;
    let mut entry = |name: &str, most: u64, too_large: fn(&Path) -> Error| -> Result<Option<Vec<u8>>> {
        let entry = match archive.by_name(name) {
            Ok(entry) => entry,
            Err(ZipError::FileNotFound) => return Ok(None),
            Err(error) => return Err(damaged(&error)),
        };
        let len = entry.size();
        let bytes = bounded(entry, len, most).map_err(|error| damaged(&error))?;
        bytes.ok_or_else(|| too_large(path)).map(Some)
    };
    let Some(weights) = entry("model.weights.h5", MAX_FILE, too_large)? else {
        let torch = archive.file_names().flatten().any(|name| name.ends_with("data.pkl"));
        let reason = match torch {
            true => pytorch::PICKLE,
            false => "there is no model.weights.h5 in the archive, so it is none of model.save",
        };
        return Err(Error::file(path, reason));
    };
    let config = entry("config.json", MAX_CONFIG, config::too_large)?;
    let config = config.ok_or_else(|| config::unreadable(path, &"there is no config.json in the archive"))?;
    let mut config = config::parse(path, &config)?;
    // Without it, or if it can't be read, the archive is of Keras 3, like almost all.
    let about = entry("metadata.json", MAX_CONFIG, config::too_large)?.unwrap_or_default();
    let about: Value = serde_json::from_slice(&about).unwrap_or_default();
    if let Some(config) = config.as_object_mut() {
        config.insert(VERSION.to_owned(), about[VERSION].clone());
    }
    Ok((weights, config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    /// The bytes of an archive with these files.
    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes) in files {
            archive.start_file(*name, SimpleFileOptions::default()).unwrap();
            archive.write_all(bytes).unwrap();
        }
        archive.finish().unwrap().into_inner()
    }

    #[test]
    fn configurations_that_say_nothing_are_refused() {
        let weights = ("model.weights.h5", &b"weights"[..]);
        let told = |bytes| match open(Path::new("a.keras"), bytes) {
            Ok((weights, _)) => String::from_utf8(weights).unwrap(),
            Err(error) => error.to_string(),
        };
        let with = |config: &[u8]| told(archive(&[weights, ("config.json", config)]));
        assert_eq!(with(br#"{"class_name": "Sequential", "config": {}}"#), "weights");
        for (config, says) in [
            (&b""[..], "EOF while parsing"),
            (b"null", "it names no class of a model"),
            (b"{}", "it names no class of a model"),
            (br#"["class_name"]"#, "it names no class of a model"),
            (b"{\"class_name\": \"\xff\"}", "invalid unicode"),
            (&b"[".repeat(100_000), "recursion limit"),
        ] {
            let told = with(config);
            let starts = "a.keras: its model's configuration can't be read: ";
            assert!(told.starts_with(starts) && told.contains(says), "{told}");
        }
        assert!(told(archive(&[weights])).contains("there is no config.json in the archive"));
    }

    /// Files of torch.save are archives too.
    #[test]
    fn pickles_of_pytorch_are_told_to_come_as_onnx() {
        let told = open(Path::new("a.pth"), archive(&[("a/data.pkl", b"")])).unwrap_err().to_string();
        assert!(told.contains("export the network to ONNX") && told.contains("torch.onnx.export("), "{told}");
    }

    /// Few bytes that become many, and as JSON many more.
    #[test]
    fn a_configuration_that_fills_the_memory_is_refused() {
        let config = [b"[0", b",0".repeat(MAX_CONFIG as usize / 2 + 1).as_slice(), b"]"].concat();
        let bytes = archive(&[("model.weights.h5", b"weights"), ("config.json", &config)]);
        assert!(bytes.len() < 1 << 20);
        let told = open(Path::new("a.keras"), bytes).unwrap_err().to_string();
        assert_eq!(told, "a.keras: its model's configuration is longer than 16 MiB, the most that is read");
    }
}
