//! Max and average pooling, forward and backward.

use crate::operand::*;
use crate::{Bench, Case, Output, Subject};
#[cfg(feature = "random")]
use proptest::prelude::*;
use towers_philox::{Philox, domain};
use towers_program::ops::{AveragePool, AveragePoolGradient, MaxPool, MaxPoolGradient};
use towers_program::{Pad, Pool2d, Result, Shape, Write};

/// Both kinds of pooling, forward and backward.
#[derive(Clone, Debug)]
pub struct Pooling {
    /// The windows.
    pub pool: Pool2d,
    /// Of the input.
    pub shape: Shape,
    /// Of all activations.
    pub place: Placement,
    /// How gradients are written.
    pub mode: Write,
    /// What a third of the input is instead of its numbers.
    pub odd: Option<f32>,
}

impl Case for Pooling {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (pool, shape) = (self.pool, self.pool.output(self.shape)?);
        let mut ops = bench.ops(shape.n, self.place);
        // Coarse numbers: many windows have several largest elements.
        let x = Operand::coarse("x", self.shape, self.place);
        let mut rng = Philox::new(7, domain("odd"), [0, 0]);
        let x = ops.tensor(&x.map(|x| self.odd.filter(|_| rng.below(3) == 0).unwrap_or(x)));
        let dy = ops.draw("dy", shape);
        let [largest, mean] = ["largest", "mean"].map(|name| ops.draw(name, shape));
        let [of_largest, of_mean] = ["of largest", "of mean"].map(|name| ops.draw(name, self.shape));
        ops.set(MaxPool { pool }, [x], [largest]);
        ops.write(MaxPoolGradient { pool }, [x, largest, dy], [of_largest], self.mode);
        ops.set(AveragePool { pool }, [x], [mean]);
        ops.write(AveragePoolGradient { pool, x: self.shape.with_n(1) }, [dy], [of_mean], self.mode);
        let done = ops.run()?;
        Ok(vec![
            done.output(largest, "y of max", 0.0)?,
            done.output(of_largest, "dx of max", 1e-6)?,
            done.output(mean, "y of average", 1e-6)?,
            done.output(of_mean, "dx of average", 1e-6)?,
        ])
    }
}

fn square(kernel: usize, stride: usize, pad: Pad) -> Pool2d {
    Pool2d::new([kernel; 2], [stride; 2], pad)
}

/// The shapes that training is made of.
pub fn layers_of_real_networks(subject: &Subject) {
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
        subject.agree(&Pooling { pool, shape, place: ALONE, mode: Write::Set, odd: None });
        subject.agree(&Pooling { pool, shape, place: SLICE, mode: Write::Add, odd: None });
        subject.agree(&Pooling { pool, shape, place: WIDE_SLICE, mode: Write::Add, odd: None });
    }
    // PyTorch's count_include_pad (Inception v3), and with ceil_mode.
    let around = Pad { top: 1, bottom: 1, left: 1, right: 1 };
    let counted = |stride| Pool2d { counted: around, ..square(3, stride, around) };
    let shape = subject.fit(Shape::new(2, 8, 8, 288), 1000);
    subject.agree(&Pooling { pool: counted(1), shape, place: ALONE, mode: Write::Set, odd: None });
    let pool = counted(2).ceil(shape);
    subject.agree(&Pooling { pool, shape, place: SLICE, mode: Write::Add, odd: None });
}

/// No samples: nothing is written.
pub fn an_empty_batch(subject: &Subject) {
    let (pool, shape) = (square(2, 2, Pad::VALID), Shape::new(0, 4, 4, 8));
    subject.agree(&Pooling { pool, shape, place: SLICE, mode: Write::Set, odd: None });
    subject.agree(&Pooling { pool, shape, place: ALONE, mode: Write::Add, odd: None });
}

/// A NaN among the numbers of four windows, and two in one of them.
#[derive(Debug)]
struct Nan;

impl Case for Nan {
    fn run(&self, bench: &Bench) -> Result<Vec<Output>> {
        let (of_x, of_y) = (Shape::new(1, 3, 3, 5), Shape::new(1, 2, 2, 5));
        let (pool, mut ops) = (square(2, 1, Pad::VALID), bench.ops(1, ALONE));
        // Channel 1 of the middle pixel; channel 3 of the first two.
        let x = Operand::draw("x", of_x, ALONE).with(21, f32::NAN).with(3, f32::NAN).with(8, f32::NAN);
        let (x, dy) = (ops.tensor(&x), ops.draw("dy", of_y));
        let (y, dx) = (ops.draw("y", of_y), ops.draw("dx", of_x));
        ops.set(MaxPool { pool }, [x], [y]);
        ops.set(MaxPoolGradient { pool }, [x, y, dy], [dx]);
        let done = ops.run()?;
        let (y, dx) = (done.output(y, "y", 0.0)?, done.output(dx, "dx", 1e-6)?);
        assert_eq!(y.values.iter().filter(|y| y.is_nan()).count(), 4 + 2);
        Ok(vec![y, dx])
    }
}

/// A NaN comes out of a maximum, so that a diverged run is seen, and the first of several takes the gradient.
pub fn nan_wins_a_maximum(subject: &Subject) {
    subject.agree(&Nan);
}

/// Windows, strides, paddings, sizes and places at random.
#[cfg(feature = "random")]
pub fn any_window(subject: &Subject) {
    let sizes = (0..4_usize, 1..12_usize, 1..12_usize, 1..150_usize);
    let windows =
        (prop::array::uniform2(1..5_usize), prop::array::uniform2(1..4_usize), 0..2_usize, any::<bool>());
    let pads = (0..3_usize, 0..3_usize, 0..3_usize, 0..3_usize);
    let odd = prop_oneof![
        5 => Just(None),
        1 => Just(Some(f32::NAN)),
        1 => Just(Some(f32::INFINITY)),
        1 => Just(Some(f32::NEG_INFINITY)),
    ];
    let cases = (sizes, windows, pads, placement(), write_mode(), odd);
    let case =
        |((n, h, w, c), (kernel, stride, counts, ceil), (top, bottom, left, right), place, mode, odd)| {
            let pad = Pad { top, bottom, left, right };
            let shape = Shape::new(n, h, w, c);
            let pool = Pool2d { counted: [Pad::VALID, pad][counts], ..Pool2d::new(kernel, stride, pad) };
            let pool = if ceil { pool.ceil(shape) } else { pool };
            pool.output(shape).is_ok().then_some(Pooling { pool, shape, place, mode, odd })
        };
    subject.agree_on(96, cases.prop_filter_map("every window sees a pixel", case));
}
