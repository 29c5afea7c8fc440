//! AMX: a unit beside each core that multiplies tiles, sixteen times the products of vectors of 32 bits. What it takes is
//! laid out by AVX-512 and its instructions for numbers of 16 bits, which every processor with AMX has.

use super::tile::{Aligned, DEPTH, SIDE, TILE_HALVES, TILE_SUMS};
use super::tiles::{FinishRun, Narrow, Pairs, Product, Tiles, Walk};
use crate::element::Bf16;
use core::arch::asm;
use core::arch::x86_64::*;
use core::mem::offset_of;
use std::sync::OnceLock;

pub(super) static TILES: Tiles = Tiles {
    begin,
    end,
    product: [[product_1_1, product_1_2], [product_2_1, product_2_2]],
    spread,
    pair,
    columns,
    narrow,
    weave,
    turn,
    finish,
};

/// Whether the processor has AMX for bf16, and the system lets this process use it. The system is asked once.
pub(super) fn available() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let vectors = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512bf16");
        vectors && has_tiles() && permitted()
    })
}

/// Bits 22 (AMX-BF16) and 24 (AMX-TILE) of CPUID.
fn has_tiles() -> bool {
    const BITS: u32 = 1 << 22 | 1 << 24;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & BITS == BITS
}

/// Asks Linux for the 8 KiB of state that a thread with tiles has. It counts for all threads of the process.
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    // From the kernel's headers for this processor; `libc` has not got them.
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call takes two numbers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}

/// The shapes of all eight tiles, as the processor wants to be told.
static SHAPES: Aligned<u8, 64> = {
    let mut shapes = [0; 64];
    shapes[0] = 1;
    let mut tile = 0;
    while tile < 8 {
        shapes[16 + 2 * tile] = 64;
        shapes[48 + tile] = SIDE as u8;
        tile += 1;
    }
    Aligned(shapes)
};

unsafe fn begin() {
    // SAFETY: the processor has tiles, and the shapes are valid.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &SHAPES, options(nostack, readonly)) }
}

/// Tells the processor that the tiles hold nothing any more, so that the system need not save them.
unsafe fn end() {
    // SAFETY: the processor has tiles.
    unsafe { asm!("tilerelease", options(nostack, nomem)) }
}

