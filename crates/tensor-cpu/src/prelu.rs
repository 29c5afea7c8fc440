//! ReLU with a trained slope for each channel.

use crate::Cpu;
use crate::dispatch::multiversion;
use crate::element::{Element, put};
use crate::elementwise::{add_up, sums_len};
use crate::rows::{Blocks, Rows, RowsMut};
use crate::threads::Shards;
use core::ops::Range;
use towers_program::{View, ViewMut, Write};

pub(crate) fn forward<E: Element>(cpu: &Cpu, x: View<[E]>, slopes: &[f32], y: ViewMut<[E]>) {
    let (x, y) = (Rows::new(x), RowsMut::new(y));
    let blocks = Blocks::for_map(x);
    cpu.pool().run(blocks.count(), &|block| map(cpu.simd(), x, slopes, y, blocks.range(block)));
}

multiversion! {
    fn map<E: Element>(x: Rows<E>, slopes: &[f32], y: RowsMut<E>, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has separate rows.
            let y = unsafe { y.row(row) };
            for ((y, x), &slope) in y.iter_mut().zip(x.row(row)).zip(slopes) {
                let x = x.get();
                *y = E::of(if x < 0.0 { slope * x } else { x });
            }
        }
    }
}

pub(crate) fn input_gradient<E: Element>(
    cpu: &Cpu,
    x: View<[E]>,
    slopes: &[f32],
    dy: View<[E]>,
    dx: ViewMut<[E]>,
    mode: Write,
) {
    let (x, dy, dx) = (Rows::new(x), Rows::new(dy), RowsMut::new(dx));
    let blocks = Blocks::for_map(x);
    cpu.pool()
        .run(blocks.count(), &|block| gradients(cpu.simd(), x, slopes, dy, dx, mode, blocks.range(block)));
}

multiversion! {
    fn gradients<E: Element>(x: Rows<E>, slopes: &[f32], dy: Rows<E>, dx: RowsMut<E>, mode: Write, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has separate rows.
            let dx = unsafe { dx.row(row) };
            let all = x.row(row).iter().zip(dy.row(row)).zip(slopes);
            put(dx, all.map(|((x, dy), &slope)| dy.get() * if x.get() <= 0.0 { slope } else { 1.0 }), mode);
        }
    }
}

/// By blocks of rows, whose sums are added up in their order.
pub(crate) fn slope_gradient<E: Element>(cpu: &Cpu, x: View<[E]>, dy: View<[E]>, dslopes: &mut [f32]) {
    let (x, dy) = (Rows::new(x), Rows::new(dy));
    let (blocks, width) = (Blocks::for_sums(x), x.width());
    let mut scratch = cpu.scratch(sums_len((x.count(), width)));
    let partials = &mut scratch[..blocks.count() * width];
    let shards = Shards::new(partials);
    cpu.pool().run(blocks.count(), &|block| {
        // SAFETY: each task has a separate part.
        let sums = unsafe { shards.part(block * width..(block + 1) * width) };
        sum_products(cpu.simd(), x, dy, sums, blocks.range(block));
    });
    add_up(partials, width, 0, dslopes);
}

multiversion! {
    fn sum_products<E: Element>(x: Rows<E>, dy: Rows<E>, sums: &mut [f32], rows: Range<usize>) {
        sums.fill(0.0);
        for row in rows {
            for ((sum, x), dy) in sums.iter_mut().zip(x.row(row)).zip(dy.row(row)) {
                let x = x.get();
                *sum += dy.get() * if x < 0.0 { x } else { 0.0 };
            }
        }
    }
}
