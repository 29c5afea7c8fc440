//! ReLU with a trained slope for each channel.

#[cfg(feature = "random")]
use crate::operand::{placement, write_mode};
use crate::{ALONE, Bench, Case, Operand, Output, Placement, Subject, WIDE_SLICE};
#[cfg(feature = "random")]
use proptest::prelude::*;
use towers_program::ops::{PRelu, PReluInputGradient, PReluSlopeGradient};
use towers_program::{Arena, Result, Shape, Write};

/// The three ops with one shape.
#[derive(Clone, Copy, Debug)]
pub struct Slopes {
    /// Of the tensors.
    pub shape: Shape,
    /// Of the tensors.
    pub place: Placement,
    /// How the gradient of the input is written.
    pub mode: Write,
}

impl Case for Slopes {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let Slopes { shape, place, mode } = *self;
        let mut ops = bench.ops(shape.n, ALONE);
        let [x, dy, y, dx] =
            ["x", "dy", "to", "to"].map(|name| ops.tensor(&Operand::draw(name, shape, place)));
        let slopes = ops.numbers(Arena::Parameters, "slopes", shape.c);
        let dslopes = ops.numbers(Arena::Gradients, "dslopes", shape.c);
        ops.set(PRelu, [x, slopes], [y]);
        ops.write(PReluInputGradient, [x, slopes, dy], [dx], mode);
        ops.set(PReluSlopeGradient, [x, dy], [dslopes]);
        let done = ops.run()?;
        Ok(vec![
            done.output(y, "y", 3e-7)?,
            done.output(dx, "dx", 3e-7)?,
            done.output(dslopes, "gradient of the slopes", 3e-6)?,
        ])
    }
}

/// Sizes and places at random.
#[cfg(feature = "random")]
pub fn any_shape(subject: &Subject) {
    let sizes = (0..4_usize, 1..20_usize, 1..20_usize, 1..40_usize);
    let case = |((n, h, w, c), place, mode)| Slopes { shape: Shape::new(n, h, w, c), place, mode };
    subject.agree_on(32, (sizes, placement(), write_mode()).prop_map(case));
}

/// Maps of a network for faces, and vectors.
pub fn layers_of_real_networks(subject: &Subject) {
    for shape in [Shape::new(2, 28, 28, 64), Shape::new(3, 1, 1, 512)] {
        for place in [ALONE, WIDE_SLICE] {
            subject.agree(&Slopes { shape: subject.fit(shape, 200), place, mode: Write::Set });
        }
    }
}
