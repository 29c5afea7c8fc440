//! Pooling: forward passes run in parallel over rows of output pixels, backward passes, whose windows may overlap, over
//! samples.

use crate::Cpu;
use crate::dispatch::multiversion;
use crate::rows::{Rows, RowsMut};
use core::ops::Range;
use tensor_backend::{Pool2d, Shape, View, ViewMut, Write};

/// The lanes of the widest vector.
const LANES: usize = 16;

/// The windows of a pooling op on images of `x.h * x.w` pixels, `y.h * y.w` of them an image.
#[derive(Clone, Copy)]
struct Windows {
    pool: Pool2d,
    x: Shape,
    y: Shape,
}

impl Windows {
    /// The part of the window of output pixel `(i, j)` that lies inside the image: its rows and columns.
    #[inline(always)]
    fn inside(self, i: usize, j: usize) -> (Range<usize>, Range<usize>) {
        let along = |k: usize, axis: usize, before: usize, size: usize| {
            let start = k * self.pool.stride[axis];
            start.saturating_sub(before)..(start + self.pool.kernel[axis]).saturating_sub(before).min(size)
        };
        let pad = self.pool.pad;
        (along(i, 0, pad.top, self.x.h), along(j, 1, pad.left, self.x.w))
    }

    /// The pixels of a window, in row-major order, by their places among all rows of the input.
    #[inline(always)]
    fn pixels(self, sample: usize, i: usize, j: usize) -> impl Iterator<Item = usize> {
        let (rows, columns) = self.inside(i, j);
        rows.flat_map(move |row| columns.clone().map(move |column| self.input(sample, row, column)))
    }

    /// The place of an input pixel among all rows of the input.
    #[inline(always)]
    fn input(self, sample: usize, row: usize, column: usize) -> usize {
        (sample * self.x.h + row) * self.x.w + column
    }

    /// One over the number of pixels in a window.
    #[inline(always)]
    fn weight(self, i: usize, j: usize) -> f32 {
        let (rows, columns) = self.inside(i, j);
        1.0 / (rows.len() * columns.len()).max(1) as f32
    }

    /// The place of output pixel `(i, j)` among all rows of the output.
    #[inline(always)]
    fn output(self, sample: usize, i: usize, j: usize) -> usize {
        (sample * self.y.h + i) * self.y.w + j
    }
}

pub(crate) fn max_forward(cpu: &Cpu, pool: &Pool2d, x: View<[f32]>, y: ViewMut<[f32]>) {
    let windows = Windows { pool: *pool, x: x.layout.shape, y: y.layout.shape };
    let (x, y) = (Rows::new(x), RowsMut::new(y));
    if x.count() > 0 {
        cpu.pool().run(windows.y.n * windows.y.h, &|task| max_row(windows, x, y, task));
    }
}

multiversion! {
    /// The row `line` of output pixels, of all `n * h`.
    fn max_row(windows: Windows, x: Rows, y: RowsMut, line: usize) {
        let (sample, i) = (line / windows.y.h, line % windows.y.h);
        for j in 0..windows.y.w {
            on_lanes(x.width(), MaxForward { windows, x, y, at: (sample, i, j) });
        }
    }
}

/// The maximum of one window.
struct MaxForward<'a> {
    windows: Windows,
    x: Rows<'a>,
    y: RowsMut<'a>,
    at: (usize, usize, usize),
}

impl OnLanes for MaxForward<'_> {
    #[inline(always)]
    fn run<const N: usize>(&self, channel: usize) {
        let (sample, i, j) = self.at;
        let (rows, columns) = self.windows.inside(i, j);
        let mut largest = [f32::NEG_INFINITY; N];
        for row in rows {
            for column in columns.clone() {
                let x: [f32; N] = load(self.x.row(self.windows.input(sample, row, column)), channel);
                for k in 0..N {
                    // A NaN wins, and stays.
                    largest[k] = if (x[k] > largest[k]) | x[k].is_nan() { x[k] } else { largest[k] };
                }
            }
        }
        // SAFETY: each task has pixels of its own.
        let y = unsafe { self.y.row(self.windows.output(sample, i, j)) };
        y[channel..channel + N].copy_from_slice(&largest);
    }
}

pub(crate) fn max_backward(
    cpu: &Cpu,
    pool: &Pool2d,
    x: View<[f32]>,
    y: View<[f32]>,
    dy: View<[f32]>,
    dx: ViewMut<[f32]>,
    mode: Write,
) {
    let windows = Windows { pool: *pool, x: x.layout.shape, y: y.layout.shape };
    let (x, y, dy, dx) = (Rows::new(x), Rows::new(y), Rows::new(dy), RowsMut::new(dx));
    if x.count() > 0 {
        cpu.pool().run(windows.x.n, &|sample| max_sample(windows, x, y, dy, dx, mode, sample));
    }
}

multiversion! {
    fn max_sample(windows: Windows, x: Rows, y: Rows, dy: Rows, dx: RowsMut, mode: Write, sample: usize) {
        begin(windows, dx, mode, sample);
        for i in 0..windows.y.h {
            for j in 0..windows.y.w {
                on_lanes(x.width(), MaxBackward { windows, x, y, dy, dx, at: (sample, i, j) });
            }
        }
    }
}

