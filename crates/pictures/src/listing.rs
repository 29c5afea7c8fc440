//! The files of a folder of class folders, before any of them is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::found::{ENDINGS, Found, entries, is_picture};
use crate::splits::{Splits, folders_in, name, unwrapped};
use towers_dataset::ValidationFrom;

/// A file and its class.
#[derive(Clone)]
pub(crate) struct Picture {
    pub(crate) path: PathBuf,
    /// Its class; the first of several, or 0.
    pub(crate) label: u16,
    /// All its classes, where a picture has any number of them.
    pub(crate) classes: Option<Arc<[u16]>>,
}

/// Notes on a source, besides the pictures of its classes.
#[derive(Default)]
pub(crate) struct Others {
    /// The table, if there is one.
    pub(crate) table: Option<PathBuf>,
    /// How the table was read.
    pub(crate) told: Vec<String>,
    /// A label of the table that looks like a list, and what seems to separate it.
    pub(crate) lists: Option<(String, char)>,
    /// Pictures that the table does not list.
    pub(crate) unlisted: Vec<PathBuf>,
    /// Files in class folders that are no pictures by their names.
    pub(crate) files: Vec<PathBuf>,
    /// Pictures in no class folder.
    pub(crate) unlabelled: Vec<PathBuf>,
}

/// The pictures of a split that is not held back from training.
pub(crate) struct Own {
    pub(crate) pictures: Vec<Picture>,
    /// Their origin, such as `val/`.
    pub(crate) from: String,
}

/// The splits beside the training split.
pub(crate) struct OwnSplits {
    pub(crate) validation: Option<Own>,
    pub(crate) test: Option<Own>,
}

/// The pictures of each split.
pub(crate) struct Listing {
    pub(crate) classes: Vec<String>,
    /// Whether a picture has any number of them.
    pub(crate) multi_label: bool,
    pub(crate) train: Vec<Picture>,
    /// If they are not those of the test split.
    pub(crate) validation: Option<Vec<Picture>>,
    pub(crate) test: Vec<Picture>,
    pub(crate) validation_from: ValidationFrom,
    pub(crate) others: Others,
}

impl Listing {
    /// The pictures of `splits` of the data set `dir`; with `whole` as for
    /// [`Pictures::whole`](crate::Pictures::whole).
    pub(crate) fn of(dir: &Path, splits: Splits, whole: bool) -> Result<Listing> {
        let Splits { root, all, train, validation, test, left_out } = splits;
        let has_train = all.is_some() || train.is_some();
        let first = all.or(train).or_else(|| test.clone().or(validation.clone()).filter(|_| whole));
        let Some(first) = first else {
            let reason = "it has no folder to train on; call it `train`".to_owned();
            return Err(Error::Splits { path: root, reason });
        };
        let first = unwrapped(&first, |only| !folders_in(only).is_empty());
        let mut others = Others::default();
        if root != first {
            others.unlabelled.extend(pictures_in(&root)?);
        }
        left_out.iter().for_each(|folder| others.unlabelled.extend(Found::below(folder).pictures));
        let (classes, mut pictures) = classes_in(&first, if whole { 1 } else { 2 }, &mut others)?;
        let mut read = |dir: Option<PathBuf>| -> Result<Option<Own>> {
            let Some(dir) = dir else { return Ok(None) };
            let pictures = split_in(&dir, &classes, &mut others)?;
            Ok(Some(Own { pictures, from: format!("{}/", name(&dir)) }))
        };
        let (validation, test) = (read(validation)?, read(test)?);
        if !has_train {
            pictures.clear();
        }
        let splits = OwnSplits { validation, test };
        Listing::new(classes, false, pictures, splits, others, whole)
            .map_err(|split| shape(dir, format!("it has no picture for the {split} split")))
    }

