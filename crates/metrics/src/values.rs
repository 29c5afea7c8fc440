use crate::canonical;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::ops::Index;

/// A name that is known at compile time, or another.
type Name = Cow<'static, str>;

/// The metrics that every run measures, in their order.
pub const ALWAYS: [&str; 4] = ["loss", "acc", "val_loss", "val_acc"];

/// Named numbers. Each name is there once. Those of [`ALWAYS`] come first, the others by their names.
///
/// In JSON they are an object. JSON has no number for NaN or infinity: both are `null` in it, and NaN when it is read.
///
/// ```
/// use towers_metrics::Values;
///
/// let values = Values::from_iter([("loss", 0.5), ("val_acc", 0.75)]);
/// assert_eq!(values.get("val_accuracy"), Some(0.75));
/// assert_eq!((values["loss"], values.get("f1")), (0.5, None));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values(Vec<(Name, f64)>);

impl Values {
    /// The number with this name; Keras' names serve too.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.place(&canonical(name)).ok().map(|place| self.0[place].1)
    }

    /// Replaces the number with this name, or adds it.
    pub fn set(&mut self, name: impl Into<Name>, value: f64) {
        let name = name.into();
        match self.place(&name) {
            Ok(place) => self.0[place].1 = value,
            Err(place) => self.0.insert(place, (name, value)),
        }
    }

    /// Where the name is, or would be.
    fn place(&self, name: &str) -> Result<usize, usize> {
        let rank = |name: &str| ALWAYS.iter().position(|first| *first == name).unwrap_or(ALWAYS.len());
        self.0.binary_search_by(|(own, _)| rank(own).cmp(&rank(name)).then_with(|| (**own).cmp(name)))
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

impl Index<&str> for Values {
    type Output = f64;

    /// As [`get`](Values::get).
    ///
    /// # Panics
    /// If no number has this name.
    fn index(&self, name: &str) -> &f64 {
        match self.place(&canonical(name)) {
            Ok(place) => &self.0[place].1,
            Err(_) => panic!("there is no `{name}` among {:?}", Vec::from_iter(self.names())),
        }
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
            if values.place(&name).is_ok() {
                return Err(A::Error::custom(format_args!("`{name}` is there twice")));
            }
            values.set(name, value.unwrap_or(f64::NAN));
        }
        Ok(values)
    }
}
