//! Larger images, of repeated or of blended pixels.

use crate::Cpu;
use crate::dispatch::multiversion;
use crate::element::Element;
use crate::rows::{Rows, RowsMut};
use towers_program::ops::Upsample;
use towers_program::{Shape, View, ViewMut, Write};

/// A task takes a row of an image of the output.
pub(crate) fn forward<E: Element>(cpu: &Cpu, op: &Upsample, x: View<[E]>, y: ViewMut<[E]>) {
    let (from, to) = (x.layout.shape, y.layout.shape);
    let (x, y) = (Rows::new(x), RowsMut::new(y));
    if to.c > 0 {
        cpu.pool().run(to.n * to.h, &|line| upsample_row(cpu.simd(), op, from, to, x, y, line));
    }
}

multiversion! {
    fn upsample_row<E: Element>(op: &Upsample, from: Shape, to: Shape, x: Rows<E>, y: RowsMut<E>, line: usize) {
        let (sample, i) = (line / to.h, line % to.h);
        let rows = op.taps(0, i, from.h);
        for j in 0..to.w {
            // SAFETY: each task has separate pixels.
            let y = &mut unsafe { y.row(line * to.w + j) }[..to.c];
            let columns = op.taps(1, j, from.w);
            let at = |row: usize, column: usize| &x.row((sample * from.h + rows[row].0) * from.w + columns[column].0)[..to.c];
            if !op.bilinear {
                y.copy_from_slice(at(0, 0));
                continue;
            }
            let [[a, b], [c, d]] = [[at(0, 0), at(0, 1)], [at(1, 0), at(1, 1)]];
            let ([(_, top), (_, bottom)], [(_, left), (_, right)]) = (rows, columns);
            for k in 0..to.c {
                let (upper, lower) =
                    (a[k].get() * left + b[k].get() * right, c[k].get() * left + d[k].get() * right);
                y[k] = E::of(upper * top + lower * bottom);
            }
        }
    }
}

/// Scratch elements of a backward pass to an input of this shape: the sums of one pixel for each thread.
pub(crate) fn scratch_len(cpu: &Cpu, x: Shape) -> usize {
    cpu.pool().count() * x.c
}

/// A task takes a row of an image of the input.
pub(crate) fn backward<E: Element>(cpu: &Cpu, op: &Upsample, dy: View<[E]>, dx: ViewMut<[E]>, mode: Write) {
    let (from, to) = (dx.layout.shape, dy.layout.shape);
    let (dy, dx) = (Rows::new(dy), RowsMut::new(dx));
    if from.c == 0 {
        return;
    }
    let mut scratch = cpu.scratch(scratch_len(cpu, from));
    let memory = crate::threads::Shards::new(&mut scratch);
    cpu.pool().run_on(from.n * from.h, &|thread, line| {
        // SAFETY: a thread runs one task at a time.
        let sums = unsafe { memory.part(thread * from.c..(thread + 1) * from.c) };
        gather_row(cpu.simd(), op, from, to, dy, dx, mode, sums, line);
    });
}

multiversion! {
    fn gather_row<E: Element>(
        op: &Upsample,
        from: Shape,
        to: Shape,
        dy: Rows<E>,
        dx: RowsMut<E>,
        mode: Write,
        sums: &mut [f32],
        line: usize,
    ) {
        let (sample, row) = (line / from.h, line % from.h);
        let sums = &mut sums[..from.c];
        for column in 0..from.w {
            // SAFETY: each task has separate pixels.
            let dx = &mut unsafe { dx.row(line * from.w + column) }[..from.c];
            for k in 0..from.c {
                sums[k] = if mode == Write::Set { 0.0 } else { dx[k].get() };
            }
            for i in op.readers(0, row, from.h) {
                let down = op.weight(0, i, row, from.h);
                for j in op.readers(1, column, from.w) {
                    let weight = down * op.weight(1, j, column, from.w);
                    let dy = &dy.row((sample * to.h + i) * to.w + j)[..from.c];
                    for k in 0..from.c {
                        sums[k] += dy[k].get() * weight;
                    }
                }
            }
            for k in 0..from.c {
                dx[k] = E::of(sums[k]);
            }
        }
    }
}
