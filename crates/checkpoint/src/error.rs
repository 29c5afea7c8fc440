use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// What can go wrong with files of tensors and with checkpoints.
///
/// Every message names the path or the checkpoint. An operation that fails changes no existing file, and
/// leaves no new one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to do something with a file or folder.
    #[error("{}{}", .0, hint(.0))]
    File(#[from] towers_files::Error),
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
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| towers_files::Error::io(action, path)(source).into()
    }

    pub(crate) fn damaged(path: &Path, why: impl Into<String>) -> Error {
        Error::Damaged { path: path.to_path_buf(), why: why.into() }
    }

    pub(crate) fn format(path: &Path, why: impl Into<String>) -> Error {
        Error::Format { path: path.to_path_buf(), why: why.into() }
    }
}

/// Another way to free space on a full disk.
fn hint(error: &towers_files::Error) -> &'static str {
    match error.source.kind() {
        _ if ["read", "open"].contains(&error.action) => "",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ", or keep fewer checkpoints",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_what_helps_on_a_full_disk() {
        let message = |action| Error::io(action, "a/b".as_ref())(ErrorKind::StorageFull.into()).to_string();
        let cause = io::Error::from(ErrorKind::StorageFull);
        let hint = "what was saved before is intact: free some space, or keep fewer checkpoints";
        assert_eq!(message("write"), format!("can't write a/b: {cause}; {hint}"));
        assert_eq!(message("read"), format!("can't read a/b: {cause}"));
    }
}
