use crate::Buffer;
use crate::Cpu;
use crate::conv::bf16_trial;
use crate::element::Format;
#[cfg(target_arch = "aarch64")]
use crate::simd::Neon;
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512};
use crate::simd::{Level, Portable, Simd};
use crate::threads::Shards;
use std::hint::black_box;
use std::time::Instant;
use towers_program::Result;

/// What this machine can do at most: no op is faster than its arithmetic at the one rate and its memory traffic at the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// Threads that worked.
    pub threads: usize,
    /// 10^9 floating-point operations a second of fused multiply-adds, two each, in vectors of the device's instruction set, or
    /// in its matrix units where activations are bf16.
    pub gflops: f64,
    /// 10^9 bytes a second that a copy reads and writes, far larger than any cache.
    pub gigabytes: f64,
}

/// Vectors that are added to independently of each other: more than the units' latency needs.
const CHAINS: usize = 12;

/// Multiply-adds of each chain in one trial: about two milliseconds.
const ROUNDS: usize = 1 << 18;

/// The best of so many trials counts: other programs only ever take time away.
const TRIALS: usize = 24;

/// Elements that each thread copies: 32 MiB.
const COPY_LEN: usize = 8 << 20;
const COPY_TRIALS: usize = 8;

impl Roofline {
    /// Measures the machine, all threads of the device at once. Takes about a third of a second.
    ///
    /// # Errors
    /// If there is no memory to copy.
    pub fn measure(cpu: &Cpu) -> Result<Roofline> {
        let threads = cpu.pool().count();
        let (trial, operations) = cpu.bf16().map_or_else(|| chains(cpu.simd()), bf16_trial);
        // SAFETY: the device's levels are ones that the processor has.
        let seconds = best(TRIALS, || cpu.pool().run(threads, &|_| unsafe { trial() }));
        let gflops = (threads * operations) as f64 / seconds / 1e9;

        let zeros = || Buffer::try_zeros(cpu, threads * COPY_LEN, Format::F32);
        let (mut from, mut to) = (zeros()?, zeros()?);
        from.fill(1.0);
        let seconds = best(COPY_TRIALS, || copy(cpu, &from, &mut to));
        let gigabytes = (2 * size_of::<f32>() * from.len()) as f64 / seconds / 1e9;
        Ok(Roofline { threads, gflops, gigabytes })
    }
}

/// The shortest time of a trial in seconds.
fn best(trials: usize, mut trial: impl FnMut()) -> f64 {
    let timed = |_| {
        let began = Instant::now();
        trial();
        began.elapsed().as_secs_f64()
    };
    (0..trials).map(timed).fold(f64::MAX, f64::min).max(1e-9)
}

fn copy(cpu: &Cpu, from: &Buffer, to: &mut Buffer) {
    let to = Shards::new(to);
    cpu.pool().run(cpu.pool().count(), &|thread| {
        let range = thread * COPY_LEN..(thread + 1) * COPY_LEN;
        // SAFETY: each task has a separate part.
        unsafe { to.part(range.clone()) }.copy_from_slice(&from[range]);
    });
}

/// A trial for vectors of a level, which the processor must have, and its floating-point operations.
fn chains(level: Level) -> (unsafe fn(), usize) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    unsafe fn avx512() {
        // SAFETY: the caller's promise.
        unsafe { multiply_adds::<Avx512>() }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2() {
        // SAFETY: the caller's promise.
        unsafe { multiply_adds::<Avx2>() }
    }
    let (trial, lanes): (unsafe fn(), usize) = match level {
        Level::Portable => (multiply_adds::<Portable>, Portable::LANES),
        #[cfg(target_arch = "aarch64")]
        Level::Neon => (multiply_adds::<Neon>, Neon::LANES),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => (avx2, Avx2::LANES),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => (avx512, Avx512::LANES),
    };
    (trial, ROUNDS * CHAINS * 2 * lanes)
}

/// # Safety
/// The processor has the vectors' instructions.
#[inline(always)]
unsafe fn multiply_adds<S: Simd>() {
    // SAFETY: this function's contract.
    unsafe {
        let (a, b) = (S::set(black_box(0.999)), S::set(black_box(1e-3)));
        let mut chains: [S::Vec; CHAINS] = core::array::from_fn(|i| S::set(black_box(i as f32)));
        for _ in 0..ROUNDS {
            for chain in &mut chains {
                *chain = S::fma(*chain, a, b);
            }
        }
        black_box(chains.into_iter().reduce(|sum, chain| S::add(sum, chain)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_has_some_speed() {
        for cpu in Cpu::of_every_kind(2) {
            let roof = Roofline::measure(&cpu).unwrap();
            assert_eq!(roof.threads, 2);
            assert!(roof.gflops.is_finite() && roof.gflops > 0.0 && roof.gigabytes > 0.0, "{roof:?}");
        }
    }
}
