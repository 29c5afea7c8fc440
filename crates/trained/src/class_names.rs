//! Names of classes from a file.

use crate::{Error, Result};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use towers_dataset::Dataset;

/// The longest file that is read, in bytes.
const LONGEST: u64 = 8 << 20;

/// Names of classes, by label, from a text with one a line, or from a JSON file such as Keras' `imagenet_class_index.json`.
///
/// ```
/// use towers_trained::ClassNames;
///
/// let folder = tempfile::tempdir()?;
/// let file = folder.path().join("imagenet_class_index.json");
/// std::fs::write(&file, r#"{"0": ["n01440764", "tench"], "1": ["n01443537", "goldfish"]}"#)?;
/// let names = ClassNames::read(&file)?;
/// assert_eq!(names.names(), ["tench", "goldfish"]);
/// let mut pets = towers_cifar::synthetic(1, 20, 10);
/// pets.classes = vec!["n01443537".to_owned()];
/// names.apply_to(&mut pets)?;
/// assert_eq!(pets.classes, ["goldfish"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassNames {
    path: PathBuf,
    names: Vec<String>,
    /// Of ImageNet's classes, which folders are called so: `n01440764`.
    ids: Vec<String>,
}

impl ClassNames {
    /// Reads a file. A name that several classes have gets the id or the number of the class behind it, as `crane (517)`.
    ///
    /// # Errors
    /// [`Error::Run`] if it can't be read, has no names, or has an empty one.
    pub fn read(path: &Path) -> Result<Self> {
        let refuse = |reason: String| Error::run(path, reason);
        let about = std::fs::metadata(path).map_err(towers_files::Error::io("read", path))?;
        if !about.is_file() || about.len() > LONGEST {
            return Err(refuse(
                "it is no file of class names: one name a line, or Keras' imagenet_class_index.json"
                    .to_owned(),
            ));
        }
        let text = std::fs::read_to_string(path).map_err(towers_files::Error::io("read", path))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let listed = match text.trim_start().starts_with(['{', '[']) {
            true => of_json(text),
            false => of_lines(text),
        };
        let (mut names, ids) = listed.map_err(refuse)?;
        if names.is_empty() {
            return Err(refuse("there are no class names in it".to_owned()));
        }
        let (mut seen, mut twice) = (HashSet::new(), HashSet::new());
        for name in &names {
            if !seen.insert(name.clone()) {
                twice.insert(name.clone());
            }
        }
        for (label, name) in names.iter_mut().enumerate().filter(|(_, name)| twice.contains(*name)) {
            let number = || label.to_string();
            *name = format!("{name} ({})", ids.get(label).cloned().unwrap_or_else(number));
        }
        Ok(ClassNames { path: path.to_owned(), names, ids })
    }

    /// The names, by label.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The names for `classes` classes of `what`.
    ///
    /// # Errors
    /// [`Error::Option`] if there are more or fewer.
    pub(crate) fn checked(&self, classes: usize, what: &str) -> Result<Vec<String>> {
        if self.names.len() == classes {
            return Ok(self.names.clone());
        }
        let value = format!("{} with {} names", self.path.display(), self.names.len());
        Err(Error::option("data.class_names", value, format!("a file with the {classes} classes of {what}")))
    }

    /// Gives the classes of a data set their names: those of its folders where these are ids of ImageNet's classes, or else all of them,
    /// in the order of the labels. Folders that have such names keep them.
    ///
    /// # Errors
    /// [`Error::Option`] if there are more or fewer.
    pub fn apply_to(&self, data: &mut Dataset) -> Result<()> {
        let place = |all: &[String], class: &String| all.iter().position(|one| one == class);
        let by_id: Option<Vec<usize>> = data.classes.iter().map(|class| place(&self.ids, class)).collect();
        if let Some(labels) = by_id {
            data.classes = labels.into_iter().map(|label| self.names[label].clone()).collect();
        } else if !data.classes.iter().all(|class| self.names.contains(class)) {
            data.classes = self.checked(data.classes.len(), &data.name)?;
        }
        Ok(())
    }
}

/// Names, and ids if there are some.
type Listed = (Vec<String>, Vec<String>);

