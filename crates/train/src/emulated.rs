//! GPUs that are not there, for tests of what needs several: see "The emulation of a GPU" in docs/testing.md.

use tensor_cuda::Gpu;

/// As many as `TOWERS_EMULATED_GPUS` says; `None` where it is not set.
pub(crate) fn gpus() -> Option<Vec<Gpu>> {
    let count: usize = std::env::var("TOWERS_EMULATED_GPUS").ok()?.parse().ok()?;
    let gpu = |number| Gpu { number, name: "an emulated GPU".into(), capability: (0, 0), memory: 0 };
    Some((0..count).map(gpu).collect())
}
