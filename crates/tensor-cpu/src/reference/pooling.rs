use super::operand::{Input, Output, put};
use super::window::{Window, pixels};
use towers_program::{Pool2d, Shape, Write};

/// The place of the largest number of channel `c` under the window of output `(i, j)`, the first among equals. NaN counts
/// as larger than any number.
fn largest(pool: &Pool2d, x: Input, (n, i, j): (usize, usize, usize), c: usize) -> Option<(usize, usize)> {
    let mut best: Option<(f64, usize, usize)> = None;
    for (_, row, column) in Window::from(pool).pixels(x.shape(), i, j) {
        let value = x.pixel(n, row, column)[c];
        if best.is_none_or(|(best, ..)| value > best || (value.is_nan() && !best.is_nan())) {
            best = Some((value, row, column));
        }
    }
    best.map(|(_, row, column)| (row, column))
}

pub(crate) fn max_forward(pool: &Pool2d, x: Input, mut y: Output) {
    for (n, i, j) in pixels(y.shape()) {
        for c in 0..x.shape().c {
            if let Some((row, column)) = largest(pool, x, (n, i, j), c) {
                y.pixel(n, i, j)[c] = x.pixel(n, row, column)[c];
            }
        }
    }
}

pub(crate) fn max_backward(pool: &Pool2d, x: Input, dy: Input, mut dx: Output, mode: Write) {
    dx.begin(mode);
    for (n, i, j) in pixels(dy.shape()) {
        for c in 0..x.shape().c {
            if let Some((row, column)) = largest(pool, x, (n, i, j), c) {
                put(&mut dx.pixel(n, row, column)[c], dy.pixel(n, i, j)[c], Write::Add);
            }
        }
    }
}

/// The number of places of a window that lie in the image or in the padding that counts.
fn counted(pool: &Pool2d, x: Shape, i: usize, j: usize) -> f64 {
    let Pool2d { kernel, stride, pad, counted } = pool;
    let rows = (i * stride[0]..i * stride[0] + kernel[0])
        .filter(|row| (pad.top - counted.top..pad.top + x.h + counted.bottom).contains(row));
    let columns = (j * stride[1]..j * stride[1] + kernel[1])
        .filter(|column| (pad.left - counted.left..pad.left + x.w + counted.right).contains(column));
    (rows.count() * columns.count()) as f64
}

pub(crate) fn average_forward(pool: &Pool2d, x: Input, mut y: Output) {
    for (n, i, j) in pixels(y.shape()) {
        let window = || Window::from(pool).pixels(x.shape(), i, j);
        let count = counted(pool, x.shape(), i, j);
        for c in 0..x.shape().c {
            let sum = window().map(|(_, row, column)| x.pixel(n, row, column)[c]).sum::<f64>();
            y.pixel(n, i, j)[c] = sum / count;
        }
    }
}

pub(crate) fn average_backward(pool: &Pool2d, dy: Input, mut dx: Output, mode: Write) {
    dx.begin(mode);
    let shape = dx.shape();
    for (n, i, j) in pixels(dy.shape()) {
        let count = counted(pool, shape, i, j);
        for (_, row, column) in Window::from(pool).pixels(shape, i, j) {
            let (dx, dy) = (dx.pixel(n, row, column), dy.pixel(n, i, j));
            dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx += dy / count);
        }
    }
}
