use super::Simd;
use core::arch::x86_64::*;

/// AVX2 and FMA.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

/// Eight ones and eight zeros: a window of eight lanes is a mask of the first so many.
static MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

// SAFETY of every block below: the trait's contract, the processor has AVX2 and FMA and pointers are valid.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Simd for Avx2 {
    const LANES: usize = 8;
    type Vec = __m256;
    type Mask = __m256i;

    #[inline(always)]
    unsafe fn mask(lanes: usize) -> __m256i {
        debug_assert!(lanes <= 8);
        unsafe { _mm256_loadu_si256(MASKS.as_ptr().add(8 - lanes).cast()) }
    }
    #[inline(always)]
    unsafe fn zero() -> __m256 {
        unsafe { _mm256_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn splat(from: *const f32) -> __m256 {
        unsafe { _mm256_set1_ps(*from) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m256 {
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn load_masked(from: *const f32, mask: __m256i) -> __m256 {
        unsafe { _mm256_maskload_ps(from, mask) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, v: __m256) {
        unsafe { _mm256_storeu_ps(to, v) }
    }
    #[inline(always)]
    unsafe fn store_masked(to: *mut f32, mask: __m256i, v: __m256) {
        unsafe { _mm256_maskstore_ps(to, mask, v) }
    }
    #[inline(always)]
    unsafe fn set(value: f32) -> __m256 {
        unsafe { _mm256_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn relu(v: __m256) -> __m256 {
        // The instruction returns its second operand where one is NaN.
        unsafe { _mm256_max_ps(_mm256_setzero_ps(), v) }
    }
    #[inline(always)]
    unsafe fn min(v: __m256, most: __m256) -> __m256 {
        unsafe { _mm256_min_ps(most, v) }
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const f32) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}
