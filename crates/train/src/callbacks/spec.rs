//! Options with options of their own: `val_loss:patience=3,min_delta=0.01`.

use super::metric::named_mode;
use crate::spelling::hint;
use crate::{Error, Result};
use checkpoint::Mode;
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

    /// What `read` makes of the value of a key, where it was given. It says what would be accepted.
    fn read<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&str) -> core::result::Result<T, String>,
    ) -> Result<Option<T>> {
        let Some((_, text)) = self.pairs.iter().find(|(other, _)| other == key) else { return Ok(None) };
        let refuse =
            |accepted| Error::Suboption { option: self.option, key, value: format!("`{text}`"), accepted };
        read(text).map(Some).map_err(refuse)
    }

    /// The value of a key, where it was given.
    pub(crate) fn get<T: FromStr>(&self, key: &'static str, accepted: &str) -> Result<Option<T>> {
        self.read(key, |text| text.parse().map_err(|_| accepted.to_owned()))
    }

    /// Sets `mode`, where it was given.
    pub(crate) fn set_mode(&self, mode: &mut Mode) -> Result<()> {
        if let Some(given) = self.read("mode", named_mode)? {
            *mode = given;
        }
        Ok(())
    }

    /// Sets `field` to the value of a key, where it was given.
    pub(crate) fn set<T: FromStr>(&self, field: &mut T, key: &'static str, accepted: &str) -> Result<()> {
        if let Some(value) = self.get(key, accepted)? {
            *field = value;
        }
        Ok(())
    }

    fn refuse(&self, accepted: String) -> Error {
        Error::Option { option: self.option, value: format!("`{}`", self.text), accepted }
    }
}
