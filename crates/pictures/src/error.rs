//! What can go wrong.

use std::io;
use std::path::{Path, PathBuf};

use image::ImageError;
use image::error::{ImageFormatHint, UnsupportedErrorKind};

/// The most pictures that an error lists.
const LISTED: usize = 10;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong, with the file or folder that it happened at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to read or write a file or folder.
    #[error(transparent)]
    File(#[from] towers_files::Error),

    /// Pictures of a folder that would take more memory than there is.
    #[error(
        "{}: {pictures} pictures of {size} take {}, but {} of memory are free; choose a smaller image size, or limit the number of pictures",
        path.display(), gigabytes(*needed), gigabytes(*free)
    )]
    Memory {
        /// The folder.
        path: PathBuf,
        /// How many pictures there are, within the limits.
        pictures: usize,
        /// Their rows and columns in memory, as in `48x40`.
        size: String,
        /// The bytes that they take.
        needed: u64,
        /// The bytes that there are.
        free: u64,
    },

    /// A picture that can't be decoded.
    #[error("can't decode the picture {}: {}", path.display(), why(source))]
    Image {
        /// The file.
        path: PathBuf,
        /// The decoder's reason.
        source: ImageError,
    },

    /// Several pictures that can't be decoded or read, in their order.
    #[error("{} pictures can't be decoded: {}; get them again, or leave them out", _0.len(), listed(_0))]
    Pictures(Vec<Error>),

    /// Folders that look like splits of a data set, but are none, or too many.
    #[error("{}: {reason}", path.display())]
    Splits {
        /// The data set's folder.
        path: PathBuf,
        /// The fault, and the remedy.
        reason: String,
    },

    /// A folder that does not hold folders of pictures.
    #[error(
        "{}: {reason}; expected a folder for each class with pictures, or `train` and `test` \
         folders that hold such folders",
        path.display()
    )]
    ClassFolders {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// A table of labels that can't be used.
    #[error("{}: {reason}", path.display())]
    Table {
        /// Its file.
        path: PathBuf,
        /// The fault, and the remedy.
        reason: String,
    },

    /// A table of labels whose columns are not understood.
    #[error("{}: {reason}; its columns are `{}`; name those of the pictures and classes", path.display(), columns.join("`, `"))]
    Columns {
        /// Its file.
        path: PathBuf,
        /// The question that is open.
        reason: String,
        /// The names of its columns.
        columns: Vec<String>,
    },

    /// A shape that pictures can't have, or pictures in files that can't be decoded.
    #[error(transparent)]
    Data(#[from] towers_dataset::Error),
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

impl Error {
    /// The picture that can't be decoded, and why, without the remedy.
    pub(crate) fn of_picture(&self) -> (PathBuf, String) {
        match self {
            Error::Image { path, source } => {
                let why = why(source);
                (path.clone(), why.split(';').next().unwrap_or_default().to_owned())
            }
            Error::File(towers_files::Error { path, source, .. }) => (path.clone(), source.to_string()),
            other => (PathBuf::new(), other.to_string()),
        }
    }

    /// About a table of labels.
    pub(crate) fn table(path: &Path, reason: impl Into<String>) -> Error {
        Error::Table { path: path.to_owned(), reason: reason.into() }
    }

    /// For `map_err`: the action and the file.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| towers_files::Error::io(action, path)(source).into()
    }
}

/// The first of several pictures, with their reasons.
fn listed(errors: &[Error]) -> String {
    let reason = |error: &Error| {
        let (path, why) = error.of_picture();
        format!("{}: {why}", path.display())
    };
    let mut shown: Vec<String> = errors.iter().take(LISTED).map(reason).collect();
    if errors.len() > LISTED {
        shown.push(format!("and {} more", errors.len() - LISTED));
    }
    shown.join("; ")
}

/// Why a picture can't be decoded, and the remedy.
fn why(source: &ImageError) -> String {
    const MEND: &str = "get it again, or leave it out";
    match source {
        ImageError::Unsupported(what) if matches!(what.kind(), UnsupportedErrorKind::Format(_)) => {
            let found = match what.format_hint() {
                ImageFormatHint::Exact(format) => format!("it is {format:?}"),
                _ => "it is no picture".to_owned(),
            };
            format!("{found}, whatever its name says, not PNG, JPEG, WebP, BMP or GIF; convert it, or {MEND}")
        }
        ImageError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            format!("it is cut off; {MEND}")
        }
        ImageError::IoError(_) => source.to_string(),
        ImageError::Limits(_) => format!("it is too large: {source}; make it smaller, or {MEND}"),
        _ => format!("{source}; {MEND}"),
    }
}
