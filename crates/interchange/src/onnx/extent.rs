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

    /// Whether it is the number 1.
    pub(super) fn is_one(&self) -> bool {
        self.known() == Some(1)
    }

    /// The quotient, if it is one.
    pub(super) fn over(&self, other: &Extent) -> Option<Extent> {
        let mut open = self.open.clone();
        for size in &other.open {
            open.remove(open.iter().position(|own| own == size)?);
        }
        let divides = other.factor != 0 && self.factor % other.factor == 0;
        divides.then(|| Extent { factor: self.factor / other.factor, open })
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

/// The shape that a `Reshape` to `target` makes of the tensor `from`: -1 stands for the rest, and 0 for the extent of
/// `from`, unless zeros are zeros.
pub(super) fn reshaped(target: &[Extent], from: &[Extent], zero_copies: bool) -> Option<Vec<Extent>> {
    let given = |(k, extent): (usize, &Extent)| match extent.known() {
        Some(0) if zero_copies => from.get(k).cloned(),
        Some(..=-2 | 0) => None,
        _ => Some(extent.clone()),
    };
    let mut shape: Vec<Extent> = target.iter().enumerate().map(given).collect::<Option<_>>()?;
    let is_rest = |extent: &Extent| extent.known() == Some(-1);
    let all = count(from)?;
    let known: Vec<Extent> = shape.iter().filter(|extent| !is_rest(extent)).cloned().collect();
    let known = count(&known)?;
    match shape.iter().filter(|extent| is_rest(extent)).count() {
        0 if known == all => Some(shape),
        1 => {
            let rest = all.over(&known)?;
            shape.iter_mut().filter(|extent| is_rest(extent)).for_each(|extent| *extent = rest.clone());
            Some(shape)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reshape_keeps_the_count() {
        let numbers = |all: &[i64]| all.iter().map(|&n| Extent::number(n)).collect::<Vec<_>>();
        let batch = |all: &[i64]| [vec![Extent::batch()], numbers(all)].concat();
        let (from, flat) = (batch(&[4, 2, 2]), batch(&[16]));
        for target in [[0, -1], [-1, 16], [0, 16]] {
            assert_eq!(reshaped(&numbers(&target), &from, true), Some(flat.clone()), "{target:?}");
        }
        for target in [&[-1, -1][..], &[-1, 3], &[16], &[-2, 16], &[0, 17]] {
            assert_eq!(reshaped(&numbers(target), &from, true), None, "{target:?}");
        }
        // Possible, but a batch is no longer one.
        assert_eq!(shown(&reshaped(&numbers(&[2, -1]), &from, true).unwrap()), "(2, ?)");
        assert_eq!(shown(&reshaped(&numbers(&[1, -1]), &from, true).unwrap()), "(1, ?)");
        assert_eq!(reshaped(&numbers(&[0, -1]), &from, false), None);
        assert_eq!(reshaped(&batch(&[-1]), &from, false), Some(flat.clone()));
        // Rows of one image are not those of another.
        let rows = |k| vec![Extent::batch(), Extent::open(k).times(&Extent::number(3)).unwrap()];
        assert_eq!(reshaped(&rows(1), &rows(1), true), Some(rows(1)));
        assert_eq!(reshaped(&rows(2), &rows(1), true), None);
        assert_eq!((shown(&flat), shown(&rows(1))), ("(batch, 16)".to_owned(), "(batch, ?)".to_owned()));
    }
}
