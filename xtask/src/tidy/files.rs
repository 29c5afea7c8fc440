//! The files of the repository.

use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The repository's files by their path from its root, with their text; binary files have none.
pub struct Files(BTreeMap<String, String>);

impl Files {
    /// Reads the files that Git tracks or would track: new files count before they are added.
    pub fn load(root: &Path) -> Result<Files> {
        // Git refuses to read a checkout that another user owns, as in many containers, unless it is called
        // safe.
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
        let listed = String::from_utf8_lossy(&output.stdout);
        // A file that was deleted but not yet committed is still listed.
        let there = listed.split_terminator('\0').filter(|path| root.join(path).is_file());
        let read = |path: &str| {
            let bytes = std::fs::read(root.join(path)).with_context(|| format!("{path} can't be read"))?;
            Ok((path.to_owned(), String::from_utf8(bytes).unwrap_or_default()))
        };
        Ok(Files(there.map(read).collect::<Result<_>>()?))
    }

    /// The files whose name ends in `ending`, as (path, text); all of them for an empty ending.
    pub fn texts<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let texts = self.0.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        texts.filter(move |(path, _)| path.ends_with(ending))
    }

    /// The text of one file; empty if there is none.
    pub fn text(&self, path: &str) -> &str {
        self.0.get(path).map_or("", String::as_str)
    }

    /// Whether `path` is a file, or a folder with files in it.
    pub fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        let mut below = self.0.range(folder.clone()..);
        path.is_empty()
            || self.0.contains_key(path)
            || below.next().is_some_and(|(file, _)| file.starts_with(&folder))
    }
}

#[cfg(test)]
impl Files {
    /// Files for the tests of the rules.
    pub fn fake(files: &[(&str, &str)]) -> Files {
        Files(files.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_exist_through_their_files() {
        let files = Files::fake(&[("docs/a.md", ""), ("docs-old", ""), ("x.bin", "")]);
        assert!(files.has("docs") && files.has("docs/a.md") && files.has("x.bin") && files.has(""));
        assert!(!files.has("doc") && !files.has("docs/b.md") && !files.has("docs/a.md/b"));
    }
}
