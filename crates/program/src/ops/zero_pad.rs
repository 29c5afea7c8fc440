use crate::passes::Gradients;
use crate::rule::Rule;
use crate::signature::signatures;
use crate::{Error, Op, Pad, Result, Shape, Step, TensorId};

/// More rows or columns than any image has, far below what overflows in 32 bits.
const MOST: i64 = 1 << 30;

/// Zeros around images. Where a number is negative, so many rows or columns are cut off, as by PyTorch's `F.pad`. Reads x.
///
/// The gradient is the same op with the signs turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroPad {
    /// Rows above.
    pub top: i64,
    /// Rows below.
    pub bottom: i64,
    /// Columns to the left.
    pub left: i64,
    /// Columns to the right.
    pub right: i64,
}

signatures! {
    ZeroPad { x: batch "the input" }
}

impl From<Pad> for ZeroPad {
    fn from(pad: Pad) -> Self {
        let [top, bottom, left, right] =
            [pad.top, pad.bottom, pad.left, pad.right].map(|side| i64::try_from(side).unwrap_or(i64::MAX));
        ZeroPad { top, bottom, left, right }
    }
}

impl core::ops::Neg for ZeroPad {
    type Output = ZeroPad;

    fn neg(self) -> ZeroPad {
        let ZeroPad { top, bottom, left, right } = self;
        ZeroPad { top: -top, bottom: -bottom, left: -left, right: -right }
    }
}

impl Rule for ZeroPad {
    fn name(&self) -> &'static str {
        "zero_pad"
    }

    fn options(&self) -> String {
        let ZeroPad { top, bottom, left, right } = self;
        format!("{top} and {bottom} rows, {left} and {right} columns")
    }

    fn shapes(&self, shapes: &[Shape]) -> Result<Vec<Shape>> {
        let operands::ZeroPad { x } = self.operands_of(shapes)?;
        let along = |size: usize, before: i64, after: i64| {
            let parts = [i64::try_from(size).ok()?, before, after];
            let total: i64 =
                parts.iter().all(|part| (-MOST..MOST).contains(part)).then(|| parts.iter().sum())?;
            usize::try_from(total).ok().filter(|&size| size > 0)
        };
        let sides = along(x.h, self.top, self.bottom).zip(along(x.w, self.left, self.right));
        match sides.filter(|(h, w)| h.saturating_mul(*w) < 1 << 32) {
            Some((h, w)) => Ok(vec![Shape { h, w, ..x }]),
            None => {
                let sides = [self.top, self.bottom, self.left, self.right];
                let value = sides.into_iter().fold(0.0, |least, side| f64::min(least, side as f64));
                let (what, accepted) = ("the padding", "such that an image of less than 2^32 pixels is left");
                Err(Error::Value { op: self.name(), what, value, accepted })
            }
        }
    }

    fn adds(&self) -> bool {
        true
    }

    fn gradient(&self, step: &Step, to: &mut Gradients) -> Result<()> {
        let x = step.operands[0];
        to.add_op(x, -*self, &[to.of(step)])
    }

    fn recompute(&self, step: &Step) -> Option<(Op, Vec<TensorId>)> {
        Some(((*self).into(), step.operands.clone()))
    }
}
