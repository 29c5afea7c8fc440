use super::operand::{Input, Output, put};
use towers_program::Write;

pub(crate) fn forward(x: Input, slopes: &[f64], mut y: Output) {
    for row in 0..x.shape().rows() {
        for ((y, &x), &slope) in y.row(row).iter_mut().zip(x.row(row)).zip(slopes) {
            *y = if x < 0.0 { slope * x } else { x };
        }
    }
}

pub(crate) fn input_gradient(x: Input, slopes: &[f64], dy: Input, mut dx: Output, mode: Write) {
    for row in 0..x.shape().rows() {
        for (k, dx) in dx.row(row).iter_mut().enumerate() {
            let (x, dy) = (x.row(row)[k], dy.row(row)[k]);
            put(dx, if x <= 0.0 { slopes[k] * dy } else { dy }, mode);
        }
    }
}

pub(crate) fn slope_gradient(x: Input, dy: Input, dslopes: &mut [f64]) {
    dslopes.fill(0.0);
    for row in 0..x.shape().rows() {
        for ((sum, &x), &dy) in dslopes.iter_mut().zip(x.row(row)).zip(dy.row(row)) {
            *sum += if x < 0.0 { x * dy } else { 0.0 };
        }
    }
}