    /// The pictures to train on, sorted by class, and those of the other splits. Without others, some of the former are held back;
    /// with `whole`, all are.
    ///
    /// # Errors
    /// The name of a split without pictures; with `whole`, only of those to measure on.
    pub(crate) fn new(
        classes: Vec<String>,
        multi_label: bool,
        train: Vec<Picture>,
        splits: OwnSplits,
        others: Others,
        whole: bool,
    ) -> Result<Listing, &'static str> {
        use ValidationFrom::{HeldBack, Test, Validation, Whole};
        let (train, validation, test, validation_from) = match (splits.validation, splits.test) {
            (None, None) if whole => (Vec::new(), None, train, Whole),
            (None, None) => {
                let (train, test) = divide(train);
                (train, None, test, HeldBack)
            }
            (Some(both), None) => (train, None, both.pictures, Validation(both.from)),
            (None, Some(both)) => (train, None, both.pictures, Test(both.from)),
            (Some(own), Some(test)) => (train, Some(own.pictures), test.pictures, Validation(own.from)),
        };
        let both = validation.as_ref().unwrap_or(&test);
        let splits = [("training", &train), ("test", &test), ("validation", both)];
        let measured = &splits[usize::from(whole)..];
        if let Some((split, _)) = measured.iter().find(|(_, pictures)| pictures.is_empty()) {
            return Err(split);
        }
        Ok(Listing { classes, multi_label, train, validation, test, validation_from, others })
    }
}

fn shape(path: &Path, reason: impl Into<String>) -> Error {
    Error::ClassFolders { path: path.into(), reason: reason.into() }
}

/// The classes in `dir`, which must be so many at least, and their pictures.
fn classes_in(dir: &Path, at_least: usize, others: &mut Others) -> Result<(Vec<String>, Vec<Picture>)> {
    let mut classes = Vec::new();
    for path in entries(dir)?.into_iter().filter(|path| path.is_dir()) {
        match path.file_name().and_then(|name| name.to_str()) {
            Some(name) => classes.push(name.to_owned()),
            None => return Err(shape(&path, "its name is not UTF-8")),
        }
    }
    if classes.len() < at_least {
        return Err(shape(
            dir,
            format!("it has {} class folders, but {at_least} or more are needed", classes.len()),
        ));
    }
    if classes.len() > usize::from(u16::MAX) {
        return Err(shape(dir, format!("it has {} class folders, more than {}", classes.len(), u16::MAX)));
    }
    let pictures = pictures_of(dir, &classes, others)?;
    let mut counts = vec![0_usize; classes.len()];
    pictures.iter().for_each(|picture| counts[usize::from(picture.label)] += 1);
    match counts.iter().position(|&count| count == 0) {
        Some(empty) => Err(shape(&dir.join(&classes[empty]), format!("it has no picture: {}", endings()))),
        None => Ok((classes, pictures)),
    }
}

/// The pictures of another split than the training split.
fn split_in(dir: &Path, classes: &[String], others: &mut Others) -> Result<Vec<Picture>> {
    let dir = unwrapped(dir, |only| !classes.contains(&name(only)) && !folders_in(only).is_empty());
    pictures_of(&dir, classes, others)
}

/// The pictures in `dir`, whose class folders must be among `classes`.
fn pictures_of(dir: &Path, classes: &[String], others: &mut Others) -> Result<Vec<Picture>> {
    let mut pictures = Vec::new();
    others.unlabelled.extend(pictures_in(dir)?);
    for folder in entries(dir)?.into_iter().filter(|path| path.is_dir()) {
        let known =
            folder.file_name().and_then(|name| classes.iter().position(|class| name == class.as_str()));
        let Some(label) = known else {
            return Err(shape(&folder, "the training split has no class of this name"));
        };
        let Found { pictures: files, others: rest, unlisted } = Found::below(&folder);
        if let Some(error) = unlisted.into_iter().next() {
            return Err(error);
        }
        let label = label as u16;
        pictures.extend(files.into_iter().map(|path| Picture { path, label, classes: None }));
        others.files.extend(rest);
    }
    Ok(pictures)
}

/// The pictures in a folder itself.
fn pictures_in(dir: &Path) -> Result<impl Iterator<Item = PathBuf>> {
    Ok(entries(dir)?.into_iter().filter(|path| is_picture(path)))
}

/// The endings in words.
fn endings() -> String {
    ENDINGS.map(|ending| format!(".{ending}")).join(", ")
}

/// The rule of [`read`](crate::read) for a folder without a test set. `all` is sorted by class.
fn divide(all: Vec<Picture>) -> (Vec<Picture>, Vec<Picture>) {
    let (mut train, mut test) = (Vec::new(), Vec::new());
    for class in all.chunk_by(|a, b| a.label == b.label) {
        let last_of_few = (2..=5).contains(&class.len()).then(|| class.len() - 1);
        for (k, picture) in class.iter().enumerate() {
            let to = if k % 6 == 5 || Some(k) == last_of_few { &mut test } else { &mut train };
            to.push(picture.clone());
        }
    }
    (train, test)
}
