use super::operand::{Input, Output, put};
use towers_program::Write;

pub(crate) fn shuffle(groups: usize, x: Input, mut y: Output, mode: Write) {
    for row in 0..x.shape().rows() {
        let x = x.row(row);
        for (k, y) in y.row(row).iter_mut().enumerate() {
            put(y, x[k % groups * (x.len() / groups) + k / groups], mode);
        }
    }
}

pub(crate) fn widen(from: usize, x: Input, mut y: Output, mode: Write) {
    y.begin(mode);
    for row in 0..x.shape().rows() {
        let x = x.row(row);
        y.row(row)[from..from + x.len()].iter_mut().zip(x).for_each(|(y, x)| *y += x);
    }
}
