//! GPUs, by the crate `tensor-cuda`. `no_gpus.rs` is in its place in a build without the feature `cuda`.

use crate::mpi::Mpi;
use crate::{Error, Result};
use std::fmt::Write;
use std::time::Duration;
use towers_config::{Devices, Kernels};
use towers_parallel::{NcclProcess, Replica};
use towers_program::{Device, Precision};
use towers_rendezvous::{Agreement, ProcessGroup};
use towers_tensor_cuda::{self as cuda, Cuda, Gpu, Library, Options};

/// The names of the GPUs by their numbers, if all libraries for them are present.
pub(crate) fn usable() -> Result<Vec<String>> {
    Ok(list()?.into_iter().map(|gpu| gpu.name).collect())
}

fn list() -> cuda::Result<Vec<Gpu>> {
    if let Some(count) = emulated() {
        let gpu = |number| Gpu { number, name: "an emulated GPU".into(), capability: (0, 0), memory: 0 };
        return Ok((0..count).map(gpu).collect());
    }
    cuda::available()?;
    cuda::gpus()
}

/// The number of emulated GPUs, for tests that need several: see "The emulation of a GPU" in docs/testing.md.
fn emulated() -> Option<usize> {
    let count = std::env::var("TOWERS_EMULATED_GPUS").ok().filter(|_| cfg!(feature = "emulation"))?;
    count.parse().ok()
}

/// The error of a GPU that is not among these.
pub(crate) fn missing(gpu: usize, present: &[String]) -> Error {
    cuda::Error::NoSuchGpu { gpu, gpus: present.to_vec() }.into()
}

/// Why the GPUs that are there can't be used.
pub(crate) fn unusable() -> Option<String> {
    list().err().filter(|why| matches!(why, cuda::Error::Unusable { .. })).map(|why| why.to_string())
}

pub(crate) fn open(gpu: usize, devices: &Devices, precision: Precision) -> Result<Device> {
    let Devices { no_graph, one_stream, .. } = *devices;
    let kernels = match devices.kernels {
        Kernels::Auto => cuda::Kernels::Auto,
        Kernels::Own => cuda::Kernels::Own,
        Kernels::Library => cuda::Kernels::Library,
    };
    let options = Options { gpu, precision, kernels, no_graph, one_stream };
    #[cfg(feature = "emulation")]
    if emulated().is_some() {
        return Ok(Cuda::emulated_with(Options { gpu: 0, ..options })?.into());
    }
    Ok(cuda::device(options)?)
}

/// Whether processes can be joined by NCCL.
pub(crate) fn nccl() -> Result<()> {
    Ok(if emulated().is_some() { Ok(()) } else { cuda::nccl::available() }?)
}

/// Runs `body` for each replica of this process, together with those of the others, whose facts must agree.
pub(crate) fn run<T: Send>(
    group: ProcessGroup,
    facts: &Agreement,
    timeout: Duration,
    devices: &[Device],
    body: impl Fn(Replica) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    NcclProcess { group, agreement: facts.clone(), timeout }.run(devices, body)
}

/// The same in processes that MPI joins.
pub(crate) fn run_by_mpi<T: Send>(
    mpi: &Mpi,
    timeout: Duration,
    devices: &[Device],
    body: impl Fn(Replica) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    mpi.run_by_nccl(devices, timeout, body)
}

/// The name of the kernels that were chosen for a GPU.
pub(crate) fn kernels(device: &Device) -> Option<&'static str> {
    let kernels = device.get::<Cuda>()?.options().kernels;
    (kernels != cuda::Kernels::Auto).then(|| kernels.name())
}

/// The bytes that are free in a GPU's memory.
pub(crate) fn free_memory(device: &Device) -> Option<u64> {
    cuda::gpus().ok()?.get(device.get::<Cuda>()?.options().gpu)?.free_memory()
}

/// Why a GPU takes longer than it could.
pub(crate) fn fallbacks(device: &Device) -> Vec<String> {
    device.get::<Cuda>().map(Cuda::fallbacks).into_iter().flatten().collect()
}

/// The GPUs and their libraries in lines, with the reasons for missing ones.
pub(crate) fn describe() -> Vec<String> {
    let gpus = cuda::gpus();
    let mut lines: Vec<String> = match &gpus {
        Ok(gpus) => gpus.iter().map(gpu_line).collect(),
        Err(why @ cuda::Error::Unusable { .. }) => vec![format!("cuda: {why}")],
        Err(why) => vec![format!("cuda: none; {why}")],
    };
    // A missing library that is the reason was already listed.
    let reason = gpus.as_ref().err().map(|why| match why {
        cuda::Error::Unusable { why, .. } => why,
        why => why,
    });
    let named = |library: &Library| library.state.as_ref().err().is_some_and(|own| reason == Some(own));
    lines.extend(cuda::libraries().iter().filter(|library| !named(library)).map(library_line));
    lines.extend(first());
    lines
}

/// The engine of the first GPU, once it has been opened: drivers and libraries may be present and still not
/// work.
fn first() -> Vec<String> {
    match list() {
        Ok(_) => {}
        // Its driver is fine, and it was listed.
        Err(why @ cuda::Error::Unusable { .. }) if cuda::gpus().is_ok() => {
            return vec![format!("cuda: {why}")];
        }
        Err(_) => return Vec::new(),
    }
    match Cuda::new(Options::default()) {
        Ok(gpu) => gpu.describe_engine().iter().map(|line| format!("cuda:0 computes with {line}")).collect(),
        Err(why) => vec![format!("cuda:0 can't be used: {why}")],
    }
}

fn gpu_line(gpu: &Gpu) -> String {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let (major, minor) = gpu.capability;
    let mut line = format!("cuda:{}: {}, compute capability {major}.{minor}", gpu.number, gpu.name);
    let _ = write!(line, ", {:.1} GiB", gib(gpu.memory));
    if let Some(free) = gpu.free_memory() {
        let _ = write!(line, ", {:.1} GiB free", gib(free));
    }
    line
}

fn library_line(library: &Library) -> String {
    let Library { name, purpose, state } = library;
    match state {
        Ok(found) => {
            let path = found.path.as_ref().map_or(String::new(), |path| format!(" in {}", path.display()));
            format!("  {name} {}{path}", found.version)
        }
        Err(why) => format!("  {name} ({purpose}): {why}"),
    }
}
