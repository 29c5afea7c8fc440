//! What is copied around the kernels: rows of the source into blocks, weights, and sums into tensors that they cannot be
//! written to as they are.

use super::kernels::BLOCK;
use super::plan::{Channels, Plan};
use crate::dispatch::multiversion;
use crate::element::{Element, put};
use crate::threads::Shards;
use core::ops::Range;
use towers_program::Write;

multiversion! {
    /// Packs a row of the source: of its channels those of a group's blocks, all planes. `to` is the ring of all blocks.
    pub(super) fn pack_row<E: Element>(plan: &Plan, x: &[E], sample: usize, row: usize, blocks: Range<usize>, to: &mut [f32]) {
        let (shape, stride) = (plan.source.shape, plan.source.stride);
        let low = plan.columns.under(0..plan.columns.outputs).start;
        let first = plan.source.offset + (sample * shape.h + row) * shape.w * stride;
        let slot = row % plan.slots * plan.row_len();
        for column in 0..plan.width {
            let at = low + column as isize;
            let inside = at >= 0 && at < shape.w as isize;
            let pixel = if inside { &x[first + at as usize * stride..][..shape.c] } else { &[] };
            for plane in 0..plan.planes {
                let to = &mut to[plane * plan.plane_len() + slot + column * BLOCK..];
                pack_pixel(plan, pixel, plane, blocks.clone(), to);
            }
        }
    }
}

/// Copies the channels of a pixel to the same place of each block; of none zeros.
#[inline(always)]
fn pack_pixel<E: Element>(plan: &Plan, pixel: &[E], plane: usize, blocks: Range<usize>, to: &mut [f32]) {
    for (k, block) in blocks.enumerate() {
        let to: &mut [f32] = &mut to[k * plan.ring_len()..][..BLOCK];
        let lanes = if pixel.is_empty() { 0 } else { plan.lanes(block) };
        match plan.of_source {
            Channels::Same if lanes == BLOCK => {
                let from = &pixel[block * BLOCK..][..BLOCK];
                to.iter_mut().zip(from).for_each(|(to, from)| *to = from.get());
            }
            of_source => {
                for (lane, to) in to.iter_mut().enumerate() {
                    *to = if lane < lanes {
                        pixel[of_source.of(block * BLOCK + lane, plane)].get()
                    } else {
                        0.0
                    };
                }
            }
        }
    }
}

/// Packs the weights of a group's blocks: of each the planes, of these the taps. They are rounded to the format of the
/// activations, so that products of bf16 are exact: then a fused product has the bits of one that is added.
pub(super) fn pack_weights<E: Element>(plan: &Plan, w: &[f32], blocks: Range<usize>, to: &mut [f32]) {
    let outputs = w.len() / plan.taps().max(1);
    for (k, to) in to.chunks_exact_mut(BLOCK).enumerate() {
        let (tap, plane) = (k % plan.taps(), k / plan.taps() % plan.planes);
        let Some(block) = blocks.clone().nth(k / plan.taps() / plan.planes) else { return };
        for (lane, to) in to.iter_mut().enumerate() {
            let of = plan.of_weights.of(block * BLOCK + lane, plane);
            *to = if lane < plan.lanes(block) { E::of(w[tap * outputs + of]).get() } else { 0.0 };
        }
    }
}

/// Where a line's numbers go in a tensor that other tasks write to as well.
#[derive(Clone, Copy)]
pub(super) struct Place<'a, E> {
    pub tensor: Shards<'a, E>,
    /// Elements before the first pixel's channels, and from one pixel to the next.
    pub first: usize,
    pub step: usize,
    /// Channels.
    pub lanes: usize,
}

multiversion! {
    /// Stores the sums of a line, [`BLOCK`] for each pixel.
    pub(super) fn put_line<E: Element>(sums: &[f32], place: Place<E>, mode: Write) {
        for (at, sums) in sums.chunks_exact(BLOCK).enumerate() {
            let first = place.first + at * place.step;
            // SAFETY: each task has separate channels of separate pixels, and lends one pixel at a time.
            let y = unsafe { place.tensor.part(first..first + place.lanes) };
            if place.lanes == BLOCK {
                put(&mut y[..BLOCK], sums.iter().copied(), mode);
            } else {
                put(y, sums.iter().copied(), mode);
            }
        }
    }
}

multiversion! {
    /// Copies some channels of the pixels of a line, so many elements apart, to a block, with zeros behind them.
    pub(super) fn take_line<E: Element>(y: &[E], lanes: usize, step: usize, to: &mut [f32]) {
        for (at, to) in to.chunks_exact_mut(BLOCK).enumerate() {
            let y = &y[at * step..][..lanes];
            if lanes == BLOCK {
                to.iter_mut().zip(&y[..BLOCK]).for_each(|(to, y)| *to = y.get());
            } else {
                to.fill(0.0);
                to.iter_mut().zip(y).for_each(|(to, y)| *to = y.get());
            }
        }
    }
}
