use crate::canonical;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// A name that is known at compile time, or another.
type Name = Cow<'static, str>;

/// Named numbers, in an order. Each name is there once.
///
/// In JSON they are an object. JSON has no number for NaN or infinity: both are `null` in it, and NaN when it is read.
///
/// ```
/// use metrics::Values;
///
/// let values = Values::from_iter([("loss", 0.5), ("val_acc", 0.75)]);
/// assert_eq!(values.get("val_accuracy"), Some(0.75));
/// assert_eq!(values.get("f1"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values(Vec<(Name, f64)>);

impl Values {
    /// The number with this name; Keras' names serve too.
    pub fn get(&self, name: &str) -> Option<f64> {
        let name = canonical(name);
        self.0.iter().find(|(own, _)| *own == name).map(|(_, value)| *value)
    }

    /// Replaces the number with this name, or adds it as the last one.
    pub fn set(&mut self, name: impl Into<Name>, value: f64) {
        let name = name.into();
        match self.0.iter_mut().find(|(own, _)| *own == name) {
            Some((_, own)) => *own = value,
            None => self.0.push((name, value)),
        }
    }

    /// The names and the numbers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, value)| (&**name, *value))
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(name, _)| name)
    }
}

impl<N: Into<Name>> FromIterator<(N, f64)> for Values {
    fn from_iter<I: IntoIterator<Item = (N, f64)>>(values: I) -> Self {
        let mut all = Values::default();
        values.into_iter().for_each(|(name, value)| all.set(name, value));
        all
    }
}

impl Serialize for Values {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
        map.end()
    }
}

impl<'d> Deserialize<'d> for Values {
    fn deserialize<D: Deserializer<'d>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Map)
    }
}

struct Map;

impl<'d> Visitor<'d> for Map {
    type Value = Values;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("numbers by name")
    }

    fn visit_map<A: MapAccess<'d>>(self, mut map: A) -> Result<Values, A::Error> {
        let mut values = Values::default();
        while let Some((name, value)) = map.next_entry::<String, Option<f64>>()? {
            if values.0.iter().any(|(own, _)| *own == name) {
                return Err(A::Error::custom(format_args!("`{name}` is there twice")));
            }
            values.0.push((name.into(), value.unwrap_or(f64::NAN)));
        }
        Ok(values)
    }
}
