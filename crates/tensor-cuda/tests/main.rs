//! The kernels on the emulated GPU, one topic a file. One program, since each is linked by itself; its tests share the processor's cores.
#![cfg(all(feature = "emulation", target_os = "linux"))]

mod batch_norm;
mod convolution;
mod dropout;
mod elementwise;
mod emulation;
mod far;
mod harness;
mod optimizer;
mod pooling;
mod programs;
mod replay;
mod softmax;
