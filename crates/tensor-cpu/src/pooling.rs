//! Pooling: forward passes run in parallel over rows of output pixels, backward passes, whose windows may overlap, over
//! samples, in sums of 32 bits.

use crate::Cpu;
use crate::dispatch::multiversion;
use crate::element::{Element, put};
use crate::rows::{Rows, RowsMut};
use crate::threads::Shards;
use core::ops::Range;
use towers_program::{Pool2d, Shape, View, ViewMut, Write};

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

    /// The place of an input pixel among all rows of the input.
    #[inline(always)]
    fn input(self, sample: usize, row: usize, column: usize) -> usize {
        (sample * self.x.h + row) * self.x.w + column
    }

    /// A window's part inside of the image, by its places among all rows of the input.
    #[inline(always)]
    fn window(self, sample: usize, i: usize, j: usize) -> Window {
        let (rows, columns) = self.inside(i, j);
        let first = self.input(sample, rows.start, columns.start);
        let divisor = self.pool.divisor(self.x, i, j);
        Window {
            first,
            left: columns.start,
            rows: rows.len(),
            columns: columns.len(),
            pitch: self.x.w,
            divisor,
        }
    }

    /// The place of output pixel `(i, j)` among all rows of the output.
    #[inline(always)]
    fn output(self, sample: usize, i: usize, j: usize) -> usize {
        (sample * self.y.h + i) * self.y.w + j
    }
}

/// Some neighbouring pixels, by their places among all rows of the input.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    first: usize,
    /// The first one's column.
    left: usize,
    rows: usize,
    columns: usize,
    /// From a pixel to the one below.
    pitch: usize,
    /// The number of pixels that count in an average.
    divisor: usize,
}

impl Window {
    /// One over the number of pixels that count.
    #[inline(always)]
    fn weight(self) -> f32 {
        1.0 / self.divisor.max(1) as f32
    }
}

/// What a window's pixels come to: folded one after the other, then finished.
pub(crate) trait Pooled: Copy + Sync {
    /// Before the first pixel.
    const START: f32;
    fn fold(self, so_far: f32, x: f32) -> f32;
    fn finish(self, folded: f32, window: Window) -> f32;
}

#[derive(Clone, Copy)]
pub(crate) struct Maximum;

impl Pooled for Maximum {
    const START: f32 = f32::NEG_INFINITY;

    #[inline(always)]
    fn fold(self, so_far: f32, x: f32) -> f32 {
        // A NaN wins, and stays.
        if (x > so_far) | x.is_nan() { x } else { so_far }
    }

    #[inline(always)]
    fn finish(self, folded: f32, _: Window) -> f32 {
        folded
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Average;

impl Pooled for Average {
    const START: f32 = 0.0;

    #[inline(always)]
    fn fold(self, so_far: f32, x: f32) -> f32 {
        so_far + x
    }

    #[inline(always)]
    fn finish(self, folded: f32, window: Window) -> f32 {
        folded * window.weight()
    }
}

pub(crate) fn forward<P: Pooled, E: Element>(
    cpu: &Cpu,
    kind: P,
    pool: &Pool2d,
    x: View<[E]>,
    y: ViewMut<[E]>,
) {
    let windows = Windows { pool: *pool, x: x.layout.shape, y: y.layout.shape };
    let (x, y) = (Rows::new(x), RowsMut::new(y));
    if x.width() > 0 {
        cpu.pool().run(windows.y.n * windows.y.h, &|task| pool_row(cpu.simd(), kind, windows, x, y, task));
    }
}

multiversion! {
    /// The row `line` of output pixels, of all `n * h`.
    fn pool_row<P: Pooled, E: Element>(kind: P, windows: Windows, x: Rows<E>, y: RowsMut<E>, line: usize) {
        let (sample, i) = (line / windows.y.h, line % windows.y.h);
        for j in 0..windows.y.w {
            // SAFETY: each task has separate pixels.
            let y = unsafe { y.row(windows.output(sample, i, j)) };
            on_lanes(x.width(), Forward { kind, x, window: windows.window(sample, i, j), y: Shards::new(y) });
        }
    }
}

/// One window.
struct Forward<'a, P, E> {
    kind: P,
    x: Rows<'a, E>,
    window: Window,
    y: Shards<'a, E>,
}

impl<P: Pooled, E: Element> OnLanes for Forward<'_, P, E> {
    #[inline(always)]
    fn run<const N: usize>(&self, channel: usize) {
        let &Forward { kind, x, window, ref y } = self;
        let mut folded = [P::START; N];
        for row in 0..window.rows {
            for column in 0..window.columns {
                let x: [f32; N] = load(x.row(window.first + row * window.pitch + column), channel);
                // As a closure over the lanes this takes four times as long.
                for k in 0..N {
                    folded[k] = kind.fold(folded[k], x[k]);
                }
            }
        }
        for folded in &mut folded {
            *folded = kind.finish(*folded, window);
        }
        // SAFETY: these channels alone.
        store(unsafe { y.part(channel..channel + N) }, 0, folded);
    }
}

