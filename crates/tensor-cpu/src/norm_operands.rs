//! The runs of parameters and statistics that batch normalization works with. They serve both backends.

/// What a training pass forward reads and leaves, beside the tensors.
pub(crate) struct Train<'a, T> {
    pub(crate) gamma: &'a [T],
    pub(crate) beta: &'a [T],
    pub(crate) bias: Option<&'a [T]>,
    /// Means, then inverse deviations.
    pub(crate) saved: &'a mut [T],
    /// The samples' share of the running statistics: of the means, then of the variances.
    pub(crate) sums: &'a mut [T],
}

/// What inference reads, beside the tensors.
#[derive(Clone, Copy)]
pub(crate) struct Infer<'a, T> {
    pub(crate) gamma: &'a [T],
    pub(crate) beta: &'a [T],
    pub(crate) mean: &'a [T],
    pub(crate) var: &'a [T],
}

/// What a backward pass reads, and a forward pass that is repeated, beside the tensors.
#[derive(Clone, Copy)]
pub(crate) struct Saved<'a, T> {
    pub(crate) gamma: &'a [T],
    pub(crate) beta: &'a [T],
    /// Means, then inverse deviations.
    pub(crate) saved: &'a [T],
}
