//! The compact form `NAME:KEY=VALUE,KEY=VALUE` of a random step, both ways.

use crate::Error;

/// A value behind a key.
pub(crate) trait Field {
    /// Takes the value of a text.
    ///
    /// # Errors
    /// The accepted texts.
    fn read(&mut self, text: &str) -> Result<(), &'static str>;

    /// A text that reads back the same.
    fn write(&self) -> String;
}

/// A transform with a name and keys: torchvision's, with `-` between words.
pub(crate) trait Listed: Clone + Default + 'static {
    const NAME: &str;

    /// The keys and their values.
    fn fields(&mut self) -> Vec<(&'static str, &mut dyn Field)>;
}

/// The keys of a step that were given.
pub(crate) type Pairs<'a> = [(String, &'a str)];

/// Sets the values of the keys that were given.
///
/// # Errors
/// [`Error::Option`] for an unknown key, and a value of another kind.
pub(crate) fn set(
    name: &str,
    fields: &mut [(&'static str, &mut dyn Field)],
    pairs: &Pairs<'_>,
) -> Result<(), Error> {
    for (key, text) in pairs {
        match fields.iter_mut().find(|(known, _)| known == key) {
            Some((_, field)) => {
                field.read(text).map_err(|accepted| refuse(format!("{name}:{key}={text}"), accepted))?
            }
            None => {
                let keys: Vec<_> = fields.iter().map(|(key, _)| *key).chain(["p"]).collect();
                return Err(refuse(key, format!("a key of {name}: {}", keys.join(", "))));
            }
        }
    }
    Ok(())
}

/// The text of a transform: its name, and the keys that are not at their defaults.
pub(crate) fn write<T: Listed>(transform: &T) -> String {
    let (mut own, mut default) = (transform.clone(), T::default());
    let fields = own.fields().into_iter().zip(default.fields());
    let pairs = fields.map(|((key, own), (_, default))| (key, own.write(), default.write()));
    let pairs: Vec<_> = pairs
        .filter(|(_, own, default)| own != default)
        .map(|(key, own, _)| format!("{key}={own}"))
        .collect();
    if pairs.is_empty() { T::NAME.to_owned() } else { format!("{}:{}", T::NAME, pairs.join(",")) }
}

/// An error of a step.
pub(crate) fn refuse(text: impl std::fmt::Display, accepted: impl Into<String>) -> Error {
    Error::option("compose", format!("`{text}`"), accepted)
}

/// The numbers of a text, separated by `/`.
pub(crate) fn numbers(text: &str) -> Option<Vec<f64>> {
    let finite = |part: &str| part.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    text.split('/').map(finite).collect()
}

macro_rules! fields {
    ($($kind:ty: $accepted:literal),*) => {$(
        impl Field for $kind {
            fn read(&mut self, text: &str) -> Result<(), &'static str> {
                *self = text.parse().map_err(|_| $accepted)?;
                Ok(())
            }

            fn write(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

fields!(u32: "a whole number", usize: "a whole number", bool: "true or false");

impl Field for f64 {
    fn read(&mut self, text: &str) -> Result<(), &'static str> {
        match numbers(text).as_deref() {
            Some(&[number]) => *self = number,
            _ => return Err("a number"),
        }
        Ok(())
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Field for [f64; 2] {
    fn read(&mut self, text: &str) -> Result<(), &'static str> {
        match numbers(text).as_deref() {
            Some(&[low, high]) => *self = [low, high],
            _ => return Err("two numbers, as in 0.1/2"),
        }
        Ok(())
    }

    fn write(&self) -> String {
        format!("{}/{}", self[0], self[1])
    }
}
