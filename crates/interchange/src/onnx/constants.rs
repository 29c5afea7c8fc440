//! Weights and shapes in a graph: its initializers, and what nodes compute of them alone.

use super::attributes::{int, ints};
use super::proto::{EXTERNAL, FLOAT, INT64, NodeProto, TensorProto};
use crate::file::MAX_FILE;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path};
use std::sync::Arc;

/// The most whole numbers of a constant: a shape has as many as dimensions.
const MOST_NUMBERS: usize = 64;

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
    /// A shape, or parts of one: 0 is the batch, and -1 an extent that is not known, as in a `Reshape`.
    Numbers(Vec<i64>),
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
        let values = match tensor.data_type {
            FLOAT if raw.is_empty() => Values::Floats(tensor.float_data.into()),
            FLOAT => Values::Floats(raw.as_chunks().0.iter().map(|&word| f32::from_le_bytes(word)).collect()),
            INT64 if len > MOST_NUMBERS => Values::Other,
            INT64 if raw.is_empty() => Values::Numbers(tensor.int64_data),
            INT64 => {
                Values::Numbers(raw.as_chunks().0.iter().map(|&word| i64::from_le_bytes(word)).collect())
            }
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
    pub(super) fn numbers(numbers: Vec<i64>) -> Self {
        let (name, shape) = (String::new(), vec![numbers.len()]);
        Constant { name, shape, values: Values::Numbers(numbers), transposed: false }
    }

    /// Its whole numbers, if it has such.
    pub(super) fn as_numbers(&self) -> Option<&[i64]> {
        match &self.values {
            Values::Numbers(numbers) => Some(numbers),
            _ => None,
        }
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
    fn unsqueezed(&self, axes: &[i64]) -> Option<Self> {
        let mut shape = self.shape.clone();
        for &axis in axes {
            let axis = usize::try_from(axis).ok().filter(|&axis| axis <= shape.len() && axis < MOST_NUMBERS);
            shape.insert(axis?, 1);
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

/// What a node computes of constants alone; `None` if it is of another kind.
pub(super) fn folded(node: &NodeProto, inputs: &[Option<&Constant>]) -> Option<Constant> {
    let all: Vec<&Constant> = inputs.iter().copied().collect::<Option<_>>()?;
    let axes = || match all.get(1) {
        Some(axes) => axes.as_numbers(),
        None => Some(ints(node, "axes")),
    };
    match (node.op_type.as_str(), &all[..]) {
        ("Identity" | "Cast", [x]) => Some((*x).clone()),
        ("Squeeze" | "Reshape", [x, ..]) if x.as_numbers().is_some() => Some((*x).clone()),
        ("Unsqueeze", [x, ..]) => x.unsqueezed(axes()?),
        ("Transpose", [x]) if [&[][..], &[1, 0]].contains(&ints(node, "perm")) => x.transposed(),
        ("Gather", [x, at]) if int(node, "axis", 0) == 0 => {
            let (x, at) = (x.as_numbers()?, at.as_numbers()?);
            let at = at.iter().map(|&at| if at < 0 { at + x.len() as i64 } else { at });
            at.map(|at| x.get(usize::try_from(at).ok()?).copied())
                .collect::<Option<_>>()
                .map(Constant::numbers)
        }
        ("Concat", parts) => {
            let numbers = parts.iter().map(|part| part.as_numbers()).collect::<Option<Vec<_>>>()?.concat();
            (numbers.len() <= MOST_NUMBERS).then(|| Constant::numbers(numbers))
        }
        // How many numbers an image has. An unknown factor gives an unknown size.
        ("Mul", [a, b]) => match (a.as_numbers()?, b.as_numbers()?) {
            (&[a], &[b]) if a > 0 && b > 0 => Some(Constant::numbers(vec![a.checked_mul(b)?])),
            ([_], [_]) => Some(Constant::numbers(vec![-1])),
            _ => None,
        },
        _ => None,
    }
}

/// The value of a `Constant`.
pub(super) fn given(node: &NodeProto) -> Result<Constant, String> {
    let tensor = |data_type, dims, float_data, int64_data| TensorProto {
        data_type,
        dims,
        float_data,
        int64_data,
        ..TensorProto::default()
    };
    let value = match node.attribute.first().map(|own| (own.name.as_str(), own)) {
        Some(("value", own)) => own.t.clone(),
        Some(("value_float", own)) => Some(tensor(FLOAT, vec![], own.f.into_iter().collect(), vec![])),
        Some(("value_int", own)) => Some(tensor(INT64, vec![], vec![], own.i.into_iter().collect())),
        Some(("value_ints", own)) => {
            Some(tensor(INT64, vec![own.ints.len() as i64], vec![], own.ints.clone()))
        }
        _ => None,
    };
    let value =
        value.ok_or_else(|| format!("its constant `{}` has no value that is read", node.output[0]))?;
    Constant::read(value, Path::new(""), &mut 0)
}
