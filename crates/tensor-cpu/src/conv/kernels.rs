//! The inner loops, written once over [`Simd`] and compiled for every [`Level`].

#[cfg(target_arch = "aarch64")]
use crate::simd::Neon;
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512};
use crate::simd::{Level, Portable, Simd};

/// Channels in a block of a packed image: its pixels lie this far apart, so that the rows of a tile are constant
/// displacements from one address.
pub(super) const BLOCK: usize = 16;

/// Elements of a cache line.
const LINE: usize = 16;

/// Pixels that a tile of a weight gradient asks for ahead.
const PIXELS_AHEAD: usize = 8;

/// A tile of outputs, `MR` pixels by `NV` vectors of channels, as sums over taps and channels.
///
/// The first half of the pixels (the larger one) are neighbours in a row, and so is the second half: the same row or
/// another one.
pub(super) struct SumTile {
    /// The first pixel, in the first block of channels, of a packed image, and elements to the second half.
    pub a: *const f32,
    pub a_half: usize,
    /// Elements from a pixel to the one that each tap reads, in a packed image.
    pub taps: *const usize,
    pub tap_count: usize,
    /// Blocks of channels, the distance between them, and the channels of the last one.
    pub blocks: usize,
    pub block_len: usize,
    pub last: usize,
    /// Packed weights: `NV` vectors for every block, tap and channel.
    pub b: *const f32,
    /// What is read after this tile, a cache line of which is asked for with every channel.
    pub ahead: *const f32,
    /// The first output, elements from one pixel to the next, and to the second half.
    pub y: *mut f32,
    pub y_step: usize,
    pub y_half: usize,
    /// Lanes of the last vector that exist.
    pub lanes: usize,
    /// What to add to the sums: one number a channel unless null, and what `y` held.
    pub bias: *const f32,
    pub add: bool,
    /// What to multiply with then, and to add: one number a channel each, unless null.
    pub affine: [*const f32; 2],
    pub relu: Option<f32>,
}

/// A tile of a weight gradient, `MR` inputs by `NV` vectors of outputs, as sums over pixels.
pub(super) struct GradTile {
    /// The first pixel's first input; elements from one pixel, row and image to the next.
    pub a: *const f32,
    pub a_steps: [usize; 3],
    /// The same of the output's gradient: whole vectors.
    pub b: *const f32,
    pub b_steps: [usize; 3],
    /// Pixels in a row, rows and images.
    pub counts: [usize; 3],
    /// The first sum, and elements from one input's sums to the next.
    pub out: *mut f32,
    pub out_step: usize,
    /// Lanes of the last vector of sums that exist.
    pub lanes: usize,
    /// Whether to add to what `out` held.
    pub add: bool,
}

/// A run of pixels to copy into blocks of channels.
pub(super) struct PackRun {
    /// The first pixel, and elements from one to the next.
    pub src: *const f32,
    pub src_step: usize,
    /// Elements to those that are asked for meanwhile, since they are copied next.
    pub ahead: usize,
    /// The first pixel's first block, and elements from one pixel and block to the next.
    pub dst: *mut f32,
    pub dst_step: usize,
    pub block_len: usize,
    pub count: usize,
    /// Blocks of channels, and the channels of the last one.
    pub blocks: usize,
    pub last: usize,
}

pub(super) type SumKernel = unsafe fn(&SumTile);
pub(super) type GradKernel = unsafe fn(&GradTile);

/// The kernels of one level.
pub(super) struct Kernels {
    /// Lanes of a vector.
    pub width: usize,
    /// `sum[nv - 1][mr - 1]` is the kernel of that tile.
    pub sum: &'static [&'static [SumKernel]],
    /// `grad[nv - 1][mr - 1]` is the kernel of that tile.
    pub grad: &'static [&'static [GradKernel]],
    pub pack: unsafe fn(&PackRun),
}

impl Kernels {
    pub(super) fn of(level: Level) -> &'static Kernels {
        match level {
            Level::Portable => &PORTABLE,
            #[cfg(target_arch = "aarch64")]
            Level::Neon => &NEON,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => &AVX2,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => &AVX512,
        }
    }
}

