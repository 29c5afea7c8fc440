//! The pictures of a folder by the names that tables give them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::found::{ENDINGS, Found};

/// The pictures in a folder and below.
pub(crate) struct Index {
    root: PathBuf,
    /// The root without links.
    real: PathBuf,
    pictures: Vec<PathBuf>,
    /// Their paths within the root, with `/`.
    names: Vec<String>,
    /// Their places, sorted by each of the [`KEYS`].
    sorted: [Vec<u32>; KEYS.len()],
}

/// The names of a picture in a table: its path within the folder, the path without ending, its name alone, and that without ending.
const KEYS: [fn(&str) -> &str; 4] = [|path| path, stem, file_name, |path| stem(file_name(path))];

fn stem(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(stem, _)| stem)
}

fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Why a name leads to no picture.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotFound {
    /// There is none.
    Missing,
    /// It is one of several: two of them.
    Several([String; 2]),
    /// It is not a path within the folder, and why.
    Outside(&'static str),
}

impl Index {
    pub(crate) fn of(root: &Path) -> Result<Index> {
        let real = fs::canonicalize(root).map_err(Error::io("list", root))?;
        let Found { pictures, unlisted, .. } = Found::below(root);
        if let Some(error) = unlisted.into_iter().next() {
            return Err(error);
        }
        let within = |path: &PathBuf| {
            let path = path.strip_prefix(root).unwrap_or(path).to_string_lossy();
            if cfg!(windows) { path.replace('\\', "/") } else { path.into_owned() }
        };
        let names: Vec<String> = pictures.iter().map(within).collect();
        let sorted = KEYS.map(|key| {
            let mut places: Vec<u32> = (0..names.len() as u32).collect();
            places.sort_by_key(|&place| key(&names[place as usize]));
            places
        });
        Ok(Index { root: root.to_owned(), real, pictures, names, sorted })
    }

    /// The folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// How many pictures there are.
    pub(crate) fn len(&self) -> usize {
        self.pictures.len()
    }

    /// A picture's file.
    pub(crate) fn path(&self, place: u32) -> &Path {
        &self.pictures[place as usize]
    }

    /// A picture's path within the folder.
    pub(crate) fn name(&self, place: u32) -> &str {
        &self.names[place as usize]
    }

    /// The place of the picture that a table calls `name`: a path within the folder, or the name of a picture in any folder below. The
    /// ending may be left out.
    pub(crate) fn find(&self, name: &str) -> Result<u32, NotFound> {
        let name = name.replace('\\', "/");
        // As in `C:\1.png`.
        let has_drive = name.get(1..3) == Some(":/");
        if name.starts_with('/') || has_drive {
            return Err(NotFound::Outside("it is an absolute path"));
        }
        let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.contains(&"..") {
            return Err(NotFound::Outside("it leads out of a folder"));
        }
        let name = parts.join("/");
        let keys = if parts.len() > 1 { 2 } else { KEYS.len() };
        for (key, places) in KEYS.iter().zip(&self.sorted).take(keys) {
            let of = |place: &u32| key(&self.names[*place as usize]);
            let start = places.partition_point(|place| of(place) < name.as_str());
            match &places[start..] {
                [one, two, ..] if of(one) == name && of(two) == name => {
                    return Err(NotFound::Several([*one, *two].map(|place| self.name(place).to_owned())));
                }
                [one, ..] if of(one) == name => return Ok(*one),
                _ => {}
            }
        }
        Err(NotFound::Missing)
    }

    /// Whether a picture is a link that leads out of the folder.
    pub(crate) fn leads_out(&self, place: u32) -> bool {
        let path = self.path(place);
        path.is_symlink() && !fs::canonicalize(path).is_ok_and(|real| real.starts_with(&self.real))
    }

    /// Why a file of this name is no picture, if there is one.
    pub(crate) fn why_not(&self, name: &str) -> String {
        let endings = ENDINGS.map(|ending| format!(".{ending}")).join(", ");
        let exists = self.root.join(name).is_file();
        if exists { format!(", whose ending is none of {endings}") } else { String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(files: &[&str]) -> (tempfile::TempDir, Index) {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let index = Index::of(dir.path()).unwrap();
        (dir, index)
    }

    #[test]
    fn pictures_are_found_by_path_and_by_name_with_and_without_ending() {
        let files =
            ["1.png", "a/1.jpg", "a/2.jpg", "a/b/3.5.PNG", "a/5.gif", "a/5.png", "b/2.jpg", "notes.txt"];
        let (_dir, index) = index(&files);
        let find = |name: &str| index.find(name).map(|place| index.name(place));
        for (name, is) in [
            ("1", "1.png"),
            ("1.png", "1.png"),
            ("a/1", "a/1.jpg"),
            ("./a//1.jpg", "a/1.jpg"),
            ("a\\1.jpg", "a/1.jpg"),
            ("1.jpg", "a/1.jpg"),
            ("3.5", "a/b/3.5.PNG"),
            ("3.5.PNG", "a/b/3.5.PNG"),
        ] {
            assert_eq!(find(name), Ok(is), "{name}");
        }
        let several = |one: &str, two: &str| Err(NotFound::Several([one.to_owned(), two.to_owned()]));
        assert_eq!(find("a/5"), several("a/5.gif", "a/5.png"));
        assert_eq!(find("2.jpg"), several("a/2.jpg", "b/2.jpg"));
        assert_eq!(find("2"), several("a/2.jpg", "b/2.jpg"));
        for name in ["3", "", ".", "a", "b/1.jpg", "notes.txt", "b/3.5"] {
            assert_eq!(find(name), Err(NotFound::Missing), "{name}");
        }
        for name in ["/etc/1.png", "../1.png", "a/../1.png", "a\\..\\1.png", "C:\\1.png", "\\\\host\\1.png"] {
            assert!(matches!(find(name), Err(NotFound::Outside(_))), "{name}");
        }
        assert!(index.why_not("notes.txt").contains("none of .bmp") && index.why_not("none.txt").is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn links_out_of_the_folder_are_known() {
        use std::os::unix::fs::symlink;
        let (outside, _) = index(&["secret.png"]);
        let (dir, _) = index(&["a/1.png"]);
        symlink(outside.path().join("secret.png"), dir.path().join("out.png")).unwrap();
        symlink("a/1.png", dir.path().join("in.png")).unwrap();
        symlink(outside.path(), dir.path().join("folder")).unwrap();
        let index = Index::of(dir.path()).unwrap();
        let leads_out = |name: &str| index.find(name).map(|place| index.leads_out(place));
        assert_eq!(["a/1.png", "in.png", "out.png"].map(leads_out), [Ok(false), Ok(false), Ok(true)]);
        assert_eq!(leads_out("folder/secret.png"), Err(NotFound::Missing));
    }
}
