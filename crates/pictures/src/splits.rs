//! Which folders of a data set are splits, and which are classes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::found::{Found, entries};

/// What a folder holds by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Train,
    Validation,
    Test,
    /// Pictures without classes, as Kaggle's `seg_pred`.
    Unlabelled,
}

/// The words that tell the kind, in lower case.
const WORDS: [(Kind, &[&str]); 4] = [
    (Kind::Train, &["train", "training", "trainset"]),
    (
        Kind::Validation,
        &["val", "valid", "validation", "validate", "dev", "eval", "evaluation", "valset", "devset"],
    ),
    (Kind::Test, &["test", "testing", "testset"]),
    (Kind::Unlabelled, &["pred", "prediction", "unlabeled", "unlabelled"]),
];

/// Words that may stand beside one of those.
const FILLERS: [&str; 9] = ["set", "seg", "data", "dataset", "split", "folder", "image", "images", "img"];

impl Kind {
    /// Of a name such as `train`, `Training_Set`, `seg_test` or `dev`.
    pub(crate) fn of(name: &str) -> Option<Kind> {
        let name = name.to_lowercase();
        let mut words = words(&name).filter(|word| !FILLERS.contains(word));
        match (words.next(), words.next()) {
            (Some(word), None) => Kind::of_word(word),
            _ => None,
        }
    }

    fn of_word(word: &str) -> Option<Kind> {
        WORDS.into_iter().find(|(_, words)| words.contains(&word)).map(|(kind, _)| kind)
    }

    /// Of a name that has such a word beside any others, as `ILSVRC2012_img_val`.
    fn hinted(name: &str) -> Option<Kind> {
        words(&name.to_lowercase()).find_map(Kind::of_word)
    }
}

fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|letter: char| !letter.is_alphabetic()).filter(|word| !word.is_empty())
}

/// The folders with class folders of a data set.
#[derive(Debug, Default)]
pub(crate) struct Splits {
    /// The folder that they are in: the data set's, or the only one in it.
    pub(crate) root: PathBuf,
    /// That of the classes alone, if there are no splits.
    pub(crate) all: Option<PathBuf>,
    pub(crate) train: Option<PathBuf>,
    pub(crate) validation: Option<PathBuf>,
    pub(crate) test: Option<PathBuf>,
    /// Folders that are left out, since their pictures have no classes.
    pub(crate) left_out: Vec<PathBuf>,
}

impl Splits {
    /// Those of the data set `dir`.
    ///
    /// # Errors
    /// [`Error::Splits`] for folders that look like splits, and are none.
    pub(crate) fn of(dir: &Path) -> Result<Splits> {
        let root = unwrapped(dir, |only| Kind::of(&name(only)).is_none() && !folders_in(only).is_empty());
        let mut folders = entries(&root)?;
        folders.retain(|path| path.is_dir());
        let is_split = |path: &PathBuf| {
            Kind::of(&name(path)).is_some_and(|kind| kind != Kind::Unlabelled) && !folders_in(path).is_empty()
        };
        let mut splits = Splits { root: root.clone(), ..Splits::default() };
        if !folders.iter().any(is_split) {
            refuse_lookalikes(&root, &folders)?;
            splits.all = Some(root);
            return Ok(splits);
        }
        folders.iter().try_for_each(|folder| splits.add(folder))?;
        Ok(splits)
    }

    /// Folders with class folders in any places, each for one split.
    ///
    /// # Errors
    /// [`Error::Splits`] if the first one has splits in it, or if two are the same.
    pub(crate) fn separate(train: &Path, validation: Option<&Path>, test: Option<&Path>) -> Result<Splits> {
        let Splits { root, all: Some(train), .. } = Splits::of(train)? else {
            let reason =
                "it has folders for splits in it; name one of them, or this folder as the whole data set";
            return Err(Error::Splits { path: train.to_owned(), reason: reason.to_owned() });
        };
        let named = [Some(train.as_path()), validation, test];
        let real = named.map(|folder| folder.and_then(|folder| fs::canonicalize(folder).ok()));
        for (k, folder) in named.into_iter().enumerate() {
            if let Some(folder) = folder
                && real[k].is_some()
                && real[..k].contains(&real[k])
            {
                let reason = "it is named for two splits, which must not share pictures".to_owned();
                return Err(Error::Splits { path: folder.to_owned(), reason });
            }
        }
        let [validation, test] = [validation, test].map(|folder| folder.map(Path::to_owned));
        Ok(Splits { root, train: Some(train), validation, test, ..Splits::default() })
    }

