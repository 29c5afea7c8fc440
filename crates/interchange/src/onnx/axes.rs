//! How the axes of a tensor in a graph lie on those of a layer's output.
//!
//! A layer gives images of (batch, channels, rows, columns) or vectors of (batch, channels). `Reshape`, `Transpose`, `Flatten` and
//! their like compute nothing: they name the same numbers by other axes. So each axis of the graph's tensor is a list of parts of
//! the layer's axes, and what follows knows whether it sees channels, rows, or groups of channels.

use super::extent::Extent;

/// A part of an axis of a layer's output: all of it, or a factor of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    /// 0 is the batch, 1 the channels, 2 the rows, 3 the columns.
    axis: usize,
    /// How far two neighbors are apart on that axis.
    stride: i64,
    extent: Extent,
}

/// The axes of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Axes(Vec<Vec<Part>>);

/// What an axis is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    Batch,
    Channels,
    Rows,
    Columns,
    /// Rows and columns.
    Pixels,
    /// Of extent 1.
    Single,
    /// Anything else: parts of the channels, or several axes in one.
    Other,
}

impl Axes {
    /// Those of a layer's output of this shape.
    pub(super) fn of(shape: &[Extent]) -> Self {
        let part = |(axis, extent): (usize, &Extent)| match axis > 0 && extent.is_one() {
            true => Vec::new(),
            false => vec![Part { axis, stride: 1, extent: extent.clone() }],
        };
        Axes(shape.iter().enumerate().map(part).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The extents of the axes.
    pub(super) fn shape(&self) -> Option<Vec<Extent>> {
        let extent =
            |parts: &Vec<Part>| parts.iter().try_fold(Extent::number(1), |all, part| all.times(&part.extent));
        self.0.iter().map(extent).collect()
    }

    /// What each axis is, of a layer's output of this shape.
    pub(super) fn kinds(&self, shape: &[Extent]) -> Vec<Axis> {
        let is_all = |part: &Part| shape.get(part.axis) == Some(&part.extent);
        let kind = |parts: &Vec<Part>| match &parts[..] {
            [] => Axis::Single,
            [part] if is_all(part) => [Axis::Batch, Axis::Channels, Axis::Rows, Axis::Columns][part.axis],
            [rows, columns] if is_all(rows) && is_all(columns) && (rows.axis, columns.axis) == (2, 3) => {
                Axis::Pixels
            }
            _ => Axis::Other,
        };
        self.0.iter().map(kind).collect()
    }

    /// The same numbers with axes of these extents, if each axis is whole parts. The batch stays the first axis, or
    /// part of the only one if it has a known size.
    pub(super) fn reshaped(&self, target: &[Extent]) -> Option<Axes> {
        let parts = self.0.concat();
        if let [all] = target {
            let count = parts.iter().try_fold(Extent::number(1), |count, part| count.times(&part.extent))?;
            return (count.known().is_some() && count == *all).then(|| Axes(vec![joined(parts)]));
        }
        let (batch, rest) = parts.split_first()?;
        let (first, target) = target.split_first()?;
        if batch.axis > 0 || *first != batch.extent {
            return None;
        }
        let mut rest: Vec<Part> = rest.iter().rev().cloned().collect();
        let mut axes = vec![vec![batch.clone()]];
        for extent in target {
            let (mut parts, mut open) = (Vec::new(), extent.clone());
            while !open.is_one() {
                let part = rest.pop()?;
                if let Some(quotient) = open.over(&part.extent) {
                    open = quotient;
                    parts.push(part);
                    continue;
                }
                // A factor of the part, and what is left of it.
                let (taken, whole) = (open.known()?, part.extent.known()?);
                if taken < 1 || whole % taken != 0 {
                    return None;
                }
                let left = whole / taken;
                parts.push(Part {
                    stride: part.stride.checked_mul(left)?,
                    extent: Extent::number(taken),
                    ..part.clone()
                });
                rest.push(Part { extent: Extent::number(left), ..part });
                open = Extent::number(1);
            }
            axes.push(joined(parts));
        }
        rest.is_empty().then_some(Axes(axes))
    }

    /// The same axes in another order, the batch first.
    pub(super) fn permuted(&self, order: &[i64]) -> Option<Axes> {
        let mut seen = vec![false; self.len()];
        let place = |&k: &i64| {
            usize::try_from(k).ok().filter(|&k| k < self.len() && !std::mem::replace(&mut seen[k], true))
        };
        let order: Vec<usize> = order.iter().map(place).collect::<Option<_>>()?;
        let fits = order.len() == self.len() && order.first() == Some(&0);
        fits.then(|| Axes(order.into_iter().map(|k| self.0[k].clone()).collect()))
    }

    /// With axes of extent 1 at these places of the result.
    pub(super) fn unsqueezed(&self, at: &[usize]) -> Option<Axes> {
        let mut axes = self.0.clone();
        for &at in at {
            if at == 0 || at > axes.len() {
                return None;
            }
            axes.insert(at, Vec::new());
        }
        Some(Axes(axes))
    }

    /// Without the axes at these places.
    pub(super) fn without(&self, at: &[usize]) -> Axes {
        Axes(
            self.0
                .iter()
                .enumerate()
                .filter(|(k, _)| !at.contains(k))
                .map(|(_, axis)| axis.clone())
                .collect(),
        )
    }

    /// With axes of extent 1 in these places.
    pub(super) fn single(&self, at: &[usize]) -> Axes {
        let axis = |(k, axis): (usize, &Vec<Part>)| if at.contains(&k) { Vec::new() } else { axis.clone() };
        Axes(self.0.iter().enumerate().map(axis).collect())
    }

    /// The axes of a sum of two tensors, where an extent of 1 fits any other one.
    pub(super) fn beside(&self, other: &Axes) -> Option<Axes> {
        let (long, short) = if self.len() >= other.len() { (self, other) } else { (other, self) };
        let before = long.len() - short.len();
        let axis = |(k, own): (usize, &Vec<Part>)| match k.checked_sub(before).map(|k| &short.0[k]) {
            None => Some(own.clone()),
            Some(other) if own == other || other.is_empty() => Some(own.clone()),
            Some(other) if own.is_empty() => Some(other.clone()),
            Some(_) => None,
        };
        long.0.iter().enumerate().map(axis).collect::<Option<_>>().map(Axes)
    }

    /// The axes of another output, whose channels are as many as here or these.
    pub(super) fn with_channels(&self, channels: &Extent) -> Axes {
        let part = |part: &Part| match part.axis {
            1 if channels.is_one() => None,
            1 => Some(Part { extent: channels.clone(), ..part.clone() }),
            _ => Some(part.clone()),
        };
        Axes(self.0.iter().map(|axis| axis.iter().filter_map(part).collect()).collect())
    }

    /// How many groups of channels are dealt out in turn, if that is how this differs from the axes of a layer's output of this shape: PyTorch's
    /// `channel_shuffle`.
    pub(super) fn shuffled(&self, shape: &[Extent]) -> Option<i64> {
        let plain = Axes::of(shape);
        if self.len() != plain.len() || (0..self.len()).any(|k| k != 1 && self.0[k] != plain.0[k]) {
            return None;
        }
        let channels = shape.get(1)?.known()?;
        let [inner, outer] = &self.0.get(1)?[..] else { return None };
        let (each, groups) = (inner.extent.known()?, outer.extent.known()?);
        let fits = [inner.axis, outer.axis] == [1, 1] && each.checked_mul(groups) == Some(channels);
        (fits && inner.stride == 1 && outer.stride == each).then_some(groups)
    }

    /// The groups of channels if the axes are these groups, and all that is in them.
    pub(super) fn grouped(&self, shape: &[Extent]) -> Option<i64> {
        let [_, groups, rest] = &self.0[..] else { return None };
        let mut all = groups.clone();
        all.extend(rest.iter().cloned());
        let plain: Vec<Part> = Axes::of(shape).0.split_off(1).concat();
        match &groups[..] {
            [part] if part.axis == 1 && joined(all) == plain => part.extent.known(),
            [] if joined(rest.clone()) == plain => Some(1),
            _ => None,
        }
    }

    /// Whether the axes are one vector of all numbers: in the order (channel, row, column), or (row, column, channel).
    pub(super) fn is_flat(&self, shape: &[Extent], channels_first: bool) -> bool {
        let mut plain = Axes::of(shape).0.split_off(1);
        if !channels_first && !plain.is_empty() {
            plain.rotate_left(1);
        }
        matches!(&self.0[..], [_, all] if *all == plain.concat())
    }
}

/// Neighbors that are one part. A batch of one sample stays.
fn joined(parts: Vec<Part>) -> Vec<Part> {
    let mut all: Vec<Part> = Vec::new();
    for part in parts.into_iter().filter(|part| part.axis == 0 || !part.extent.is_one()) {
        let before = all.last_mut().filter(|before| {
            let inner = part.extent.known().and_then(|extent| extent.checked_mul(part.stride));
            before.axis == part.axis && inner == Some(before.stride)
        });
        match before.map(|before| (before.extent.times(&part.extent), before)) {
            Some((Some(extent), before)) => *before = Part { stride: part.stride, extent, ..*before },
            _ => all.push(part),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(all: &[i64]) -> Vec<Extent> {
        all.iter().map(|&n| Extent::number(n)).collect()
    }

    fn batch(all: &[i64]) -> Vec<Extent> {
        [vec![Extent::batch()], numbers(all)].concat()
    }

    #[test]
    fn shapes_there_and_back() {
        let shape = batch(&[12, 5, 7]);
        let plain = Axes::of(&shape);
        let split = plain.reshaped(&batch(&[3, 4, 5, 7])).unwrap();
        assert_eq!(split.reshaped(&shape), Some(plain.clone()));
        assert_eq!(split.kinds(&shape)[1..], [Axis::Other, Axis::Other, Axis::Rows, Axis::Columns]);
        let shuffled = split.permuted(&[0, 2, 1, 3, 4]).unwrap().reshaped(&shape).unwrap();
        assert_eq!((shuffled.shuffled(&shape), plain.shuffled(&shape)), (Some(3), None));
        assert_ne!(shuffled, plain);
        let last = plain.permuted(&[0, 2, 3, 1]).unwrap();
        let flat = last.reshaped(&batch(&[420])).unwrap();
        assert!(flat.is_flat(&shape, false) && !flat.is_flat(&shape, true));
        assert!(plain.reshaped(&batch(&[420])).unwrap().is_flat(&shape, true));
        assert_eq!(last.reshaped(&batch(&[35, 12])).unwrap().kinds(&shape)[1], Axis::Pixels);
        assert_eq!(plain.reshaped(&batch(&[2, 6, 35])).unwrap().grouped(&shape), None);
        assert_eq!(plain.reshaped(&batch(&[2, 210])).unwrap().grouped(&shape), Some(2));
        // Rows of five pixels don't fall into two halves, and a batch is no image.
        assert_eq!(plain.reshaped(&batch(&[12, 2, 35])), None);
        assert_eq!(plain.reshaped(&numbers(&[1, 420])), None);
        for fixed in [1, 7] {
            let shape = [numbers(&[fixed]), numbers(&[12, 5, 7])].concat();
            let whole = Axes::of(&shape).reshaped(&numbers(&[420 * fixed])).unwrap();
            assert_eq!(
                (whole.kinds(&shape), whole.reshaped(&shape)),
                (vec![Axis::Other], Some(Axes::of(&shape)))
            );
            assert_eq!(Axes::of(&shape).reshaped(&numbers(&[420 * fixed + 1])), None);
        }
        assert_eq!(plain.permuted(&[1, 0, 2, 3]), None);
        assert_eq!(plain.permuted(&[0, 1, 1, 3]), None);
    }

    #[test]
    fn an_extent_of_one_fits_any() {
        let (shape, single) = (batch(&[4, 5, 7]), batch(&[4, 1, 1]));
        let (image, pooled) = (Axes::of(&shape), Axes::of(&single));
        assert_eq!(image.beside(&pooled), Some(image.clone()));
        let last = image.permuted(&[0, 2, 3, 1]).unwrap();
        assert_eq!(last.beside(&pooled), None);
        assert_eq!(pooled.without(&[2, 3]), Axes::of(&batch(&[4])));
    }
}
