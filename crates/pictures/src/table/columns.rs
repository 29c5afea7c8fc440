//! Which columns of a table name the pictures, their classes and their splits.

use crate::error::{Error, Result};
use crate::splits::Kind;
use crate::table::text::Text;

/// Columns that name pictures, in lower case with `_` between words: those of Kaggle's competitions (`image`, `image_id`,
/// `image_name`), of Keras' `flow_from_dataframe` (`filename`), fastai (`fname`), Hugging Face (`file_name`) and AutoGluon (`image`).
const PATHS: [&str; 23] = [
    "path",
    "paths",
    "file",
    "files",
    "filename",
    "file_name",
    "filepath",
    "file_path",
    "fname",
    "fn",
    "image",
    "images",
    "image_id",
    "imageid",
    "image_name",
    "imagename",
    "image_path",
    "image_file",
    "img",
    "img_id",
    "img_name",
    "img_path",
    "picture",
];

/// Columns that name pictures if no other does: Kaggle's `id,label`, and fastai's `name,label`.
const WEAK_PATHS: [&str; 2] = ["id", "name"];

/// Columns that name classes: Kaggle's (`label`, `labels`, `target`, `tags`, `breed`), Keras' (`class`), Google's (`category`).
const LABELS: [&str; 12] = [
    "label",
    "labels",
    "class",
    "classes",
    "class_name",
    "classname",
    "category",
    "categories",
    "target",
    "tag",
    "tags",
    "breed",
];

/// Columns that name splits in any case; numbers in them are those of folds.
const SPLITS: [&str; 6] = ["split", "set", "subset", "partition", "fold", "phase"];
/// Columns that say whether a picture is for validation: fastai's `is_valid`.
const IS_VALIDATION: [&str; 4] = ["is_valid", "is_val", "is_validation", "valid"];

/// The columns of a table that are read, by their numbers from 0.
pub(crate) struct Columns {
    pub(crate) path: usize,
    pub(crate) labels: Labels,
    pub(crate) split: Option<Split>,
    pub(crate) has_header: bool,
    /// How the columns were read, for users.
    pub(crate) told: Vec<String>,
}

/// Where the classes of a picture are.
pub(crate) enum Labels {
    /// A column has their names.
    Names(usize),
    /// Each class has a column of 0 and 1, called as the class.
    Flags(Vec<(usize, String)>),
}

/// The column of the splits.
pub(crate) struct Split {
    pub(crate) column: usize,
    pub(crate) name: String,
    is_validation: bool,
}

impl Split {
    /// The fields that say a split.
    pub(crate) fn accepted(&self) -> &'static str {
        if self.is_validation { "True and False" } else { "train, val and test" }
    }

    /// The kind of split that a field says.
    pub(crate) fn kind(&self, field: &str) -> Option<Kind> {
        match field.to_lowercase().as_str() {
            "true" | "1" | "1.0" | "yes" if self.is_validation => Some(Kind::Validation),
            "false" | "0" | "0.0" | "no" if self.is_validation => Some(Kind::Train),
            _ if self.is_validation => None,
            word => Kind::of(word).filter(|kind| *kind != Kind::Unlabelled),
        }
    }
}

/// Whether a field of a class' column says that the picture has the class.
pub(crate) fn flag(field: &str) -> Option<bool> {
    match field.to_lowercase().as_str() {
        "1" | "1.0" | "true" => Some(true),
        // CelebA has -1.
        "0" | "0.0" | "-1" | "false" => Some(false),
        _ => None,
    }
}

