use super::Simd;
use core::array::from_fn;

/// Arrays of eight, which compilers turn into whatever vectors the target has.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

// SAFETY of every block below: the trait's contract, pointers are valid for the lanes touched.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Simd for Portable {
    const LANES: usize = 8;
    type Vec = [f32; 8];
    type Mask = usize;

    #[inline(always)]
    unsafe fn mask(lanes: usize) -> usize {
        lanes
    }
    #[inline(always)]
    unsafe fn zero() -> [f32; 8] {
        [0.0; 8]
    }
    #[inline(always)]
    unsafe fn splat(from: *const f32) -> [f32; 8] {
        [unsafe { *from }; 8]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> [f32; 8] {
        unsafe { from.cast::<[f32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_masked(from: *const f32, lanes: usize) -> [f32; 8] {
        if lanes == 8 {
            return unsafe { Self::load(from) };
        }
        from_fn(|i| if i < lanes { unsafe { *from.add(i) } } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, v: [f32; 8]) {
        unsafe { to.cast::<[f32; 8]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn store_masked(to: *mut f32, lanes: usize, v: [f32; 8]) {
        if lanes == 8 {
            return unsafe { Self::store(to, v) };
        }
        (0..lanes).for_each(|i| unsafe { *to.add(i) = v[i] });
    }
    #[inline(always)]
    unsafe fn set(value: f32) -> [f32; 8] {
        [value; 8]
    }
    #[inline(always)]
    unsafe fn add(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    unsafe fn sub(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    unsafe fn mul(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn fma(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        // Two roundings: without an FMA unit `mul_add` would be a library call.
        from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    unsafe fn relu(v: [f32; 8]) -> [f32; 8] {
        from_fn(|i| if v[i] < 0.0 { 0.0 } else { v[i] })
    }
    #[inline(always)]
    unsafe fn min(v: [f32; 8], most: [f32; 8]) -> [f32; 8] {
        from_fn(|i| if v[i] > most[i] { most[i] } else { v[i] })
    }
    #[inline(always)]
    unsafe fn prefetch(_at: *const f32) {}
}