/// A product of one or two tiles with one or two. The sums of `a_i b_j` are tile `2 i + j`. A line that a smaller product
/// does without is made a comment by `$i` or `$j`.
macro_rules! product {
    ($name:ident, $i:literal, $j:literal) => {
        unsafe fn $name(t: &Product) {
            // SAFETY: the CPU has tiles, this thread has configured their shapes, and the product is valid.
            unsafe {
                asm!(
                    "mov {out}, [{t} + {OUT}]",
                    "mov {out1}, [{t} + {OUT_HALF}]",
                    "add {out1}, {out}",
                    "mov {row:e}, 64",
                    "mov {a_row}, [{t} + {A_ROW}]",
                    "cmp qword ptr [{t} + {ADD}], 0",
                    "jne 2f",
                    "tilezero tmm0",
                    concat!($j, "tilezero tmm1"),
                    concat!($i, "tilezero tmm2"),
                    concat!($i, $j, "tilezero tmm3"),
                    "jmp 3f",
                    "2:",
                    "tileloadd tmm0, [{out} + {row}*1]",
                    concat!($j, "tileloadd tmm1, [{out} + {row}*1 + 1024]"),
                    concat!($i, "tileloadd tmm2, [{out1} + {row}*1]"),
                    concat!($i, $j, "tileloadd tmm3, [{out1} + {row}*1 + 1024]"),
                    "3:",
                    "mov {b}, [{t} + {B}]",
                    "mov {b1}, [{t} + {B_HALF}]",
                    "add {b1}, {b}",
                    "mov {taps}, [{t} + {TAPS}]",
                    "mov {tap_count}, [{t} + {TAP_COUNT}]",
                    "4:",
                    "mov {a}, [{taps}]",
                    "add {a}, [{t} + {A}]",
                    "mov {a1}, [{t} + {A_HALF}]",
                    "add {a1}, {a}",
                    "mov {steps}, [{t} + {STEPS}]",
                    "5:",
                    "tileloadd tmm4, [{a} + {a_row}*1]",
                    "tileloadd tmm6, [{b} + {row}*1]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    concat!($j, "tileloadd tmm7, [{b1} + {row}*1]"),
                    concat!($j, "tdpbf16ps tmm1, tmm4, tmm7"),
                    concat!($i, "tileloadd tmm5, [{a1} + {a_row}*1]"),
                    concat!($i, "tdpbf16ps tmm2, tmm5, tmm6"),
                    concat!($i, $j, "tdpbf16ps tmm3, tmm5, tmm7"),
                    "add {a}, [{t} + {A_STEP}]",
                    "add {a1}, [{t} + {A_STEP}]",
                    "add {b}, [{t} + {B_STEP}]",
                    "add {b1}, [{t} + {B_STEP}]",
                    "dec {steps}",
                    "jnz 5b",
                    "add {taps}, 8",
                    "dec {tap_count}",
                    "jnz 4b",
                    "tilestored [{out} + {row}*1], tmm0",
                    concat!($j, "tilestored [{out} + {row}*1 + 1024], tmm1"),
                    concat!($i, "tilestored [{out1} + {row}*1], tmm2"),
                    concat!($i, $j, "tilestored [{out1} + {row}*1 + 1024], tmm3"),
                    t = in(reg) t,
                    row = out(reg) _,
                    a_row = out(reg) _,
                    out = out(reg) _,
                    out1 = out(reg) _,
                    a = out(reg) _,
                    a1 = out(reg) _,
                    b = out(reg) _,
                    b1 = out(reg) _,
                    taps = out(reg) _,
                    tap_count = out(reg) _,
                    steps = out(reg) _,
                    A = const offset_of!(Product, a),
                    A_ROW = const offset_of!(Product, a_row),
                    A_HALF = const offset_of!(Product, a_half),
                    A_STEP = const offset_of!(Product, a_step),
                    B = const offset_of!(Product, b),
                    B_HALF = const offset_of!(Product, b_half),
                    B_STEP = const offset_of!(Product, b_step),
                    TAPS = const offset_of!(Product, taps),
                    TAP_COUNT = const offset_of!(Product, tap_count),
                    STEPS = const offset_of!(Product, steps),
                    OUT = const offset_of!(Product, out),
                    OUT_HALF = const offset_of!(Product, out_half),
                    ADD = const offset_of!(Product, add),
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                )
            }
        }
    };
}

product!(product_1_1, "#", "#");
product!(product_1_2, "#", "");
product!(product_2_1, "", "#");
product!(product_2_2, "", "");

/// The first so many of 16 lanes, or of 32.
fn lanes16(count: usize) -> __mmask16 {
    ((1u32 << count.min(SIDE)) - 1) as __mmask16
}

fn lanes32(count: usize) -> __mmask32 {
    ((1u64 << count.min(DEPTH)) - 1) as __mmask32
}