impl Columns {
    /// The columns with the names `given`, the first of which has the pictures; without names, those whose names or contents say
    /// what they have. `is_picture` tells whether a field names a picture.
    ///
    /// # Errors
    /// [`Error::Columns`] if that is not clear.
    pub(crate) fn of(text: &Text, given: &[String], is_picture: impl Fn(&str) -> bool) -> Result<Columns> {
        let empty = || text.refused("it has no line for a picture");
        let [first, second] = text.first_lines()?;
        let first = first.ok_or_else(empty)?;
        let table = Header { words: first.iter().map(|name| normal(name)).collect(), names: first, text };
        let has_header = !given.is_empty() || table.is_known() || !is_picture(&table.names[0]);
        let mut columns = if !has_header {
            table.bare()?
        } else {
            let row = second.ok_or_else(empty)?;
            let mut columns =
                if given.is_empty() { table.guessed(&row, is_picture)? } else { table.given(given)? };
            columns.split = table.split(&row, &mut columns)?;
            columns
        };
        let separator = match text.separator {
            b',' => None,
            b'\t' => Some("tabs".to_owned()),
            other => Some(format!("`{}`", char::from(other))),
        };
        columns.told.extend(separator.map(|separator| format!("its fields are separated by {separator}")));
        Ok(columns)
    }
}

/// The name of a column in lower case, with `_` between words.
fn normal(name: &str) -> String {
    name.to_lowercase().replace([' ', '-'], "_")
}

/// The first line of a table.
struct Header<'a> {
    names: Vec<String>,
    /// The names in lower case.
    words: Vec<String>,
    text: &'a Text,
}

