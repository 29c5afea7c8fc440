use crate::buffer::Buffer;
use crate::conv::Bf16Level;
use crate::element::Format;
use crate::simd::Level;
use crate::threads::Threads;
use std::sync::{Arc, Mutex, MutexGuard};
use towers_program::{Backend, Result};

/// The CPU: SIMD kernels, chosen for the processor at run time, on a pool of threads.
///
/// Clones share the pool and the scratch memory; ops called from several threads take turns.
#[derive(Clone)]
pub struct Cpu {
    inner: Arc<Inner>,
    winograd: bool,
    bf16: Option<Bf16Level>,
}

struct Inner {
    threads: Threads,
    simd: Level,
    scratch: Mutex<Buffer>,
    channels: Mutex<Buffer>,
    weights: Mutex<Buffer>,
}

impl Cpu {
    /// A CPU device on which `threads` threads work, the calling one among them; 0 for one a core.
    pub fn new(threads: usize) -> Self {
        Cpu::with_simd(threads, Level::detect())
    }

    /// As [`Cpu::new`], with kernels for a level that the processor has.
    pub(crate) fn with_simd(threads: usize, simd: Level) -> Self {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let count = if threads == 0 { cores() } else { threads };
        Cpu {
            inner: Arc::new(Inner {
                threads: Threads::new(count),
                simd,
                scratch: Mutex::new(Buffer::default()),
                channels: Mutex::new(Buffer::default()),
                weights: Mutex::new(Buffer::default()),
            }),
            winograd: true,
            bf16: None,
        }
    }

    /// For tests: a device with the kernels of one of [`SIMD_LEVELS`](crate::SIMD_LEVELS); `None` where the processor
    /// lacks it.
    pub fn at_simd_level(threads: usize, name: &str) -> Option<Self> {
        let level = Level::available().iter().find(|level| level.name() == name)?;
        Some(Cpu::with_simd(threads, *level))
    }

    /// For tests: a device for every instruction set that this processor has, and for every kind of tiles.
    #[cfg(test)]
    pub(crate) fn of_every_kind(threads: usize) -> impl Iterator<Item = Cpu> {
        let of_level = move |&level| {
            let cpu = Cpu::with_simd(threads, level);
            let narrow = match level {
                Level::Portable => Some(cpu.clone().with_portable_bf16()),
                _ => cpu.clone().with_bf16(),
            };
            [Some(cpu), narrow].into_iter().flatten()
        };
        Level::available().iter().flat_map(of_level)
    }

    /// The same device, with all convolutions as direct sums of products. The transforms that 3x3 kernels otherwise go
    /// through save time and lose a digit: see docs/determinism.md.
    pub fn without_winograd(self) -> Self {
        Cpu { winograd: false, ..self }
    }

    /// The same device, with [activations](towers_program::Backend::alloc_activations) in bf16. Convolutions and
    /// dense layers round their weights to it as well, and add up products in 32 bits in matrix units of the
    /// CPU (Intel's AMX). All other ops compute in 32 bits: they read stored values and round results. `None`
    /// without such units.
    pub fn with_bf16(self) -> Option<Self> {
        let level = Bf16Level::detect(self.simd())?;
        Some(Cpu { bf16: Some(level), ..self })
    }

    /// For tests on any processor: as [`Cpu::with_bf16`], with plain loops in place of matrix units. They give the same
    /// bits and are many times as slow.
    pub fn with_portable_bf16(self) -> Self {
        Cpu { bf16: Some(Bf16Level::Portable), ..self }
    }

    /// Whether activations are bf16.
    pub fn is_bf16(&self) -> bool {
        self.bf16.is_some()
    }

    /// How numbers of 16 bits are multiplied, if activations are such.
    pub(crate) fn bf16(&self) -> Option<Bf16Level> {
        self.bf16
    }

    /// Whether convolutions may be transformed.
    pub(crate) fn winograd(&self) -> bool {
        self.winograd
    }

    /// The instruction set that kernels use.
    pub(crate) fn simd(&self) -> Level {
        self.inner.simd
    }

    pub(crate) fn pool(&self) -> &Threads {
        &self.inner.threads
    }

    /// Makes the scratch memory so long, and that for channels and for weights, before an op needs them.
    ///
    /// # Errors
    /// If the memory can't be had.
    pub(crate) fn reserve(&self, [scratch, channels, weights]: [usize; 3]) -> Result<()> {
        let Inner { scratch: of_scratch, channels: of_channels, weights: of_weights, .. } = &*self.inner;
        for (memory, len) in [(of_scratch, scratch), (of_channels, channels), (of_weights, weights)] {
            let mut memory = lock(memory);
            if memory.len() < len {
                // The old buffer is freed first: its content is not needed.
                *memory = Buffer::default();
                *memory = Buffer::try_zeros(self, len, Format::F32)?;
            }
        }
        Ok(())
    }

    /// The scratch memory, at least `len` elements of it, with whatever it held. It only ever grows.
    pub(crate) fn scratch(&self, len: usize) -> MutexGuard<'_, Buffer> {
        grown(&self.inner.scratch, len)
    }

    /// More of it, for an op that works out some numbers of each channel before it calls another one.
    pub(crate) fn channels(&self, len: usize) -> MutexGuard<'_, Buffer> {
        grown(&self.inner.channels, len)
    }

    /// More of it, for a convolution that calls others with some of its weights.
    pub(crate) fn weights(&self, len: usize) -> MutexGuard<'_, Buffer> {
        grown(&self.inner.weights, len)
    }
}

fn lock(memory: &Mutex<Buffer>) -> MutexGuard<'_, Buffer> {
    memory.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn grown(memory: &Mutex<Buffer>, len: usize) -> MutexGuard<'_, Buffer> {
    let mut memory = lock(memory);
    if memory.len() < len {
        *memory = Buffer::default();
        *memory = Buffer::zeros(len);
    }
    memory
}

impl core::fmt::Debug for Cpu {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Cpu").field("threads", &self.threads()).finish()
    }
}

/// The name of the unit that multiplies in bf16: `amx`; `portable`, for tests, where `TOWERS_SIMD` says so.
/// `None` where nothing does.
pub fn bf16_level() -> Option<&'static str> {
    Bf16Level::detect(Level::detect()).map(Bf16Level::name)
}

/// The instruction set that the kernels use on this processor: `avx512`, `avx2`, `neon` or `portable`.
pub fn simd_level() -> &'static str {
    Level::detect().name()
}
