//! Names of checkpoints, and the hidden names of folders that are on their way in or out.

use crate::{Error, Result};

/// The longest name of a checkpoint, in bytes.
pub const MAX_NAME: usize = 128;

/// `epoch-0003`: the usual name of the checkpoint after so many epochs.
pub fn epoch_name(epochs: u64) -> String {
    format!("epoch-{epochs:04}")
}

/// `step-00001200`: the usual name of the checkpoint after so many steps.
pub fn step_name(steps: u64) -> String {
    format!("step-{steps:08}")
}

/// Whether [`epoch_name`] or [`step_name`] makes this name.
pub(crate) fn is_generated(name: &str) -> bool {
    let is = |prefix: &str, make: fn(u64) -> String| {
        let number = name.strip_prefix(prefix).and_then(|number| number.parse().ok());
        number.is_some_and(|number| make(number) == name)
    };
    is("epoch-", epoch_name) || is("step-", step_name)
}

/// Refuses every name that is not a plain, visible folder on every system.
pub(crate) fn check(name: &str) -> Result<()> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name.len() > MAX_NAME {
        "it is longer than 128 bytes"
    } else if name.starts_with('.') || name.ends_with('.') {
        "it starts or ends with a dot"
    } else if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
        "it has other characters in it"
    } else if is_device(name) {
        "Windows has a device of this name"
    } else {
        return Ok(());
    };
    Err(Error::Name { name: name.chars().take(MAX_NAME).collect(), why })
}

/// Whether Windows takes a name, with any ending, for a device.
fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or(name).to_ascii_lowercase();
    let port = stem.strip_prefix("com").or(stem.strip_prefix("lpt"));
    ["con", "prn", "aux", "nul"].contains(&stem.as_str())
        || port.is_some_and(|number| number.len() == 1 && number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// What a hidden folder of ours is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// A checkpoint being written, or being removed: garbage once its writer is gone.
    Temporary,
    /// The previous checkpoint of a name while a new one takes its place: still good until then.
    Aside,
}

impl Hidden {
    fn prefix(self) -> &'static str {
        match self {
            Hidden::Temporary => ".tmp-",
            Hidden::Aside => ".old-",
        }
    }

    /// A new hidden name: `.tmp-PID-N-NAME` or `.old-PID-N-NAME`.
    pub(crate) fn folder(self, name: &str) -> String {
        format!("{}{}-{name}", self.prefix(), towers_files::unique_name())
    }

    /// The kind of a folder by its name, and the checkpoint it belongs to; `None` if it is not one of ours.
    pub(crate) fn parse(folder: &str) -> Option<(Hidden, &str)> {
        let (kind, rest) = [Hidden::Temporary, Hidden::Aside]
            .into_iter()
            .find_map(|kind| folder.strip_prefix(kind.prefix()).map(|rest| (kind, rest)))?;
        let (pid, rest) = rest.split_once('-')?;
        let (count, name) = rest.split_once('-')?;
        let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        (number(pid) && number(count) && check(name).is_ok()).then_some((kind, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_pass() {
        for name in [
            "a",
            "epoch-0003",
            "step-00001200",
            "best_val.acc-2",
            "con1",
            "com",
            "com10",
            "aux-1",
            &"x".repeat(MAX_NAME),
        ] {
            assert!(check(name).is_ok(), "{name}");
        }
        for name in [
            "", ".", "..", "../x", "/etc", "a/b", "a\\b", "C:x", ".lock", "a.", "a b", "é", "a\0b", "a\n",
            "con", "NUL", "aux.txt", "com1", "Lpt9.a.b",
        ] {
            assert!(matches!(check(name), Err(Error::Name { .. })), "{name:?}");
        }
        assert!(check(&"x".repeat(MAX_NAME + 1)).is_err());
    }

    #[test]
    fn hidden_names_are_recognised_and_nothing_else_is() {
        for kind in [Hidden::Temporary, Hidden::Aside] {
            assert_eq!(Hidden::parse(&kind.folder("epoch-0003")), Some((kind, "epoch-0003")));
        }
        for other in ["epoch-0003", ".tmp", ".tmp-1-2-", ".tmp-1-x-a", ".tmp--1-a", ".tmp-1-2-../a", ".git"] {
            assert_eq!(Hidden::parse(other), None, "{other}");
        }
    }
}
