//! A file of kernels, and the headers of all.

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

/// The number formats of kernel files: values of the macro `TOWERS_ACT`.
pub const FORMATS: [(&str, u32); 3] = [("f32", 0), ("bf16", 1), ("f16", 2)];
