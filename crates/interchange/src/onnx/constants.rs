//! Weights and shapes in a graph: its initializers, and what nodes compute of them alone.

use super::extent::Extent;
use super::node::Node;
use super::proto::{EXTERNAL, FLOAT, INT64, TensorProto};
use crate::file::MAX_FILE;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path};
use std::sync::Arc;

/// The most whole numbers of a constant: a shape has as many as dimensions.
pub(super) const MOST_NUMBERS: usize = 64;

/// A tensor that depends on no image. Clones share their floats.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Constant {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    values: Values,
    /// Whether the floats lie column by column: a matrix that was transposed.
    transposed: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Values {
    Floats(Arc<[f32]>),
    /// Whole numbers: a shape, or parts of one.
    Numbers(Vec<Extent>),
    /// Of a type that nothing reads.
    Other,
}

impl Constant {
    /// The tensor, whose values may be in a file in this folder. `left` bytes may be read of such files.
    pub(super) fn read(tensor: TensorProto, folder: &Path, left: &mut u64) -> Result<Self, String> {
        let refuse =
            |what: &str| Err(format!("its tensor `{}` {what}", crate::keras::shortened(&tensor.name)));
        let shape: Option<Vec<usize>> =
            tensor.dims.iter().map(|&extent| usize::try_from(extent).ok()).collect();
        let len = shape.iter().flatten().try_fold(1_usize, |len, &extent| len.checked_mul(extent));
        let (Some(shape), Some(len)) = (shape, len) else { return refuse("has no sound shape") };
        let raw = match tensor.data_location {
            EXTERNAL if tensor.data_type == FLOAT => external(&tensor, len, folder, left)?,
            _ => tensor.raw_data,
        };
        let numbers = |numbers: Vec<i64>| Values::Numbers(numbers.into_iter().map(Extent::number).collect());
        let values = match tensor.data_type {
            FLOAT if raw.is_empty() => Values::Floats(tensor.float_data.into()),
            FLOAT => Values::Floats(raw.as_chunks().0.iter().map(|&word| f32::from_le_bytes(word)).collect()),
            INT64 if len > MOST_NUMBERS => Values::Other,
            INT64 if raw.is_empty() => numbers(tensor.int64_data),
            INT64 => numbers(raw.as_chunks().0.iter().map(|&word| i64::from_le_bytes(word)).collect()),
            _ => Values::Other,
        };
        let (found, size) = match &values {
            Values::Floats(floats) => (floats.len(), 4),
            Values::Numbers(numbers) => (numbers.len(), 8),
            Values::Other => (len, 1),
        };
        if found != len || raw.len() % size != 0 {
            return refuse(&format!("has {found} values, but a shape of {shape:?}"));
        }
        Ok(Constant { name: tensor.name, shape, values, transposed: false })
    }

    /// A shape, or a part of one.
    pub(super) fn numbers(numbers: Vec<Extent>) -> Self {
        let (name, shape) = (String::new(), vec![numbers.len()]);
        Constant { name, shape, values: Values::Numbers(numbers), transposed: false }
    }

    /// One extent by itself.
    pub(super) fn number(number: Extent) -> Self {
        Constant { shape: Vec::new(), ..Constant::numbers(vec![number]) }
    }

    /// The same values in a shape of as many.
    pub(super) fn shaped(self, shape: Vec<usize>) -> Self {
        Constant { shape, ..self }
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
        match (&self.values, &self.shape[..]) {
            (Values::Floats(floats), &[rows, columns]) if self.transposed => {
                Ok(crate::layout::channels_first(floats, columns, rows))
            }
            (Values::Floats(floats), _) => Ok(floats.to_vec()),
            _ => Err(format!("its `{}` must have float32 values", self.name)),
        }
    }

    /// The vector of `len` values, if it is one: with `behind` extents of 1 after it, and maybe one for the
    /// batch before it.
    pub(super) fn vector(&self, len: usize, behind: usize) -> Option<Self> {
        let own = match &self.shape[..] {
            [1, own @ ..] if own.len() == behind + 1 => own,
            own => own,
        };
        let fits = own.len() == behind + 1 && own[0] == len && own[1..].iter().all(|&extent| extent == 1);
        (fits && !self.transposed).then(|| Constant { shape: vec![len], ..self.clone() })
    }

    /// Its only float, if it has but one and can meet a tensor with this number of axes without changing that
    /// number.
    pub(super) fn float_beside(&self, axes: usize) -> Option<f32> {
        match self.few_floats(1)? {
            &[float] if self.shape.len() <= axes => Some(float),
            _ => None,
        }
    }

    /// Its floats, if it has at least one, and no more than this many.
    pub(super) fn few_floats(&self, most: usize) -> Option<&[f32]> {
        match &self.values {
            Values::Floats(floats) if (1..=most).contains(&floats.len()) && !self.transposed => Some(floats),
            _ => None,
        }
    }

