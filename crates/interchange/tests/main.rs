//! Networks from and to other programs, one topic a file. One test program: each is linked by itself.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

mod keras2;
mod keras_compile;
mod keras_models;
mod loaded;
mod multi_gpu;
mod onnx;
mod onnx_external;
mod onnx_forms;
mod real_files;
mod torch_models;
