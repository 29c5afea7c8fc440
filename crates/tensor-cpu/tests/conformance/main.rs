//! Every op of [`tensor_cpu::Cpu`] against the f64 reference, over many shapes and layouts, and with the same bits on
//! any number of threads; and what both refuse.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

mod convolution;
mod elementwise;
mod errors;
mod harness;
mod normalization;
mod optimizers;
mod pooling;
mod softmax;
