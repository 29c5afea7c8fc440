//! Options with options of their own: `val_loss:patience=3,min_delta=0.01`.

use crate::spelling::hint;
use crate::{Error, Result};
use core::str::FromStr;

/// What stands behind the colon. Keys may be written with `-` for `_`, and one without a value is a switch.
pub(crate) struct Spec<'a> {
    option: &'static str,
    text: &'a str,
    pairs: Vec<(String, &'a str)>,
}

impl<'a> Spec<'a> {
    /// What stands before the colon, and the pairs behind it, each of them `known`.
    pub(crate) fn parse(
        option: &'static str,
        text: &'a str,
        known: &'static [&'static str],
    ) -> Result<(&'a str, Self)> {
        let (head, rest) = text.split_once(':').unwrap_or((text, ""));
        let mut spec = Spec { option, text, pairs: Vec::new() };
        for pair in rest.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, "true"));
            let key = key.trim().replace('-', "_");
            if !known.contains(&key.as_str()) {
                let near = hint(&key, known.iter().copied());
                return Err(spec.refuse(format!("METRIC with any of {} behind it{near}", known.join(", "))));
            }
            if spec.pairs.iter().any(|(other, _)| *other == key) {
                return Err(spec.refuse(format!("given with {key} once")));
            }
            spec.pairs.push((key, value.trim()));
        }
        Ok((head.trim(), spec))
    }

    /// The text of a key, where it was given.
    pub(crate) fn text(&self, key: &str) -> Option<&'a str> {
        self.pairs.iter().find(|(other, _)| other == key).map(|(_, value)| *value)
    }

    /// The value of a key, where it was given.
    pub(crate) fn get<T: FromStr>(&self, key: &str, accepted: &str) -> Result<Option<T>> {
        let refuse = |_| self.refuse(format!("given with {key}={accepted}"));
        self.text(key).map(str::parse).transpose().map_err(refuse)
    }

    /// Sets `field` to the value of a key, where it was given.
    pub(crate) fn set<T: FromStr>(&self, field: &mut T, key: &str, accepted: &str) -> Result<()> {
        if let Some(value) = self.get(key, accepted)? {
            *field = value;
        }
        Ok(())
    }

    fn refuse(&self, accepted: String) -> Error {
        Error::Option { option: self.option, value: format!("`{}`", self.text), accepted }
    }
}
