//! Weights and shapes in a graph: its initializers, and what nodes compute of them alone.

use super::extent::Extent;
use super::external::Files;
use super::proto::{
    BFLOAT16, BOOL, DOUBLE, EXTERNAL, FLOAT, FLOAT16, INT8, INT32, INT64, TensorProto, UINT8,
};
use half::{bf16, f16};
use prost::bytes::Bytes;
use std::sync::Arc;

/// The most whole numbers of a constant: a list of channels has as many.
pub(super) const MOST_NUMBERS: usize = 1 << 16;

/// A tensor that depends on no image. Clones share their floats.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Constant {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) values: Values,
    /// Whether the rows of this matrix are the inputs of a layer, as here, and not the outputs, as in PyTorch.
    pub(super) inputs_first: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Values {
    /// In row-major order.
    Floats(Arc<[f32]>),
    /// As they are in the file, of this type.
    Raw(Bytes, Float),
    /// Whole numbers, and 0 or 1 for false and true: a shape, or parts of one.
    Numbers(Vec<Extent>),
    /// Of a type that nothing reads.
    Other,
}

/// The types of floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Float {
    Single,
    Half,
    Brain,
    Double,
}

impl Float {
    /// The type of this number in `TensorProto.DataType`.
    pub(super) fn of(number: i64) -> Option<Self> {
        match i32::try_from(number) {
            Ok(FLOAT) => Some(Float::Single),
            Ok(FLOAT16) => Some(Float::Half),
            Ok(BFLOAT16) => Some(Float::Brain),
            Ok(DOUBLE) => Some(Float::Double),
            _ => None,
        }
    }

    fn size(self) -> usize {
        match self {
            Float::Single => 4,
            Float::Half | Float::Brain => 2,
            Float::Double => 8,
        }
    }

    fn numbers(self, raw: &[u8]) -> Vec<f32> {
        match self {
            Float::Single => raw.as_chunks().0.iter().map(|&word| f32::from_le_bytes(word)).collect(),
            Float::Half => raw.as_chunks().0.iter().map(|&word| f16::from_le_bytes(word).to_f32()).collect(),
            Float::Brain => {
                raw.as_chunks().0.iter().map(|&word| bf16::from_le_bytes(word).to_f32()).collect()
            }
            Float::Double => raw.as_chunks().0.iter().map(|&word| f64::from_le_bytes(word) as f32).collect(),
        }
    }
}

/// The bytes of a whole number of this type.
fn size_of_number(kind: i32) -> Option<usize> {
    match kind {
        INT64 => Some(8),
        INT32 => Some(4),
        BOOL | INT8 | UINT8 => Some(1),
        _ => None,
    }
}

impl Constant {
    /// The tensor, whose values may be in one of the files.
    pub(super) fn read(tensor: TensorProto, files: &mut Files<'_>) -> Result<Self, String> {
        let name = crate::text::shortened(&tensor.name);
        let refuse = |what: &str| Err(format!("its tensor `{name}` {what}"));
        let shape: Option<Vec<usize>> =
            tensor.dims.iter().map(|&extent| usize::try_from(extent).ok()).collect();
        let len = shape.iter().flatten().try_fold(1_usize, |len, &extent| len.checked_mul(extent));
        let (Some(shape), Some(len)) = (shape, len) else { return refuse("has no sound shape") };
        let float = Float::of(tensor.data_type.into());
        let size = float.map(Float::size).or(size_of_number(tensor.data_type));
        let raw = match (tensor.data_location, size) {
            (EXTERNAL, Some(size)) => match len.checked_mul(size) {
                Some(bytes) => files.read(&tensor, bytes)?,
                None => return refuse("has no sound shape"),
            },
            _ => tensor.raw_data,
        };
        let size = size.unwrap_or(1);
        if raw.len() % size != 0 {
            return refuse(&format!("has {} values, but a shape of {shape:?}", raw.len() / size));
        }
        let whole = |numbers: Vec<i64>| Values::Numbers(numbers.into_iter().map(Extent::number).collect());
        let bits = || tensor.int32_data.iter().map(|&bits| bits as u16);
        let values = match (float, tensor.data_type) {
            (Some(float), _) if !raw.is_empty() => Values::Raw(raw, float),
            (Some(Float::Single), _) => Values::Floats(tensor.float_data.into()),
            (Some(Float::Half), _) => {
                Values::Floats(bits().map(|bits| f16::from_bits(bits).to_f32()).collect())
            }
            (Some(Float::Brain), _) => {
                Values::Floats(bits().map(|bits| bf16::from_bits(bits).to_f32()).collect())
            }
            (Some(Float::Double), _) => {
                Values::Floats(tensor.double_data.iter().map(|&x| x as f32).collect())
            }
            (None, INT64 | INT32 | BOOL | INT8 | UINT8) if len > MOST_NUMBERS => Values::Other,
            (None, INT64) if raw.is_empty() => whole(tensor.int64_data),
            (None, INT32 | BOOL | INT8 | UINT8) if raw.is_empty() => {
                whole(tensor.int32_data.iter().map(|&x| x.into()).collect())
            }
            (None, INT64) => whole(raw.as_chunks().0.iter().map(|&word| i64::from_le_bytes(word)).collect()),
            (None, INT32) => {
                whole(raw.as_chunks().0.iter().map(|&word| i32::from_le_bytes(word).into()).collect())
            }
            (None, BOOL | UINT8) => whole(raw.iter().map(|&byte| byte.into()).collect()),
            (None, INT8) => whole(raw.iter().map(|&byte| (byte as i8).into()).collect()),
            _ => Values::Other,
        };
        let found = match &values {
            Values::Floats(floats) => floats.len(),
            Values::Raw(raw, float) => raw.len() / float.size(),
            Values::Numbers(numbers) => numbers.len(),
            Values::Other => len,
        };
        match found == len {
            true => Ok(Constant { name: tensor.name, shape, values, inputs_first: false }),
            false => refuse(&format!("has {found} values, but a shape of {shape:?}")),
        }
    }

