//! A layer's weights, and their facts about the layer.

use hdf5_reader::Dataset;
use std::collections::HashMap;
use std::fmt;

/// A tensor of a file, whose values are read when a network needs them.
pub(super) struct Array {
    /// `LAYER/TENSOR`.
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) dataset: Dataset,
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Array").field("name", &self.name).field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl Array {
    /// Its values in row-major order.
    pub(super) fn read(&self) -> Result<Vec<f32>, String> {
        let mut values = vec![0.0; self.shape.iter().product()];
        let read = self.dataset.read_into(&mut values);
        read.map_err(|error| format!("`{}` can't be read: {error}", self.name))?;
        Ok(values)
    }
}

/// The weights of one layer of a file.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) name: String,
    /// Its name behind those of the groups around it, without the groups that only hold layers.
    pub(super) path: String,
    pub(super) arrays: Vec<Array>,
}

/// What a layer is, by its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Convolution,
    BatchNormalization,
    GroupNormalization,
    Dense,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Convolution => "convolution",
            Kind::BatchNormalization => "batch normalization",
            Kind::GroupNormalization => "group normalization",
            Kind::Dense => "dense layer",
        })
    }
}

/// What weights of these shapes belong to.
pub(super) fn kind<'a>(shapes: impl Iterator<Item = &'a [usize]>) -> Option<Kind> {
    match shapes.map(<[usize]>::len).collect::<Vec<_>>()[..] {
        [4] | [4, 1] => Some(Kind::Convolution),
        [2] | [2, 1] => Some(Kind::Dense),
        // Without a gamma or a beta, as with `scale=False`, there are three.
        [1, 1, 1, 1] | [1, 1, 1] => Some(Kind::BatchNormalization),
        [1, 1] | [1] => Some(Kind::GroupNormalization),
        _ => None,
    }
}

impl Unit {
    pub(super) fn shapes(&self) -> impl Iterator<Item = &[usize]> {
        self.arrays.iter().map(|array| array.shape.as_slice())
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        kind(self.shapes())
    }

    /// The outputs of a dense layer.
    pub(super) fn units(&self) -> Option<usize> {
        self.arrays.first().filter(|_| self.kind() == Some(Kind::Dense))?.shape.last().copied()
    }
}

/// `(3, 3, 32, 64), (64)`.
pub(super) fn told<'a>(shapes: impl Iterator<Item = &'a [usize]>) -> String {
    let one = |shape: &[usize]| {
        let extents: Vec<String> = shape.iter().map(usize::to_string).collect();
        format!("({})", extents.join(", "))
    };
    shapes.map(one).collect::<Vec<_>>().join(", ")
}

/// A name without the number at its end, and the number: `conv2d_10` comes behind `conv2d_9`, and `conv2d` before `conv2d_1`.
pub(super) fn number(name: &str) -> (String, u64) {
    let (stem, number) = name.rsplit_once('_').unwrap_or(("", name));
    match number.parse() {
        Ok(number) => (stem.to_owned(), number),
        Err(_) => (name.to_owned(), 0),
    }
}

/// Whether layers of a kind differ by the number in their names alone, which is their order then.
pub(super) fn are_numbered(units: &[Unit]) -> bool {
    let mut stems = HashMap::new();
    units.iter().all(|unit| {
        let stem = number(&unit.name).0;
        *stems.entry(unit.kind()).or_insert_with(|| stem.clone()) == stem
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count() {
        let mut names = ["conv2d_10", "conv2d_9", "dense", "conv2d", "10", "9", "conv2d_1"];
        names.sort_by_key(|name| number(name));
        assert_eq!(names, ["9", "10", "conv2d", "conv2d_1", "conv2d_9", "conv2d_10", "dense"]);
    }
}