    /// The transposed matrix.
    pub(super) fn transposed(&self) -> Option<Self> {
        let &[rows, columns] = &self.shape[..] else { return None };
        Some(Constant { shape: vec![columns, rows], transposed: !self.transposed, ..self.clone() })
    }

    /// The same values with extents of 1 at these places.
    pub(super) fn unsqueezed(&self, axes: &[i64]) -> Option<Self> {
        let mut shape = self.shape.clone();
        let ordered = axes.windows(2).all(|pair| pair[0] < pair[1]);
        for &axis in axes.iter().filter(|_| ordered && axes.len() < MOST_NUMBERS) {
            let axis = usize::try_from(axis).ok().filter(|&axis| axis <= shape.len());
            shape.insert(axis?, 1);
        }
        if !ordered || shape.len() != self.shape.len() + axes.len() {
            return None;
        }
        Some(Constant { shape, ..self.clone() })
    }
}

/// The bytes of a tensor of this many floats in a file beside the graph.
fn external(tensor: &TensorProto, len: usize, folder: &Path, left: &mut u64) -> Result<Vec<u8>, String> {
    let entry = |key: &str| tensor.external_data.iter().find(|entry| entry.key == key);
    let name = entry("location").map_or("", |entry| entry.value.as_str());
    let shown = crate::keras::shortened(name);
    // Nothing but a file beside it: a graph may come from anywhere.
    let mut parts = Path::new(name).components();
    let (Some(Component::Normal(_)), None) = (parts.next(), parts.next()) else {
        return Err(format!("its weights must be in a file beside it, but are in `{shown}`"));
    };
    let offset = entry("offset").map_or(Ok(0), |entry| entry.value.parse());
    let bytes = (len as u64).checked_mul(4).filter(|bytes| bytes <= left);
    let (Ok(offset), Some(bytes)) = (offset, bytes) else {
        return Err(format!(
            "its weights in `{shown}` are more than {} MiB, or have no sound place",
            MAX_FILE >> 20
        ));
    };
    *left -= bytes;
    let path = folder.join(name);
    let read = || {
        if !std::fs::metadata(&path)?.is_file() {
            return Err(std::io::Error::other("it is no regular file"));
        }
        let mut file = File::open(&path)?;
        file.seek(SeekFrom::Start(offset))?;
        let mut raw = Vec::new();
        file.take(bytes).read_to_end(&mut raw)?;
        Ok(raw)
    };
    read().map_err(|error| format!("its weights are in `{shown}` beside it, which can't be read: {error}"))
}

/// The number in `TensorProto.DataType` of 32-bit integers.
const INT32: i64 = 6;

/// A constant in another type.
pub(super) fn converted(x: &Constant, to: i64, node: &Node<'_>) -> Result<Option<Constant>, String> {
    node.int("saturate", 1)?;
    Ok(match (&x.values, i32::try_from(to)) {
        (Values::Floats(_), Ok(FLOAT)) | (Values::Numbers(_), Ok(INT64)) => Some(x.clone()),
        (Values::Numbers(_), _) if to == INT32 => Some(x.clone()),
        (Values::Numbers(_), Ok(FLOAT)) => x.known_numbers().map(|numbers| {
            let values = Values::Floats(numbers.into_iter().map(|number| number as f32).collect());
            Constant { values, ..x.clone() }
        }),
        _ => None,
    })
}

/// Some of the numbers of a list, or one of them.
pub(super) fn gathered(x: &Constant, at: &Constant) -> Option<Constant> {
    let (numbers, places) = (x.as_numbers().filter(|_| x.shape.len() == 1)?, at.known_numbers()?);
    let place = |at: i64| usize::try_from(if at < 0 { at + numbers.len() as i64 } else { at }).ok();
    let found: Option<Vec<Extent>> = places.into_iter().map(|at| numbers.get(place(at)?).cloned()).collect();
    (at.shape.len() < 2).then_some(Constant { shape: at.shape.clone(), ..Constant::numbers(found?) })
}

/// The value of a `Constant`.
pub(super) fn given(node: &Node<'_>) -> Result<Constant, String> {
    let tensor = |data_type, dims, float_data, int64_data| TensorProto {
        data_type,
        dims,
        float_data,
        int64_data,
        ..TensorProto::default()
    };
    let value = if let Some(own) = node.tensor("value")? {
        own.clone()
    } else if let Some(own) = node.given_float("value_float")? {
        tensor(FLOAT, vec![], vec![own], vec![])
    } else if let Some(own) = node.given("value_int")? {
        tensor(INT64, vec![], vec![], vec![own])
    } else if let Some(own) = node.ints("value_ints")? {
        tensor(INT64, vec![own.len() as i64], vec![], own.to_vec())
    } else if let Some(own) = node.floats("value_floats")? {
        tensor(FLOAT, vec![own.len() as i64], own.to_vec(), vec![])
    } else {
        return Err(node.form("without a value that is read"));
    };
    let constant = Constant::read(value, Path::new(""), &mut 0)?;
    Ok(Constant { name: node.output().to_owned(), ..constant })
}
