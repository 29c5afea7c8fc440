//! Pooling on the emulated GPU against the f64 reference.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

use crate::harness::*;
use program::{Backend, Error, Pad, Pool2d, Precision, Result, Shape, Write};

#[derive(Debug)]
struct Windows {
    pool: Pool2d,
    shape: Shape,
    place: Placement,
    write: Write,
    /// What some elements are instead of their numbers.
    odd: Option<f32>,
}

impl Case for Windows {
    fn run<B: Backend>(&self, device: &B, precision: Precision) -> Result<Vec<Output>> {
        let (pool, shape) = (&self.pool, self.pool.output(self.shape)?);
        // Coarse numbers: many windows have several largest elements.
        let mut x = Operand::coarse("x", self.shape, self.place);
        if let Some(odd) = self.odd {
            let mut rng = draws("odd");
            x.values.iter_mut().filter(|_| rng.below(3) == 0).for_each(|x| *x = odd);
        }
        let x = x.on(device, precision)?;
        let dy = Operand::draw("dy", shape, self.place).on(device, precision)?;
        let mut y = Operand::draw("y", shape, self.place).on(device, precision)?;
        let mut dx = Operand::draw("dx", self.shape, self.place).on(device, precision)?;
        device.maxpool_fwd(pool, x.view(), y.view_mut())?;
        let mut outputs = vec![y.output(device, "y of max", 0.0)?];
        device.maxpool_bwd(pool, x.view(), y.view(), dy.view(), dx.view_mut(), self.write)?;
        outputs.push(dx.output(device, "dx of max", 1e-6)?);
        device.avgpool_fwd(pool, x.view(), y.view_mut())?;
        outputs.push(y.output(device, "y of average", 1e-6)?);
        // Again from the first numbers: the sums above are rounded.
        let mut dx = Operand::draw("dx", self.shape, self.place).on(device, precision)?;
        device.avgpool_bwd(pool, dy.view(), dx.view_mut(), self.write)?;
        outputs.push(dx.output(device, "dx of average", 1e-6)?);
        Ok(outputs)
    }
}

fn square(kernel: usize, stride: usize, pad: Pad) -> Pool2d {
    Pool2d { kernel: [kernel; 2], stride: [stride; 2], pad }
}

#[test]
fn layers_of_real_networks() {
    let valid = |kernel, stride| square(kernel, stride, Pad::VALID);
    for (pool, shape) in [
        (valid(3, 2), Shape::new(1, 32, 32, 80)),
        (valid(3, 2), Shape::new(2, 15, 15, 48)),
        (valid(7, 1), Shape::new(3, 7, 7, 336)),
        (valid(2, 2), Shape::new(2, 30, 30, 32)),
        (valid(2, 2), Shape::new(3, 13, 13, 64)),
        (square(3, 2, Pad::same(32, 32, [3; 2], [2; 2])), Shape::new(1, 32, 32, 16)),
    ] {
        for (place, write) in [(PLACEMENTS[0], Write::Set), (PLACEMENTS[1], Write::Add)] {
            agree(&Windows { pool, shape, place, write, odd: None });
        }
    }
}

#[test]
fn any_window() {
    let mut rng = draws("any_window");
    let devices = PRECISIONS.map(emulated);
    let mut done = 0;
    while done < 80 {
        let mut below = |n: usize| between(&mut rng, 0, n - 1);
        let shape =
            Shape::new(below(4), 1 + below(12), 1 + below(12), [1 + below(20), 8 * (1 + below(5))][below(2)]);
        let kernel = [1 + below(5), 1 + below(5)];
        let stride = [1 + below(4), 1 + below(4)];
        let pad = Pad { top: below(3), bottom: below(3), left: below(3), right: below(3) };
        let odd = [None, Some(f32::NAN), Some(f32::NEG_INFINITY), Some(f32::INFINITY)][below(8).min(3)];
        let case = Windows {
            pool: Pool2d { kernel, stride, pad },
            shape,
            place: PLACEMENTS[below(3)],
            write: [Write::Set, Write::Add][below(2)],
            odd: odd.filter(|_| below(2) == 0),
        };
        if case.pool.output(shape).is_ok() {
            devices.iter().for_each(|cuda| agree_on(cuda, &case));
            done += 1;
        }
    }
}

/// A NaN must come out, so that a diverged run is seen; and its gradient goes to the first of them.
#[test]
fn nan_wins_a_maximum() {
    for (kernel, stride) in [(2, 1), (2, 2), (3, 2)] {
        for odd in [f32::NAN, f32::NEG_INFINITY] {
            let (pool, shape) = (square(kernel, stride, Pad::VALID), Shape::new(2, 7, 7, 16));
            agree(&Windows { pool, shape, place: PLACEMENTS[0], write: Write::Set, odd: Some(odd) });
        }
    }
}

/// A winner of overlapping windows is kept as 16 bits.
#[test]
fn enormous_windows_that_overlap_are_refused() {
    let (pool, shape) = (square(260, 1, Pad::VALID), Shape::new(1, 260, 261, 1));
    let cuda = emulated(Precision::Fp32);
    let tensor = |shape| Operand::draw("x", shape, PLACEMENTS[0]).on(&cuda, Precision::Fp32).unwrap();
    let (x, mut dx) = (tensor(shape), tensor(shape));
    let y = tensor(pool.output(shape).unwrap());
    let result = cuda.maxpool_bwd(&pool, x.view(), y.view(), y.view(), dx.view_mut(), Write::Set);
    assert!(matches!(result, Err(Error::Value { op: "maxpool_bwd", .. })), "{result:?}");
}
