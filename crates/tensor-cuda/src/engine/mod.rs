//! The engines of convolutions and matrix products: NVIDIA's libraries, or our own kernels without them.

#[cfg(all(test, feature = "emulation", target_os = "linux"))]
mod compared;
mod cublaslt;
mod cudnn;
mod faults;
pub(crate) mod grouped;
mod installed;
mod own;
mod owned;
pub(crate) mod product;
pub(crate) mod sliding;
pub(crate) mod small_window;

pub(crate) use installed::Installed;
pub(crate) use own::Own;
