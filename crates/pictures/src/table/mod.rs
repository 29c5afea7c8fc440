//! A table of pictures and their classes, as Kaggle's CSV files.

mod classes;
mod columns;
mod index;
mod rows;
mod text;

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::listing::{Listing, Others, Own, OwnSplits, Picture};
use crate::splits::Kind;
use classes::Classes;
use columns::Columns;
use index::Index;
use rows::{Row, Rows};
use text::Text;

/// A CSV file with the classes of the pictures in a folder: a line for each picture.
///
/// ```text
/// image,label        image_name,tags              filename,cat,dog,is_valid
/// 001.jpg,cat        train_0,haze|primary         a/001.jpg,1,0,False
/// 002.jpg,dog        train_1,clear|water          a/002.jpg,0,1,True
/// ```
///
/// - The columns are known by the usual names, or [named](Table::columns). A table of two columns needs no such names, and no header.
/// - A picture is a path within the folder, or the name of a picture in any folder below. Its ending may be left out.
/// - Without a column of classes, each other column of 0 and 1 is a class.
/// - A column `split`, `set` or `fold` of words such as `train`, `val` and `test`, or fastai's `is_valid`, decides the splits.
///   Without one, pictures are held back as those of [class folders](crate::read) are.
/// - With `|` in a class, or not one 1 in each row, pictures have any number of classes: the splits are
///   [multi-hot](crate::Split::multi_hot).
///
/// Classes are sorted by name, or as numbers if all are whole numbers. Pictures have the order of class and path. Fields are separated
/// by commas, semicolons or tabs.
///
/// ```
/// use towers_pictures::{Pictures, Table};
///
/// let folder = tempfile::tempdir()?;
/// std::fs::create_dir(folder.path().join("train"))?;
/// for name in ["1", "2", "3", "4"] {
///     image::RgbImage::new(40, 30).save(folder.path().join("train").join(name).with_extension("png"))?;
/// }
/// let file = folder.path().join("labels.csv");
/// std::fs::write(&file, "id,breed\n1,pug\n2,boxer\n3,pug\n4,boxer\n")?;
/// let table = Table::new(file).columns(["id", "breed"]);
/// let dogs = Pictures::table(table).image_size(24, 24).read()?;
/// assert_eq!((dogs.classes, dogs.train.images.dim()), (vec!["boxer".into(), "pug".into()], (2, 24, 24, 3)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Table {
    file: PathBuf,
    folder: Option<PathBuf>,
    columns: Vec<String>,
    separator: Option<String>,
}

impl Table {
    /// The table in a file.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Table { file: file.into(), folder: None, columns: Vec::new(), separator: None }
    }

    /// The folder of the pictures; by default that of the table.
    pub fn folder(self, folder: impl Into<PathBuf>) -> Self {
        Table { folder: Some(folder.into()), ..self }
    }

    /// The names of the column of pictures and of that of classes. If there are more than two, all but the first are classes, with 0 and 1.
    pub fn columns(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Table { columns: names.into_iter().map(Into::into).collect(), ..self }
    }

    /// The separator of the classes of one picture, as a space in `haze primary`. It makes the splits
    /// [multi-hot](crate::Split::multi_hot).
    pub fn label_separator(self, separator: impl Into<String>) -> Self {
        Table { separator: Some(separator.into()), ..self }
    }

    /// Its file.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// The folder of its pictures.
    pub(crate) fn dir(&self) -> &Path {
        let beside = self.file.parent().filter(|folder| !folder.as_os_str().is_empty());
        self.folder.as_deref().or(beside).unwrap_or(Path::new("."))
    }

    /// Its pictures; with `whole` as for [`Pictures::whole`](crate::Pictures::whole).
    pub(crate) fn list(&self, whole: bool) -> Result<Listing> {
        let text = Text::read(&self.file)?;
        let index = Index::of(self.dir())?;
        let columns = Columns::of(&text, &self.columns, |name| index.find(name).is_ok())?;
        let table = Rows::read(&text, &columns, &index)?;
        let classes = Classes::of(&text, &columns, &table, self.separator.as_deref(), whole)?;
        let (rows, listed) = distinct(&text, &table.rows, &classes, &index)?;
        let repeated = table.rows.len() - rows.len();
        let mut others = Others { table: Some(self.file.clone()), told: columns.told, ..Others::default() };
        if repeated > 0 {
            let (s, name) = if repeated == 1 { ("", "names") } else { ("s", "name") };
            others.told.push(format!("{repeated} line{s} {name} a picture again, with the same classes"));
        }
        others.lists = classes.lists.clone();
        let unlisted = (0..index.len() as u32).filter(|&place| !listed[place as usize]);
        others.unlisted = unlisted.map(|place| index.path(place).to_owned()).collect();
        let of = |kind: Kind| {
            let own = rows.iter().filter(|row| row.kind == kind);
            let mut pictures: Vec<Picture> = own.map(|row| classes.picture(row, &index)).collect();
            pictures.sort_by(|a, b| (a.label, &a.path).cmp(&(b.label, &b.path)));
            pictures
        };
        let name = columns.split.as_ref().map_or("", |split| &split.name);
        let own = |kind| {
            let own = Own { pictures: of(kind), from: format!("the column `{name}`") };
            Some(own).filter(|own| !own.pictures.is_empty())
        };
        let splits = OwnSplits { validation: own(Kind::Validation), test: own(Kind::Test) };
        let (train, multi_label) = (of(Kind::Train), classes.multi_label);
        Listing::new(classes.names, multi_label, train, splits, others, whole)
            .map_err(|split| text.refused(format!("it has no picture for the {split} split")))
    }
}

/// The rows without those that name a picture again, and whether each picture of the index has one.
///
/// # Errors
/// If a picture has other classes or another split in another row.
fn distinct<'r>(
    text: &Text,
    all: &'r [Row],
    classes: &Classes,
    index: &Index,
) -> Result<(Vec<&'r Row>, Vec<bool>)> {
    let mut first: Vec<Option<&Row>> = vec![None; index.len()];
    let mut rows = Vec::with_capacity(all.len());
    for row in all {
        let Some(before) = first[row.picture as usize].replace(row) else {
            rows.push(row);
            continue;
        };
        let (name, lines) = (index.name(row.picture), [before.line, row.line]);
        if classes.set(before) != classes.set(row) {
            let told = [before, row].map(|row| classes.told(row));
            let reason =
                format!("`{name}` is {} in line {}, but {} in line {}", told[0], lines[0], told[1], lines[1]);
            return Err(text.refused(reason));
        }
        if before.kind != row.kind {
            let reason =
                format!("`{name}` is in one split in line {}, in another in line {}", lines[0], lines[1]);
            return Err(text.refused(reason));
        }
    }
    Ok((rows, first.iter().map(Option::is_some).collect()))
}
