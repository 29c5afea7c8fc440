//! The compact form `NAME:KEY=VALUE,KEY=VALUE` of command lines and files, both ways, and the check of its values.

use crate::{Error, Result};
use core::fmt::{self, Display, Formatter};
use core::str::FromStr;

/// What most options take.
pub(crate) const NUMBER: &str = "a number";
pub(crate) const SWITCH: &str = "true or false";

/// Conventions, by name. The first is the default.
pub(crate) trait Style: Copy + 'static {
    const ALL: &[(&str, Self)];
}

/// The options after a name, taken one by one.
pub(crate) struct Options<'a> {
    of: &'a str,
    pairs: Vec<(&'a str, &'a str)>,
    asked: Vec<&'static str>,
}

/// The name and the options of `text`.
///
/// A key without `=` is a switch: `nesterov` is `nesterov=true`.
pub(crate) fn parse(text: &str) -> Result<(&str, Options<'_>)> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let of = name.trim();
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for pair in rest.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, "true"));
        let (key, value) = (key.trim(), value.trim());
        if pairs.iter().any(|(known, _)| *known == key) {
            return Err(Error::Repeated { of: of.into(), option: key.into() });
        }
        pairs.push((key, value));
    }
    Ok((of, Options { pairs, ..Options::none(of) }))
}

impl<'a> Options<'a> {
    /// No options after this name.
    pub(crate) fn none(of: &'a str) -> Self {
        Options { of, pairs: Vec::new(), asked: Vec::new() }
    }

    /// The options that were asked for.
    pub(crate) fn asked(self) -> Vec<&'static str> {
        self.asked
    }

    /// The value of `option`, if it was given.
    pub(crate) fn get<T: FromStr>(
        &mut self,
        option: &'static str,
        accepted: &'static str,
    ) -> Result<Option<T>> {
        self.asked.push(option);
        let Some(at) = self.pairs.iter().position(|(key, _)| *key == option) else { return Ok(None) };
        let (_, value) = self.pairs.remove(at);
        let refused = |_| Error::Value { of: self.of.into(), option, value: value.into(), accepted };
        value.parse().map(Some).map_err(refused)
    }

    /// The value of an option without a default.
    pub(crate) fn need<T: FromStr>(&mut self, option: &'static str, accepted: &'static str) -> Result<T> {
        self.get(option, accepted)?.ok_or(Error::Missing { of: self.of.into(), option, accepted })
    }

    /// The value of `option`, or else `default`.
    pub(crate) fn or<T: FromStr>(
        &mut self,
        option: &'static str,
        accepted: &'static str,
        default: T,
    ) -> Result<T> {
        Ok(self.get(option, accepted)?.unwrap_or(default))
    }

    /// The convention that `option` names.
    pub(crate) fn style<S: Style>(&mut self, option: &'static str, accepted: &'static str) -> Result<S> {
        Ok(self.or(option, accepted, Named(S::ALL[0].1))?.0)
    }

    /// Refuses unknown options.
    pub(crate) fn finish(self) -> Result<()> {
        let Some((option, _)) = self.pairs.first() else { return Ok(()) };
        let mut accepted = if self.asked.is_empty() { "none".into() } else { self.asked.join(", ") };
        // A list, written as most lists are.
        if self.asked.contains(&"at") && option.parse::<u64>().is_ok() {
            accepted += ", and `/` between the values of a list, as in at=30/60/80";
        }
        Err(Error::UnknownOption { of: self.of.into(), option: (*option).into(), accepted })
    }
}

struct Named<S>(S);

impl<S: Style> FromStr for Named<S> {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        S::ALL.iter().find(|(name, _)| *name == text).map(|(_, style)| Named(*style)).ok_or(())
    }
}

/// Refuses a value of an option unless it `holds`.
pub(crate) fn check(
    of: &str,
    option: &'static str,
    value: impl Display,
    (holds, accepted): (bool, &'static str),
) -> Result<()> {
    if holds {
        return Ok(());
    }
    Err(Error::Value { of: of.into(), option, value: value.to_string(), accepted })
}

/// Writes a name and those of its options that are not the default.
pub(crate) struct Writer<'a, 'f> {
    f: &'a mut Formatter<'f>,
    /// What stands before the next option.
    mark: &'static str,
}

impl<'a, 'f> Writer<'a, 'f> {
    pub(crate) fn new(f: &'a mut Formatter<'f>, name: &str) -> Result<Self, fmt::Error> {
        f.write_str(name)?;
        Ok(Writer { f, mark: ":" })
    }

    /// Options without a name before them.
    pub(crate) fn bare(f: &'a mut Formatter<'f>) -> Self {
        Writer { f, mark: "" }
    }

    pub(crate) fn option(&mut self, key: &str, value: impl Display) -> fmt::Result {
        write!(self.f, "{}{key}={value}", self.mark)?;
        self.mark = ",";
        Ok(())
    }

    pub(crate) fn unless_default<T: Display + PartialEq>(
        &mut self,
        key: &str,
        value: T,
        default: T,
    ) -> fmt::Result {
        if value == default { Ok(()) } else { self.option(key, value) }
    }

    /// The first convention that fits, or else the default one. Its name is written unless it is the default.
    pub(crate) fn style<S: Style>(&mut self, key: &str, fits: impl Fn(&S) -> bool) -> Result<S, fmt::Error> {
        let (name, style) = S::ALL.iter().find(|(_, style)| fits(style)).unwrap_or(&S::ALL[0]);
        self.unless_default(key, *name, S::ALL[0].0)?;
        Ok(*style)
    }
}
