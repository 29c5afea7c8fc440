//! The names of [`Kernels`].

use serde::{Deserialize, Deserializer, Serializer, de::Error};
use tensor_cuda::Kernels;

pub(super) fn serialize<S: Serializer>(kernels: &Kernels, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kernels.name())
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Kernels, D::Error> {
    let name = String::deserialize(deserializer)?;
    let known = Kernels::ALL.into_iter().find(|kernels| kernels.name() == name);
    known.ok_or_else(|| D::Error::custom(format!("`{name}` names no kernels")))
}
