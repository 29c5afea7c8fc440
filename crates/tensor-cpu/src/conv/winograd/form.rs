//! The transforms of Winograd's convolutions along one axis, over vectors of channels.
//!
//! A tile of `OUT` neighbouring outputs under 3 taps is a product of polynomials, which `IN = OUT + 2` values decide. With
//! `B`, `G` and `A` from the points that it is evaluated at (A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural
//! Networks", 2015), `y = A' [(G w) * (B' x)]`, and so the gradient of the weights is `G' [(B' x) * (A dy)]`. In two
//! dimensions each transform is done along rows and along columns.

use crate::simd::Simd;

/// The transforms of tiles of `OUT` outputs and `IN` inputs.
///
/// # Safety
/// As for [`Simd`].
pub(super) trait Form<const OUT: usize, const IN: usize> {
    /// `B' x`.
    unsafe fn input<S: Simd>(x: [S::Vec; IN]) -> [S::Vec; IN];
    /// `G w`.
    unsafe fn filter<S: Simd>(w: [S::Vec; 3]) -> [S::Vec; IN];
    /// `A' m`.
    unsafe fn output<S: Simd>(m: [S::Vec; IN]) -> [S::Vec; OUT];
    /// `A dy`.
    unsafe fn gradient<S: Simd>(dy: [S::Vec; OUT]) -> [S::Vec; IN];
    /// `G' m`.
    unsafe fn filter_gradient<S: Simd>(m: [S::Vec; IN]) -> [S::Vec; 3];
}

/// Two outputs, from the points 0, 1, -1 and infinity.
pub(super) struct F2;

// SAFETY of every block below: the trait's contract, the processor has the vectors' instructions.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Form<2, 4> for F2 {
    #[inline(always)]
    unsafe fn input<S: Simd>([a, b, c, d]: [S::Vec; 4]) -> [S::Vec; 4] {
        unsafe { [S::sub(a, c), S::add(b, c), S::sub(c, b), S::sub(d, b)] }
    }
    #[inline(always)]
    unsafe fn filter<S: Simd>([a, b, c]: [S::Vec; 3]) -> [S::Vec; 4] {
        unsafe {
            let half = S::set(0.5);
            let (even, odd) = (S::mul(half, S::add(a, c)), S::mul(half, b));
            [a, S::add(even, odd), S::sub(even, odd), c]
        }
    }
    #[inline(always)]
    unsafe fn output<S: Simd>([a, b, c, d]: [S::Vec; 4]) -> [S::Vec; 2] {
        unsafe { [S::add(a, S::add(b, c)), S::add(S::sub(b, c), d)] }
    }
    #[inline(always)]
    unsafe fn gradient<S: Simd>([a, b]: [S::Vec; 2]) -> [S::Vec; 4] {
        unsafe { [a, S::add(a, b), S::sub(a, b), b] }
    }
    #[inline(always)]
    unsafe fn filter_gradient<S: Simd>([a, b, c, d]: [S::Vec; 4]) -> [S::Vec; 3] {
        unsafe {
            let half = S::set(0.5);
            let (even, odd) = (S::mul(half, S::add(b, c)), S::mul(half, S::sub(b, c)));
            [S::add(a, even), odd, S::add(even, d)]
        }
    }
}

/// Four outputs, from the points 0, `P`, `-P`, `Q`, `-Q` and infinity.
///
/// The usual points 1 and 2 lose twice as many digits: products of them and of their inverses spread further. Of the
/// pairs that were tried these two, which with their squares have no rounding errors themselves, came out best.
pub(super) struct F4;

const P: f32 = 0.625;
const Q: f32 = 1.5;
const P2: f32 = P * P;
const Q2: f32 = Q * Q;
/// The products of a point's distances from all others, inverted: what its row of `G` is scaled by.
const AT_0: f32 = 1.0 / (P2 * Q2);
const AT_P: f32 = 1.0 / (2.0 * P2 * (P2 - Q2));
const AT_Q: f32 = 1.0 / (2.0 * Q2 * (Q2 - P2));

