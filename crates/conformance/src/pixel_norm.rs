//! Normalizations of each pixel by its own channels.

use crate::operand::*;
use crate::{Bench, Case, Output, Subject};
#[cfg(feature = "random")]
use proptest::prelude::*;
use towers_program::ops::{LayerNorm, LayerNormGradient, LocalResponseNorm, LocalResponseNormGradient};
use towers_program::{Arena, Result, Shape, Write};

/// Layer normalization, forward and backward.
#[derive(Clone, Debug)]
pub struct OverChannels {
    /// The input.
    pub x: Operand,
    /// Of all activations.
    pub place: Placement,
    /// How the input's gradient is written.
    pub mode: Write,
    /// How many digits its numbers lose.
    pub lost: f32,
}

impl Case for OverChannels {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (shape, op) = (self.x.layout.shape, LayerNorm { epsilon: 1e-3 });
        let mut ops = bench.ops(shape.n, self.place);
        let (x, dy) = (ops.tensor(&self.x), ops.draw("dy", shape));
        let (y, dx) = (ops.draw("y", shape), ops.draw("dx", shape));
        let [gamma, beta] = ["gamma", "beta"].map(|name| ops.numbers(Arena::Parameters, name, shape.c));
        let [dgamma, dbeta] = ["dgamma", "dbeta"].map(|name| ops.numbers(Arena::Gradients, name, shape.c));
        ops.set(op, [x, gamma, beta], [y]);
        ops.write(LayerNormGradient { norm: op }, [x, gamma, dy], [dx, dgamma, dbeta], self.mode);
        let done = ops.run()?;
        Ok(vec![
            done.output(y, "y", 2e-6 * self.lost)?,
            done.output(dx, "dx", 1e-5 * self.lost)?,
            done.output(dgamma, "dgamma", 5e-6 * self.lost)?,
            done.output(dbeta, "dbeta", 5e-6)?,
        ])
    }
}

/// In quarters around a mean, which 32 bits hold exactly.
fn around(mean: f32, shape: Shape, place: Placement, mode: Write) -> OverChannels {
    let x = Operand::draw("x", shape, place).map(|x| (x * 4.0).round() / 4.0 + mean);
    OverChannels { x, place, mode, lost: 1.0 + mean.abs() }
}

/// Local response normalization, forward and backward.
#[derive(Clone, Debug)]
pub struct Responses {
    /// The op.
    pub norm: LocalResponseNorm,
    /// Of the input.
    pub shape: Shape,
    /// Of all activations.
    pub place: Placement,
    /// How the input's gradient is written.
    pub mode: Write,
}

impl Case for Responses {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (shape, norm) = (self.shape, self.norm);
        let mut ops = bench.ops(shape.n, self.place);
        let (x, dy) = (ops.draw("x", shape), ops.draw("dy", shape));
        let (y, dx) = (ops.draw("y", shape), ops.draw("dx", shape));
        ops.set(norm, [x], [y]);
        ops.write(LocalResponseNormGradient { norm }, [x, dy], [dx], self.mode);
        let done = ops.run()?;
        Ok(vec![done.output(y, "y", 2e-6)?, done.output(dx, "dx", 5e-6)?])
    }
}

/// AlexNet's and GoogLeNet's.
const ALEXNET: LocalResponseNorm = LocalResponseNorm { size: 5, alpha: 1e-4, beta: 0.75, bias: 1.0 };

/// The shapes that training is made of: ConvNeXt, and AlexNet with an alpha that shows.
pub fn layers_of_real_networks(subject: &Subject) {
    for (shape, place) in [
        (Shape::new(2, 28, 28, 96), ALONE),
        (Shape::new(2, 14, 14, 192), WIDE_SLICE),
        (Shape::new(2, 7, 7, 768), ALONE),
        (Shape::new(5, 1, 1, 100), SLICE),
    ] {
        let shape = subject.fit(shape, 16 * shape.c);
        subject.agree(&around(0.0, shape, place, Write::Set));
        subject.agree(&around(0.0, shape, place, Write::Add));
    }
    for (norm, c, place) in [
        (ALEXNET, 96, ALONE),
        (LocalResponseNorm { alpha: 2.0, ..ALEXNET }, 64, WIDE_SLICE),
        (LocalResponseNorm { size: 4, alpha: 1.0, beta: 0.5, bias: 2.0 }, 7, SLICE),
    ] {
        let shape = subject.fit(Shape::new(2, 13, 13, c), 32 * c);
        subject.agree(&Responses { norm, shape, place, mode: Write::Set });
        subject.agree(&Responses { norm, shape, place, mode: Write::Add });
    }
}

/// A mean of a thousand deviations takes no digits but those of the numbers themselves.
pub fn a_large_mean_costs_nothing(subject: &Subject) {
    let shape = subject.fit(Shape::new(2, 6, 6, 96), 16 * 96);
    subject.agree(&OverChannels { lost: 1.0, ..around(1000.0, shape, ALONE, Write::Set) });
}

/// Nor does a first channel that stands out.
pub fn a_channel_that_stands_out_costs_nothing(subject: &Subject) {
    let shape = subject.fit(Shape::new(2, 6, 6, 96), 16 * 96);
    for ratio in [10.1, 1003.7] {
        let mut case = around(0.0, shape, ALONE, Write::Set);
        (0..shape.rows()).for_each(|row| case.x.values[row * shape.c] = ratio);
        subject.agree(&case);
    }
}

/// No samples: the gradients of gamma and beta are zeros.
pub fn an_empty_batch(subject: &Subject) {
    subject.agree(&around(0.0, Shape::new(0, 4, 4, 8), SLICE, Write::Set));
    let (norm, shape) = (ALEXNET, Shape::new(0, 4, 4, 8));
    subject.agree(&Responses { norm, shape, place: ALONE, mode: Write::Set });
}

/// A NaN comes through, in its own pixel alone, so that a diverged run is seen.
pub fn nan_stays(subject: &Subject) {
    let mut case = around(0.0, Shape::new(2, 3, 3, 8), ALONE, Write::Set);
    case.x.values[11] = f32::NAN;
    let y = case.run(&subject.reference()).expect("the reference runs every case").remove(0);
    assert_eq!(y.values.iter().filter(|y| y.is_nan()).count(), 8, "the whole pixel, and no other");
    subject.agree(&case);
}

/// Sizes, places and means at random.
#[cfg(feature = "random")]
pub fn any_channels(subject: &Subject) {
    let sizes = (0..5_usize, 1..9_usize, 1..9_usize, 3..90_usize);
    let cases = (sizes, placement(), write_mode(), -4.0..4.0_f32);
    let case = |((n, h, w, c), place, mode, mean): (_, _, _, f32)| {
        around((4.0 * mean).round() / 4.0, Shape::new(n, h, w, c), place, mode)
    };
    subject.agree_on(64, cases.prop_map(case));
}

/// Sizes, places and neighbours at random.
#[cfg(feature = "random")]
pub fn any_neighbours(subject: &Subject) {
    let sizes = (0..4_usize, 1..6_usize, 1..6_usize, 1..40_usize);
    let norm = (1..9_usize, 0.0..2.0_f32, prop_oneof![Just(0.75), 0.1..1.5_f32], 0.5..2.0_f32);
    let case = |((n, h, w, c), (size, alpha, beta, bias), place, mode)| Responses {
        norm: LocalResponseNorm { size, alpha, beta, bias },
        shape: Shape::new(n, h, w, c),
        place,
        mode,
    };
    subject.agree_on(64, (sizes, norm, placement(), write_mode()).prop_map(case));
}
