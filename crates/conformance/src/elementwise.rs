//! Copies and activations.

use crate::operand::*;
use crate::{Bench, Case, Output, Subject};
#[cfg(feature = "random")]
use proptest::prelude::*;
use towers_program::ops::{Activate, ActivationGradient, Add, Scale};
use towers_program::{Activation, Result, Shape, Write};

/// An exponential, relative to the largest.
const SMOOTH: f32 = 1e-6;

/// Activations and copies.
#[derive(Clone, Debug)]
pub struct Elementwise {
    /// Of every tensor.
    pub shape: Shape,
    /// Of the input.
    pub from: Placement,
    /// Of all else.
    pub to: Placement,
    /// How results are written.
    pub mode: Write,
    /// The activation.
    pub act: Activation,
}

impl Case for Elementwise {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (act, smooth) = (self.act, self.act.reads_input());
        // What is not added to anything is exact.
        let tolerance = if self.mode == Write::Set { 0.0 } else { 1e-7 };
        let of_product: f32 = if matches!(act, Activation::LeakyRelu(_)) { 3e-7 } else { tolerance };
        let mut ops = bench.ops(self.shape.n, ALONE);
        let x = ops.tensor(&Operand::coarse("from", self.shape, self.from));
        let dy = ops.tensor(&Operand::draw("dy", self.shape, self.to));
        let [copy, scaled, y, sum, summand, dx, replaced] =
            [(); 7].map(|()| ops.tensor(&Operand::draw("to", self.shape, self.to)));
        ops.write(Scale { factor: 1.0 }, [x], [copy], self.mode);
        ops.write(Scale { factor: 0.3 }, [x], [scaled], self.mode);
        ops.set(Activate { act }, [x], [y]);
        ops.set(Add { act }, [x, dy], [sum]);
        let sum_in_place = ops.in_place_of(summand);
        ops.set(Add { act }, [x, summand], [sum_in_place]);
        ops.write(ActivationGradient { act }, [x, dy], [dx], self.mode);
        let dx_in_place = ops.in_place_of(replaced);
        ops.set(ActivationGradient { act }, [x, replaced], [dx_in_place]);
        let done = ops.run()?;
        // A sum is rounded once, and then exact.
        let of_sum = if smooth { SMOOTH } else { of_product.max(1e-7) };
        Ok(vec![
            done.output(copy, "copy", tolerance)?,
            done.output(scaled, "scaled copy", 3e-7)?,
            done.output(y, "y", if smooth { SMOOTH } else { of_product })?,
            done.output(sum, "sum", of_sum)?,
            done.output(sum_in_place, "sum in place", of_sum)?,
            done.output(dx, "dx", if smooth { SMOOTH } else { of_product })?,
            done.output(dx_in_place, "dx in place", if smooth { SMOOTH } else { of_product })?,
        ])
    }
}

/// Sizes and places at random.
#[cfg(feature = "random")]
pub fn any_shape(subject: &Subject) {
    let sizes = (0..5_usize, 1..20_usize, 1..20_usize, 1..40_usize);
    let cases = (sizes, placement(), placement(), write_mode(), activation());
    let case = |((n, h, w, c), from, to, mode, act)| {
        let shape = Shape::new(n, h, w, c);
        Elementwise { shape, from, to, mode, act }
    };
    subject.agree_on(64, cases.prop_map(case));
}

/// Tensors of many blocks, whose pixels wide loads can read.
pub fn large_tensors(subject: &Subject) {
    for (from, to, act) in [
        (ALONE, ALONE, Activation::Relu),
        (WIDE_SLICE, ALONE, Activation::None),
        (ALONE, WIDE_SLICE, Activation::Gelu),
    ] {
        let shape = subject.fit(Shape::new(2, 32, 32, 96), 16 * 96);
        subject.agree(&Elementwise { shape, from, to, mode: Write::Set, act });
        subject.agree(&Elementwise { shape, from: to, to: from, mode: Write::Add, act });
    }
}

/// NaNs in the output of an activation, and in its gradient.
#[derive(Debug)]
struct Nan;

impl Case for Nan {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (shape, act) = (Shape::vectors(1, 24), Activation::Relu);
        let mut ops = bench.ops(1, ALONE);
        let x = Operand::constant(-1.0, shape, ALONE).with(1, f32::NAN).with(2, 1.0);
        let dy = Operand::constant(2.0, shape, ALONE).with(5, f32::NAN).with(2, f32::NAN);
        let summand = Operand::constant(-1.0, shape, ALONE).with(0, 3.0);
        let [x, dy, summand] = [x, dy, summand].map(|operand| ops.tensor(&operand));
        let [y, dx, sum] = ["y", "dx", "sum"].map(|name| ops.draw(name, shape));
        ops.set(Activate { act }, [x], [y]);
        ops.set(ActivationGradient { act }, [y, dy], [dx]);
        ops.set(Add { act }, [x, summand], [sum]);
        let done = ops.run()?;
        let (y, dx) = (done.output(y, "y", 0.0)?, done.output(dx, "dx", 0.0)?);
        let sum = done.output(sum, "sum", 0.0)?;
        assert!(y.values[1].is_nan() && y.values[2] == 1.0, "{y:?}");
        assert!(sum.values[1].is_nan() && sum.values[0] == 2.0 && sum.values[3] == 0.0, "{sum:?}");
        assert!(dx.values[1] == 2.0 && dx.values[2].is_nan() && dx.values[0] == 0.0, "{dx:?}");
        Ok(vec![y, sum, dx])
    }
}

/// A NaN comes through an activation and back, so that a diverged run is seen.
pub fn nan_stays(subject: &Subject) {
    subject.agree(&Nan);
}
