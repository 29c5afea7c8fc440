//! The transforms in two dimensions, written once over [`Simd`] and [`Form`] and compiled for every [`Level`].

use super::form::{F2, F4, Form};
use super::size::Size;
use crate::conv::kernels::BLOCK;
#[cfg(target_arch = "aarch64")]
use crate::simd::Neon;
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512};
use crate::simd::{Level, Portable, Simd};

/// A tile to transform into one number a channel for each position: of an input, or of an output's gradient.
pub(super) struct Spread {
    /// Each pixel's first channel, row by row.
    pub from: *const *const f32,
    pub channels: usize,
    /// The first channel at the first position; elements from one position and one block of channels to the next.
    pub to: *mut f32,
    pub position: usize,
    pub block: usize,
    /// Elements from a pixel to the one in its place in the next tile, which is asked for.
    pub ahead: usize,
}

/// The sums of a tile to transform into outputs.
pub(super) struct Gather {
    /// The first channel at the first position; channels are back to back, with room for whole vectors.
    pub from: *const f32,
    pub position: usize,
    pub channels: usize,
    /// Each output's first channel, row by row.
    pub to: *const *mut f32,
    /// What to add to the outputs: one number a channel unless null, and what they held.
    pub bias: *const f32,
    pub add: bool,
    /// What to multiply with then, and to add: one number a channel each, unless null.
    pub affine: [*const f32; 2],
    pub relu: Option<f32>,
}

/// Weights to transform: the nine taps of some outputs.
pub(super) struct Filter {
    pub from: [*const f32; 9],
    pub lanes: usize,
    pub to: *mut f32,
    pub position: usize,
}

/// Sums to transform into the gradient of nine weights of some outputs.
pub(super) struct FilterGradient {
    /// The sums of each part, to be added up in their order.
    pub from: *const f32,
    pub position: usize,
    pub part: usize,
    pub parts: usize,
    pub lanes: usize,
    pub to: [*mut f32; 9],
}

/// The transforms of one level and size.
pub(super) struct Transforms {
    pub input: unsafe fn(&Spread),
    pub gradient: unsafe fn(&Spread),
    pub output: unsafe fn(&Gather),
    pub filter: unsafe fn(&Filter),
    pub filter_gradient: unsafe fn(&FilterGradient),
}

impl Transforms {
    pub fn of(level: Level, size: Size) -> &'static Transforms {
        let [two, four] = match level {
            Level::Portable => &PORTABLE,
            #[cfg(target_arch = "aarch64")]
            Level::Neon => &NEON,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => &AVX2,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => &AVX512,
        };
        match size {
            Size::Two => two,
            Size::Four => four,
        }
    }
}

/// # Safety
/// The level's instructions exist, and every address that is described is valid for the channels.
#[inline(always)]
unsafe fn input<S: Simd, F: Form<OUT, IN>, const OUT: usize, const IN: usize>(t: &Spread) {
    // SAFETY: by this function's contract.
    unsafe {
        for channel in (0..t.channels).step_by(S::LANES) {
            let lanes = (t.channels - channel).min(S::LANES);
            // Once for each way to load: one that chooses for every pixel took about 2% longer with AVX2.
            if lanes == S::LANES {
                let load = |at: *const f32| S::load(at);
                input_half::<S, F, OUT, IN, 0>(t, channel, load);
                input_half::<S, F, OUT, IN, 1>(t, channel, load);
            } else {
                let load = |at: *const f32| S::load_masked(at, S::mask(lanes));
                input_half::<S, F, OUT, IN, 0>(t, channel, load);
                input_half::<S, F, OUT, IN, 1>(t, channel, load);
            }
        }
    }
}