/// # Safety
/// The level's instructions exist, and every address that the tile describes is valid.
#[inline(always)]
unsafe fn sum<S: Simd, const MR: usize, const NV: usize>(t: &SumTile) {
    // SAFETY: by this function's contract; `a` stays in a packed image and `b` in packed weights, `y` inside the output.
    unsafe {
        let half = MR.div_ceil(2);
        let y = |r: usize| {
            if r < half { t.y.add(r * t.y_step) } else { t.y.add(t.y_half + (r - half) * t.y_step) }
        };
        for r in 0..MR {
            for j in 0..NV {
                S::prefetch(y(r).add(j * S::LANES));
            }
        }
        let mut acc = [[S::zero(); NV]; MR];
        let (mut b, mut ahead) = (t.b, t.ahead);
        for block in 0..t.blocks {
            let count = if block + 1 == t.blocks { t.last } else { BLOCK };
            let first = t.a.add(block * t.block_len);
            for tap in 0..t.tap_count {
                let a = first.add(*t.taps.add(tap));
                // The pixels of the next tap, one in each round of this one.
                let next = if tap + 1 < t.tap_count {
                    first.wrapping_add(*t.taps.add(tap + 1))
                } else {
                    first.wrapping_add(t.block_len + *t.taps)
                };
                for i in 0..count {
                    S::prefetch(next.wrapping_add(i * BLOCK));
                    S::prefetch(ahead);
                    ahead = ahead.wrapping_add(LINE);
                    let w: [S::Vec; NV] = core::array::from_fn(|j| S::load(b.add(j * S::LANES)));
                    for (r, acc) in acc.iter_mut().enumerate() {
                        let x =
                            if r < half { a.add(r * BLOCK) } else { a.add(t.a_half + (r - half) * BLOCK) };
                        let x = S::splat(x.add(i));
                        for (acc, &w) in acc.iter_mut().zip(&w) {
                            *acc = S::fma(x, w, *acc);
                        }
                    }
                    b = b.add(NV * S::LANES);
                }
            }
        }
        // One short loop after the other, for the compiler to unroll: else it keeps the sums in memory.
        let mask = S::mask(t.lanes);
        let load = |at: *const f32, j: usize| {
            let at = at.add(j * S::LANES);
            if j + 1 < NV { S::load(at) } else { S::load_masked(at, mask) }
        };
        if !t.bias.is_null() {
            let bias: [S::Vec; NV] = core::array::from_fn(|j| load(t.bias, j));
            acc.iter_mut().for_each(|acc| (0..NV).for_each(|j| acc[j] = S::add(acc[j], bias[j])));
        }
        if t.add {
            let y = |r: usize| y(r).cast_const();
            (0..MR).for_each(|r| (0..NV).for_each(|j| acc[r][j] = S::add(acc[r][j], load(y(r), j))));
        }
        let [scale, shift] = t.affine;
        if !scale.is_null() {
            let scale: [S::Vec; NV] = core::array::from_fn(|j| load(scale, j));
            let shift: [S::Vec; NV] = core::array::from_fn(|j| load(shift, j));
            acc.iter_mut().for_each(|acc| (0..NV).for_each(|j| acc[j] = S::fma(acc[j], scale[j], shift[j])));
        }
        if let Some(most) = t.relu {
            let most = S::set(most);
            acc.iter_mut().for_each(|acc| (0..NV).for_each(|j| acc[j] = S::min(S::relu(acc[j]), most)));
        }
        for (r, acc) in acc.iter().enumerate() {
            for (j, &v) in acc.iter().enumerate() {
                let y = y(r).add(j * S::LANES);
                if j + 1 < NV { S::store(y, v) } else { S::store_masked(y, mask, v) }
            }
        }
    }
}

/// # Safety
/// As for `sum`.
#[inline(always)]
unsafe fn grad<S: Simd, const MR: usize, const NV: usize>(t: &GradTile) {
    // SAFETY: by this function's contract.
    unsafe {
        let mut acc = [[S::zero(); NV]; MR];
        for r in 0..MR {
            (0..NV).for_each(|j| S::prefetch(t.out.add(r * t.out_step + j * S::LANES)));
        }
        for image in 0..t.counts[2] {
            for row in 0..t.counts[1] {
                let mut a = t.a.add(image * t.a_steps[2] + row * t.a_steps[1]);
                let mut b = t.b.add(image * t.b_steps[2] + row * t.b_steps[1]);
                for _ in 0..t.counts[0] {
                    // The compiler moves no load across these: with more of them at a time it would run out of registers.
                    S::prefetch(a.wrapping_add(PIXELS_AHEAD * t.a_steps[0]));
                    let w: [S::Vec; NV] = core::array::from_fn(|j| S::load(b.add(j * S::LANES)));
                    S::prefetch(b.wrapping_add(PIXELS_AHEAD * t.b_steps[0]));
                    for (r, acc) in acc.iter_mut().enumerate() {
                        let x = S::splat(a.add(r));
                        for (acc, &w) in acc.iter_mut().zip(&w) {
                            *acc = S::fma(x, w, *acc);
                        }
                    }
                    a = a.wrapping_add(t.a_steps[0]);
                    b = b.wrapping_add(t.b_steps[0]);
                }
            }
        }
        let mask = S::mask(t.lanes);
        for (r, acc) in acc.iter().enumerate() {
            for (j, &sum) in acc.iter().enumerate() {
                let out = t.out.add(r * t.out_step + j * S::LANES);
                let whole = j + 1 < NV;
                let mut v = sum;
                if t.add {
                    v = S::add(v, if whole { S::load(out) } else { S::load_masked(out, mask) });
                }
                if whole { S::store(out, v) } else { S::store_masked(out, mask, v) }
            }
        }
    }
}