pub(crate) fn max_backward<E: Element>(
    cpu: &Cpu,
    pool: &Pool2d,
    x: View<[E]>,
    y: View<[E]>,
    dy: View<[E]>,
    dx: ViewMut<[E]>,
    mode: Write,
) {
    let windows = Windows { pool: *pool, x: x.layout.shape, y: y.layout.shape };
    let (x, y, dy, dx) = (Rows::new(x), Rows::new(y), Rows::new(dy), RowsMut::new(dx));
    if x.count() > 0 {
        of_samples(cpu, windows, dx, mode, |sums| max_sample(cpu.simd(), x, y, dy, sums));
    }
}

multiversion! {
    fn max_sample<E: Element>(x: Rows<E>, y: Rows<E>, dy: Rows<E>, sums: Sums<E>) {
        sums.of_windows(#[inline(always)] |output, window| {
            let (y, dy) = (y.row(output), dy.row(output));
            on_lanes(x.width(), MaxBackward { x, y, dy, window, sums });
        });
    }
}

/// Hands the gradients of one output pixel to the pixels of its window.
struct MaxBackward<'a, E> {
    x: Rows<'a, E>,
    y: &'a [E],
    dy: &'a [E],
    window: Window,
    sums: Sums<'a, E>,
}

impl<E: Element> OnLanes for MaxBackward<'_, E> {
    #[inline(always)]
    fn run<const N: usize>(&self, channel: usize) {
        let largest: [f32; N] = load(self.y, channel);
        // The gradients that no pixel has taken yet stay in registers.
        let mut rest: [f32; N] = load(self.dy, channel);
        let Window { first, left, rows, columns, pitch, .. } = self.window;
        for row in 0..rows {
            for column in 0..columns {
                let x: [f32; N] = load(self.x.row(first + row * pitch + column), channel);
                // SAFETY: each task has separate sums, and lends one pixel at a time.
                let of_pixel = unsafe { self.sums.pixel(row, left + column) };
                let mut sums: [f32; N] = load(of_pixel, channel);
                for k in 0..N {
                    // Where the largest is NaN the first NaN is it; elsewhere there is none. Masks of bits keep the
                    // compiler from masked stores, whose results could not be read back at once.
                    let wins = u32::from((x[k] == largest[k]) | x[k].is_nan()).wrapping_neg();
                    sums[k] += f32::from_bits(rest[k].to_bits() & wins);
                    rest[k] = f32::from_bits(rest[k].to_bits() & !wins);
                }
                store(of_pixel, channel, sums);
            }
        }
    }
}

/// Sums of the gradients that arrive for a sample's pixels one by one: of the rows under a row of windows, from their first one on.
#[derive(Clone, Copy)]
struct Sums<'a, E> {
    windows: Windows,
    sample: usize,
    /// So many rows, zeros at first.
    memory: Shards<'a>,
    rows: usize,
    /// Where they go when they are complete.
    dx: RowsMut<'a, E>,
    mode: Write,
}

impl<'a, E: Element> Sums<'a, E> {
    /// The sums of a pixel's channels, in a row counted from the windows' first one.
    ///
    /// # Safety
    /// No other loan of them may be alive.
    #[inline(always)]
    unsafe fn pixel(&self, row: usize, column: usize) -> &'a mut [f32] {
        let Shape { w, c, .. } = self.windows.x;
        let start = (row * w + column) * c;
        // SAFETY: the caller's promise.
        unsafe { self.memory.part(start..start + c) }
    }

    /// Calls `add` for every window, from the top, with the place of its output pixel. Stores the sums of
    /// each row after the last window with that row.
    #[inline(always)]
    fn of_windows(self, add: impl Fn(usize, Window)) {
        let (windows, sample, Windows { x, y, .. }) = (self.windows, self.sample, self.windows);
        let mut top = 0;
        for i in 0..y.h {
            for j in 0..y.w {
                add(windows.output(sample, i, j), windows.window(sample, i, j));
            }
            let next = if i + 1 < y.h { windows.inside(i + 1, 0).0.start.min(x.h) } else { x.h };
            for (row, column) in (top..next).flat_map(|row| (0..x.w).map(move |column| (row, column))) {
                // SAFETY: each task has a sample, and lends one pixel at a time.
                let dx = unsafe { self.dx.row(windows.input(sample, row, column)) };
                if row - top >= self.rows {
                    // Between windows.
                    dx.iter_mut().filter(|_| self.mode == Write::Set).for_each(|dx| *dx = E::of(0.0));
                    continue;
                }
                // SAFETY: each task has separate sums, and lends one pixel at a time.
                let sums = unsafe { self.pixel(row - top, column) };
                put(dx, sums.iter().copied(), self.mode);
            }
            // SAFETY: each task has separate sums, of which none is lent.
            let memory = unsafe { self.memory.part(0..self.memory.len()) };
            let stored = ((next - top) * x.w * x.c).min(memory.len());
            memory.copy_within(stored.., 0);
            let kept = memory.len() - stored;
            memory[kept..].fill(0.0);
            top = next;
        }
    }
}

