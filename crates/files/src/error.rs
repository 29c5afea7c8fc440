use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The operating system refused to do `action` with `path`.
#[derive(Debug)]
pub struct Error {
    /// The action that failed, as a verb: "write", "rename".
    pub action: &'static str,
    /// The file or folder it was tried with.
    pub path: PathBuf,
    /// The operating system's answer.
    pub source: io::Error,
}

impl Error {
    /// For `map_err`: turns the system's error into one that names the action and the path.
    ///
    /// ```
    /// let error = std::fs::remove_file("no/such.csv").map_err(towers_files::Error::io("remove", "no/such.csv".as_ref()));
    /// assert!(error.unwrap_err().to_string().starts_with("can't remove no/such.csv: "));
    /// ```
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error { action, path: path.to_path_buf(), source }
    }

    /// What helps.
    fn hint(&self) -> &'static str {
        match self.source.kind() {
            _ if ["read", "open"].contains(&self.action) => "",
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                "; what was saved before is intact: free some space"
            }
            ErrorKind::FileTooLarge => "; what was saved before is intact: raise the limit on file sizes",
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                "; choose a folder that this user may write to"
            }
            _ => "",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "can't {} {}: {}{}", self.action, self.path.display(), self.source, self.hint())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_what_helps_a_writer() {
        let message = |action, kind: ErrorKind| Error::io(action, "a/b".as_ref())(kind.into()).to_string();
        assert!(message("write", ErrorKind::StorageFull).starts_with("can't write a/b: "));
        for (kind, hint) in [
            (ErrorKind::StorageFull, "; what was saved before is intact: free some space"),
            (ErrorKind::FileTooLarge, "; what was saved before is intact: raise the limit on file sizes"),
            (ErrorKind::PermissionDenied, "; choose a folder that this user may write to"),
            (ErrorKind::NotFound, ""),
        ] {
            let cause = io::Error::from(kind).to_string();
            assert_eq!(message("write", kind), format!("can't write a/b: {cause}{hint}"));
            assert_eq!(message("read", kind), format!("can't read a/b: {cause}"));
        }
    }
}
