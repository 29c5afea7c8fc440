use super::Simd;
use core::arch::x86_64::*;

/// AVX-512F.
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

// SAFETY of every block below: the trait's contract, the processor has AVX-512F and pointers are valid.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Simd for Avx512 {
    const LANES: usize = 16;
    type Vec = __m512;
    type Mask = __mmask16;

    #[inline(always)]
    unsafe fn mask(lanes: usize) -> __mmask16 {
        ((1u32 << lanes) - 1) as __mmask16
    }
    #[inline(always)]
    unsafe fn zero() -> __m512 {
        unsafe { _mm512_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn splat(from: *const f32) -> __m512 {
        unsafe { _mm512_set1_ps(*from) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn load_masked(from: *const f32, mask: __mmask16) -> __m512 {
        unsafe { _mm512_maskz_loadu_ps(mask, from) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, v: __m512) {
        unsafe { _mm512_storeu_ps(to, v) }
    }
    #[inline(always)]
    unsafe fn store_masked(to: *mut f32, mask: __mmask16, v: __m512) {
        unsafe { _mm512_mask_storeu_ps(to, mask, v) }
    }
    #[inline(always)]
    unsafe fn set(value: f32) -> __m512 {
        unsafe { _mm512_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn relu(v: __m512) -> __m512 {
        // The instruction returns its second operand where one is NaN.
        unsafe { _mm512_max_ps(_mm512_setzero_ps(), v) }
    }
    #[inline(always)]
    unsafe fn min(v: __m512, most: __m512) -> __m512 {
        unsafe { _mm512_min_ps(most, v) }
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const f32) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}
