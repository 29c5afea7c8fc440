//! Layer normalization: each pixel over its channels, which stay in the first cache meanwhile.

use crate::Cpu;
use crate::dispatch::multiversion;
use crate::element::Element;
use crate::elementwise::add_up;
use crate::rows::{Blocks, Rows, RowsMut};
use crate::threads::Shards;
use core::ops::Range;
use towers_program::{View, ViewMut, Write};

/// Channels that are added up side by side.
const LANES: usize = 16;

/// `y = (x - mean) / sqrt(var + epsilon) * gamma + beta`
pub(crate) fn forward<E: Element>(
    cpu: &Cpu,
    epsilon: f32,
    x: View<[E]>,
    [gamma, beta]: [&[f32]; 2],
    y: ViewMut<[E]>,
) {
    let (x, y) = (Rows::new(x), RowsMut::new(y));
    let blocks = Blocks::for_map(x);
    cpu.pool().run(blocks.count(), &|block| {
        normalize_rows(cpu.simd(), epsilon, x, gamma, beta, y, blocks.range(block));
    });
}

/// Scratch elements of [`backward`] over so many rows or fewer, of so many channels.
pub(crate) fn gradients_len((rows, channels): (usize, usize)) -> usize {
    Blocks::most_for_sums(rows) * 2 * channels
}

/// The gradients of the input, of gamma and of beta.
pub(crate) fn backward<E: Element>(
    cpu: &Cpu,
    epsilon: f32,
    x: View<[E]>,
    gamma: &[f32],
    dy: View<[E]>,
    dx: ViewMut<[E]>,
    [dgamma, dbeta]: [&mut [f32]; 2],
    mode: Write,
) {
    let (x, dy, dx) = (Rows::new(x), Rows::new(dy), RowsMut::new(dx));
    let (blocks, c) = (Blocks::for_sums(x), gamma.len());
    let mut scratch = cpu.scratch(gradients_len((x.count(), c)));
    let partials = &mut scratch[..blocks.count() * 2 * c];
    let shards = Shards::new(partials);
    cpu.pool().run(blocks.count(), &|block| {
        // SAFETY: each task has a separate part.
        let sums = unsafe { shards.part(block * 2 * c..(block + 1) * 2 * c) };
        row_gradients(cpu.simd(), epsilon, x, gamma, dy, dx, mode, sums, blocks.range(block));
    });
    add_up(partials, 2 * c, 0, dbeta);
    add_up(partials, 2 * c, c, dgamma);
}

/// The sums of some terms over all channels, in the order of the lanes.
#[inline(always)]
fn sums<const N: usize>(channels: usize, term: impl Fn(usize) -> [f32; N]) -> [f32; N] {
    let mut lanes = [[0.0_f32; LANES]; N];
    let whole = channels - channels % LANES;
    for start in (0..whole).step_by(LANES) {
        // An index a lane: the loop over lanes is the one that becomes vectors.
        #[allow(clippy::needless_range_loop, reason = "the lanes of all sums are indexed alike")]
        for k in 0..LANES {
            let terms = term(start + k);
            for n in 0..N {
                lanes[n][k] += terms[n];
            }
        }
    }
    for channel in whole..channels {
        let terms = term(channel);
        for n in 0..N {
            lanes[n][channel - whole] += terms[n];
        }
    }
    // In pairs, which rounds less than one after the other.
    lanes.map(|mut lanes| {
        let mut half = LANES / 2;
        while half > 0 {
            for k in 0..half {
                lanes[k] += lanes[k + half];
            }
            half /= 2;
        }
        lanes[0]
    })
}

/// The mean of a pixel's channels, in two parts, and one over their deviation.
#[derive(Clone, Copy)]
struct Moments {
    /// Rounded, near the mean.
    about: f32,
    /// What is left of the mean.
    away: f32,
    inverse: f32,
}

impl Moments {
    #[inline(always)]
    fn normalized(self, x: f32) -> f32 {
        (x - self.about - self.away) * self.inverse
    }
}

/// Those of a pixel: first around the first channel, since sums of large numbers would lose digits, and then around the mean of
/// that, in case the number stands out.
#[inline(always)]
fn moments<E: Element>(epsilon: f32, x: &[E]) -> Moments {
    let (count, pivot) = (x.len() as f32, x[0].get());
    let [total] = sums(
        x.len(),
        #[inline(always)]
        |k| [x[k].get() - pivot],
    );
    let about = pivot + total / count;
    let [away, squares] = sums(
        x.len(),
        #[inline(always)]
        |k| {
            let away = x[k].get() - about;
            [away, away * away]
        },
    );
    let away = away / count;
    // Below 0 by rounding.
    let variance = (squares / count - away * away).max(0.0);
    Moments { about, away, inverse: 1.0 / (variance + epsilon).sqrt() }
}

multiversion! {
    fn normalize_rows<E: Element>(
        epsilon: f32,
        x: Rows<E>,
        gamma: &[f32],
        beta: &[f32],
        y: RowsMut<E>,
        rows: Range<usize>,
    ) {
        let c = x.width();
        let (gamma, beta) = (&gamma[..c], &beta[..c]);
        for row in rows {
            // SAFETY: each task has separate rows.
            let (x, y) = (&x.row(row)[..c], &mut unsafe { y.row(row) }[..c]);
            let moments = moments(epsilon, x);
            for k in 0..c {
                y[k] = E::of(moments.normalized(x[k].get()) * gamma[k] + beta[k]);
            }
        }
    }
}

multiversion! {
    /// With `g = gamma * dy`: `dx = inverse * (g - sum(g) / c - xhat * sum(g * xhat) / c)`. `partial` receives the sums of dy and of
    /// `dy * xhat`.
    fn row_gradients<E: Element>(
        epsilon: f32,
        x: Rows<E>,
        gamma: &[f32],
        dy: Rows<E>,
        dx: RowsMut<E>,
        mode: Write,
        partial: &mut [f32],
        rows: Range<usize>,
    ) {
        let c = x.width();
        partial.fill(0.0);
        let (of_dy, of_products) = partial.split_at_mut(c);
        let (gamma, of_dy, of_products) = (&gamma[..c], &mut of_dy[..c], &mut of_products[..c]);
        for row in rows {
            let (x, dy) = (&x.row(row)[..c], &dy.row(row)[..c]);
            // SAFETY: each task has separate rows.
            let dx = &mut unsafe { dx.row(row) }[..c];
            let moments = moments(epsilon, x);
            let [total, products] = sums(c, #[inline(always)] |k| {
                let g = gamma[k] * dy[k].get();
                [g, g * moments.normalized(x[k].get())]
            });
            let (offset, slope) = (total / c as f32, products / c as f32);
            for k in 0..c {
                let (xhat, dy) = (moments.normalized(x[k].get()), dy[k].get());
                of_dy[k] += dy;
                of_products[k] += dy * xhat;
                let gradient = moments.inverse * (gamma[k] * dy - offset - xhat * slope);
                // Read in any case, so that the loop is vectorized.
                let sum = dx[k].get() + gradient;
                dx[k] = E::of(if mode == Write::Set { gradient } else { sum });
            }
        }
    }
}
