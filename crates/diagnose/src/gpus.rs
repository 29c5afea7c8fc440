//! GPUs, by the crate `tensor-cuda`. `no_gpus.rs` is in its place in a build without the feature `cuda`.

use std::path::PathBuf;
use towers_program::Device;
use towers_tensor_cuda::{Cuda, Error, Options};

/// The folder of the list of GPUs that have passed.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    towers_tensor_cuda::cache_folder()
}

/// Whether a GPU is an emulation; `None` for another device.
pub(crate) fn is_emulated(device: &Device) -> Option<bool> {
    device.get().map(Cuda::is_emulated)
}

/// The software and the options that decide a GPU's results, besides its model.
pub(crate) fn software(device: &Device) -> Option<String> {
    let options = device.get::<Cuda>()?.options();
    let software = towers_tensor_cuda::software().join(", ");
    Some(format!("{software}, {}, kernels {}", options.precision, options.kernels))
}

/// The software, the GPUs and the missing libraries of this machine, and the options of the device.
pub(crate) fn facts(device: &Device) -> Vec<String> {
    let mut facts = vec![towers_tensor_cuda::software().join(", ")];
    for gpu in towers_tensor_cuda::gpus().into_iter().flatten() {
        let ((major, minor), gib) = (gpu.capability, gpu.memory >> 30);
        facts.push(format!("{}, compute capability {major}.{minor}, {gib} GiB", gpu.name));
    }
    let libraries = towers_tensor_cuda::libraries();
    let why_not = |why: &Error| match why {
        Error::Missing { .. } => "missing",
        Error::TooOld { .. } => "too old",
        _ => "not usable",
    };
    let lacks = libraries.iter().filter_map(|library| {
        Some(format!("{} is {}", library.name, why_not(library.state.as_ref().err()?)))
    });
    facts.extend(lacks);
    facts.extend(device.get().map(|gpu: &Cuda| ways(gpu.options())));
    facts
}

fn ways(options: Options) -> String {
    let ways = [("no graph", options.no_graph), ("one stream", options.one_stream)];
    let ways = ways.into_iter().filter_map(|(name, on)| on.then_some(name));
    [format!("kernels {}", options.kernels)]
        .into_iter()
        .chain(ways.map(str::to_owned))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The engine of a GPU with its algorithms so far.
pub(crate) fn algorithms(device: &Device) -> Vec<String> {
    device.get().map(Cuda::describe_engine).unwrap_or_default()
}