/// `(e + o, e - o)` with `o = factor * odd`.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn both<S: Simd>(even: S::Vec, factor: f32, odd: S::Vec) -> (S::Vec, S::Vec) {
    // SAFETY: this function's contract.
    unsafe { (S::fma(S::set(factor), odd, even), S::fma(S::set(-factor), odd, even)) }
}

// SAFETY of every block below: the trait's contract, the processor has the vectors' instructions.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Form<4, 6> for F4 {
    #[inline(always)]
    unsafe fn input<S: Simd>([a, b, c, d, e, f]: [S::Vec; 6]) -> [S::Vec; 6] {
        unsafe {
            let (at_p, at_minus_p) = both::<S>(S::fma(S::set(-Q2), c, e), P, S::fma(S::set(-Q2), b, d));
            let (at_q, at_minus_q) = both::<S>(S::fma(S::set(-P2), c, e), Q, S::fma(S::set(-P2), b, d));
            let (product, sum) = (S::set(P2 * Q2), S::set(-(P2 + Q2)));
            let at_0 = S::fma(product, a, S::fma(sum, c, e));
            let at_infinity = S::fma(product, b, S::fma(sum, d, f));
            [at_0, at_p, at_minus_p, at_q, at_minus_q, at_infinity]
        }
    }
    #[inline(always)]
    unsafe fn filter<S: Simd>([a, b, c]: [S::Vec; 3]) -> [S::Vec; 6] {
        unsafe {
            let even = |square: f32, scale: f32| S::mul(S::set(scale), S::fma(S::set(square), c, a));
            let (at_p, at_minus_p) = both::<S>(even(P2, AT_P), P * AT_P, b);
            let (at_q, at_minus_q) = both::<S>(even(Q2, AT_Q), Q * AT_Q, b);
            [S::mul(S::set(AT_0), a), at_p, at_minus_p, at_q, at_minus_q, c]
        }
    }
    #[inline(always)]
    unsafe fn output<S: Simd>([at_0, p, minus_p, q, minus_q, at_infinity]: [S::Vec; 6]) -> [S::Vec; 4] {
        unsafe {
            let (even_p, odd_p) = (S::add(p, minus_p), S::sub(p, minus_p));
            let (even_q, odd_q) = (S::add(q, minus_q), S::sub(q, minus_q));
            let sum =
                |of_p: f32, p: S::Vec, of_q: f32, q: S::Vec| S::fma(S::set(of_p), p, S::mul(S::set(of_q), q));
            [
                S::add(at_0, S::add(even_p, even_q)),
                sum(P, odd_p, Q, odd_q),
                sum(P2, even_p, Q2, even_q),
                S::add(sum(P * P2, odd_p, Q * Q2, odd_q), at_infinity),
            ]
        }
    }
    #[inline(always)]
    unsafe fn gradient<S: Simd>([a, b, c, d]: [S::Vec; 4]) -> [S::Vec; 6] {
        unsafe {
            let (at_p, at_minus_p) = both::<S>(S::fma(S::set(P2), c, a), P, S::fma(S::set(P2), d, b));
            let (at_q, at_minus_q) = both::<S>(S::fma(S::set(Q2), c, a), Q, S::fma(S::set(Q2), d, b));
            [a, at_p, at_minus_p, at_q, at_minus_q, d]
        }
    }
    #[inline(always)]
    unsafe fn filter_gradient<S: Simd>(
        [at_0, p, minus_p, q, minus_q, at_infinity]: [S::Vec; 6],
    ) -> [S::Vec; 3] {
        unsafe {
            let (even_p, odd_p) = (S::add(p, minus_p), S::sub(p, minus_p));
            let (even_q, odd_q) = (S::add(q, minus_q), S::sub(q, minus_q));
            let sum =
                |of_p: f32, p: S::Vec, of_q: f32, q: S::Vec| S::fma(S::set(of_p), p, S::mul(S::set(of_q), q));
            [
                S::fma(S::set(AT_0), at_0, sum(AT_P, even_p, AT_Q, even_q)),
                sum(P * AT_P, odd_p, Q * AT_Q, odd_q),
                S::add(sum(P2 * AT_P, even_p, Q2 * AT_Q, even_q), at_infinity),
            ]
        }
    }
}
