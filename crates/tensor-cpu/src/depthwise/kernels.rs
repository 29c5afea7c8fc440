//! The inner loops, written once over [`Simd`] and compiled for every [`Level`].

#[cfg(target_arch = "aarch64")]
use crate::simd::Neon;
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512};
use crate::simd::{Level, Portable, Simd};
use core::array::from_fn;

/// Channels that are worked on together: the pixels of a packed row lie this far apart.
pub(super) const BLOCK: usize = 16;

/// The taps of a row that a tile of gradients has at most.
const MOST_TAPS: usize = 12;

/// The packed rows of one block of channels: the last ones that were read, in a ring.
#[derive(Clone, Copy)]
pub(super) struct Ring {
    /// The first slot, of plane 0.
    pub start: *const f32,
    /// Elements from one plane to the next, and planes.
    pub plane_len: usize,
    pub planes: usize,
    /// Elements from one slot to the next, and slots.
    pub row_len: usize,
    pub slots: usize,
}

/// Outputs that have the same taps, in one row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    /// Elements from the first of the outputs of all lines to the line's.
    pub out: usize,
    /// Outputs.
    pub count: usize,
    /// Rows under the kernel, the slot of the first of them, and slots from one to the next.
    pub rows: usize,
    pub slot: usize,
    pub slot_step: usize,
    /// Taps in a row, elements of a row before what the first output reads with the first of them, and elements from
    /// one to the next.
    pub taps: usize,
    pub x: usize,
    pub x_step: isize,
    /// Elements before the weights of the first tap, and from one row and one tap to the next.
    pub w: usize,
    pub w_steps: [usize; 2],
}

/// Sums over taps for the outputs of some lines and one block of channels.
pub(super) struct Sums<'a> {
    pub lines: &'a [Line],
    pub ring: Ring,
    /// Elements of a packed row from the pixel that one output reads to that of the next.
    pub step: usize,
    /// Packed weights, and elements of them in a plane.
    pub w: *const f32,
    pub w_plane: usize,
    /// The outputs of all lines, elements from one to the next, and channels that exist.
    pub out: *mut f32,
    pub out_step: usize,
    pub lanes: usize,
    /// What to add to the sums: one number a channel unless null, and what `out` held.
    pub bias: *const f32,
    pub add: bool,
    /// What to multiply with then, and to add: one number a channel each, unless null.
    pub affine: [*const f32; 2],
    pub relu: bool,
}

/// Sums over the pixels of some lines, for each tap and one block of channels.
pub(super) struct Grads<'a> {
    /// Here the outputs are what is read beside the source: the gradient of the output.
    pub lines: &'a [Line],
    pub ring: Ring,
    pub step: usize,
    /// The gradients of all lines, and elements from one to the next.
    pub dy: *const f32,
    pub dy_step: usize,
    /// Vectors of them that are needed.
    pub lanes: usize,
    /// The sums to add to: [`BLOCK`] for each tap.
    pub sums: *mut f32,
    /// Sums of the gradients themselves to add to, unless null.
    pub bias: *mut f32,
}