/// The rows of an image whose sums a window may need, and the elements of these.
fn rows_of_sums(pool: &Pool2d, x: Shape) -> (usize, usize) {
    let rows = pool.kernel[0].min(x.h);
    (rows, rows * x.w * x.c)
}

/// Scratch elements of a backward pass to an input of this shape.
pub(crate) fn sums_len(cpu: &Cpu, pool: &Pool2d, x: Shape) -> usize {
    cpu.pool().count() * rows_of_sums(pool, x).1
}

/// Runs a task for each sample of the input, with its sums.
fn of_samples<E: Element>(
    cpu: &Cpu,
    windows: Windows,
    dx: RowsMut<E>,
    mode: Write,
    task: impl Fn(Sums<E>) + Sync,
) {
    let (rows, len) = rows_of_sums(&windows.pool, windows.x);
    let mut scratch = cpu.scratch(sums_len(cpu, &windows.pool, windows.x));
    let memory = Shards::new(&mut scratch);
    cpu.pool().run_on(windows.x.n, &|thread, sample| {
        // SAFETY: a thread runs one task at a time.
        let memory = unsafe { memory.part(thread * len..(thread + 1) * len) };
        memory.fill(0.0);
        task(Sums { windows, sample, memory: Shards::new(memory), rows, dx, mode });
    });
}

/// Work on the channels of one window, `N` of them from `channel` on.
trait OnLanes {
    fn run<const N: usize>(&self, channel: usize);
}

/// Does the work on all channels: several vectors at a time, then single ones, then the rest.
#[inline(always)]
fn on_lanes(channels: usize, work: impl OnLanes) {
    let mut channel = 0;
    while channels - channel >= 4 * LANES {
        work.run::<{ 4 * LANES }>(channel);
        channel += 4 * LANES;
    }
    while channels - channel >= 2 * LANES {
        work.run::<{ 2 * LANES }>(channel);
        channel += 2 * LANES;
    }
    while channels - channel >= LANES {
        work.run::<LANES>(channel);
        channel += LANES;
    }
    (channel..channels).for_each(|channel| work.run::<1>(channel));
}

#[inline(always)]
fn load<E: Element, const N: usize>(row: &[E], channel: usize) -> [f32; N] {
    let mut lanes = [0.0; N];
    lanes.iter_mut().zip(&row[channel..channel + N]).for_each(|(lane, x)| *lane = x.get());
    lanes
}

#[inline(always)]
fn store<E: Element, const N: usize>(row: &mut [E], channel: usize, lanes: [f32; N]) {
    row[channel..channel + N].iter_mut().zip(lanes).for_each(|(x, lane)| *x = E::of(lane));
}

pub(crate) fn average_backward<E: Element>(
    cpu: &Cpu,
    pool: &Pool2d,
    dy: View<[E]>,
    dx: ViewMut<[E]>,
    mode: Write,
) {
    let windows = Windows { pool: *pool, x: dx.layout.shape, y: dy.layout.shape };
    let (dy, dx) = (Rows::new(dy), RowsMut::new(dx));
    if dy.count() > 0 {
        of_samples(cpu, windows, dx, mode, |sums| average_sample(cpu.simd(), dy, sums));
    }
}

multiversion! {
    fn average_sample<E: Element>(dy: Rows<E>, sums: Sums<E>) {
        sums.of_windows(#[inline(always)] |output, window| {
            let Window { left, rows, columns, .. } = window;
            let (dy, weight) = (dy.row(output), window.weight());
            for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                // SAFETY: each task has separate sums, and lends one pixel at a time.
                let sums = unsafe { sums.pixel(row, left + column) };
                sums.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy.get() * weight);
            }
        });
    }
}
