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

/// Cross-entropy of class scores, in one op with what makes probabilities of them: a softmax or, of multi-hot labels, a sigmoid
/// for each class.
///
/// With `e = label_smoothing` and `k` classes the target of a sample is `1 - e + e/k` for its label and `e/k` for the
/// others (Keras' and PyTorch's definition). That of multi-hot labels is `1 - e/2` for each class of the sample and `e/2` for the
/// others, and a sample's loss is the mean over the classes (Keras' `BinaryCrossentropy`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xent {
    /// Between 0 and 1; 0 for one-hot targets.
    pub label_smoothing: f32,
    /// Factor on the gradient: 1 over the number of samples of the whole global batch.
    pub scale: f32,
    /// The form of the labels.
    pub labels: Labels,
}

/// The form of the labels of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels {
    /// One label.
    Class,
    /// A [`Target`]: two labels, as of mixup and cutmix, or weights.
    Target,
    /// Any number of classes: bit `k % 32` of word `k / 32` is 1 for those that the sample has.
    MultiHot,
}

impl Labels {
    /// Integers of a sample's label among this number of classes.
    ///
    /// ```
    /// use towers_program::Labels;
    ///
    /// assert_eq!([Labels::Class, Labels::Target, Labels::MultiHot].map(|labels| labels.words(80)), [1, 5, 3]);
    /// ```
    pub const fn words(self, classes: usize) -> usize {
        match self {
            Labels::Class => 1,
            Labels::Target => Target::WORDS,
            Labels::MultiHot => classes.div_ceil(32),
        }
    }

    /// Whether the multi-hot words of a sample have class `k`.
    #[inline]
    pub const fn has(words: &[u32], k: usize) -> bool {
        words[k / 32] >> (k % 32) & 1 == 1
    }

    /// The multi-hot words of a sample, from 0 or 1 for each class.
    ///
    /// ```
    /// # use towers_program::Labels;
    /// assert_eq!(Labels::multi_hot(&[0, 1, 1]).collect::<Vec<_>>(), [0b110]);
    /// ```
    pub fn multi_hot(row: &[u8]) -> impl Iterator<Item = u32> + '_ {
        let word = |part: &[u8]| part.iter().rev().fold(0, |word, &has| word << 1 | u32::from(has != 0));
        row.chunks(32).map(word)
    }
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

    /// The target of sample `n`, among integers that hold it: whole targets, or labels.
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

impl Xent {
    /// Integers that say what `n` samples of this number of classes are compared with.
    pub const fn words(&self, n: usize, classes: usize) -> usize {
        n.saturating_mul(self.labels.words(classes))
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
