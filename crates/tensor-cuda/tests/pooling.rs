//! Pooling on the emulated GPU: sizes at which the kernels take other ways, and numbers that are none.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

use crate::harness::*;
use towers_conformance::pooling::Pooling;
use towers_conformance::{ALONE, Placement};
use towers_program::ops::MaxPoolGradient;
use towers_program::{Error, Layout, Pad, Pool2d, Precision, Shape, StepArgs, Trial, Write};

fn square(kernel: usize, stride: usize, pad: Pad) -> Pool2d {
    Pool2d::new([kernel; 2], [stride; 2], pad)
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
        for (place, mode) in [(ALONE, Write::Set), (Placement { before: 16, beside: 24 }, Write::Add)] {
            agree(&Pooling { pool, shape, place, mode, odd: None });
        }
    }
}

/// A NaN must come out, so that a diverged run is seen; and its gradient goes to the first of them.
#[test]
fn nan_wins_a_maximum() {
    for (kernel, stride) in [(2, 1), (2, 2), (3, 2)] {
        for odd in [f32::NAN, f32::NEG_INFINITY] {
            let (pool, shape) = (square(kernel, stride, Pad::VALID), Shape::new(2, 7, 7, 16));
            agree(&Pooling { pool, shape, place: ALONE, mode: Write::Set, odd: Some(odd) });
        }
    }
}

/// A winner of overlapping windows is kept as 16 bits.
#[test]
fn enormous_windows_that_overlap_are_refused() {
    let (pool, shape) = (square(260, 1, Pad::VALID), Shape::new(1, 260, 261, 1));
    let (cuda, of_y, mut trial) = (emulated(Precision::Fp32), pool.output(shape).unwrap(), Trial::new(1));
    let [x, y, dy, dx] =
        [shape, of_y, of_y, shape].map(|shape| trial.activations(Layout::contiguous(shape), &[]));
    trial.step(MaxPoolGradient { pool }, &[x, y, dy], &[dx], Write::Set);
    let result = trial.on(&cuda).and_then(|mut run| run.run(&StepArgs::inference(1)));
    assert!(matches!(result, Err(Error::Value { .. })), "{result:?}");
}
