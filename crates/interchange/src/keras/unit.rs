//! A layer's weights, and their facts about the layer.

use crate::text::shortened;
use hdf5_reader::Dataset;
use std::collections::{HashMap, HashSet};
use std::fmt;

/// A tensor of a file, whose values are read when a network needs them.
pub(super) struct Array {
    /// `LAYER/TENSOR`.
    pub(super) name: String,
    /// The parameter, as `kernel`, where the file names it.
    pub(super) parameter: Option<String>,
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
        read.map_err(|error| format!("`{}` can't be read: {error}", shortened(&self.name)))?;
        Ok(values)
    }
}

/// The weights of one layer of a file.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) name: String,
    /// Its name behind those of the groups around it, without the groups that only hold layers. Where the file names tensors: the
    /// part of their names before the last slash.
    pub(super) path: String,
    /// The entry of the file's list of layers that it belongs to, or the group around it.
    pub(super) group: String,
    /// Whether nothing tells its place among the layers of its group.
    pub(super) is_loose: bool,
    pub(super) arrays: Vec<Array>,
}

/// What a layer is, by its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Convolution,
    SeparableConvolution,
    BatchNormalization,
    GroupNormalization,
    Dense,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Convolution => "convolution",
            Kind::SeparableConvolution => "separable convolution",
            Kind::BatchNormalization => "batch normalization",
            Kind::GroupNormalization => "group normalization",
            Kind::Dense => "dense layer",
        })
    }
}

impl Kind {
    pub(super) const ALL: [Kind; 5] = [
        Kind::Convolution,
        Kind::SeparableConvolution,
        Kind::BatchNormalization,
        Kind::GroupNormalization,
        Kind::Dense,
    ];

    /// The names that Keras gives the first layers of the kind.
    pub(super) fn keras_names(self) -> &'static [&'static str] {
        match self {
            Kind::Convolution => &["conv2d", "depthwise_conv2d"],
            Kind::SeparableConvolution => &["separable_conv2d"],
            Kind::BatchNormalization => &["batch_normalization"],
            Kind::GroupNormalization => &["group_normalization", "layer_normalization"],
            Kind::Dense => &["dense"],
        }
    }
}

/// What weights of these shapes belong to.
pub(super) fn kind<'a>(shapes: impl Iterator<Item = &'a [usize]>) -> Option<Kind> {
    match shapes.map(<[usize]>::len).collect::<Vec<_>>()[..] {
        [4] | [4, 1] => Some(Kind::Convolution),
        [4, 4] | [4, 4, 1] => Some(Kind::SeparableConvolution),
        [2] | [2, 1] => Some(Kind::Dense),
        // Without a gamma or a beta, as with `scale=False`, there are three.
        [1, 1, 1, 1] | [1, 1, 1] => Some(Kind::BatchNormalization),
        [1, 1] | [1] => Some(Kind::GroupNormalization),
        _ => None,
    }
}

impl Unit {
    /// The tensor of a parameter: by its name, or by its place where the file has no names.
    pub(super) fn array(&self, parameter: &str, place: usize) -> Option<&Array> {
        let is_named = self.arrays.iter().any(|array| array.parameter.is_some());
        let named = |name: &str| self.arrays.iter().find(|array| array.parameter.as_deref() == Some(name));
        match is_named {
            // Keras 3 calls the weights of a depthwise convolution so.
            true if parameter == "layer_scale" => self.arrays.first(),
            true => named(parameter).or(named("kernel").filter(|_| parameter == "depthwise_kernel")),
            false => self.arrays.get(place),
        }
    }

    pub(super) fn shapes(&self) -> impl Iterator<Item = &[usize]> {
        self.arrays.iter().map(|array| array.shape.as_slice())
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        kind(self.shapes())
    }

    /// Its name for people, behind those of the models around it.
    pub(super) fn told(&self) -> String {
        let Unit { path, group, .. } = self;
        let is_whole = group.is_empty() || path == group || path.starts_with(&format!("{group}/"));
        shortened(&if is_whole { path.clone() } else { format!("{group}/{path}") })
    }

    /// The inputs and outputs of a dense layer.
    fn dense(&self) -> Option<[usize; 2]> {
        let kernel = self.array("kernel", 0).filter(|_| self.kind() == Some(Kind::Dense))?;
        kernel.shape[..].try_into().ok()
    }
}

/// The outputs of the last dense layer. Where the order is unknown, it is the one whose outputs no other dense layer reads. `named` is as
/// for [`has_order`].
pub(super) fn last_outputs(units: &[Unit], named: bool) -> Option<usize> {
    let dense: Vec<(&Unit, [usize; 2])> =
        units.iter().filter_map(|unit| Some((unit, unit.dense()?))).collect();
    let (last, [_, outputs]) = *dense.last()?;
    let before = &dense[..dense.len() - 1];
    if before.iter().all(|(unit, _)| has_order(unit, last, named)) {
        return Some(outputs);
    }
    let is_read = |outputs: usize| dense.iter().any(|(_, [inputs, _])| *inputs == outputs);
    let mut ends = dense.iter().map(|(_, [_, outputs])| *outputs).filter(|outputs| !is_read(*outputs));
    ends.next().filter(|_| ends.next().is_none())
}

/// Whether the order of two layers in a file is the model's. `named` tells whether the file lists layers by their names: then it lists
/// them in the model's order, but for those within an inner model.
pub(super) fn has_order(a: &Unit, b: &Unit, named: bool) -> bool {
    if a.group == b.group { !a.is_loose } else { named }
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

/// Whether layers of one group differ by the numbers in their names alone. Those are their order then.
fn are_numbered(units: &[&Unit]) -> bool {
    let (mut stems, mut taken) = (HashMap::new(), HashSet::new());
    units.iter().all(|unit| {
        let (kind, (stem, number)) = (unit.kind(), number(&unit.name));
        let around = unit.path.strip_suffix(unit.name.as_str());
        taken.insert((kind, number)) && *stems.entry(kind).or_insert((stem.clone(), around)) == (stem, around)
    })
}

/// Marks the layers of each group whose order nothing tells.
pub(super) fn mark_loose(units: &mut [Unit]) {
    let mut groups: HashMap<String, Vec<usize>> = HashMap::new();
    for (k, unit) in units.iter().enumerate() {
        groups.entry(unit.group.clone()).or_default().push(k);
    }
    for members in groups.into_values().filter(|members| members.len() > 1) {
        let is_loose = !are_numbered(&members.iter().map(|&k| &units[k]).collect::<Vec<_>>());
        members.into_iter().for_each(|k| units[k].is_loose = is_loose);
    }
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