impl Header<'_> {
    /// The columns with one of these names.
    fn named(&self, known: &[&str]) -> Vec<usize> {
        (0..self.words.len()).filter(|&column| known.contains(&self.words[column].as_str())).collect()
    }

    /// Whether it has the name of a column, and so is a header.
    fn is_known(&self) -> bool {
        [&PATHS[..], &WEAK_PATHS, &LABELS].iter().any(|known| !self.named(known).is_empty())
    }

    fn refused(&self, reason: impl Into<String>) -> Error {
        let columns = self.names.clone();
        Error::Columns { path: self.text.path().to_owned(), reason: reason.into(), columns }
    }

    /// The columns of a table whose first line is no header.
    fn bare(&self) -> Result<Columns> {
        let columns = self.names.len();
        if columns != 2 {
            let reason = format!("it has {columns} columns and no header; put their names into a first line");
            return Err(self.text.refused(reason));
        }
        let told = "it has no header; the first field of a line is the picture, the second its class";
        let (path, labels, told) = (0, Labels::Names(1), vec![told.to_owned()]);
        Ok(Columns { path, labels, split: None, has_header: false, told })
    }

    /// The columns with these names.
    fn given(&self, given: &[String]) -> Result<Columns> {
        let place = |name: &String| {
            let found = self.names.iter().position(|known| known == name);
            let found = found.or_else(|| self.words.iter().position(|known| *known == normal(name)));
            found.ok_or_else(|| self.refused(format!("it has no column `{name}`")))
        };
        let places = given.iter().map(place).collect::<Result<Vec<usize>>>()?;
        let (path, labels) = match &places[..] {
            [path, label] => (*path, Labels::Names(*label)),
            [path, flags @ ..] if !flags.is_empty() => (*path, self.flags(flags)),
            _ => return Err(self.refused("a column of pictures and one of classes are needed")),
        };
        Ok(Columns { path, labels, split: None, has_header: true, told: Vec::new() })
    }

    fn flags(&self, columns: &[usize]) -> Labels {
        Labels::Flags(columns.iter().map(|&column| (column, self.names[column].clone())).collect())
    }

    /// The columns by their names, or else by their contents. `row` is the first line with a picture.
    fn guessed(&self, row: &[String], is_picture: impl Fn(&str) -> bool) -> Result<Columns> {
        let (mut paths, labels) = (self.named(&PATHS), self.named(&LABELS));
        if paths.is_empty() {
            paths = self.named(&WEAK_PATHS);
        }
        let quoted = |columns: &[usize]| {
            let names: Vec<&str> = columns.iter().map(|&column| self.names[column].as_str()).collect();
            format!("`{}`", names.join("`, `"))
        };
        for (columns, what) in [(&paths, "names the pictures"), (&labels, "names their classes")] {
            if columns.len() > 1 {
                return Err(self.refused(format!("it is not clear which of {} {what}", quoted(columns))));
            }
        }
        // Splits, and the numbers that pandas writes before each row, are neither pictures nor classes.
        let own = [self.named(&SPLITS), self.named(&IS_VALIDATION)].concat();
        let unnamed = |word: &str| word.is_empty() || word.starts_with("unnamed:");
        let is_other = |column: &usize| !own.contains(column) && !unnamed(&self.words[*column]);
        let others: Vec<usize> = (0..self.words.len()).filter(is_other).collect();
        let without =
            |known: usize| others.iter().copied().filter(|column| *column != known).collect::<Vec<_>>();
        let (path, label, assumed) = match (paths.first(), labels.first(), &others[..]) {
            (Some(&path), Some(&label), _) => (path, label, ""),
            (Some(&path), None, _) => match without(path)[..] {
                [label] => (path, label, "assumed that "),
                _ => return self.flagged(path, &without(path)),
            },
            (None, Some(&label), _) => match without(label)[..] {
                [path] if is_picture(&row[path]) => (path, label, "assumed that "),
                _ => return Err(self.refused("no column is known to name the pictures")),
            },
            (None, None, &[path, label]) if is_picture(&row[path]) => (path, label, "assumed that "),
            _ => return Err(self.refused("no column is known to name the pictures, and none their classes")),
        };
        let told = format!(
            "{assumed}{} names the pictures, and {} their classes",
            quoted(&[path]),
            quoted(&[label])
        );
        Ok(Columns { path, labels: Labels::Names(label), split: None, has_header: true, told: vec![told] })
    }

    /// The columns of a table with a column of 0 and 1 for each class.
    fn flagged(&self, path: usize, columns: &[usize]) -> Result<Columns> {
        let (mut header, mut bad) = (true, columns.is_empty().then_some(path));
        self.text.each(|_, fields| {
            if !std::mem::take(&mut header) {
                bad = columns.iter().copied().find(|&column| flag(&fields[column]).is_none());
            }
            Ok(bad.is_none())
        })?;
        if bad.is_some() {
            return Err(
                self.refused("no column is known to name the classes, and not all others have 0 and 1")
            );
        }
        let (labels, name) = (self.flags(columns), &self.names[path]);
        let told = format!(
            "`{name}` names the pictures, and {} columns of 0 and 1 are their classes",
            columns.len()
        );
        Ok(Columns { path, labels, split: None, has_header: true, told: vec![told] })
    }

    /// The column of the splits, if there is one. `row` is the first line with a picture.
    fn split(&self, row: &[String], columns: &mut Columns) -> Result<Option<Split>> {
        let is_read = |column: &usize| match &columns.labels {
            Labels::Names(label) => *column == columns.path || column == label,
            Labels::Flags(flags) => *column == columns.path || flags.iter().any(|(flag, _)| flag == column),
        };
        let mut found = Vec::new();
        for (known, is_validation) in [(&SPLITS[..], false), (&IS_VALIDATION, true)] {
            for column in self.named(known).into_iter().filter(|column| !is_read(column)) {
                let (name, field) = (self.names[column].clone(), &row[column]);
                let split = Split { column, name, is_validation };
                let word = &self.words[column];
                if split.kind(field).is_some() || word == "split" || word.starts_with("is_") {
                    found.push(split);
                } else {
                    let (name, accepted) = (&split.name, split.accepted());
                    columns.told.push(format!("`{name}` is not read, since `{field}` is none of {accepted}"));
                }
            }
        }
        if let [one, two, ..] = &found[..] {
            let reason =
                format!("its columns `{}` and `{}` both name splits; remove one of them", one.name, two.name);
            return Err(self.text.refused(reason));
        }
        let split = found.pop();
        columns.told.extend(split.as_ref().map(|split| format!("`{}` names the splits", split.name)));
        Ok(split)
    }
}
