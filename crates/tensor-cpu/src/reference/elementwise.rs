use super::operand::{Input, Output, put};
use towers_program::{DropoutMask, Write};

pub(crate) fn copy(factor: f64, x: Input, mut y: Output, mode: Write) {
    for row in 0..x.shape().rows() {
        y.row(row).iter_mut().zip(x.row(row)).for_each(|(y, &x)| put(y, factor * x, mode));
    }
}

/// The sum of each channel over all pixels: the gradient of a bias. Empty `sums` stand for no bias.
pub(crate) fn column_sums(x: Input, sums: &mut [f64]) {
    sums.fill(0.0);
    for row in 0..x.shape().rows() {
        sums.iter_mut().zip(x.row(row)).for_each(|(sum, x)| *sum += x);
    }
}

pub(crate) fn dropout(mask: &DropoutMask, x: Input, mut y: Output, mode: Write) {
    let shape = x.shape();
    let scale = 1.0 / (1.0 - f64::from(mask.rate));
    for row in 0..shape.rows() {
        let (sample, pixel) = (row / (shape.h * shape.w), row % (shape.h * shape.w));
        for (c, (y, &x)) in y.row(row).iter_mut().zip(x.row(row)).enumerate() {
            let element = mask.element(pixel, c, shape.c);
            let word = mask.words(sample as u32, (element / 4) as u32)[element % 4];
            put(y, if word < mask.threshold() { 0.0 } else { x * scale }, mode);
        }
    }
}
