//! Max and average pooling, forward and backward.

use crate::operand::*;
use crate::{Bench, Case, Output, Subject};
use program::{Backend, Pad, Pool2d, Result, Shape, Write};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Pooling {
    pool: Pool2d,
    shape: Shape,
    place: Placement,
    mode: Write,
}

impl Case for Pooling {
    fn run<B: Backend>(&self, bench: &Bench<B>) -> Result<Vec<Output>> {
        let (device, pool, shape) = (bench.device, &self.pool, self.pool.output(self.shape)?);
        // Coarse numbers: many windows have several largest elements.
        let x = Operand::coarse("x", self.shape, self.place).on(bench)?;
        let dy = Operand::draw("dy", shape, self.place).on(bench)?;
        let mut y = Operand::draw("y", shape, self.place).on(bench)?;
        let mut dx = Operand::draw("dx", self.shape, self.place).on(bench)?;
        let mut outputs = Vec::new();
        device.maxpool_fwd(pool, x.view(), y.view_mut())?;
        outputs.push(y.output(bench, "y of max", 0.0)?);
        device.maxpool_bwd(pool, x.view(), y.view(), dy.view(), dx.view_mut(), self.mode)?;
        outputs.push(dx.output(bench, "dx of max", 1e-6)?);
        device.avgpool_fwd(pool, x.view(), y.view_mut())?;
        outputs.push(y.output(bench, "y of average", 1e-6)?);
        device.avgpool_bwd(pool, dy.view(), dx.view_mut(), self.mode)?;
        outputs.push(dx.output(bench, "dx of average", 1e-6)?);
        Ok(outputs)
    }
}

fn square(kernel: usize, stride: usize, pad: Pad) -> Pool2d {
    Pool2d { kernel: [kernel; 2], stride: [stride; 2], pad }
}

/// The shapes that training is made of.
pub fn layers_of_real_networks<B: Backend>(subject: &Subject<B>) {
    let valid = |kernel, stride| square(kernel, stride, Pad::VALID);
    for (pool, shape) in [
        (valid(3, 2), Shape::new(2, 32, 32, 80)),
        (valid(3, 2), Shape::new(2, 15, 15, 144)),
        (valid(7, 1), Shape::new(3, 7, 7, 336)),
        (valid(2, 2), Shape::new(3, 30, 30, 32)),
        (valid(2, 2), Shape::new(3, 13, 13, 64)),
        (square(3, 2, Pad::same(32, 32, [3; 2], [2; 2])), Shape::new(2, 32, 32, 16)),
    ] {
        let work = 4 * shape.c * pool.kernel[0].min(3);
        let shape = if pool.kernel[0] == 7 { shape } else { subject.fit(shape, work) };
        subject.agree(&Pooling { pool, shape, place: ALONE, mode: Write::Set });
        subject.agree(&Pooling { pool, shape, place: SLICE, mode: Write::Add });
        subject.agree(&Pooling { pool, shape, place: WIDE_SLICE, mode: Write::Add });
    }
}

/// No samples: nothing is written.
pub fn an_empty_batch<B: Backend>(subject: &Subject<B>) {
    let (pool, shape) = (square(2, 2, Pad::VALID), Shape::new(0, 4, 4, 8));
    subject.agree(&Pooling { pool, shape, place: SLICE, mode: Write::Set });
    subject.agree(&Pooling { pool, shape, place: ALONE, mode: Write::Add });
}

/// A NaN among the numbers of four windows, and two in one of them.
#[derive(Debug)]
struct Nan;

impl Case for Nan {
    fn run<B: Backend>(&self, bench: &Bench<B>) -> Result<Vec<Output>> {
        let (of_x, of_y) = (Shape::new(1, 3, 3, 5), Shape::new(1, 2, 2, 5));
        let pool = square(2, 1, Pad::VALID);
        // Channel 1 of the middle pixel; channel 3 of the first two.
        let x = Operand::draw("x", of_x, ALONE).with(21, f32::NAN).with(3, f32::NAN).with(8, f32::NAN);
        let (x, dy) = (x.on(bench)?, Operand::draw("dy", of_y, ALONE).on(bench)?);
        let mut y = Operand::draw("y", of_y, ALONE).on(bench)?;
        let mut dx = Operand::draw("dx", of_x, ALONE).on(bench)?;
        bench.device.maxpool_fwd(&pool, x.view(), y.view_mut())?;
        bench.device.maxpool_bwd(&pool, x.view(), y.view(), dy.view(), dx.view_mut(), Write::Set)?;
        let (y, dx) = (y.output(bench, "y", 0.0)?, dx.output(bench, "dx", 1e-6)?);
        assert_eq!(y.values.iter().filter(|y| y.is_nan()).count(), 4 + 2);
        Ok(vec![y, dx])
    }
}

/// A NaN comes out of a maximum, so that a diverged run is seen, and the first of several takes the gradient.
pub fn nan_wins_a_maximum<B: Backend>(subject: &Subject<B>) {
    subject.agree(&Nan);
}

/// Windows, strides, paddings, sizes and places at random.
pub fn any_window<B: Backend>(subject: &Subject<B>) {
    let sizes = (0..4_usize, 1..12_usize, 1..12_usize, 1..150_usize);
    let windows = (prop::array::uniform2(1..5_usize), prop::array::uniform2(1..4_usize));
    let pads = (0..3_usize, 0..3_usize, 0..3_usize, 0..3_usize);
    let cases = (sizes, windows, pads, placement(), write_mode());
    let case = |((n, h, w, c), (kernel, stride), (top, bottom, left, right), place, mode)| {
        let pool = Pool2d { kernel, stride, pad: Pad { top, bottom, left, right } };
        let shape = Shape::new(n, h, w, c);
        pool.output(shape).is_ok().then_some(Pooling { pool, shape, place, mode })
    };
    subject.agree_on(96, cases.prop_filter_map("every window sees a pixel", case));
}
