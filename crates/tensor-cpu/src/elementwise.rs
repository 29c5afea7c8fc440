use crate::Cpu;
use crate::dispatch::multiversion;
use crate::element::{Element, put};
use crate::rows::{Blocks, Rows, RowsMut, all_contiguous};
use crate::threads::Shards;
use core::ops::Range;
use towers_program::{View, ViewMut, Write};

pub(crate) fn copy<E: Element>(cpu: &Cpu, factor: f32, x: View<[E]>, y: ViewMut<[E]>, mode: Write) {
    let flat = all_contiguous(&[x.layout, y.layout]);
    let (x, y) = (Rows::elements(x, flat), RowsMut::elements(y, flat));
    let blocks = Blocks::for_map(x);
    if factor == 1.0 {
        cpu.pool().run(blocks.count(), &|block| copy_rows(cpu.simd(), x, y, mode, blocks.range(block)));
    } else {
        cpu.pool()
            .run(blocks.count(), &|block| scale_rows(cpu.simd(), factor, x, y, mode, blocks.range(block)));
    }
}

multiversion! {
    fn copy_rows<E: Element>(x: Rows<E>, y: RowsMut<E>, mode: Write, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has separate rows.
            let (x, y) = (x.row(row), unsafe { y.row(row) });
            match mode {
                Write::Set => y.copy_from_slice(x),
                Write::Add => y.iter_mut().zip(x).for_each(|(y, x)| y.add(x.get())),
            }
        }
    }
}

multiversion! {
    fn scale_rows<E: Element>(factor: f32, x: Rows<E>, y: RowsMut<E>, mode: Write, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has separate rows.
            let y = unsafe { y.row(row) };
            put(y, x.row(row).iter().map(|x| factor * x.get()), mode);
        }
    }
}

/// Scratch elements of [`column_sums`] over so many rows or fewer, of so many channels.
pub(crate) fn sums_len((rows, channels): (usize, usize)) -> usize {
    Blocks::most_for_sums(rows) * channels
}

/// The sum of each channel over all pixels: the gradient of a bias. Empty `sums` stand for no bias.
pub(crate) fn column_sums<E: Element>(cpu: &Cpu, x: View<[E]>, sums: &mut [f32]) {
    if sums.is_empty() {
        return;
    }
    let x = Rows::new(x);
    let (blocks, width) = (Blocks::for_sums(x), x.width());
    let mut scratch = cpu.scratch(sums_len((x.count(), width)));
    let partials = &mut scratch[..blocks.count() * width];
    let shards = Shards::new(partials);
    cpu.pool().run(blocks.count(), &|block| {
        // SAFETY: each task has a separate part.
        let sums = unsafe { shards.part(block * width..(block + 1) * width) };
        sum_rows(cpu.simd(), x, blocks.range(block), sums);
    });
    add_up(partials, width, 0, sums);
}

multiversion! {
    fn sum_rows<E: Element>(x: Rows<E>, rows: Range<usize>, sums: &mut [f32]) {
        sums.fill(0.0);
        for row in rows {
            sums.iter_mut().zip(x.row(row)).for_each(|(sum, x)| *sum += x.get());
        }
    }
}

/// Adds up in f64 the blocks' partial sums, in the order of the blocks: of each `pitch` elements those from `at` on.
pub(crate) fn add_up(partials: &[f32], pitch: usize, at: usize, sums: &mut [f32]) {
    const LANES: usize = 16;
    for (chunk, sums) in sums.chunks_mut(LANES).enumerate() {
        let mut totals = [0.0_f64; LANES];
        for block in partials.chunks_exact(pitch) {
            let part = &block[at + chunk * LANES..][..sums.len()];
            totals.iter_mut().zip(part).for_each(|(total, &part)| *total += f64::from(part));
        }
        sums.iter_mut().zip(totals).for_each(|(sum, total)| *sum = total as f32);
    }
}
