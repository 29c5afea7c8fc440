//! The tensor facade of `towers`: what every crate above uses to reach a device.
//!
//! - [`Device`] is the closed set of devices; it implements [`Backend`], so its ops are the trait's methods.
//! - [`Storage`] is a run of numbers on a device: an arena, an activation.
//! - [`Tensor`] is a storage with a shape; [`View`] and [`ViewMut`] are what ops take.
//!
//! ```
//! use tensor::{Backend, Device, Shape, Tensor, Write};
//!
//! let device = Device::cpu(0);
//! let x = Tensor::from_slice(&device, Shape::vectors(1, 3), &[-1.0, 0.0, 2.0])?;
//! let mut y = Tensor::zeros(&device, x.shape())?;
//! device.copy(x.view(), y.view_mut(), Write::Set)?;
//! assert_eq!(y.to_vec(&device)?, [-1.0, 0.0, 2.0]);
//! # Ok::<(), tensor::Error>(())
//! ```
//!
//! A [`Recorder`] plays work that repeats from step to step; on a GPU it is written down once, as a CUDA graph.
#![forbid(unsafe_code)]

mod device;
mod dispatch;
mod recorder;
mod run;
mod storage;
mod tensor;

/// What of CUDA this machine has, and what joins several GPUs.
pub mod cuda {
    pub use tensor_cuda::{Buffer, Cuda, Error, Found, Gpu, Library, Peers, Result, Version, available};
    pub use tensor_cuda::{gpus, libraries, library_path, nccl};
}

pub use device::Device;
pub use program::{
    Activation, Adam, Arena, Backend, BatchNorm, Builder, Conv2d, DropoutMask, Error, Executable, Execute,
    Home, ImageSet, Layout, Linear, LiveRange, LoadImages, Memory, Misfit, Moments, Op, OptimizerStep, Pad,
    ParamRun, Parameter, Phase, Place, Pool2d, Precision, Program, Result, Rmsprop, Rule, Sgd, Shape,
    SoftmaxXent, Span, Step, StepArgs, Target, TensorId, Trial, TrialRun, Velocity, View, ViewMut,
    WeightDecay, Write, ops, passes,
};
pub use recorder::{Prepared, Recorder};
pub use storage::{Bytes, Ints, Storage};
pub use tensor::Tensor;
pub use tensor_cpu::{
    Buffer as HostBuffer, Roofline, SIMD_LEVELS, bf16_level, simd_level, unknown_simd_level,
};
pub use tensor_cuda::{Options as CudaOptions, Turn};
