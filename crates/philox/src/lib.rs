//! Counter-based random numbers: Philox4x32-10 with the traits of `rand`, keyed by the purpose of a draw.
//!
//! A counter-based generator is a pure function of a key and a counter: any draw can be made at any time,
//! on any thread or device, without the draws before it. That is what makes a training run independent of
//! the number of its worker threads and replicas, and what makes resuming exact.
//!
//! The function is Philox4x32 with ten rounds from J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw,
//! "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), the generator that cuRAND, JAX and PyTorch's
//! CUDA backend offer too. It passes BigCrush. It is not a cryptographic generator.
//!
//! ```
//! use towers_philox::{Philox, domain};
//! use rand_core::Rng;
//!
//! // The random numbers of sample 41 in epoch 3 of a run with seed 7, for the purpose "shift":
//! let mut rng = Philox::new(7, domain("shift"), [3, 41]);
//! let again = Philox::new(7, domain("shift"), [3, 41]).next_u32();
//! assert_eq!(rng.next_u32(), again);
//! ```

#![forbid(unsafe_code)]

use core::convert::Infallible;
use rand_core::TryRng;

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Philox4x32-10: four random words for a 128-bit `counter` under a 64-bit `key`.
///
/// ```
/// // A known answer of the Random123 distribution.
/// assert_eq!(towers_philox::philox4x32([0; 4], [0; 2]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
/// ```
#[inline(always)]
pub fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let a = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let b = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
    }
    counter
}

/// A 32-bit name for the purpose of some draws (FNV-1a of `name`), so that two purposes share no numbers.
/// One pair of names in four billion has the same hash, so check names that come from others for collisions.
pub const fn domain(name: &str) -> u32 {
    let bytes = name.as_bytes();
    let (mut hash, mut k) = (0x811C_9DC5_u32, 0);
    while k < bytes.len() {
        hash = (hash ^ bytes[k] as u32).wrapping_mul(0x0100_0193);
        k += 1;
    }
    hash
}

/// The key of `seed` for draws of one `domain`.
///
/// The seed's two words are mixed with the domain by one Philox call, so that neighbouring seeds have
/// unrelated keys.
pub fn key(seed: u64, domain: u32) -> [u32; 2] {
    let [a, b, ..] = philox4x32([seed as u32, (seed >> 32) as u32, domain, 0], [0x746f_7765, 0x7273_2121]);
    [a, b]
}

/// A uniform number in [0, 1) from the top 24 bits of a random word: every value is exact in f32.
#[inline(always)]
pub fn unit_f32(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// A uniform number in [0, 1) from the top 53 bits of two random words.
#[inline(always)]
fn unit_f64(low: u32, high: u32) -> f64 {
    ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
}

/// A stream of random words: Philox4x32-10 under one key, counting from one place.
///
/// Implements [`rand_core::Rng`], so every distribution of `rand` works on it. A stream has 2^34 words
/// before its block counter wraps around.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Philox {
    key: [u32; 2],
    counter: [u32; 4],
    words: [u32; 4],
    used: usize,
}

impl Philox {
    /// The stream for `domain` under `seed` at `place`, e.g. `[epoch, sample]`.
    ///
    /// Streams that differ in any of the three share no words: each place has 2^32 blocks of its own. The
    /// first number of `place` counts in full 64 bits, the second in 32: it must be below 2^32.
    pub fn new(seed: u64, domain: u32, place: [u64; 2]) -> Self {
        debug_assert!(place[1] <= u64::from(u32::MAX), "the second coordinate of a place is a 32-bit number");
        let counter = [0, place[1] as u32, place[0] as u32, (place[0] >> 32) as u32];
        Philox { key: key(seed, domain), counter, words: [0; 4], used: 4 }
    }

    /// A uniform number in [0, 1), with 24 random bits.
    pub fn unit_f32(&mut self) -> f32 {
        unit_f32(self.word())
    }

    /// A uniform number in [0, 1), with 53 random bits.
    pub fn unit_f64(&mut self) -> f64 {
        let (low, high) = (self.word(), self.word());
        unit_f64(low, high)
    }

    /// The numbers that as many calls of [`unit_f64`](Philox::unit_f64) would give, in less time.
    pub fn fill_unit_f64(&mut self, numbers: &mut [f64]) {
        let whole = if self.used == 4 { numbers.len() / 2 * 2 } else { 0 };
        let (pairs, rest) = numbers.split_at_mut(whole);
        for pair in pairs.chunks_exact_mut(2) {
            let [a, b, c, d] = philox4x32(self.counter, self.key);
            self.counter[0] = self.counter[0].wrapping_add(1);
            pair.copy_from_slice(&[unit_f64(a, b), unit_f64(c, d)]);
        }
        rest.iter_mut().for_each(|number| *number = self.unit_f64());
    }

