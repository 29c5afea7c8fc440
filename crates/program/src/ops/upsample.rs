use crate::passes::Gradients;
use crate::rule::Rule;
use crate::signature::signatures;
use crate::{Error, Result, Shape, Step};
use core::ops::Range;

/// Images a whole number of times as large. Reads x.
///
/// Output pixel `i` of an axis lies at `(i + 1/2) / factor - 1/2` of the input, as in TensorFlow, and in PyTorch without
/// `align_corners`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Upsample {
    /// How many times as many rows and columns.
    pub by: [usize; 2],
    /// Whether the two nearest pixels of each axis are blended, by their distances; else each pixel is repeated.
    pub bilinear: bool,
}

/// The gradient of [`Upsample`]'s input. Reads dy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpsampleGradient {
    /// The op.
    pub upsample: Upsample,
}

signatures! {
    Upsample { x: batch "the input" }
    UpsampleGradient { dy: batch "dy" }
}

impl Upsample {
    /// The two pixels of an axis, of `size` in the input, that output pixel `i` is made of, and their weights.
    #[inline(always)]
    pub fn taps(&self, axis: usize, i: usize, size: usize) -> [(usize, f32); 2] {
        let by = self.by[axis];
        if !self.bilinear {
            return [(i / by, 1.0), (i / by, 0.0)];
        }
        // Twice the factor times the place in the input, plus one whole pixel, so that it is not below 0.
        let place = 2 * i + 1 + by;
        let (pixel, rest) = (place / (2 * by), place % (2 * by));
        let share = rest as f32 / (2 * by) as f32;
        [(pixel.saturating_sub(1), 1.0 - share), (pixel.min(size - 1), share)]
    }

    /// The output pixels of an axis that may be made of input pixel `p`.
    #[inline(always)]
    pub fn readers(&self, axis: usize, p: usize, size: usize) -> Range<usize> {
        let by = self.by[axis];
        match self.bilinear {
            false => p * by..(p + 1) * by,
            true => (p * by).saturating_sub(by.div_ceil(2))..((p + 1) * by + by.div_ceil(2)).min(size * by),
        }
    }

    /// The weight of input pixel `p` in output pixel `i` of an axis.
    #[inline(always)]
    pub fn weight(&self, axis: usize, i: usize, p: usize, size: usize) -> f32 {
        self.taps(axis, i, size).iter().filter(|(pixel, _)| *pixel == p).map(|(_, weight)| weight).sum()
    }

    fn output(&self, op: &'static str, x: Shape) -> Result<Shape> {
        let [down, across] = self.by;
        let (h, w) = (x.h.saturating_mul(down), x.w.saturating_mul(across));
        if h > 0 && w > 0 && h.saturating_mul(w) <= u32::MAX as usize {
            return Ok(Shape { h, w, ..x });
        }
        let (what, value) = ("the number of times as many pixels", down.saturating_mul(across) as f64);
        Err(Error::Value { op, what, value, accepted: "at least 1, for an image of less than 2^32 pixels" })
    }
}

impl Rule for Upsample {
    fn name(&self) -> &'static str {
        "upsample"
    }

    fn options(&self) -> String {
        let [down, across] = self.by;
        format!("{down}x{across}{}", if self.bilinear { ", bilinear" } else { "" })
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::Upsample { x } = self.operands_of(shapes)?;
        Ok(vec![self.output(self.name(), x)?])
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let x = step.operands[0];
        to.add_op(x, UpsampleGradient { upsample: *self }, &[to.of(step)])
    }
}

impl Rule for UpsampleGradient {
    fn name(&self) -> &'static str {
        "upsample_gradient"
    }

    fn options(&self) -> String {
        self.upsample.options()
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::UpsampleGradient { dy } = self.operands_of(shapes)?;
        let [down, across] = self.upsample.by;
        let whole = |size: usize, by: usize| size.checked_div(by).filter(|n| *n > 0 && n * by == size);
        match (whole(dy.h, down), whole(dy.w, across)) {
            (Some(h), Some(w)) => Ok(vec![Shape { h, w, ..dy }]),
            _ => {
                let (what, value) = ("the number of pixels of dy", dy.h.saturating_mul(dy.w) as f64);
                Err(Error::Value { op: self.name(), what, value, accepted: "a multiple of the factors" })
            }
        }
    }

    fn adds(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each output pixel's weights come to 1, and the readers of a pixel are all that have a weight of it.
    #[test]
    fn taps_and_readers_agree() {
        for (by, size, bilinear) in
            (1..5).flat_map(|by| (1..5).flat_map(move |size| [(by, size, false), (by, size, true)]))
        {
            let op = Upsample { by: [by; 2], bilinear };
            for i in 0..size * by {
                let taps = op.taps(0, i, size);
                assert_eq!(taps[0].1 + taps[1].1, 1.0);
                for p in 0..size {
                    let weight = op.weight(0, i, p, size);
                    assert!(
                        weight == 0.0 || op.readers(0, p, size).contains(&i),
                        "{op:?}: {i} of {p} of {size}"
                    );
                }
            }
        }
        let double = Upsample { by: [2; 2], bilinear: true };
        assert_eq!(double.taps(0, 1, 3), [(0, 0.75), (1, 0.25)]);
        assert_eq!(double.taps(0, 0, 3), [(0, 0.25), (0, 0.75)]);
    }
}