    /// Adds a folder beside a split.
    fn add(&mut self, folder: &Path) -> Result<()> {
        let own = name(folder);
        let place = match Kind::of(&own) {
            // It holds notes or tables.
            None if holds_no_picture(folder) => return Ok(()),
            None => {
                let reason = format!(
                    "`{own}` stands beside folders that are named as splits. If it is a split, call it `train`, \
                     `val` or `test`; if it belongs to none, move it elsewhere. If all of them are classes, \
                     move them into a folder `train`"
                );
                return Err(self.refused(reason));
            }
            Some(Kind::Unlabelled) => {
                self.left_out.push(folder.to_owned());
                return Ok(());
            }
            Some(_) if folders_in(folder).is_empty() => return Err(self.refused(flat(&[own]))),
            Some(Kind::Train) => &mut self.train,
            Some(Kind::Validation) => &mut self.validation,
            Some(Kind::Test) => &mut self.test,
        };
        if let Some(other) = place {
            let other = name(other);
            let reason = format!(
                "`{other}` and `{own}` are named as the same split; bring their pictures together in one of \
                 them, or move one elsewhere"
            );
            return Err(self.refused(reason));
        }
        *place = Some(folder.to_owned());
        Ok(())
    }

    fn refused(&self, reason: String) -> Error {
        Error::Splits { path: self.root.clone(), reason }
    }
}

fn holds_no_picture(folder: &Path) -> bool {
    let Found { pictures, unlisted, .. } = Found::below(folder);
    pictures.is_empty() && unlisted.is_empty()
}

/// Refuses class folders that look like splits. One of them alone may be a class: trains are pictured too.
fn refuse_lookalikes(root: &Path, folders: &[PathBuf]) -> Result<()> {
    let names: Vec<String> = folders.iter().map(|path| name(path)).collect();
    let refused = |reason| Err(Error::Splits { path: root.into(), reason });
    let named: Vec<String> = names.iter().filter(|name| Kind::of(name).is_some()).cloned().collect();
    if named.len() > 1 {
        return refused(flat(&named));
    }
    let hinted: Option<BTreeSet<Kind>> = names.iter().map(|name| Kind::hinted(name)).collect();
    if hinted.is_some_and(|kinds| kinds.len() > 1) {
        let listed = names.join("`, `");
        return refused(format!(
            "`{listed}` look like splits. If they are, call them `train`, `val` and `test`; if they are \
             classes, move them into a folder `train`"
        ));
    }
    Ok(())
}

/// What is wrong with splits without class folders.
fn flat(names: &[String]) -> String {
    let (are, have) =
        if names.len() == 1 { ("is named as a split", "has") } else { ("are named as splits", "have") };
    let (listed, first) = (names.join("`, `"), &names[0]);
    format!(
        "`{listed}` {are}, but {have} no class folders. Move the pictures of each class into a folder, as \
         `{first}/cat/1.jpg`, also where the class is in the file's name or in a table; if the classes are \
         not known, move `{first}` elsewhere"
    )
}

/// The folder itself, or the only one in it if that one `wraps` the content, as in many archives.
pub(crate) fn unwrapped(dir: &Path, wraps: impl Fn(&Path) -> bool) -> PathBuf {
    match &folders_in(dir)[..] {
        [only] if wraps(only) => only.clone(),
        _ => dir.to_owned(),
    }
}

/// The folders in a folder; none in one that can't be listed.
pub(crate) fn folders_in(dir: &Path) -> Vec<PathBuf> {
    let mut folders = entries(dir).unwrap_or_default();
    folders.retain(|path| path.is_dir());
    folders
}

/// The name of a folder, as far as it is UTF-8.
pub(crate) fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_are_known_by_their_usual_names() {
        for (kind, names) in [
            (
                Kind::Train,
                &["train", "Train", "TRAINING", "training_set", "train-set", "seg_train", "Training Data"][..],
            ),
            (
                Kind::Validation,
                &["val", "Valid", "validation", "dev", "eval", "val_set", "seg_val", "val2017"],
            ),
            (Kind::Test, &["test", "Testing", "test_set", "seg_test", "testset", "test_images"]),
            (Kind::Unlabelled, &["seg_pred", "unlabeled"]),
        ] {
            names.iter().for_each(|name| assert_eq!(Kind::of(name), Some(kind), "{name}"));
        }
        for name in
            ["cat", "trains", "train_station", "test_tube", "set", "images", "", "Invalid", "pets_train"]
        {
            assert_eq!(Kind::of(name), None, "{name}");
        }
    }
}