/// Half of the rows of positions, for a vector of channels: as many as fit registers between the passes over
/// columns and rows. Loading pixels for each half costs less than storing the other half. The compiler
/// removes the unused half.
///
/// # Safety
/// As for `input`.
#[inline(always)]
unsafe fn input_half<S: Simd, F: Form<OUT, IN>, const OUT: usize, const IN: usize, const HALF: usize>(
    t: &Spread,
    channel: usize,
    load: impl Fn(*const f32) -> S::Vec,
) {
    // SAFETY: by this function's contract.
    unsafe {
        let mut rows = [[S::zero(); IN]; IN];
        for j in 0..IN {
            let column =
                F::input::<S>(core::array::from_fn(|i| load((*t.from.add(i * IN + j)).add(channel))));
            rows.iter_mut().zip(column).for_each(|(row, v)| row[j] = v);
            // The first columns of the next tile are the last ones of this.
            if HALF == 0 && j >= IN - OUT {
                for i in 0..IN {
                    S::prefetch((*t.from.add(i * IN + j)).wrapping_add(channel + t.ahead));
                }
            }
        }
        let to = t.to.add(channel / BLOCK * t.block + channel % BLOCK);
        for i in (0..IN / 2).map(|i| HALF * IN / 2 + i) {
            for (j, &v) in F::input::<S>(rows[i]).iter().enumerate() {
                S::store(to.add((i * IN + j) * t.position), v);
            }
        }
    }
}

/// # Safety
/// As for `input`.
#[inline(always)]
unsafe fn gradient<S: Simd, F: Form<OUT, IN>, const OUT: usize, const IN: usize>(t: &Spread) {
    // SAFETY: by this function's contract.
    unsafe {
        for channel in (0..t.channels).step_by(S::LANES) {
            let lanes = (t.channels - channel).min(S::LANES);
            let mut rows = [[S::zero(); OUT]; IN];
            for j in 0..OUT {
                let column = core::array::from_fn(|i| {
                    let at = (*t.from.add(i * OUT + j)).add(channel);
                    S::prefetch(at.wrapping_add(t.ahead));
                    if lanes == S::LANES { S::load(at) } else { S::load_masked(at, S::mask(lanes)) }
                });
                let column = F::gradient::<S>(column);
                rows.iter_mut().zip(column).for_each(|(row, v)| row[j] = v);
            }
            let to = t.to.add(channel / BLOCK * t.block + channel % BLOCK);
            for (i, &row) in rows.iter().enumerate() {
                for (j, &v) in F::gradient::<S>(row).iter().enumerate() {
                    S::store(to.add((i * IN + j) * t.position), v);
                }
            }
        }
    }
}

/// # Safety
/// As for `input`.
#[inline(always)]
unsafe fn output<S: Simd, F: Form<OUT, IN>, const OUT: usize, const IN: usize>(t: &Gather) {
    // SAFETY: by this function's contract.
    unsafe {
        for channel in (0..t.channels).step_by(S::LANES) {
            let lanes = (t.channels - channel).min(S::LANES);
            let (whole, mask) = (lanes == S::LANES, S::mask(lanes));
            let mut rows = [[S::zero(); IN]; OUT];
            for j in 0..IN {
                let column =
                    core::array::from_fn(|i| S::load(t.from.add((i * IN + j) * t.position + channel)));
                let column = F::output::<S>(column);
                rows.iter_mut().zip(column).for_each(|(row, v)| row[j] = v);
            }
            let load = |at: *const f32| if whole { S::load(at) } else { S::load_masked(at, mask) };
            // One short loop after the other, for the compiler to unroll.
            let mut out = rows.map(|row| F::output::<S>(row));
            let to = |i: usize, j: usize| (*t.to.add(i * OUT + j)).add(channel);
            if !t.bias.is_null() {
                let bias = load(t.bias.add(channel));
                out.iter_mut().for_each(|row| (0..OUT).for_each(|j| row[j] = S::add(row[j], bias)));
            }
            if t.add {
                for (i, row) in out.iter_mut().enumerate() {
                    (0..OUT).for_each(|j| row[j] = S::add(row[j], load(to(i, j))));
                }
            }
            let [scale, shift] = t.affine;
            if !scale.is_null() {
                let (scale, shift) = (load(scale.add(channel)), load(shift.add(channel)));
                out.iter_mut().for_each(|row| (0..OUT).for_each(|j| row[j] = S::fma(row[j], scale, shift)));
            }
            if let Some(most) = t.relu {
                let most = S::set(most);
                out.iter_mut().for_each(|row| (0..OUT).for_each(|j| row[j] = S::min(S::relu(row[j]), most)));
            }
            for (i, row) in out.iter().enumerate() {
                for (j, &v) in row.iter().enumerate() {
                    if whole { S::store(to(i, j), v) } else { S::store_masked(to(i, j), mask, v) }
                }
            }
        }
    }
}

