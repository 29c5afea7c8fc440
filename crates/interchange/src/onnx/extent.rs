//! Shapes of tensors whose batch, rows and columns a graph may leave open.

use core::fmt;

/// How far a tensor extends along an axis: a number, times sizes that the graph leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    factor: i64,
    /// The open sizes, in order: 0 is the batch.
    open: Vec<u32>,
}

/// The open size that is the batch.
const BATCH: u32 = 0;

impl Extent {
    pub(super) fn number(factor: i64) -> Self {
        Extent { factor, open: Vec::new() }
    }

    /// The open size with this number.
    pub(super) fn open(size: u32) -> Self {
        Extent { factor: 1, open: vec![size] }
    }

    pub(super) fn batch() -> Self {
        Extent::open(BATCH)
    }

    /// The number, if nothing is left open.
    pub(super) fn known(&self) -> Option<i64> {
        self.open.is_empty().then_some(self.factor)
    }

    /// The product, unless it is too large.
    pub(super) fn times(&self, other: &Extent) -> Option<Extent> {
        let mut open = [&self.open[..], &other.open].concat();
        open.sort_unstable();
        Some(Extent { factor: self.factor.checked_mul(other.factor)?, open })
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.open[..] {
            [] => write!(f, "{}", self.factor),
            [BATCH] if self.factor == 1 => f.write_str("batch"),
            _ => f.write_str("?"),
        }
    }
}

/// A shape in words.
pub(super) fn shown(shape: &[Extent]) -> String {
    let all: Vec<String> = shape.iter().map(Extent::to_string).collect();
    format!("({})", all.join(", "))
}

/// The number of values of a shape, unless it is too large.
pub(super) fn count(shape: &[Extent]) -> Option<Extent> {
    shape.iter().try_fold(Extent::number(1), |all, extent| all.times(extent))
}

/// Whether a `Reshape` to `target` makes `shape` of the tensor `from`, which has as many values: -1 stands
/// for the rest, and 0 for the extent of `from`.
pub(super) fn makes(target: &[Extent], from: &[Extent], shape: &[Extent], zero_copies: bool) -> bool {
    let fits = |(k, extent): (usize, &Extent)| match extent.known() {
        Some(-1) => true,
        Some(0) => zero_copies && from.get(k) == Some(&shape[k]),
        _ => *extent == shape[k],
    };
    let free = target.iter().filter(|extent| extent.known() == Some(-1)).count();
    target.len() == shape.len() && free <= 1 && target.iter().enumerate().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reshape_keeps_the_batch() {
        let numbers = |all: &[i64]| all.iter().map(|&n| Extent::number(n)).collect::<Vec<_>>();
        let batch = |all: &[i64]| [vec![Extent::batch()], numbers(all)].concat();
        let (from, flat) = (batch(&[4, 2, 2]), batch(&[16]));
        for target in [[0, -1], [-1, 16], [0, 16]] {
            assert!(makes(&numbers(&target), &from, &flat, true), "{target:?}");
        }
        for target in [&[-1, 8][..], &[-1, -1], &[2, -1], &[1, -1], &[-1, 0], &[16], &[0, 16, 1]] {
            assert!(!makes(&numbers(target), &from, &flat, true), "{target:?}");
        }
        assert!(!makes(&numbers(&[0, -1]), &from, &flat, false));
        assert!(makes(&batch(&[-1]), &from, &flat, false));
        // Rows of one image are not those of another.
        let rows = |k| vec![Extent::batch(), Extent::open(k).times(&Extent::number(3)).unwrap()];
        assert!(makes(&rows(1), &from, &rows(1), true) && !makes(&rows(2), &from, &rows(1), true));
        assert_eq!((shown(&flat), shown(&rows(1))), ("(batch, 16)".to_owned(), "(batch, ?)".to_owned()));
    }
}
