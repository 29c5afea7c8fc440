//! The CUDA backend of `towers`.
//!
//! [`Cuda`] implements [`towers_program::Backend`] on an NVIDIA GPU. Building it needs no part of CUDA: the driver,
//! NVRTC, cuDNN and cuBLASLt are loaded when a device is opened, and a missing one is an error of one
//! sentence.
//!
//! - Convolutions and dense layers use cuDNN and cuBLASLt, or our own kernels without them. Our own
//!   kernels also compute the gradients of convolutions with few filters, where they are faster.
//! - All other ops are kernels in `kernels/`, compiled by NVRTC for the device and cached on disk.
//! - A step can be captured as a [`CapturedGraph`] and replayed with a single call.
//! - Several devices add up their numbers: replicas of one process by [`Peers`], others by NCCL's
//!   [`nccl::Communicator`].
//!
//! The feature `emulation` adds `Cuda::emulated`: the same kernels and the same host code on the CPU, for
//! tests on machines without a GPU.

mod activation;
mod backend;
mod buffer;
mod cache;
mod captured_graph;
pub mod compile;
mod compute_copies;
mod cuda;
mod dependencies;
mod driver;
mod engine;
mod error;
mod format;
mod gpus;
#[cfg(test)]
mod headers;
pub mod kernels;
mod layer;
mod libraries;
mod lock;
mod memory;
pub mod nccl;
mod number;
mod open;
mod operand;
mod ops;
mod options;
mod peers;
mod place;
mod run;
mod share;
mod source;
mod step_state;
mod sum;
mod version;

pub use buffer::Buffer;
pub use cache::folder as cache_folder;
pub use captured_graph::CapturedGraph;
pub use cuda::Cuda;
pub use error::{Error, Result};
pub use gpus::{Gpu, available, gpus};
pub use libraries::{Found, Library, libraries};
pub use open::software;
pub use options::{Kernels, Options};
pub use peers::Peers;
pub use sum::Nodes;
pub use version::Version;

use towers_program::Device;

/// An NVIDIA GPU as a device.
///
/// # Errors
/// The missing part and a hint, in one sentence: the driver, the GPU of that number, a library.
pub fn device(options: Options) -> towers_program::Result<Device> {
    Ok(Cuda::new(options)?.into())
}

/// This backend without a GPU: its kernels run on the CPU, for tests of whole runs. Slow.
///
/// # Errors
/// If there is no C++ compiler.
#[cfg(feature = "emulation")]
pub fn emulated(precision: towers_program::Precision) -> towers_program::Result<Device> {
    Ok(Cuda::emulated_with(Options { precision, ..Options::default() })?.into())
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
