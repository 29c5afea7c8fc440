//! Local response normalization: each channel of a pixel by its neighbours.

use crate::Cpu;
use crate::dispatch::multiversion;
use crate::element::{Element, put};
use crate::rows::{Blocks, Rows, RowsMut};
use crate::threads::Shards;
use core::ops::Range;
use towers_program::ops::LocalResponseNorm;
use towers_program::{View, ViewMut, Write};

/// Scratch elements of a pixel of so many channels, forward and backward: terms with zeros around them, and factors.
pub(crate) fn scratch_len(cpu: &Cpu, norm: &LocalResponseNorm, channels: usize) -> usize {
    cpu.pool().count() * of_thread(norm, channels)
}

fn of_thread(norm: &LocalResponseNorm, channels: usize) -> usize {
    2 * channels + norm.size
}

/// Runs a task for each block of rows, with scratch memory.
fn of_blocks<E: Element>(
    cpu: &Cpu,
    norm: &LocalResponseNorm,
    x: Rows<E>,
    task: impl Fn(&mut [f32], Range<usize>) + Sync,
) {
    let (blocks, len) = (Blocks::for_map(x), of_thread(norm, x.width()));
    let mut scratch = cpu.scratch(scratch_len(cpu, norm, x.width()));
    let memory = Shards::new(&mut scratch);
    cpu.pool().run_on(blocks.count(), &|thread, block| {
        // SAFETY: a thread runs one task at a time.
        let memory = unsafe { memory.part(thread * len..(thread + 1) * len) };
        task(memory, blocks.range(block));
    });
}

/// `y = x * (bias + alpha / size * sum of the neighbours' squares)^-beta`
pub(crate) fn forward<E: Element>(cpu: &Cpu, norm: &LocalResponseNorm, x: View<[E]>, y: ViewMut<[E]>) {
    let (x, y) = (Rows::new(x), RowsMut::new(y));
    of_blocks(cpu, norm, x, |memory, rows| normalize_rows(cpu.simd(), norm, x, y, memory, rows));
}

/// With `t = dy * y / scale`: `dx = dy * y / x - 2 * alpha * beta / size * x * sum of t of those that x is a neighbour of`.
pub(crate) fn backward<E: Element>(
    cpu: &Cpu,
    norm: &LocalResponseNorm,
    x: View<[E]>,
    dy: View<[E]>,
    dx: ViewMut<[E]>,
    mode: Write,
) {
    let (x, dy, dx) = (Rows::new(x), Rows::new(dy), RowsMut::new(dx));
    of_blocks(cpu, norm, x, |memory, rows| row_gradients(cpu.simd(), norm, x, dy, dx, mode, memory, rows));
}

/// `scale^-beta`, for AlexNet's beta without a logarithm.
#[inline(always)]
fn power(scale: f32, beta: f32) -> f32 {
    if beta == 0.75 {
        let root = scale.sqrt();
        1.0 / (root * root.sqrt())
    } else {
        scale.powf(-beta)
    }
}

/// Adds up `size` neighbouring terms for each channel, the first of which is at the channel's own place.
#[inline(always)]
fn windows(terms: &[f32], size: usize, sums: &mut [f32]) {
    sums.fill(0.0);
    for shift in 0..size {
        sums.iter_mut().zip(&terms[shift..]).for_each(|(sum, term)| *sum += term);
    }
}

/// `factors` receives `scale` of each channel. `terms` has zeros around the channels.
#[inline(always)]
fn scales<E: Element>(norm: &LocalResponseNorm, x: &[E], terms: &mut [f32], scales: &mut [f32]) {
    let (c, before) = (x.len(), norm.before());
    terms.fill(0.0);
    terms[before..before + c].iter_mut().zip(x).for_each(|(term, x)| *term = x.get() * x.get());
    windows(terms, norm.size, scales);
    let factor = norm.alpha / norm.size as f32;
    scales.iter_mut().for_each(|scale| *scale = norm.bias + factor * *scale);
}

multiversion! {
    fn normalize_rows<E: Element>(
        norm: &LocalResponseNorm,
        x: Rows<E>,
        y: RowsMut<E>,
        memory: &mut [f32],
        rows: Range<usize>,
    ) {
        let (all, terms) = memory.split_at_mut(x.width());
        let terms = &mut terms[..x.width() + norm.size];
        for row in rows {
            let x = x.row(row);
            // SAFETY: each task has separate rows.
            let y = unsafe { y.row(row) };
            scales(norm, x, terms, all);
            put(y, x.iter().zip(&*all).map(|(x, &scale)| x.get() * power(scale, norm.beta)), Write::Set);
        }
    }
}

multiversion! {
    fn row_gradients<E: Element>(
        norm: &LocalResponseNorm,
        x: Rows<E>,
        dy: Rows<E>,
        dx: RowsMut<E>,
        mode: Write,
        memory: &mut [f32],
        rows: Range<usize>,
    ) {
        let c = x.width();
        let (all, terms) = memory.split_at_mut(c);
        let terms = &mut terms[..c + norm.size];
        // A channel is a neighbour of those before it as far as they look ahead.
        let ahead = norm.size - 1 - norm.before();
        let factor = 2.0 * norm.alpha * norm.beta / norm.size as f32;
        for row in rows {
            let (x, dy) = (&x.row(row)[..c], &dy.row(row)[..c]);
            // SAFETY: each task has separate rows.
            let dx = &mut unsafe { dx.row(row) }[..c];
            scales(norm, x, terms, all);
            terms.fill(0.0);
            for k in 0..c {
                let (scale, power) = (all[k], power(all[k], norm.beta));
                terms[ahead + k] = dy[k].get() * x[k].get() * power / scale;
                all[k] = dy[k].get() * power;
            }
            for k in 0..c {
                let sum: f32 = terms[k..k + norm.size].iter().sum();
                let gradient = all[k] - factor * x[k].get() * sum;
                let total = dx[k].get() + gradient;
                dx[k] = E::of(if mode == Write::Set { gradient } else { total });
            }
        }
    }
}
