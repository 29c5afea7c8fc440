use super::Simd;
use core::arch::aarch64::*;
use core::arch::asm;

/// NEON, which every 64-bit Arm processor has.
#[derive(Clone, Copy)]
pub(crate) struct Neon;

// SAFETY of every block below: the trait's contract, pointers are valid for the lanes touched.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Simd for Neon {
    const LANES: usize = 4;
    type Vec = float32x4_t;
    /// There are no masked loads and stores.
    type Mask = usize;

    #[inline(always)]
    unsafe fn mask(lanes: usize) -> usize {
        lanes
    }
    #[inline(always)]
    unsafe fn zero() -> float32x4_t {
        unsafe { vdupq_n_f32(0.0) }
    }
    #[inline(always)]
    unsafe fn splat(from: *const f32) -> float32x4_t {
        unsafe { vld1q_dup_f32(from) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> float32x4_t {
        unsafe { vld1q_f32(from) }
    }
    #[inline(always)]
    unsafe fn load_masked(from: *const f32, lanes: usize) -> float32x4_t {
        if lanes == 4 {
            return unsafe { Self::load(from) };
        }
        let some: [f32; 4] = core::array::from_fn(|i| if i < lanes { unsafe { *from.add(i) } } else { 0.0 });
        unsafe { Self::load(some.as_ptr()) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, v: float32x4_t) {
        unsafe { vst1q_f32(to, v) }
    }
    #[inline(always)]
    unsafe fn store_masked(to: *mut f32, lanes: usize, v: float32x4_t) {
        if lanes == 4 {
            return unsafe { Self::store(to, v) };
        }
        let mut all = [0.0; 4];
        unsafe { Self::store(all.as_mut_ptr(), v) };
        (0..lanes).for_each(|i| unsafe { *to.add(i) = all[i] });
    }
    #[inline(always)]
    unsafe fn set(value: f32) -> float32x4_t {
        unsafe { vdupq_n_f32(value) }
    }
    #[inline(always)]
    unsafe fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vaddq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vsubq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vmulq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        unsafe { vfmaq_f32(c, a, b) }
    }
    #[inline(always)]
    unsafe fn relu(v: float32x4_t) -> float32x4_t {
        // NaN where either operand is.
        unsafe { vmaxq_f32(v, vdupq_n_f32(0.0)) }
    }
    #[inline(always)]
    unsafe fn min(v: float32x4_t, most: float32x4_t) -> float32x4_t {
        unsafe { vminq_f32(v, most) }
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const f32) {
        // The intrinsic is not stable yet. The instruction never faults.
        unsafe { asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly)) }
    }
}
