use crate::{Activation, Error, Result};

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
    /// Elements of a replica's message about its part of a batch: of each of `c` channels the mean and the
    /// sum of squared differences from it, then the number of samples.
    pub const fn stats_len(c: usize) -> usize {
        2 * c + 1
    }
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
    /// Whether each sample has a [`Target`] instead of one label: two labels, as of mixup and cutmix, or weights.
    pub targets: bool,
}

/// The target of a sample's probabilities: its label, or `share` of it and the rest of another one. The loss of each label is
/// multiplied by a weight.
///
/// ```
/// use towers_program::Target;
///
/// let target = Target { other: 7, share: 0.75, weights: [1.0, 2.0], ..Target::label(3) };
/// assert_eq!(Target::of(true, &target.to_words(), 0), target);
/// assert_eq!(Target::of(false, &[9, 4], 1), Target::label(4));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// The label.
    pub label: u32,
    /// The other one.
    pub other: u32,
    /// How much of the target the first is, from 0 to 1.
    pub share: f32,
    /// Factors on the losses of both, such as the weights of their classes; 1 without.
    pub weights: [f32; 2],
}

impl Target {
    /// Integers of a target.
    pub const WORDS: usize = 5;

    /// A label alone, without a weight.
    pub const fn label(label: u32) -> Self {
        Target { label, other: label, share: 1.0, weights: [1.0; 2] }
    }

    /// The target as integers: both labels, and the bits of the share and of the weights.
    pub const fn to_words(self) -> [u32; Self::WORDS] {
        let [first, second] = self.weights;
        [self.label, self.other, self.share.to_bits(), first.to_bits(), second.to_bits()]
    }

    /// The target of sample `n`, among integers that hold it.
    #[inline]
    pub fn of(targets: bool, labels: &[u32], n: usize) -> Self {
        if !targets {
            return Target::label(labels[n]);
        }
        let [label, other, share, first, second] = labels.as_chunks().0[n];
        Target { label, other, share: f32::from_bits(share), weights: [first, second].map(f32::from_bits) }
    }

    /// The weight of the whole: that of each label by its share.
    #[inline]
    pub fn weight(self) -> f64 {
        let [first, second] = self.weights.map(f64::from);
        first + (1.0 - f64::from(self.share)) * (second - first)
    }

    /// The label with the larger share: the correct answer.
    #[inline]
    pub fn main(self) -> u32 {
        if self.share >= 0.5 { self.label } else { self.other }
    }
}

impl SoftmaxXent {
    /// Integers that say what `n` samples are compared with.
    pub const fn words(&self, n: usize) -> usize {
        if self.targets { n.saturating_mul(Target::WORDS) } else { n }
    }

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
