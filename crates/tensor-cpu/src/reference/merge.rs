use super::operand::{Input, Output, put};
use towers_program::Write;
use towers_program::ops::{How, Spread};

/// The number of `z` that meets channel `k` of pixel `row` of a tensor with so many pixels a sample.
fn other(z: Input, spread: Spread, pixels: usize, row: usize, k: usize) -> f64 {
    match spread {
        Spread::None => z.row(row)[k],
        Spread::Pixels => z.row(row / pixels)[k],
        Spread::Channels => z.row(row)[0],
    }
}

pub(crate) fn forward(how: How, spread: Spread, x: Input, z: Input, mut y: Output, mode: Write) {
    let (shape, pixels) = (x.shape(), x.shape().h * x.shape().w);
    for row in 0..shape.rows() {
        for (k, (y, &x)) in y.row(row).iter_mut().zip(x.row(row)).enumerate() {
            let z = other(z, spread, pixels, row, k);
            put(y, if how == How::Product { x * z } else { x + z }, mode);
        }
    }
}

pub(crate) fn gradient(spread: Spread, dy: Input, x: Option<Input>, mut dz: Output, mode: Write) {
    let (shape, pixels) = (dy.shape(), dy.shape().h * dy.shape().w);
    dz.begin(mode);
    for row in 0..shape.rows() {
        for (k, &dy) in dy.row(row).iter().enumerate() {
            let product = dy * x.map_or(1.0, |x| x.row(row)[k]);
            match spread {
                Spread::None => dz.row(row)[k] += product,
                Spread::Pixels => dz.row(row / pixels)[k] += product,
                Spread::Channels => dz.row(row)[0] += product,
            }
        }
    }
}
