//! Copies and activations.

use crate::operand::*;
use crate::{Bench, Case, Output, Subject};
use program::{Activation, Backend, Result, Shape, Write};
use proptest::prelude::*;

/// GELU's bell and its tail, relative to the largest.
const GELU: f32 = 1e-6;

/// Activations and copies.
#[derive(Clone, Debug)]
struct Elementwise {
    shape: Shape,
    from: Placement,
    to: Placement,
    mode: Write,
    act: Activation,
}

impl Case for Elementwise {
    fn run<B: Backend>(&self, bench: &Bench<B>) -> Result<Vec<Output>> {
        let device = bench.device;
        // What is not added to anything is exact.
        let tolerance = if self.mode == Write::Set { 0.0 } else { 1e-7 };
        let gradient = if self.act == Activation::Gelu { GELU } else { tolerance };
        let to = Operand::draw("to", self.shape, self.to);
        let from = Operand::coarse("from", self.shape, self.from).on(bench)?;
        let mut outputs = Vec::new();
        let mut y = to.on(bench)?;
        device.copy(from.view(), y.view_mut(), self.mode)?;
        outputs.push(y.output(bench, "copy", tolerance)?);
        let mut y = to.on(bench)?;
        device.copy_scaled(0.3, from.view(), y.view_mut(), self.mode)?;
        outputs.push(y.output(bench, "scaled copy", 3e-7)?);
        let mut y = to.on(bench)?;
        device.act_fwd(self.act, from.view(), y.view_mut())?;
        outputs.push(y.output(bench, "y", if self.act == Activation::Gelu { GELU } else { 0.0 })?);
        // The sum is rounded once, and then exact.
        let mut y = to.on(bench)?;
        device.add_act(self.act, from.view(), y.view_mut())?;
        outputs.push(y.output(bench, "sum", if self.act == Activation::Gelu { GELU } else { 1e-7 })?);
        let (dy, mut dx) = (Operand::draw("dy", self.shape, self.to).on(bench)?, to.on(bench)?);
        device.act_bwd(self.act, from.view(), dy.view(), dx.view_mut(), self.mode)?;
        outputs.push(dx.output(bench, "dx", gradient)?);
        device.act_bwd_in_place(self.act, from.view(), dx.view_mut())?;
        outputs.push(dx.output(bench, "dx in place", gradient)?);
        Ok(outputs)
    }
}

/// Sizes and places at random.
pub fn any_shape<B: Backend>(subject: &Subject<B>) {
    let sizes = (0..5_usize, 1..20_usize, 1..20_usize, 1..40_usize);
    let cases = (sizes, placement(), placement(), write_mode(), activation());
    let case = |((n, h, w, c), from, to, mode, act)| {
        let shape = Shape::new(n, h, w, c);
        Elementwise { shape, from, to, mode, act }
    };
    subject.agree_on(64, cases.prop_map(case));
}

/// Tensors of many blocks, whose pixels wide loads can read.
pub fn large_tensors<B: Backend>(subject: &Subject<B>) {
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
    fn run<B: Backend>(&self, bench: &Bench<B>) -> Result<Vec<Output>> {
        let shape = Shape::vectors(1, 24);
        let x = Operand::constant(-1.0, shape, ALONE).with(1, f32::NAN).with(2, 1.0).on(bench)?;
        let dy = Operand::constant(2.0, shape, ALONE).with(5, f32::NAN).with(2, f32::NAN).on(bench)?;
        let (mut y, mut dx) =
            (Operand::draw("y", shape, ALONE).on(bench)?, Operand::draw("dx", shape, ALONE).on(bench)?);
        bench.device.act_fwd(Activation::Relu, x.view(), y.view_mut())?;
        bench.device.act_bwd(Activation::Relu, y.view(), dy.view(), dx.view_mut(), Write::Set)?;
        let mut sum = Operand::constant(-1.0, shape, ALONE).with(0, 3.0).on(bench)?;
        bench.device.add_act(Activation::Relu, x.view(), sum.view_mut())?;
        let (y, dx) = (y.output(bench, "y", 0.0)?, dx.output(bench, "dx", 0.0)?);
        let sum = sum.output(bench, "sum", 0.0)?;
        assert!(y.values[1].is_nan() && y.values[2] == 1.0, "{y:?}");
        assert!(sum.values[1].is_nan() && sum.values[0] == 2.0 && sum.values[3] == 0.0, "{sum:?}");
        assert!(dx.values[1] == 2.0 && dx.values[2].is_nan() && dx.values[0] == 0.0, "{dx:?}");
        Ok(vec![y, sum, dx])
    }
}

/// A NaN comes through an activation and back, so that a diverged run is seen.
pub fn nan_stays<B: Backend>(subject: &Subject<B>) {
    subject.agree(&Nan);
}
