//! Zeros around images, images without their borders, larger images.

use crate::operand::*;
use crate::{Bench, Case, Output, Subject};
#[cfg(feature = "random")]
use proptest::prelude::*;
use towers_program::ops::{Upsample, UpsampleGradient, ZeroPad};
use towers_program::{Result, Shape, Write};

/// Zeros around images, or images without their borders, and back.
#[derive(Clone, Debug)]
pub struct Padded {
    /// The op.
    pub pad: ZeroPad,
    /// Of the input.
    pub shape: Shape,
    /// Of all activations.
    pub place: Placement,
    /// How gradients are written.
    pub mode: Write,
}

impl Padded {
    /// The output's shape, if there is one.
    fn output(&self) -> Option<Shape> {
        let along = |size: usize, before: i64, after: i64| {
            usize::try_from(size as i64 + before + after).ok().filter(|&size| size > 0)
        };
        let ZeroPad { top, bottom, left, right } = self.pad;
        Some(Shape {
            h: along(self.shape.h, top, bottom)?,
            w: along(self.shape.w, left, right)?,
            ..self.shape
        })
    }
}

impl Case for Padded {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let mut ops = bench.ops(self.shape.n, self.place);
        let to = self.output().unwrap_or(self.shape);
        let (x, dy) = (ops.draw("x", self.shape), ops.draw("dy", to));
        let (y, dx) = (ops.draw("y", to), ops.draw("dx", self.shape));
        ops.set(self.pad, [x], [y]);
        ops.write(-self.pad, [dy], [dx], self.mode);
        let done = ops.run()?;
        Ok(vec![done.output(y, "y", 0.0)?, done.output(dx, "dx", 1e-6)?])
    }
}

/// Images a whole number of times as large, and their gradients.
#[derive(Clone, Debug)]
pub struct Larger {
    /// The op.
    pub op: Upsample,
    /// Of the input.
    pub shape: Shape,
    /// Of all activations.
    pub place: Placement,
    /// How gradients are written.
    pub mode: Write,
}

impl Case for Larger {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (op, [down, across]) = (self.op, self.op.by);
        let mut ops = bench.ops(self.shape.n, self.place);
        let to = Shape { h: self.shape.h * down, w: self.shape.w * across, ..self.shape };
        let (x, dy) = (ops.draw("x", self.shape), ops.draw("dy", to));
        let (y, dx) = (ops.draw("y", to), ops.draw("dx", self.shape));
        ops.set(op, [x], [y]);
        ops.write(UpsampleGradient { upsample: op }, [dy], [dx], self.mode);
        let done = ops.run()?;
        Ok(vec![done.output(y, "y", 1e-6)?, done.output(dx, "dx", 2e-6)?])
    }
}

/// The shapes that training is made of: ResNetV2, NASNet, HRNet.
pub fn layers_of_real_networks(subject: &Subject) {
    let sides = |top, bottom, left, right| ZeroPad { top, bottom, left, right };
    for (pad, shape) in [
        (sides(1, 1, 1, 1), Shape::new(2, 56, 56, 64)),
        (sides(0, 1, 0, 1), Shape::new(2, 28, 28, 42)),
        (sides(-1, 0, -1, 0), Shape::new(2, 29, 29, 42)),
        (sides(-1, 1, 2, -2), Shape::new(3, 14, 14, 3)),
    ] {
        let shape = subject.fit(shape, 4 * shape.c);
        subject.agree(&Padded { pad, shape, place: ALONE, mode: Write::Set });
        subject.agree(&Padded { pad, shape, place: WIDE_SLICE, mode: Write::Add });
    }
    for (by, bilinear, shape) in [
        (2, false, Shape::new(2, 28, 28, 32)),
        (4, false, Shape::new(2, 14, 14, 18)),
        (8, false, Shape::new(2, 7, 7, 32)),
        (2, true, Shape::new(2, 14, 14, 64)),
        (3, true, Shape::new(2, 7, 7, 5)),
    ] {
        let shape = subject.fit(shape, 16 * shape.c);
        let op = Upsample { by: [by; 2], bilinear };
        subject.agree(&Larger { op, shape, place: ALONE, mode: Write::Set });
        subject.agree(&Larger { op, shape, place: SLICE, mode: Write::Add });
    }
}

/// No samples: nothing is written.
pub fn an_empty_batch(subject: &Subject) {
    let shape = Shape::new(0, 4, 4, 8);
    let pad = ZeroPad { top: 1, bottom: 0, left: -1, right: 2 };
    subject.agree(&Padded { pad, shape, place: SLICE, mode: Write::Set });
    let op = Upsample { by: [2, 3], bilinear: true };
    subject.agree(&Larger { op, shape, place: SLICE, mode: Write::Set });
}

/// Sizes, sides and places at random; sometimes nothing of the image is left.
#[cfg(feature = "random")]
pub fn any_padding(subject: &Subject) {
    let sizes = (0..4_usize, 1..9_usize, 1..9_usize, 1..70_usize);
    let sides = prop::array::uniform4(-9..9_i64);
    let case = |((n, h, w, c), sides, place, mode): (_, [i64; 4], _, _)| {
        let [top, bottom, left, right] = sides;
        let pad = ZeroPad { top, bottom, left, right };
        let case = Padded { pad, shape: Shape::new(n, h, w, c), place, mode };
        case.output().is_some().then_some(case)
    };
    let cases = (sizes, sides, placement(), write_mode());
    subject.agree_on(64, cases.prop_filter_map("an image is left", case));
}

/// Sizes, factors and places at random.
#[cfg(feature = "random")]
pub fn any_factor(subject: &Subject) {
    let sizes = (0..4_usize, 1..7_usize, 1..7_usize, 1..70_usize);
    let op = (prop::array::uniform2(1..6_usize), any::<bool>());
    let case = |((n, h, w, c), (by, bilinear), place, mode)| Larger {
        op: Upsample { by, bilinear },
        shape: Shape::new(n, h, w, c),
        place,
        mode,
    };
    subject.agree_on(64, (sizes, op, placement(), write_mode()).prop_map(case));
}