/// # Safety
/// As for `input`.
#[inline(always)]
unsafe fn filter<S: Simd, F: Form<OUT, IN>, const OUT: usize, const IN: usize>(t: &Filter) {
    // SAFETY: by this function's contract; there is room for a whole vector.
    unsafe {
        let mask = S::mask(t.lanes);
        let mut rows = [[S::zero(); 3]; IN];
        for j in 0..3 {
            let column = F::filter::<S>(core::array::from_fn(|i| S::load_masked(t.from[3 * i + j], mask)));
            rows.iter_mut().zip(column).for_each(|(row, v)| row[j] = v);
        }
        for (i, &row) in rows.iter().enumerate() {
            for (j, &v) in F::filter::<S>(row).iter().enumerate() {
                S::store(t.to.add((i * IN + j) * t.position), v);
            }
        }
    }
}

/// # Safety
/// As for `input`.
#[inline(always)]
unsafe fn filter_gradient<S: Simd, F: Form<OUT, IN>, const OUT: usize, const IN: usize>(t: &FilterGradient) {
    // SAFETY: by this function's contract; there is room for a whole vector of sums.
    unsafe {
        let mut rows = [[S::zero(); IN]; 3];
        for j in 0..IN {
            let column = core::array::from_fn(|i| {
                let from = t.from.add((i * IN + j) * t.position);
                (1..t.parts).fold(S::load(from), |sum, part| S::add(sum, S::load(from.add(part * t.part))))
            });
            let column = F::filter_gradient::<S>(column);
            rows.iter_mut().zip(column).for_each(|(row, v)| row[j] = v);
        }
        let mask = S::mask(t.lanes);
        for (i, &row) in rows.iter().enumerate() {
            for (j, &v) in F::filter_gradient::<S>(row).iter().enumerate() {
                S::store_masked(t.to[3 * i + j], mask, v);
            }
        }
    }
}

/// The transforms of one level, for two and for four outputs.
macro_rules! transforms {
    ($table:ident, $simd:ty, $feature:meta) => {
        static $table: [Transforms; 2] = {
            transforms!(one two_outputs, $simd, $feature, F2, 2, 4);
            transforms!(one four_outputs, $simd, $feature, F4, 4, 6);
            [two_outputs(), four_outputs()]
        };
    };
    (one $name:ident, $simd:ty, $feature:meta, $form:ty, $out:literal, $in:literal) => {
        const fn $name() -> Transforms {
            transforms!(each $simd, $feature, $form, $out, $in; input: Spread, gradient: Spread, output: Gather,
                filter: Filter, filter_gradient: FilterGradient)
        }
    };
    (each $simd:ty, $feature:meta, $form:ty, $out:literal, $in:literal; $($kernel:ident: $task:ty),*) => {{
        $(
            #[$feature]
            unsafe fn $kernel(t: &$task) {
                // SAFETY: the caller's promise.
                unsafe { super::kernels::$kernel::<$simd, $form, $out, $in>(t) }
            }
        )*
        Transforms { $($kernel),* }
    }};
}

transforms!(PORTABLE, Portable, inline(never));
#[cfg(target_arch = "aarch64")]
transforms!(NEON, Neon, inline(never));
#[cfg(target_arch = "x86_64")]
transforms!(AVX2, Avx2, target_feature(enable = "avx2,fma"));
#[cfg(target_arch = "x86_64")]
transforms!(AVX512, Avx512, target_feature(enable = "avx512f"));
