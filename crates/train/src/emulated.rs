//! Emulated GPUs, for tests that need several: see "The emulation of a GPU" in docs/testing.md.

use tensor_cuda::Gpu;

/// The GPUs of `TOWERS_EMULATED_GPUS`; `None` if it is not set.
pub(crate) fn gpus() -> Option<Vec<Gpu>> {
    let count: usize = std::env::var("TOWERS_EMULATED_GPUS").ok()?.parse().ok()?;
    let gpu = |number| Gpu { number, name: "an emulated GPU".into(), capability: (0, 0), memory: 0 };
    Some((0..count).map(gpu).collect())
}
