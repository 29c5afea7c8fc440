//! Networks from and to other programs, one topic a file. One test program: each is linked by itself.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

mod keras_compile;
mod keras_models;
mod onnx;
mod torch_models;