/// The kernels of one level.
pub(super) struct Kernels {
    pub width: usize,
    pub sums: unsafe fn(&Sums),
    pub grads: unsafe fn(&Grads),
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

/// `T` outputs of a line by `V` vectors.
///
/// # Safety
/// The level's instructions exist, and every address that the sums describe is valid.
#[allow(clippy::needless_range_loop, reason = "iterators with closures would keep the sums in memory")]
#[inline(always)]
unsafe fn tile<S: Simd, const T: usize, const V: usize>(s: &Sums, line: &Line, at: usize, step: usize) {
    // SAFETY: by this function's contract.
    unsafe {
        let out = s.out.add(line.out + at * s.out_step);
        for t in 0..T {
            S::prefetch(out.add(t * s.out_step));
        }
        let mut acc = [[S::zero(); V]; T];
        for plane in 0..s.ring.planes {
            let start = s.ring.start.add(plane * s.ring.plane_len + line.x + at * step);
            let mut w_row = s.w.add(plane * s.w_plane + line.w);
            let mut slot = line.slot;
            for _ in 0..line.rows {
                let (mut x, mut w) = (start.add(slot * s.ring.row_len), w_row);
                for _ in 0..line.taps {
                    let mut weights = [S::zero(); V];
                    for j in 0..V {
                        weights[j] = S::load(w.add(j * S::LANES));
                    }
                    for t in 0..T {
                        for j in 0..V {
                            acc[t][j] =
                                S::fma(S::load(x.add(t * step + j * S::LANES)), weights[j], acc[t][j]);
                        }
                    }
                    x = x.wrapping_offset(line.x_step);
                    w = w.wrapping_add(line.w_steps[1]);
                }
                w_row = w_row.wrapping_add(line.w_steps[0]);
                slot += line.slot_step;
                slot -= if slot >= s.ring.slots { s.ring.slots } else { 0 };
            }
        }
        // No closure has the sums, since the compiler may keep those in memory; and one short loop comes after the
        // other, for it to unroll.
        let mask = S::mask(s.lanes - (V - 1) * S::LANES);
        // Masked stores are slow on some processors.
        let all = s.lanes == V * S::LANES;
        if !s.bias.is_null() {
            for j in 0..V {
                let bias = numbers::<S>(s.bias, j, all || j + 1 < V, mask);
                for t in 0..T {
                    acc[t][j] = S::add(acc[t][j], bias);
                }
            }
        }
        if s.add {
            for t in 0..T {
                for j in 0..V {
                    let old = numbers::<S>(out.add(t * s.out_step), j, all || j + 1 < V, mask);
                    acc[t][j] = S::add(acc[t][j], old);
                }
            }
        }
        let [scale, shift] = s.affine;
        if !scale.is_null() {
            for j in 0..V {
                let scale = numbers::<S>(scale, j, all || j + 1 < V, mask);
                let shift = numbers::<S>(shift, j, all || j + 1 < V, mask);
                for t in 0..T {
                    acc[t][j] = S::add(S::mul(acc[t][j], scale), shift);
                }
            }
        }
        if s.relu {
            for t in 0..T {
                for j in 0..V {
                    acc[t][j] = S::relu(acc[t][j]);
                }
            }
        }
        for t in 0..T {
            for j in 0..V {
                let out = out.add(t * s.out_step + j * S::LANES);
                if all || j + 1 < V {
                    S::store(out, acc[t][j])
                } else {
                    S::store_masked(out, mask, acc[t][j])
                }
            }
        }
    }
}

/// Vector `j` of some numbers of channels: a whole one, or the lanes that exist.
///
/// # Safety
/// As for [`tile`].
#[inline(always)]
unsafe fn numbers<S: Simd>(from: *const f32, j: usize, whole: bool, mask: S::Mask) -> S::Vec {
    // SAFETY: by this function's contract.
    unsafe {
        let at = from.add(j * S::LANES);
        if whole { S::load(at) } else { S::load_masked(at, mask) }
    }
}

/// `R` rows of `N` taps, for one vector of channels, `j` elements into the block.
///
/// # Safety
/// As for [`tile`].
#[inline(always)]
unsafe fn grad_tile<S: Simd, const R: usize, const N: usize>(
    g: &Grads,
    line: &Line,
    (row, tap): (usize, usize),
    x_step: isize,
    j: usize,
) {
    // SAFETY: by this function's contract.
    unsafe {
        let mut x: [*const f32; R] = from_fn(|r| {
            let slot = (line.slot + (row + r) * line.slot_step) % g.ring.slots;
            g.ring.start.add(slot * g.ring.row_len + line.x + j).wrapping_offset(tap as isize * x_step)
        });
        let mut dy = g.dy.add(line.out + j);
        let mut acc = [[S::zero(); N]; R];
        for _ in 0..line.count {
            let d = S::load(dy);
            for (acc, x) in acc.iter_mut().zip(&mut x) {
                for (n, acc) in acc.iter_mut().enumerate() {
                    *acc = S::fma(S::load(x.wrapping_offset(n as isize * x_step)), d, *acc);
                }
                *x = x.wrapping_add(g.step);
            }
            dy = dy.wrapping_add(g.dy_step);
        }
        for (r, acc) in acc.iter().enumerate() {
            let sums = g.sums.add(line.w + (row + r) * line.w_steps[0] + tap * line.w_steps[1] + j);
            for (n, &v) in acc.iter().enumerate() {
                let sum = sums.add(n * line.w_steps[1]);
                S::store(sum, S::add(S::load(sum), v));
            }
        }
    }
}

/// # Safety
/// As for [`tile`].
#[inline(always)]
unsafe fn bias_sums<S: Simd>(g: &Grads, line: &Line, j: usize) {
    // SAFETY: by this function's contract.
    unsafe {
        let (first, step) = (g.dy.add(line.out + j), g.dy_step);
        let mut acc = [S::zero(); 4];
        for at in 0..line.count / 4 {
            for (k, acc) in acc.iter_mut().enumerate() {
                *acc = S::add(*acc, S::load(first.add((4 * at + k) * step)));
            }
        }
        for at in line.count / 4 * 4..line.count {
            acc[0] = S::add(acc[0], S::load(first.add(at * step)));
        }
        let sum = S::add(S::add(acc[0], acc[1]), S::add(acc[2], acc[3]));
        S::store(g.bias.add(j), S::add(S::load(g.bias.add(j)), sum));
    }
}

/// `$of` compiled for one level.
macro_rules! kernels {
    ($table:ident, $simd:ty, [$($feature:literal)?], sums: $($v:literal)*, $most:literal: $($t:literal)*;
     grads: $most_sums:literal: $($n:literal)*, [$($rows:literal of $taps:literal),*]) => {
        static $table: Kernels = {
            type S = $simd;
            $(#[target_feature(enable = $feature)])?
            unsafe fn lines<const V: usize, const STEP: usize>(s: &Sums) {
                let step = if STEP == 0 { s.step } else { STEP };
                for line in s.lines {
                    let tiles = line.count.div_ceil($most);
                    let mut at = 0;
                    for k in 0..tiles {
                        let outputs = line.count / tiles + usize::from(k < line.count % tiles);
                        match outputs {
                            $(
                                // SAFETY: the caller's promise.
                                $t => unsafe { tile::<S, $t, V>(s, line, at, step) },
                            )*
                            _ => unreachable!("a tile has at most {} outputs", $most),
                        }
                        at += outputs;
                    }
                }
            }
            unsafe fn sums(s: &Sums) {
                let vectors = s.lanes.div_ceil(S::LANES);
                // SAFETY: the caller's promise.
                unsafe {
                    match (vectors, s.step / BLOCK) {
                        $(
                            ($v, 1) => lines::<$v, BLOCK>(s),
                            ($v, 2) => lines::<$v, { 2 * BLOCK }>(s),
                            ($v, _) => lines::<$v, 0>(s),
                        )*
                        _ => unreachable!("a block has at most {BLOCK} channels"),
                    }
                }
            }
            $(#[target_feature(enable = $feature)])?
            unsafe fn grad_lines<const STEP: isize>(g: &Grads) {
                for line in g.lines {
                    let x_step = if STEP == 0 { line.x_step } else { STEP };
                    let chunks = line.taps.div_ceil(MOST_TAPS).max(1);
                    for j in (0..g.lanes).step_by(S::LANES) {
                        if !g.bias.is_null() {
                            // SAFETY: the caller's promise.
                            unsafe { bias_sums::<S>(g, line, j) };
                        }
                        let mut tap = 0;
                        for chunk in 0..chunks {
                            let taps = line.taps / chunks + usize::from(chunk < line.taps % chunks);
                            let mut row = 0;
                            while row < line.rows {
                                let left = line.rows - row;
                                // SAFETY: the caller's promise.
                                row += unsafe {
                                    match (left, taps) {
                                        $((left, $taps) if left >= $rows => {
                                            grad_tile::<S, $rows, $taps>(g, line, (row, tap), x_step, j);
                                            $rows
                                        })*
                                        $((_, $n) => {
                                            grad_tile::<S, 1, $n>(g, line, (row, tap), x_step, j);
                                            1
                                        })*
                                        _ => left,
                                    }
                                };
                            }
                            tap += taps;
                        }
                    }
                }
            }
            unsafe fn grads(g: &Grads) {
                let near = g.lines.iter().all(|line| line.x_step == BLOCK as isize);
                // SAFETY: the caller's promise.
                unsafe { if near { grad_lines::<{ BLOCK as isize }>(g) } else { grad_lines::<0>(g) } }
            }
            Kernels { width: <S as Simd>::LANES, sums, grads }
        };
    };
}

kernels!(PORTABLE, Portable, [], sums: 1 2, 2: 1 2; grads: 12: 1 2 3 4 5 6 7 8 9 10 11 12, []);
#[cfg(target_arch = "aarch64")]
kernels!(NEON, Neon, [], sums: 1 2 3 4, 6: 1 2 3 4 5 6;
    grads: 28: 1 2 3 4 5 6 7 8 9 10 11 12, [3 of 3, 5 of 5, 3 of 5, 2 of 5, 2 of 3, 3 of 7, 2 of 7, 2 of 9]);
#[cfg(target_arch = "x86_64")]
kernels!(AVX2, Avx2, ["avx2,fma"], sums: 1 2, 7: 1 2 3 4 5 6 7;
    grads: 12: 1 2 3 4 5 6 7 8 9 10 11 12, [3 of 3, 2 of 3, 2 of 5]);
#[cfg(target_arch = "x86_64")]
kernels!(AVX512, Avx512, ["avx512f"], sums: 1, 14: 1 2 3 4 5 6 7 8 9 10 11 12 13 14;
    grads: 28: 1 2 3 4 5 6 7 8 9 10 11 12, [3 of 3, 5 of 5, 3 of 5, 2 of 5, 2 of 3, 3 of 7, 2 of 7, 2 of 9]);
