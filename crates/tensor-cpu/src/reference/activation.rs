use super::operand::{Input, Output, put};
use towers_program::{Activation, Write};

/// The activation of one number. NaN stays NaN, so that a diverged run is seen.
pub(crate) fn act(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Relu | Activation::BoundedRelu(_) if x < 0.0 => 0.0,
        Activation::BoundedRelu(most) if x > f64::from(most) => f64::from(most),
        Activation::LeakyRelu(slope) if x < 0.0 => f64::from(slope) * x,
        Activation::HardSigmoid(slope) => hard_sigmoid(f64::from(slope), x),
        Activation::HardSwish => x * hard_sigmoid(1.0 / 6.0, x),
        Activation::Gelu => x * below(x),
        Activation::Silu => x * logistic(x),
        Activation::Elu if x < 0.0 => x.exp_m1(),
        Activation::Sigmoid => logistic(x),
        Activation::Tanh => x.tanh(),
        Activation::Softplus => softplus(x),
        Activation::Mish => x * softplus(x).tanh(),
        Activation::None
        | Activation::Relu
        | Activation::BoundedRelu(_)
        | Activation::LeakyRelu(_)
        | Activation::Elu => x,
    }
}

/// The gradient before the activation, from the one after it and its [input or
/// output](Activation::reads_input).
pub(crate) fn act_gradient(activation: Activation, of: f64, dy: f64) -> f64 {
    match activation {
        Activation::Relu | Activation::BoundedRelu(_) if of <= 0.0 => 0.0,
        Activation::BoundedRelu(most) if of >= f64::from(most) => 0.0,
        Activation::LeakyRelu(slope) if of <= 0.0 => f64::from(slope) * dy,
        Activation::HardSigmoid(slope) => match hard_sigmoid(f64::from(slope), of) {
            0.0 | 1.0 => 0.0,
            _ => f64::from(slope) * dy,
        },
        Activation::HardSwish => match hard_sigmoid(1.0 / 6.0, of) {
            bound @ (0.0 | 1.0) => bound * dy,
            _ => (of / 3.0 + 0.5) * dy,
        },
        Activation::Gelu => dy * (below(of) + of * density(of)),
        Activation::Silu => dy * logistic(of) * (1.0 + of * logistic(-of)),
        Activation::Elu if of < 0.0 => dy * of.exp(),
        Activation::Sigmoid => dy * logistic(of) * logistic(-of),
        Activation::Tanh => dy * (1.0 - of.tanh().powi(2)),
        Activation::Softplus => dy * logistic(of),
        Activation::Mish => {
            let rest = softplus(of).cosh().powi(-2);
            dy * (softplus(of).tanh() + if rest > 0.0 { of * rest * logistic(of) } else { 0.0 })
        }
        Activation::None
        | Activation::Relu
        | Activation::BoundedRelu(_)
        | Activation::LeakyRelu(_)
        | Activation::Elu => dy,
    }
}

/// A NaN stays one.
fn hard_sigmoid(slope: f64, x: f64) -> f64 {
    (slope * x + 0.5).clamp(0.0, 1.0)
}

fn softplus(x: f64) -> f64 {
    if x.is_nan() { x } else { x.max(0.0) + (-x.abs()).exp().ln_1p() }
}

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The density of the standard normal distribution.
fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * core::f64::consts::PI).sqrt()
}

/// What of the standard normal distribution lies below `x`: `1/2 + density (x + x^3 / 3 + x^5 / (3 * 5) + ...)`, whose terms have one
/// sign (G. Marsaglia, "Evaluating the normal distribution", 2004).
fn below(x: f64) -> f64 {
    if x.abs() > 9.0 {
        return if x < 0.0 { 0.0 } else { 1.0 };
    }
    let (mut sum, mut term, mut odd) = (x, x, 1.0);
    loop {
        odd += 2.0;
        term *= x * x / odd;
        let longer = sum + term;
        // A NaN equals nothing.
        if longer == sum || longer.is_nan() {
            return 0.5 + density(x) * longer;
        }
        sum = longer;
    }
}

pub(crate) fn forward(activation: Activation, x: Input, mut y: Output) {
    for row in 0..x.shape().rows() {
        y.row(row).iter_mut().zip(x.row(row)).for_each(|(y, &x)| *y = act(activation, x));
    }
}

pub(crate) fn add_forward(activation: Activation, x: Input, mut y: Output) {
    for row in 0..x.shape().rows() {
        y.row(row).iter_mut().zip(x.row(row)).for_each(|(y, &x)| *y = act(activation, *y + x));
    }
}

pub(crate) fn backward(activation: Activation, y: Input, dy: Input, mut dx: Output, mode: Write) {
    for row in 0..y.shape().rows() {
        for ((dx, &dy), &y) in dx.row(row).iter_mut().zip(dy.row(row)).zip(y.row(row)) {
            put(dx, act_gradient(activation, y, dy), mode);
        }
    }
}