/// One name a line. Lines at the end may be empty.
fn of_lines(text: &str) -> Result<Listed, String> {
    let names: Vec<String> = text.trim_end().lines().map(|line| line.trim().to_owned()).collect();
    match names.iter().position(String::is_empty) {
        Some(_) if names.len() == 1 => Ok(Listed::default()),
        Some(line) => Err(format!("its line {} is empty, but must have the name of a class", line + 1)),
        None => Ok((names, Vec::new())),
    }
}

/// `["tench", ..]`, `{"0": "tench", ..}` or `{"0": ["n01440764", "tench"], ..}`.
fn of_json(text: &str) -> Result<Listed, String> {
    use serde_json::Value;
    const FORM: &str = "its JSON must be a list of names, or a table of labels from \"0\" up with a name, or an id and a name, as \
                        Keras' imagenet_class_index.json";
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("its JSON can't be read: {error}"))?;
    let entries: Option<Vec<&Value>> = match &value {
        Value::Array(names) => Some(names.iter().collect()),
        Value::Object(table) => (0..table.len()).map(|label| table.get(&label.to_string())).collect(),
        _ => None,
    };
    let (mut names, mut ids) = Listed::default();
    for entry in entries.ok_or(FORM)? {
        let (id, name) = match entry {
            Value::Array(pair) if pair.len() == 2 => (pair[0].as_str(), pair[1].as_str()),
            name => (None, name.as_str()),
        };
        let name = name.map(str::trim).filter(|name| !name.is_empty());
        names.push(name.ok_or(FORM)?.to_owned());
        ids.extend(id.map(str::to_owned));
    }
    match ids.len() {
        0 => Ok((names, ids)),
        len if len == names.len() => Ok((names, ids)),
        _ => Err(FORM.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ClassNames, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names");
        std::fs::write(&path, text).unwrap();
        ClassNames::read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn names_come_from_lines_and_from_json() {
        for text in [
            "cat\ndog\n",
            "\u{feff}cat\r\ndog\r\n\r\n",
            "  cat\ndog  ",
            r#"["cat", "dog"]"#,
            r#"{"1": "dog", "0": "cat"}"#,
            r#"{"0": ["n1", "cat"], "1": ["n2", "dog"]}"#,
        ] {
            assert_eq!(read(text).unwrap().names(), ["cat", "dog"], "{text}");
        }
        // Two of ImageNet's classes are called crane.
        assert_eq!(read("crane\ncat\ncrane").unwrap().names(), ["crane (0)", "cat", "crane (2)"]);
        let index = r#"{"0": ["n1", "crane"], "1": ["n2", "crane"]}"#;
        assert_eq!(read(index).unwrap().names(), ["crane (n1)", "crane (n2)"]);
    }

    #[test]
    fn files_without_names_are_refused() {
        for (text, says) in [
            ("", "there are no class names in it"),
            ("\n\n", "there are no class names in it"),
            ("cat\n\ndog", "its line 2 is empty"),
            ("{", "its JSON can't be read"),
            (r#"{"1": "dog"}"#, "a table of labels from \"0\" up"),
            (r#"["cat", ""]"#, "its JSON must be a list of names"),
            (r#"["cat", 3]"#, "its JSON must be a list of names"),
            (r#"{"0": ["n1", "cat"], "1": "dog"}"#, "its JSON must be a list of names"),
        ] {
            let told = read(text).unwrap_err();
            assert!(told.contains(says), "{text}: {told}");
        }
    }

    #[test]
    fn names_are_those_of_a_data_set() {
        let names = read("cat\ndog\ncow").unwrap();
        let with = |classes: &[&str], names: &ClassNames| {
            let mut data = towers_cifar::synthetic(1, 20, 10);
            data.classes = classes.iter().map(|&class| class.to_owned()).collect();
            names.apply_to(&mut data).map(|()| data.classes.join(" ")).map_err(|error| error.to_string())
        };
        assert_eq!(with(&["0", "1", "2"], &names).unwrap(), "cat dog cow");
        assert_eq!(with(&["cow", "cat"], &names).unwrap(), "cow cat");
        let told = with(&["0", "1"], &names).unwrap_err();
        assert!(
            told.contains("names with 3 names, but must be a file with the 2 classes of synthetic"),
            "{told}"
        );
        let index = read(r#"{"0": ["n1", "cat"], "1": ["n2", "dog"]}"#).unwrap();
        assert_eq!(with(&["n2"], &index).unwrap(), "dog");
    }
}