/// Hands the gradients of one output pixel to the pixels of its window.
struct MaxBackward<'a> {
    windows: Windows,
    x: Rows<'a>,
    y: Rows<'a>,
    dy: Rows<'a>,
    dx: RowsMut<'a>,
    at: (usize, usize, usize),
}

impl OnLanes for MaxBackward<'_> {
    #[inline(always)]
    fn run<const N: usize>(&self, channel: usize) {
        let (sample, i, j) = self.at;
        let output = self.windows.output(sample, i, j);
        let largest: [f32; N] = load(self.y.row(output), channel);
        // The gradients that no pixel has taken yet stay in registers.
        let mut rest: [f32; N] = load(self.dy.row(output), channel);
        let (rows, columns) = self.windows.inside(i, j);
        for row in rows {
            for column in columns.clone() {
                let pixel = self.windows.input(sample, row, column);
                // SAFETY: each task has a sample of its own, and lends one pixel at a time.
                let dx = unsafe { self.dx.row(pixel) };
                let (x, mut sums): ([f32; N], [f32; N]) =
                    (load(self.x.row(pixel), channel), load(dx, channel));
                for k in 0..N {
                    // Where the largest is NaN the first NaN is it; elsewhere there is none. Masks of bits keep the
                    // compiler from masked stores, whose results could not be read back at once.
                    let wins = u32::from((x[k] == largest[k]) | x[k].is_nan()).wrapping_neg();
                    sums[k] += f32::from_bits(rest[k].to_bits() & wins);
                    rest[k] = f32::from_bits(rest[k].to_bits() & !wins);
                }
                dx[channel..channel + N].copy_from_slice(&sums);
            }
        }
    }
}

/// Work on the channels of one window, `N` of them from `channel` on.
trait OnLanes {
    fn run<const N: usize>(&self, channel: usize);
}

/// Does the work on all channels: several vectors at a time, then single ones, then what is left.
#[inline(always)]
fn on_lanes(channels: usize, work: impl OnLanes) {
    let mut channel = 0;
    while channels - channel >= 4 * LANES {
        work.run::<{ 4 * LANES }>(channel);
        channel += 4 * LANES;
    }
    while channels - channel >= LANES {
        work.run::<LANES>(channel);
        channel += LANES;
    }
    (channel..channels).for_each(|channel| work.run::<1>(channel));
}

#[inline(always)]
fn load<const N: usize>(row: &[f32], channel: usize) -> [f32; N] {
    let mut lanes = [0.0; N];
    lanes.copy_from_slice(&row[channel..channel + N]);
    lanes
}

/// Makes ready for contributions that arrive one by one: to "set" is to add to zeros.
#[inline(always)]
fn begin(windows: Windows, dx: RowsMut, mode: Write, sample: usize) {
    if mode == Write::Set {
        let pixels = windows.x.h * windows.x.w;
        for pixel in sample * pixels..(sample + 1) * pixels {
            // SAFETY: each task has a sample of its own, and lends one pixel at a time.
            unsafe { dx.row(pixel) }.fill(0.0);
        }
    }
}

pub(crate) fn average_forward(cpu: &Cpu, pool: &Pool2d, x: View<[f32]>, y: ViewMut<[f32]>) {
    let windows = Windows { pool: *pool, x: x.layout.shape, y: y.layout.shape };
    let (x, y) = (Rows::new(x), RowsMut::new(y));
    if x.width() > 0 {
        cpu.pool().run(windows.y.n * windows.y.h, &|task| average_row(windows, x, y, task));
    }
}

multiversion! {
    /// The row `line` of output pixels, of all `n * h`.
    fn average_row(windows: Windows, x: Rows, y: RowsMut, line: usize) {
        let (sample, i) = (line / windows.y.h, line % windows.y.h);
        for j in 0..windows.y.w {
            // SAFETY: each task has pixels of its own.
            let y = unsafe { y.row(windows.output(sample, i, j)) };
            y.fill(0.0);
            for pixel in windows.pixels(sample, i, j) {
                y.iter_mut().zip(x.row(pixel)).for_each(|(y, x)| *y += x);
            }
            let weight = windows.weight(i, j);
            y.iter_mut().for_each(|y| *y *= weight);
        }
    }
}

pub(crate) fn average_backward(cpu: &Cpu, pool: &Pool2d, dy: View<[f32]>, dx: ViewMut<[f32]>, mode: Write) {
    let windows = Windows { pool: *pool, x: dx.layout.shape, y: dy.layout.shape };
    let (dy, dx) = (Rows::new(dy), RowsMut::new(dx));
    if dy.count() > 0 {
        cpu.pool().run(windows.x.n, &|sample| average_sample(windows, dy, dx, mode, sample));
    }
}

multiversion! {
    fn average_sample(windows: Windows, dy: Rows, dx: RowsMut, mode: Write, sample: usize) {
        begin(windows, dx, mode, sample);
        for i in 0..windows.y.h {
            for j in 0..windows.y.w {
                let (dy, weight) = (dy.row(windows.output(sample, i, j)), windows.weight(i, j));
                for pixel in windows.pixels(sample, i, j) {
                    // SAFETY: each task has a sample of its own, and lends one pixel at a time.
                    let dx = unsafe { dx.row(pixel) };
                    dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx += dy * weight);
                }
            }
        }
    }
}
