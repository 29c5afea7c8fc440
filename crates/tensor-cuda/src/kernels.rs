//! The kernels' sources, and the kernels in each.

use crate::ops;

/// A file of kernels.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The file's name, in `kernels/`.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
    /// The kernels in it.
    pub kernels: &'static [&'static str],
}

/// The header that every file includes: its name and text.
pub const PRELUDE: (&str, &str) = ("towers.cuh", include_str!("../kernels/towers.cuh"));

/// Every header that a file may include, by name and text.
pub const HEADERS: &[(&str, &str)] = &[
    PRELUDE,
    ("divisor.cuh", include_str!("../kernels/divisor.cuh")),
    ("mma.cuh", include_str!("../kernels/mma.cuh")),
    ("product.cuh", include_str!("../kernels/product.cuh")),
];

/// Every file, one topic each.
pub const SOURCES: &[Source] = &[
    crate::step_state::SOURCE,
    ops::images::SOURCE,
    ops::elementwise::SOURCE,
    crate::engine::own::SOURCE,
    crate::engine::sliding::SOURCE,
    crate::compute_copies::SOURCE,
    ops::rows::SOURCE,
    ops::normalization::SOURCE,
    ops::pooling::SOURCE,
    ops::softmax::SOURCE,
    ops::dropout::SOURCE,
    ops::optimizer::SOURCE,
];

/// The number formats of kernel files: values of the macro `TOWERS_ACT`.
pub const FORMATS: [(&str, u32); 3] = [("f32", 0), ("bf16", 1), ("f16", 2)];
