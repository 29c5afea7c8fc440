//! Slices of channels, and channels in another order.

use crate::Cpu;
use crate::dispatch::multiversion;
use crate::element::{Element, put};
use crate::rows::{Blocks, Rows, RowsMut};
use core::ops::Range;
use towers_program::{View, ViewMut, Write};

/// `y[i * groups + g] = x[g * n + i]`, for each pixel of `groups * n` channels.
pub(crate) fn shuffle<E: Element>(cpu: &Cpu, groups: usize, x: View<[E]>, y: ViewMut<[E]>, mode: Write) {
    if x.layout.shape.is_empty() {
        return;
    }
    let (x, y) = (Rows::new(x), RowsMut::new(y));
    let blocks = Blocks::for_map(x);
    cpu.pool().run(blocks.count(), &|block| {
        let rows = blocks.range(block);
        match (groups, x.width() / groups) {
            (2, _) => interleave(cpu.simd(), x, y, mode, rows),
            (_, 2) => separate(cpu.simd(), x, y, mode, rows),
            _ => turn(cpu.simd(), groups, x, y, mode, rows),
        }
    });
}

multiversion! {
    /// Of two groups.
    fn interleave<E: Element>(x: Rows<E>, y: RowsMut<E>, mode: Write, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has separate rows.
            let y = unsafe { y.row(row) }.as_chunks_mut::<2>().0;
            let (a, b) = x.row(row).split_at(y.len());
            let pairs = y.iter_mut().zip(a).zip(b);
            match mode {
                Write::Set => pairs.for_each(|((y, a), b)| *y = [*a, *b]),
                Write::Add => pairs.for_each(|((y, a), b)| {
                    y[0].add(a.get());
                    y[1].add(b.get());
                }),
            }
        }
    }
}

multiversion! {
    /// Of groups of two channels.
    fn separate<E: Element>(x: Rows<E>, y: RowsMut<E>, mode: Write, rows: Range<usize>) {
        for row in rows {
            let x = x.row(row).as_chunks::<2>().0;
            // SAFETY: each task has separate rows.
            let (a, b) = unsafe { y.row(row) }.split_at_mut(x.len());
            match mode {
                Write::Set => a.iter_mut().zip(b).zip(x).for_each(|((a, b), x)| [*a, *b] = *x),
                Write::Add => a.iter_mut().zip(b).zip(x).for_each(|((a, b), x)| {
                    a.add(x[0].get());
                    b.add(x[1].get());
                }),
            }
        }
    }
}

multiversion! {
    fn turn<E: Element>(groups: usize, x: Rows<E>, y: RowsMut<E>, mode: Write, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has separate rows.
            let (x, y) = (x.row(row), unsafe { y.row(row) });
            let n = x.len() / groups;
            for (i, y) in y.chunks_exact_mut(groups).enumerate() {
                put(y, x[i..].iter().step_by(n).map(|x| x.get()), mode);
            }
        }
    }
}

/// `y = 0`, but for the channels from `from` on, which are those of `x`; or adds these.
pub(crate) fn widen<E: Element>(cpu: &Cpu, from: usize, x: View<[E]>, y: ViewMut<[E]>, mode: Write) {
    if y.layout.shape.is_empty() {
        return;
    }
    let channels = from..from + x.layout.shape.c;
    let (x, y) = (Rows::new(x), RowsMut::new(y));
    let blocks = Blocks::for_map(x);
    cpu.pool().run(blocks.count(), &|block| {
        widen_rows(cpu.simd(), channels.clone(), x, y, mode, blocks.range(block));
    });
}

multiversion! {
    fn widen_rows<E: Element>(channels: Range<usize>, x: Rows<E>, y: RowsMut<E>, mode: Write, rows: Range<usize>) {
        for row in rows {
            // SAFETY: each task has separate rows.
            let (x, y) = (x.row(row), unsafe { y.row(row) });
            match mode {
                Write::Set => {
                    y[..channels.start].fill(E::of(0.0));
                    y[channels.clone()].copy_from_slice(x);
                    y[channels.end..].fill(E::of(0.0));
                }
                Write::Add => y[channels.clone()].iter_mut().zip(x).for_each(|(y, x)| y.add(x.get())),
            }
        }
    }
}
