//! The files of the repository.

use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The repository's files by their path from its root, with their text; `None` for binary files.
pub struct Files(BTreeMap<String, Option<String>>);

impl Files {
    /// Reads what Git tracks and what it would track: new files count before they are added.
    pub fn load(root: &Path) -> Result<Files> {
        // The last option: Git refuses to read a checkout that another user owns, as in many containers.
        let output = Command::new("git")
            .arg("-C")
            .arg(root)
            .arg("-c")
            .arg(format!("safe.directory={}", root.display()))
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()
            .context("`git` does not start; tidy asks it which files belong to the repository")?;
        if !output.status.success() {
            bail!("`git ls-files` failed: {}", String::from_utf8_lossy(&output.stderr).trim_end());
        }
        let mut files = BTreeMap::new();
        for path in String::from_utf8_lossy(&output.stdout).split_terminator('\0') {
            let full = root.join(path);
            // A file deleted but not yet committed is still listed.
            if full.is_file() {
                let bytes = std::fs::read(&full).with_context(|| format!("{path} can't be read"))?;
                files.insert(path.to_owned(), text(bytes));
            }
        }
        Ok(Files(files))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The text files whose name ends in `ending`, as (path, text); all of them for an empty ending.
    pub fn texts<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let texts = self.0.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)));
        texts.filter(move |(path, _)| path.ends_with(ending))
    }

    /// The text of one file, if it is there and not binary.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path)?.as_deref()
    }

    /// Whether `path` is a file, or a folder with files in it.
    pub fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        let inside = |(key, _): (&String, _)| key.starts_with(&folder);
        path.is_empty()
            || self.0.contains_key(path)
            || self.0.range(folder.clone()..).next().is_some_and(inside)
    }
}

fn text(bytes: Vec<u8>) -> Option<String> {
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

#[cfg(test)]
impl Files {
    /// Made-up files for the tests of the rules.
    pub fn fake(files: &[(&str, &str)]) -> Files {
        Files(files.iter().map(|(path, content)| (path.to_string(), text((*content).into()))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_exist_through_their_files() {
        let files = Files::fake(&[("docs/a.md", ""), ("docs-old", ""), ("x.bin", "\0")]);
        assert!(files.has("docs") && files.has("docs/a.md") && files.has("x.bin") && files.has(""));
        assert!(!files.has("doc") && !files.has("docs/b.md") && !files.has("docs/a.md/b"));
    }

    #[test]
    fn binary_files_have_no_text() {
        let files = Files::fake(&[("a.rs", "x"), ("b.rs", "\0"), ("c.md", "y")]);
        assert_eq!(files.texts(".rs").collect::<Vec<_>>(), [("a.rs", "x")]);
        assert_eq!(files.text("b.rs"), None);
        assert_eq!(files.len(), 3);
    }
}