/// # Safety
/// As for `sum`.
#[inline(always)]
unsafe fn pack<S: Simd>(t: &PackRun) {
    // SAFETY: by this function's contract; a destination has room for whole blocks.
    unsafe {
        let parts = BLOCK / S::LANES;
        for i in 0..t.count {
            let src = t.src.add(i * t.src_step);
            let dst = t.dst.add(i * t.dst_step);
            for block in 0..t.blocks - 1 {
                for part in (0..parts).map(|part| part * S::LANES) {
                    S::prefetch(src.wrapping_add(t.ahead + block * BLOCK + part));
                    let v = S::load(src.add(block * BLOCK + part));
                    S::store(dst.add(block * t.block_len + part), v);
                }
            }
            let block = t.blocks - 1;
            for part in (0..parts).map(|part| part * S::LANES).take_while(|&part| part < t.last) {
                S::prefetch(src.wrapping_add(t.ahead + block * BLOCK + part));
                let lanes = (t.last - part).min(S::LANES);
                let v = S::load_masked(src.add(block * BLOCK + part), S::mask(lanes));
                S::store(dst.add(block * t.block_len + part), v);
            }
        }
    }
}

/// The kernels of one level, with at most so many rows for one, two, ... vectors of columns.
///
/// 9 rows of 3 vectors would fit the registers of AVX-512, but of `sum` the compiler then keeps the sums in memory, which
/// takes twice the time; so it does with more than 10 rows for NEON.
macro_rules! kernels {
    (
        $table:ident, $simd:ty, [$($feature:literal)?],
        sum: $($nv:literal: $($mr:literal)*;)* grad: $($grad_nv:literal: $($grad_mr:literal)*;)*
    ) => {
        static $table: Kernels = {
            $(#[target_feature(enable = $feature)])?
            unsafe fn sum_tile<const MR: usize, const NV: usize>(t: &SumTile) {
                // SAFETY: the caller's promise.
                unsafe { sum::<$simd, MR, NV>(t) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn grad_tile<const MR: usize, const NV: usize>(t: &GradTile) {
                // SAFETY: the caller's promise.
                unsafe { grad::<$simd, MR, NV>(t) }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn pack_run(t: &PackRun) {
                // SAFETY: the caller's promise.
                unsafe { pack::<$simd>(t) }
            }
            Kernels {
                width: <$simd as Simd>::LANES,
                sum: &[$(&[$(sum_tile::<$mr, $nv>),*]),*],
                grad: &[$(&[$(grad_tile::<$grad_mr, $grad_nv>),*]),*],
                pack: pack_run,
            }
        };
    };
}

kernels!(PORTABLE, Portable, [],
    sum: 1: 1 2 3 4; 2: 1 2 3 4;
    grad: 1: 1 2 3 4; 2: 1 2 3 4;
);
#[cfg(target_arch = "aarch64")]
kernels!(NEON, Neon, [],
    sum: 1: 1 2 3 4 5 6 7 8 9 10; 2: 1 2 3 4 5 6 7 8 9 10; 3: 1 2 3 4 5 6 7 8; 4: 1 2 3 4 5 6;
    grad: 1: 1 2 3 4 5 6 7 8 9 10; 2: 1 2 3 4 5 6 7 8 9 10; 3: 1 2 3 4 5 6 7 8; 4: 1 2 3 4 5 6;
);
#[cfg(target_arch = "x86_64")]
kernels!(AVX2, Avx2, ["avx2,fma"],
    sum: 1: 1 2 3 4 5 6 7 8; 2: 1 2 3 4 5 6; 3: 1 2 3 4;
    grad: 1: 1 2 3 4 5 6 7 8; 2: 1 2 3 4 5 6; 3: 1 2 3 4;
);
#[cfg(target_arch = "x86_64")]
kernels!(AVX512, Avx512, ["avx512f"],
    sum: 1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14; 2: 1 2 3 4 5 6 7 8 9 10 11 12 13 14; 3: 1 2 3 4 5 6 7 8;
    grad: 1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14; 2: 1 2 3 4 5 6 7 8 9 10 11 12 13 14; 3: 1 2 3 4 5 6 7 8 9;
);
