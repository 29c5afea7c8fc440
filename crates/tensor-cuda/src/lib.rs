//! The CUDA backend of `towers`.
//!
//! [`Cuda`] implements [`program::Backend`] on an NVIDIA GPU. Nothing of CUDA is needed to build
//! it: the driver, NVRTC, cuDNN and cuBLASLt are looked for when a device is opened, and what is missing is an error of one
//! sentence.
//!
//! - Convolutions and dense layers go to cuDNN and cuBLASLt, or where these are missing to kernels of our own. A planned
//!   convolution goes to whichever of cuDNN and our own kernels is measured to be faster.
//! - Everything else is a kernel in `kernels/`, compiled by NVRTC for the device at hand and kept on disk.
//! - A step can be written down once as a [`CapturedGraph`] and be replayed at the cost of a single call.
//! - Several devices add up what they have: replicas of one process by [`Peers`], others by NCCL's [`nccl::Communicator`].
//!
//! The feature `emulation` adds `Cuda::emulated`: the same kernels and the same host code on the processor, for
//! tests on machines without a GPU.

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
mod gpus;
pub mod kernels;
mod libraries;
mod links;
mod memory;
pub mod nccl;
mod number;
mod operand;
mod ops;
mod peers;
mod run;
mod share;
mod step_state;

pub use buffer::Buffer;
pub use captured_graph::CapturedGraph;
pub use cuda::{Cuda, Options};
pub use error::{Error, Result};
pub use gpus::{Gpu, available, gpus};
pub use libraries::{Found, Library, Version, libraries};
pub use links::library_path;
pub use peers::Peers;

use program::Device;

/// An NVIDIA GPU as a device.
///
/// # Errors
/// In one sentence what is missing, and what to do: the driver, the GPU of that number, a library.
pub fn device(options: Options) -> program::Result<Device> {
    Ok(Cuda::new(options)?.into())
}

/// This backend without a GPU: its kernels run on the processor, for tests. Slow.
///
/// # Errors
/// If there is no C++ compiler.
#[cfg(feature = "emulation")]
pub fn emulated(precision: program::Precision) -> program::Result<Device> {
    Ok(Cuda::emulated(precision)?.into())
}
