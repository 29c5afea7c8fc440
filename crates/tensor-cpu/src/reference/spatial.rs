//! Ops that change the number of rows and columns, without windows.

use super::operand::{Input, Output, put};
use super::window::pixels;
use towers_program::Write;
use towers_program::ops::{Upsample, ZeroPad};

pub(crate) fn zero_pad(pad: &ZeroPad, x: Input, mut y: Output, mode: Write) {
    let place = |at: usize, before: i64, size: usize| {
        usize::try_from(at as i64 - before).ok().filter(|&place| place < size)
    };
    for (n, i, j) in pixels(y.shape()) {
        let (row, column) = (place(i, pad.top, x.shape().h), place(j, pad.left, x.shape().w));
        for c in 0..x.shape().c {
            let value = row.zip(column).map_or(0.0, |(row, column)| x.pixel(n, row, column)[c]);
            put(&mut y.pixel(n, i, j)[c], value, mode);
        }
    }
}

/// Input pixels of an axis with their weights in output pixel `i`.
fn taps(op: &Upsample, axis: usize, i: usize, size: usize) -> Vec<(usize, f64)> {
    let by = op.by[axis];
    if !op.bilinear {
        return vec![(i / by, 1.0)];
    }
    let last = (size - 1) as f64;
    let place = ((i as f64 + 0.5) / by as f64 - 0.5).clamp(0.0, last);
    let share = place - place.floor();
    vec![(place.floor() as usize, 1.0 - share), (place.ceil() as usize, share)]
}

/// For each output pixel and each input pixel that it is made of: both, as `(sample, row, column)`, and the weight.
fn blends(op: &Upsample, x: towers_program::Shape, mut each: impl FnMut([usize; 3], [usize; 3], f64)) {
    let y = towers_program::Shape { h: x.h * op.by[0], w: x.w * op.by[1], ..x };
    for (n, i, j) in pixels(y) {
        for (row, down) in taps(op, 0, i, x.h) {
            for (column, across) in taps(op, 1, j, x.w) {
                each([n, i, j], [n, row, column], down * across);
            }
        }
    }
}

pub(crate) fn upsample(op: &Upsample, x: Input, mut y: Output) {
    y.begin(Write::Set);
    blends(op, x.shape(), |[n, i, j], [_, row, column], weight| {
        let (y, x) = (y.pixel(n, i, j), x.pixel(n, row, column));
        y.iter_mut().zip(x).for_each(|(y, x)| *y += weight * x);
    });
}

pub(crate) fn upsample_gradient(op: &Upsample, dy: Input, mut dx: Output, mode: Write) {
    dx.begin(mode);
    blends(op, dx.shape(), |[n, i, j], [_, row, column], weight| {
        let (dx, dy) = (dx.pixel(n, row, column), dy.pixel(n, i, j));
        dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx += weight * dy);
    });
}
