//! What a device is opened with.

use core::fmt;
use towers_program::Precision;

/// The options of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The GPU's number.
    pub gpu: usize,
    /// The number formats of its arithmetic.
    pub precision: Precision,
    /// What computes convolutions and dense layers.
    pub kernels: Kernels,
    /// Whether steps run op by op, and none is captured as a CUDA graph.
    pub no_graph: bool,
    /// Whether all work is one sequence: in a graph each kernel waits for the one before it, and all-reduces
    /// do not run beside the backward pass.
    pub one_stream: bool,
}

/// What computes convolutions and dense layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kernels {
    /// cuDNN and cuBLASLt, and our own kernels for gradients of few filters, where they are faster.
    #[default]
    Auto,
    /// Our own kernels alone.
    Own,
    /// cuDNN and cuBLASLt for all that they can compute.
    Library,
}

impl Kernels {
    /// All of them.
    pub const ALL: [Kernels; 3] = [Kernels::Auto, Kernels::Own, Kernels::Library];

    /// The name that `--kernels` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Kernels::Auto => "auto",
            Kernels::Own => "own",
            Kernels::Library => "library",
        }
    }
}

impl fmt::Display for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