    /// A uniform whole number in `0..n`, without bias (Lemire's method); 0 if `n` is 0.
    pub fn below(&mut self, n: u32) -> u32 {
        let threshold = n.wrapping_neg().checked_rem(n).unwrap_or(0);
        loop {
            let product = u64::from(self.word()) * u64::from(n);
            if product as u32 >= threshold {
                return (product >> 32) as u32;
            }
        }
    }

    /// A number from the standard normal distribution (Box and Muller's transform).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit_f64()).ln()).sqrt();
        radius * (core::f64::consts::TAU * self.unit_f64()).cos()
    }

    #[inline]
    fn word(&mut self) -> u32 {
        if self.used == 4 {
            self.words = philox4x32(self.counter, self.key);
            self.counter[0] = self.counter[0].wrapping_add(1);
            self.used = 0;
        }
        self.used += 1;
        self.words[self.used - 1]
    }
}

impl TryRng for Philox {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.word())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let (low, high) = (u64::from(self.word()), u64::from(self.word()));
        Ok(high << 32 | low)
    }

    fn try_fill_bytes(&mut self, dst: &mut [u8]) -> Result<(), Infallible> {
        for chunk in dst.chunks_mut(4) {
            chunk.copy_from_slice(&self.word().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

/// The numbers `0..n` in a random order: a pure function of (seed, epoch), by Fisher and Yates' shuffle.
///
/// ```
/// let order = towers_philox::permutation(1, 0, 5);
/// assert_eq!(order, towers_philox::permutation(1, 0, 5));
/// assert_eq!({ let mut o = order.clone(); o.sort(); o }, [0, 1, 2, 3, 4]);
/// ```
pub fn permutation(seed: u64, epoch: u64, n: u32) -> Vec<u32> {
    let mut rng = Philox::new(seed, domain("permutation"), [epoch, 0]);
    let mut order: Vec<u32> = (0..n).collect();
    for k in (1..n).rev() {
        order.swap(k as usize, rng.below(k + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::Rng;

    /// The known answers that come with Random123 (kat_vectors, philox4x32 with 10 rounds).
    #[test]
    fn known_answers() {
        let ones = u32::MAX;
        assert_eq!(philox4x32([ones; 4], [ones; 2]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
        assert_eq!(
            philox4x32([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]),
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
        );
    }

    #[test]
    fn places_do_not_overlap() {
        let words = |place| {
            let mut rng = Philox::new(1, domain("test"), place);
            (0..64).map(|_| rng.next_u32()).collect::<Vec<_>>()
        };
        let all: std::collections::HashSet<u32> =
            [[0, 0], [0, 1], [1, 0], [1 << 32, 0]].into_iter().flat_map(words).collect();
        assert_eq!(all.len(), 256);
    }

    #[test]
    fn numbers_are_the_same_one_by_one_and_many_at_once() {
        for (words_before, len) in [(0, 0), (0, 1), (0, 7), (0, 64), (1, 9), (2, 5), (3, 8), (4, 6)] {
            let mut rng = Philox::new(5, domain("fill"), [1, 2]);
            for _ in 0..words_before {
                rng.next_u32();
            }
            let mut again = rng.clone();
            let mut numbers = vec![0.0; len];
            rng.fill_unit_f64(&mut numbers);
            let expected: Vec<f64> = (0..len).map(|_| again.unit_f64()).collect();
            assert_eq!(numbers, expected);
            assert_eq!(rng.next_u32(), again.next_u32());
        }
    }

    #[test]
    fn uniform_and_normal_moments() {
        let mut rng = Philox::new(3, domain("moments"), [0, 0]);
        let n = 100_000;
        let mean = (0..n).map(|_| f64::from(rng.unit_f32())).sum::<f64>() / f64::from(n);
        assert!((mean - 0.5).abs() < 0.004, "{mean}");
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..n {
            let z = rng.normal();
            sum += z;
            squares += z * z;
        }
        assert!((sum / f64::from(n)).abs() < 0.015 && (squares / f64::from(n) - 1.0).abs() < 0.02);
    }

    #[test]
    fn below_covers_its_range_and_only_it() {
        let mut rng = Philox::new(9, domain("below"), [0, 0]);
        let mut seen = [0; 7];
        for _ in 0..7_000 {
            seen[rng.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (850..1150).contains(&count)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
    }

    #[test]
    fn bytes_and_words_are_the_same_stream() {
        let mut bytes = [0; 10];
        Philox::new(5, 0, [0, 0]).fill_bytes(&mut bytes);
        let mut rng = Philox::new(5, 0, [0, 0]);
        assert_eq!(bytes[..4], rng.next_u32().to_le_bytes());
        assert_eq!(bytes[4..8], rng.next_u32().to_le_bytes());
    }
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
