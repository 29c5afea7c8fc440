use crate::{Error, Result};
use serde_json::Value;
use std::path::Path;

/// The leaves of a JSON file, by name: `augmentation.horizontal_flip` and `true`. None, if there is no file.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<(String, String)>>> {
    let text = match towers_files::read_text(path) {
        Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let value: Value = serde_json::from_str(&text).map_err(|error| Error::Run {
        path: path.to_owned(),
        reason: format!("the file is damaged: {error}").into(),
    })?;
    let mut leaves = Vec::new();
    collect(String::new(), &value, &mut leaves);
    Ok(Some(leaves))
}

fn collect(key: String, value: &Value, leaves: &mut Vec<(String, String)>) {
    match value {
        Value::Object(entries) => {
            for (name, value) in entries {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                collect(key, value, leaves);
            }
        }
        Value::Null => leaves.push((key, "none".to_owned())),
        Value::String(text) => leaves.push((key, text.clone())),
        // The starts of a run and the keys that it changed are read as a whole.
        Value::Array(items) if items.len() > 16 && key != "starts" && key != "changed" => {
            leaves.push((key, format!("{} values", items.len())))
        }
        value => leaves.push((key, value.to_string())),
    }
}

/// All keys of several runs' settings, each where it first appears.
pub(crate) fn keys<'a>(runs: impl Iterator<Item = &'a [(String, String)]>) -> Vec<&'a str> {
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in runs.flatten() {
        if !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_have_dotted_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        assert_eq!(read(&path).unwrap(), None);
        let mean = vec!["0.5"; 3072].join(",");
        let text = format!(
            r#"{{"lr": 0.1, "data": {{"dataset": "auto", "url": []}}, "x": null, "mean": [{mean}]}}"#
        );
        std::fs::write(&path, text).unwrap();
        let expected = [
            ("lr", "0.1"),
            ("data.dataset", "auto"),
            ("data.url", "[]"),
            ("x", "none"),
            ("mean", "3072 values"),
        ];
        let mut leaves = read(&path).unwrap().unwrap();
        let mut expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
        leaves.sort();
        expected.sort();
        assert_eq!(leaves, expected);
        std::fs::write(&path, "{").unwrap();
        assert!(matches!(read(&path), Err(Error::Run { .. })));
    }
}