    /// Floats without a name.
    pub(super) fn of(shape: Vec<usize>, floats: impl Into<Arc<[f32]>>) -> Self {
        Constant { name: String::new(), shape, values: Values::Floats(floats.into()), inputs_first: false }
    }

    /// A shape, or a part of one.
    pub(super) fn numbers(numbers: Vec<Extent>) -> Self {
        let (name, shape) = (String::new(), vec![numbers.len()]);
        Constant { name, shape, values: Values::Numbers(numbers), inputs_first: false }
    }

    /// The same values in a shape of as many.
    pub(super) fn shaped(self, shape: Vec<usize>) -> Self {
        Constant { shape, ..self }
    }

    /// How many values it has.
    pub(super) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Its whole numbers, if it has such.
    pub(super) fn as_numbers(&self) -> Option<&[Extent]> {
        match &self.values {
            Values::Numbers(numbers) => Some(numbers),
            _ => None,
        }
    }

    /// Its whole numbers, if it has such, and all of them are known.
    pub(super) fn known_numbers(&self) -> Option<Vec<i64>> {
        self.as_numbers()?.iter().map(Extent::known).collect()
    }

    /// Its floats in row-major order.
    pub(super) fn floats(&self) -> Result<Vec<f32>, String> {
        match &self.values {
            Values::Floats(floats) => Ok(floats.to_vec()),
            Values::Raw(raw, float) => Ok(float.numbers(raw)),
            Values::Numbers(_) | Values::Other => {
                Err(format!("its `{}` must have floats as its values", crate::text::shortened(&self.name)))
            }
        }
    }

    /// Its floats, if it has such.
    pub(super) fn as_floats(&self) -> Option<Arc<[f32]>> {
        match &self.values {
            Values::Floats(floats) => Some(Arc::clone(floats)),
            Values::Raw(raw, float) => Some(float.numbers(raw).into()),
            Values::Numbers(_) | Values::Other => None,
        }
    }

    pub(super) fn is_float(&self) -> bool {
        matches!(self.values, Values::Floats(_) | Values::Raw(..))
    }

    /// How many floats it takes.
    pub(super) fn floats_len(&self) -> usize {
        if self.is_float() { self.len() } else { 0 }
    }

    /// The vector of `len` values, if it is one: with `behind` extents of 1 after it, and maybe one for the
    /// batch before it.
    pub(super) fn vector(&self, len: usize, behind: usize) -> Option<Self> {
        let own = match &self.shape[..] {
            [1, own @ ..] if own.len() == behind + 1 => own,
            own => own,
        };
        let fits = own.len() == behind + 1 && own[0] == len && own[1..].iter().all(|&extent| extent == 1);
        fits.then(|| Constant { shape: vec![len], ..self.clone() })
    }

    /// Its only float, if it has but one.
    pub(super) fn float(&self) -> Option<f32> {
        if self.len() != 1 {
            return None;
        }
        self.as_floats().map(|floats| floats[0])
    }
}