/// # Safety
/// The processor has AVX-512 BW, and the walk is valid.
#[inline(always)]
unsafe fn each_pixel(walk: &Walk, emit: impl FnMut(__m512i)) {
    // SAFETY: this function's contract; lanes that are masked out are not touched.
    unsafe {
        let load = |at: *const Bf16, mask| _mm512_maskz_loadu_epi16(mask, at.cast());
        walk.each_pixel(_mm512_setzero_si512(), load, |a, b| _mm512_or_si512(a, b), emit);
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn spread(walk: &Walk, mut to: *mut u16) {
    // SAFETY: this function's contract; the line has room for each pixel.
    unsafe {
        each_pixel(walk, |pixel| {
            _mm512_storeu_si512(to.cast(), pixel);
            to = to.add(DEPTH);
        });
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn pair(walk: &Walk, to: &Pairs) {
    // SAFETY: this function's contract.
    unsafe {
        match (to.pairings > 1, walk.channels > SIDE) {
            (false, false) => pair_pixels::<false, false>(walk, to),
            (false, true) => pair_pixels::<false, true>(walk, to),
            (true, false) => pair_pixels::<true, false>(walk, to),
            (true, true) => pair_pixels::<true, true>(walk, to),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn pair_pixels<const BOTH: bool, const WIDE: bool>(walk: &Walk, to: &Pairs) {
    let zero = _mm512_setzero_si512();
    let (mut before, mut place) = (zero, 0);
    let mut emit = |pixel: __m512i| {
        // The pixels of places `place - 1` and `place`.
        if place > 0 && (BOTH || place % 2 == 1) {
            let pairing = (place - 1) % 2;
            // SAFETY: there is room for each pair.
            unsafe {
                let at = to.dst.add(pairing * to.pairing_len + (place - 1) / 2 * DEPTH);
                _mm512_storeu_si512(at.cast(), woven(_mm512_shuffle_i64x2::<0x44>(before, pixel)));
                if WIDE {
                    let high = woven(_mm512_shuffle_i64x2::<0xee>(before, pixel));
                    _mm512_storeu_si512(at.add(to.tile_len).cast(), high);
                }
            }
        }
        (before, place) = (pixel, place + 1);
    };
    // SAFETY: this function's contract.
    unsafe { each_pixel(walk, &mut emit) };
    emit(zero);
}

#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn columns(walk: &Walk, to: *mut u16, tile_len: usize) {
    let mut pairs = Aligned([0u16; 2 * TILE_HALVES]);
    let (mut before, mut place) = (_mm512_setzero_si512(), 0);
    let emit = |pixel: __m512i| {
        if place % 2 == 1 {
            let halves =
                [_mm512_shuffle_i64x2::<0x44>(before, pixel), _mm512_shuffle_i64x2::<0xee>(before, pixel)];
            for (tile, half) in pairs.0.chunks_exact_mut(TILE_HALVES).zip(halves) {
                let row = &mut tile[place / 2 % SIDE * DEPTH..][..DEPTH];
                // SAFETY: the row is as long as a vector.
                unsafe { _mm512_storeu_si512(row.as_mut_ptr().cast(), woven(half)) };
            }
        }
        (before, place) = (pixel, place + 1);
        if place % DEPTH == 0 {
            for (index, tile) in
                pairs.0.chunks_exact(TILE_HALVES).take(walk.channels.div_ceil(SIDE)).enumerate()
            {
                // SAFETY: there is room for each tile.
                unsafe { turn(tile.as_ptr(), to.add(index * tile_len + (place - DEPTH) * SIDE)) };
            }
        }
    };
    // SAFETY: this function's contract.
    unsafe { each_pixel(walk, emit) };
}

/// Of 16 numbers `a` and as many `b`, `a0 b0 a1 b1 ...`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn woven(numbers: __m512i) -> __m512i {
    const ORDER: Aligned<u16, DEPTH> = {
        let mut order = [0; DEPTH];
        let mut at = 0;
        while at < DEPTH {
            order[at] = (at / 2 + at % 2 * SIDE) as u16;
            at += 1;
        }
        Aligned(order)
    };
    // SAFETY: the order is as long as a vector.
    let order = unsafe { _mm512_load_si512(ORDER.0.as_ptr().cast()) };
    _mm512_permutexvar_epi16(order, numbers)
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn narrow(run: &Narrow) {
    for row in 0..run.count {
        // SAFETY: by the run's description; lanes that are masked out are not touched.
        unsafe {
            let (from, to) = (run.src.add(row * run.src_step), run.dst.add(row * run.row));
            let low = _mm512_maskz_loadu_ps(lanes16(run.len), from);
            if run.row == DEPTH {
                let high = lanes16(run.len.saturating_sub(SIDE));
                let high = _mm512_maskz_loadu_ps(high, from.wrapping_add(SIDE));
                let both: __m512i = core::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
                _mm512_storeu_si512(to.cast(), both);
            } else {
                let half: __m256i = core::mem::transmute(_mm512_cvtneps_pbh(low));
                _mm256_storeu_si256(to.cast(), half);
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn weave(from: *const u16, to: *mut u16) {
    for row in 0..SIDE {
        // SAFETY: both tiles have 16 rows.
        unsafe {
            let numbers = _mm512_loadu_si512(from.add(row * DEPTH).cast());
            _mm512_storeu_si512(to.add(row * DEPTH).cast(), woven(numbers));
        }
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn turn(from: *const u16, to: *mut u16) {
    // SAFETY: both tiles have 16 rows of 32 numbers.
    let rows: [__m512i; SIDE] =
        core::array::from_fn(|row| unsafe { _mm512_loadu_si512(from.add(row * DEPTH).cast()) });
    // Of four rows each, the pairs of one column behind each other in a quarter of a vector; then these quarters.
    let mut fours = [rows[0]; SIDE];
    for (rows, fours) in rows.chunks_exact(4).zip(fours.chunks_exact_mut(4)) {
        let low = [0, 2].map(|row| _mm512_unpacklo_epi32(rows[row], rows[row + 1]));
        let high = [0, 2].map(|row| _mm512_unpackhi_epi32(rows[row], rows[row + 1]));
        fours[0] = _mm512_unpacklo_epi64(low[0], low[1]);
        fours[1] = _mm512_unpackhi_epi64(low[0], low[1]);
        fours[2] = _mm512_unpacklo_epi64(high[0], high[1]);
        fours[3] = _mm512_unpackhi_epi64(high[0], high[1]);
    }
    for column in 0..4 {
        let quarters = |first: usize| {
            let (a, b) = (fours[first + column], fours[first + 4 + column]);
            [_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b)]
        };
        let (upper, lower) = (quarters(0), quarters(8));
        for odd in 0..2 {
            let (a, b) = (upper[odd], lower[odd]);
            // SAFETY: as above.
            unsafe {
                let to = to.add((4 * odd + column) * DEPTH);
                _mm512_storeu_si512(to.cast(), _mm512_shuffle_i32x4::<0x88>(a, b));
                _mm512_storeu_si512(to.add(8 * DEPTH).cast(), _mm512_shuffle_i32x4::<0xdd>(a, b));
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn finish(run: &FinishRun) {
    let masks = [run.columns, run.columns.saturating_sub(SIDE)].map(lanes16);
    // SAFETY: by the run's description; lanes that are masked out are not touched.
    let load = |at: *const f32| unsafe {
        [0, 1].map(|half| _mm512_maskz_loadu_ps(masks[half], at.wrapping_add(half * SIDE)))
    };
    let bias = if run.bias.is_null() { [_mm512_setzero_ps(); 2] } else { load(run.bias) };
    let affine = (!run.affine[0].is_null()).then(|| run.affine.map(load));
    for row in 0..run.count {
        // SAFETY: as above; there are two tiles of sums.
        unsafe {
            let (y, sums) = (run.y.add(row * run.y_step).cast(), run.sums.add(row * SIDE));
            let mut v =
                [0, 1].map(|half| _mm512_add_ps(_mm512_loadu_ps(sums.add(half * TILE_SUMS)), bias[half]));
            if run.add {
                let before = _mm512_maskz_loadu_epi16(lanes32(run.columns), y);
                let before = [_mm512_castsi512_si256(before), _mm512_extracti64x4_epi64::<1>(before)];
                let wide = |half| _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(half));
                v = [0, 1].map(|half| _mm512_add_ps(v[half], _mm512_castsi512_ps(wide(before[half]))));
            }
            if let Some([factor, addend]) = affine {
                v = [0, 1].map(|half| _mm512_fmadd_ps(v[half], factor[half], addend[half]));
            }
            if let Some(most) = run.relu {
                // The instructions return their second operand where one is NaN.
                v = v.map(|v| _mm512_max_ps(_mm512_setzero_ps(), v));
                v = v.map(|v| _mm512_min_ps(_mm512_set1_ps(most), v));
            }
            let rounded: __m512i = core::mem::transmute(_mm512_cvtne2ps_pbh(v[1], v[0]));
            _mm512_mask_storeu_epi16(y, lanes32(run.columns), rounded);
        }
    }
}
