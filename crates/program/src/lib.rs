//! A training step as data: ops over numbered tensors, passes over programs, places in memory.
//!
//! A [`Builder`] makes the forward part of a [`Program`]. [`passes`] turn it into a training step, or an inference pass. An [`Executable`] has
//! a place in memory for each tensor, and a [`Device`] runs it. Printed, a program is the first thing to look at when
//! one is wrong.
//!
//! This crate has no kernel, no I/O and no `unsafe`. It also defines the terms that devices and callers share:
//!
//! - A [`Shape`] is always `(n, h, w, c)`: samples, rows, columns, channels; a vector per sample has `h = w = 1`.
//! - A [`Layout`] places a shape in a buffer. Pixels lie `stride` elements apart, so a tensor may be a channel slice
//!   of a wider one: that is how a concatenation costs no copy.
//! - A [`Span`] is a run of elements of a flat arena: one parameter tensor, its gradient, its optimizer state.
//! - Convolution weights lie as `(kh, kw, c, k)` and dense weights as `(inputs, outputs)`, as in Keras.
//! - Every gradient is of the sum over samples that the caller scaled in the loss; no op averages on its own.
//!
//! [`Backend`] is the interface of a kind of device, each in its own crate. [`Device`] is any of them.
//! [`Storage`] is a run of numbers there. A [`GraphCache`] runs work that repeats from step to step; on a GPU
//! it is captured once, as a CUDA graph.
#![forbid(unsafe_code)]

mod activation;
mod backend;
mod buffer;
mod builder;
mod captured_graph;
mod check;
mod conv;
mod device;
mod error;
mod execute;
mod graph_cache;
mod images;
mod kind;
mod norm;
pub mod ops;
mod optimizer;
mod pad;
pub mod passes;
mod place;
mod pool;
mod precision;
mod program;
mod random;
mod rule;
mod shape;
mod signature;
mod sound;
mod tensor;
#[cfg(test)]
mod testing;
mod text;
mod trial;
mod view;

pub use activation::Activation;
pub use backend::{Backend, Write};
pub use buffer::{Buffer, Bytes, Ints, Storage};
pub use builder::Builder;
pub use captured_graph::{CapturedGraph, ReplayArgs};
pub use check::{Conflict, LiveRange, conflict, live_ranges};
pub use conv::{Conv2d, Linear};
pub use device::Device;
pub use error::{Error, Misfit, Result};
pub use execute::{Memory, StepArgs};
pub use graph_cache::{CaptureStatus, GraphCache};
pub use images::{ImageDraw, ImageSet, LoadImages, Place};
pub use kind::{Kind, Times};
pub use norm::{BatchNorm, Labels, Target, Xent};
pub use ops::{Op, operands, results};
pub use optimizer::{GradNorms, OptimizerState, ParamRun};
pub use pad::Pad;
pub use place::Executable;
pub use pool::Pool2d;
pub use precision::Precision;
pub use program::{Phase, Program, Step};
pub use random::{DropoutMask, Noise};
pub use rule::Rule;
pub use shape::{Layout, Shape, Span};
pub use signature::Signature;
pub use tensor::{Arena, Home, Parameter, Tensor, TensorId};
pub use trial::{Trial, TrialRun};
pub use view::{View, ViewMut};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
