use super::activation::act;
use super::operand::{Input, Output, put};
use towers_program::{Activation, Linear, Write};

pub(crate) fn forward(
    linear: &Linear,
    activation: Activation,
    x: Input,
    w: &[f64],
    b: Option<&[f64]>,
    mut y: Output,
) {
    for n in 0..x.shape().n {
        for (k, y) in y.row(n).iter_mut().enumerate() {
            let bias = b.map_or(0.0, |b| b[k]);
            let sum = x.row(n).iter().enumerate().map(|(c, x)| x * w[c * linear.outputs + k]).sum::<f64>();
            *y = act(activation, sum + bias);
        }
    }
}

pub(crate) fn backward_data(linear: &Linear, dy: Input, w: &[f64], mut dx: Output, mode: Write) {
    for n in 0..dy.shape().n {
        for (c, dx) in dx.row(n).iter_mut().enumerate() {
            let w = &w[c * linear.outputs..][..linear.outputs];
            put(dx, dy.row(n).iter().zip(w).map(|(dy, w)| dy * w).sum(), mode);
        }
    }
}

pub(crate) fn backward_filter(linear: &Linear, x: Input, dy: Input, dw: &mut [f64]) {
    dw.fill(0.0);
    for n in 0..x.shape().n {
        for (c, x) in x.row(n).iter().enumerate() {
            let dw = &mut dw[c * linear.outputs..][..linear.outputs];
            dw.iter_mut().zip(dy.row(n)).for_each(|(dw, dy)| *dw += x * dy);
        }
    }
}
