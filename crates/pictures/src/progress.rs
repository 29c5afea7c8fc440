//! What the reading of a folder has to tell while it runs.

use std::fmt;
use std::path::Path;

/// A report to the function that [`Pictures::progress`](crate::Pictures::progress) was given. Its
/// `Display` is a line for a log; a progress bar follows [`Progress::Decoding`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// Files in class folders that are no pictures by their names. Hidden ones are not counted.
    PassedOver {
        /// How many.
        files: usize,
        /// The first one, within the folder.
        first: &'a Path,
    },
    /// Pictures beside class folders, whose class is not known, are left out.
    Unlabelled {
        /// How many.
        pictures: usize,
        /// The first one, within the folder.
        first: &'a Path,
    },
    /// Something that was understood of a [table](crate::Table), or assumed.
    Table {
        /// Its file.
        file: &'a Path,
        /// How it was read.
        note: &'a str,
    },
    /// Many labels of a table look like [lists](crate::Table::label_separator).
    Lists {
        /// One of them.
        label: &'a str,
        /// The likely separator of its classes.
        separator: char,
    },
    /// Pictures of the folder that the table does not list.
    Unlisted {
        /// How many.
        pictures: usize,
        /// The first one, within the folder.
        first: &'a Path,
    },
    /// Pictures that can't be decoded [are left out](crate::Pictures::skip_unreadable).
    Unreadable {
        /// How many.
        pictures: usize,
        /// The first one, within the folder.
        first: &'a Path,
        /// Why that one can't be decoded.
        reason: &'a str,
    },
    /// Pictures of class folders will be [decoded on demand](crate::Pictures::on_demand_above).
    OnDemand {
        /// How many.
        pictures: usize,
        /// The bytes that their pixels would take in memory.
        bytes: u64,
    },
    /// Pictures of class folders are being decoded; told about twice a second.
    Decoding {
        /// How many are done.
        done: usize,
        /// How many there are, those to train on and to test on together.
        total: usize,
    },
}

impl fmt::Display for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Progress::PassedOver { files: 1, first } => {
                write!(f, "passed over 1 file that is no picture by its name, {}", first.display())
            }
            Progress::PassedOver { files, first } => {
                write!(
                    f,
                    "passed over {files} files that are no pictures by their names, as {}",
                    first.display()
                )
            }
            Progress::Unlabelled { pictures, first } => {
                let (s, lie) = if pictures == 1 { ("", "lies") } else { ("s", "lie") };
                write!(
                    f,
                    "left out {pictures} picture{s} that {lie} in no class folder, as {}",
                    first.display()
                )
            }
            Progress::Table { file, note } => write!(f, "{}: {note}", file.display()),
            Progress::Lists { label, separator } => {
                write!(
                    f,
                    "many labels look like lists, as `{label}`; the label separator `{separator}` takes them apart"
                )
            }
            Progress::Unlisted { pictures, first } => {
                let s = if pictures == 1 { "" } else { "s" };
                write!(
                    f,
                    "left out {pictures} picture{s} that the table does not list, as {}",
                    first.display()
                )
            }
            Progress::Unreadable { pictures, first, reason } => {
                let s = if pictures == 1 { "" } else { "s" };
                write!(
                    f,
                    "left out {pictures} picture{s} that can't be decoded, as {}: {reason}",
                    first.display()
                )
            }
            Progress::OnDemand { pictures, bytes } => write!(
                f,
                "{pictures} pictures would take {:.1} GB of memory, and are decoded as they are needed",
                bytes as f64 / 1e9
            ),
            Progress::Decoding { done, total } => write!(f, "decoded {done} of {total} pictures"),
        }
    }
}

/// The function that receives the progress.
pub(crate) type Listener<'a> = dyn FnMut(Progress<'_>) + 'a;
