use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// What can go wrong with files of tensors and with checkpoints.
///
/// Every message names the path or the checkpoint. An operation that fails changes no existing file, and
/// leaves no new one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to do `action` with `path`.
    #[error("can't {action} {}: {source}{}", .path.display(), hint(action, .source.kind()))]
    Io {
        /// What was tried, as a verb: "write", "rename".
        action: &'static str,
        /// The file or folder it was tried with.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// A name that can't be the name of a checkpoint, since names become folders.
    #[error("{name:?} can't name a checkpoint: {why}; use letters, digits, '-', '_' and '.'")]
    Name {
        /// The name as it was given.
        name: String,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// A tensor that can't be stored: its name is empty, too long, reserved or taken, or it has too many dimensions.
    #[error("tensor {name:?} can't be stored: {why}")]
    TensorName {
        /// The tensor's name.
        name: String,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// A tensor whose data is not as long as its shape says.
    #[error("tensor {name:?} has {found} values, but its shape {shape:?} needs another number of them")]
    Shape {
        /// The tensor's name.
        name: String,
        /// The shape it was given with.
        shape: Vec<usize>,
        /// The number of its values.
        found: usize,
    },
    /// A file that is not a safetensors file of f32 tensors.
    #[error("{} is not a readable safetensors file: {why}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A checkpoint folder that is incomplete or whose files are not those that were written.
    #[error("the checkpoint {} is damaged: {why}", .path.display())]
    Damaged {
        /// The checkpoint's folder.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A state that can't be written as JSON, or JSON that is not the state asked for.
    #[error("the state in {} doesn't fit: {why}", .path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What the JSON library says.
        why: String,
    },
    /// There is no checkpoint of this name.
    #[error("there is no checkpoint {name:?} in {}", .path.display())]
    NotFound {
        /// The name asked for.
        name: String,
        /// The folder that was searched.
        path: PathBuf,
    },
    /// Another process or thread keeps writing to the store.
    #[error(
        "{} has been locked by another writer for {seconds} seconds; does a second run use the same folder?",
        .path.display()
    )]
    Busy {
        /// The store's folder.
        path: PathBuf,
        /// How long we waited for our turn.
        seconds: u64,
    },
}

/// What this crate's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// For `map_err`: turns the system's error into one that names the action and the path.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { action, path: path.to_path_buf(), source }
    }

    pub(crate) fn damaged(path: &Path, why: impl Into<String>) -> Error {
        Error::Damaged { path: path.to_path_buf(), why: why.into() }
    }

    pub(crate) fn format(path: &Path, why: impl Into<String>) -> Error {
        Error::Format { path: path.to_path_buf(), why: why.into() }
    }
}

fn hint(action: &str, kind: ErrorKind) -> &'static str {
    match kind {
        _ if ["read", "open"].contains(&action) => "",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "; what was saved before is intact: free some space, or keep fewer checkpoints"
        }
        ErrorKind::FileTooLarge => "; what was saved before is intact: raise the limit on file sizes",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "; choose a folder that this user may write to"
        }
        _ => "",
    }
}
