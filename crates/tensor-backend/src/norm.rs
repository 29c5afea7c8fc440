use crate::{Activation, Error, Result, Shape, Span};

/// Batch normalization over samples, rows and columns, then an activation:
/// `y = act(gamma * (x - mean) / sqrt(var + epsilon) + beta)`, one mean and variance a channel.
///
/// S. Ioffe, C. Szegedy, "Batch normalization", 2015. Normalization uses the biased variance of the batch; the running
/// variance is fed the unbiased one, as PyTorch and TensorFlow's fused kernel do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNorm {
    /// Added to the variance.
    pub epsilon: f32,
    /// What follows.
    pub act: Activation,
}

impl BatchNorm {
    /// Elements of what a replica tells others of its part of a batch: of each of `c` channels the mean and the sum of squared
    /// differences from it, then the number of samples.
    pub const fn stats_len(c: usize) -> usize {
        2 * c + 1
    }

    /// Checks the operands' sizes: what every backend calls first. Each of `spans` holds one number a channel.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::Length`].
    pub fn check(&self, op: &'static str, x: Shape, y: Shape, spans: &[(&'static str, Span)]) -> Result<()> {
        Error::check_shape(op, "the output", y, x)?;
        spans.iter().try_for_each(|&(what, span)| Error::check_len(op, what, span, x.c))
    }

    /// As [`check`](BatchNorm::check), for inference.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::Length`].
    pub fn check_infer(&self, op: &'static str, x: Shape, y: Shape, at: NormSpans) -> Result<()> {
        let NormSpans { gamma, beta, mean, var } = at;
        let spans = [("gamma", gamma), ("beta", beta), ("the mean", mean), ("the variance", var)];
        self.check(op, x, y, &spans)
    }
}

/// Where the numbers of a normalization lie for inference, one of each a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormSpans {
    /// The scale, among the parameters.
    pub gamma: Span,
    /// What is added last, among the parameters.
    pub beta: Span,
    /// The mean, among the running averages.
    pub mean: Span,
    /// The variance, among the running averages.
    pub var: Span,
}

/// Softmax and cross-entropy with integer labels, in one op.
///
/// With `e = label_smoothing` and `k` classes the target of a sample is `1 - e + e/k` for its label and `e/k` for the
/// others (Keras' and PyTorch's definition).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SoftmaxXent {
    /// Between 0 and 1; 0 for one-hot targets.
    pub label_smoothing: f32,
    /// Factor on the gradient: 1 over the number of samples of the whole global batch.
    pub scale: f32,
}

impl SoftmaxXent {
    /// Checks the smoothing.
    ///
    /// # Errors
    /// [`Error::Value`] for a smoothing outside of [0, 1).
    pub fn check(&self, op: &'static str) -> Result<()> {
        if (0.0..1.0).contains(&self.label_smoothing) {
            return Ok(());
        }
        let value = f64::from(self.label_smoothing);
        Err(Error::Value { op, what: "label_smoothing", value, accepted: "at least 0 and below 1" })
    }
}
