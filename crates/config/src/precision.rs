//! The names of precisions.

use serde::{Deserialize, Deserializer, Serializer, de::Error};
use towers_program::Precision;

pub(crate) fn serialize<S: Serializer>(precision: &Precision, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(precision.name())
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Precision, D::Error> {
    let name = String::deserialize(deserializer)?;
    name.parse().map_err(|error| D::Error::custom(format!("the precision {error}")))
}
