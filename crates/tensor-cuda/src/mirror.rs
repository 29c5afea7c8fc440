//! Weights as matrix products want them: transposed, in the format of activations.

/// What lies beside a buffer of parameters, or of their gradients.
#[derive(Debug, Default)]
pub(crate) struct Mirror {}
