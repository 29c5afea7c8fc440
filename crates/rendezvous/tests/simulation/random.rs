//! Numbers that a seed decides (SplitMix64: Steele, Lea, Flood, 2014).

use core::time::Duration;

pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// True in one of `n` cases.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A time from `low` up to `high` milliseconds.
    pub(crate) fn millis(&mut self, low: u64, high: u64) -> Duration {
        let micros = 1000 * low + self.next() % (1000 * (high - low) + 1);
        Duration::from_micros(micros)
    }
}
