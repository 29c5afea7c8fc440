//! The CPU backend of `towers`: SIMD kernels on all threads ([`Cpu`]), and the same ops as plain loops in f64
//! ([`Reference`]) to check them, and everything built on them, against.
//!
//! Results do not depend on the number of threads: work is cut into tasks by the shapes alone, a task's arithmetic has
//! one order, and partial sums are added in the order of the tasks.

mod activation;
mod ascent;
mod backend;
mod buffer;
mod channels;
mod conv;
mod cpu;
mod depthwise;
mod dispatch;
mod dropout;
mod element;
mod elementwise;
mod huge_pages;
mod images;
mod layer_norm;
mod linear;
mod local_response_norm;
mod memory;
mod merge;
mod muon;
mod norm_operands;
mod normalization;
mod operand;
mod optimizer;
mod pointwise;
mod pooling;
mod prelu;
mod reference;
mod roofline;
mod rows;
mod run;
mod scratch;
mod simd;
mod softmax;
mod statistics;
mod threads;
mod upsample;
mod zero_pad;

pub use buffer::Buffer;
pub use cpu::{Cpu, bf16_level, simd_level};
pub use reference::Reference;
pub use roofline::Roofline;
pub use simd::{SIMD_LEVELS, unknown_simd_level};

use towers_program::Device;

/// The processor as a device, with `threads` threads; 0 for one a core.
pub fn device(threads: usize) -> Device {
    Cpu::new(threads).into()
}

/// The f64 reference as a device.
pub fn reference() -> Device {
    Reference.into()
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
