use super::operand::{Input, Output, put};
use tensor_backend::{Activation, Write};

/// The activation of one number. NaN stays NaN, so that a diverged run is seen.
pub(super) fn act(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Relu if x < 0.0 => 0.0,
        _ => x,
    }
}

/// The gradient before the activation, from the one after it and the activation's output `y`.
pub(super) fn act_gradient(activation: Activation, y: f64, dy: f64) -> f64 {
    match activation {
        Activation::Relu if y <= 0.0 => 0.0,
        _ => dy,
    }
}

pub(super) fn forward(activation: Activation, x: Input, mut y: Output) {
    for row in 0..x.shape().rows() {
        y.row(row).iter_mut().zip(x.row(row)).for_each(|(y, &x)| *y = act(activation, x));
    }
}

pub(super) fn add_forward(activation: Activation, x: Input, mut y: Output) {
    for row in 0..x.shape().rows() {
        y.row(row).iter_mut().zip(x.row(row)).for_each(|(y, &x)| *y = act(activation, *y + x));
    }
}

pub(super) fn backward(activation: Activation, y: Input, dy: Input, mut dx: Output, mode: Write) {
    for row in 0..y.shape().rows() {
        for ((dx, &dy), &y) in dx.row(row).iter_mut().zip(dy.row(row)).zip(y.row(row)) {
            put(dx, act_gradient(activation, y, dy), mode);
        }
    }
}

pub(super) fn backward_in_place(activation: Activation, y: Input, mut dy: Output) {
    for row in 0..y.shape().rows() {
        for (dy, &y) in dy.row(row).iter_mut().zip(y.row(row)) {
            *dy = act_gradient(activation, y, *dy);
        }
    }
}
