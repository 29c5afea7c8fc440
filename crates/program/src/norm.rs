use crate::{Activation, Error, Result, Run, RunMut, Shape, Span, View};

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

    /// How many replicas' statistics a run of an arena holds: at least one's.
    ///
    /// # Errors
    /// [`Error::Length`] for none, and for a part of one.
    pub fn replicas(op: &'static str, stats: Span, c: usize) -> Result<usize> {
        let replicas = stats.len.div_ceil(Self::stats_len(c)).max(1);
        Error::check_len(op, "the replicas' statistics", stats, replicas.saturating_mul(Self::stats_len(c)))?;
        Ok(replicas)
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
        let NormSpans { affine: AffineSpans { gamma, beta }, mean, var } = at;
        let spans = [("gamma", gamma), ("beta", beta), ("the mean", mean), ("the variance", var)];
        self.check(op, x, y, &spans)
    }
}

/// Where scale and shift of a normalization lie in an arena, one of each a channel. Their gradients lie likewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AffineSpans {
    /// The scale.
    pub gamma: Span,
    /// What is added last.
    pub beta: Span,
}

/// Where the numbers of a normalization lie for inference, one of each a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormSpans {
    /// Scale and shift, among the parameters.
    pub affine: AffineSpans,
    /// The mean, among the running averages.
    pub mean: Span,
    /// The variance, among the running averages.
    pub var: Span,
}

/// What a normalization reads in inference, beside its input.
#[derive(Debug)]
pub struct NormInfer<'a, B> {
    /// The parameters' arena.
    pub params: &'a B,
    /// The running averages' arena.
    pub running: &'a B,
    /// Where in both.
    pub at: NormSpans,
}

/// What a normalization reads and leaves in training, beside its input and output.
#[derive(Debug)]
pub struct NormTrain<'a, B> {
    /// Scale and shift.
    pub affine: Run<'a, B, AffineSpans>,
    /// In the same arena (c elements), a bias that the op before has left out of the input, since normalization takes it away
    /// again: of all results it is in `n * mean` alone.
    pub bias: Option<Span>,
    /// Receives the mean and `1/sqrt(var + epsilon)` for the backward pass (2c elements).
    pub saved: &'a mut B,
    /// Receives `n * mean` and `n * unbiased variance` (2c elements), `n` the samples: summed over replicas and divided by all
    /// samples these become the running statistics, see [`ema_step`](crate::Backend::ema_step).
    pub sums: RunMut<'a, B>,
}

/// What a normalization had in training, for its backward pass.
#[derive(Debug)]
pub struct NormSaved<'a, B> {
    /// The input.
    pub x: View<'a, B>,
    /// Scale and shift.
    pub affine: Run<'a, B, AffineSpans>,
    /// What the forward pass left in [`NormTrain::saved`].
    pub saved: &'a B,
}

impl<B> Clone for NormSaved<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for NormSaved<'_, B> {}

/// The gradients of scale and shift over a whole batch, of which a replica may have a part only.
#[derive(Debug)]
pub struct NormGrads<'a, B> {
    /// The gradients.
    pub grads: Run<'a, B, AffineSpans>,
    /// How many numbers each channel has in the whole batch.
    pub count: usize,
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
    /// Whether each sample has two labels, as mixup and cutmix give: a [`Target`] of three integers each instead of one.
    pub mixed: bool,
}

/// What a sample's probabilities are compared with: its label, or `weight` of it and the rest of another one.
///
/// ```
/// use program::Target;
///
/// let target = Target { label: 3, other: 7, weight: 0.75 };
/// assert_eq!(Target::of(true, &target.to_words(), 0), target);
/// assert_eq!(Target::of(false, &[9, 4], 1), Target { label: 4, other: 4, weight: 1.0 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// The label.
    pub label: u32,
    /// The other one.
    pub other: u32,
    /// How much the first counts, from 0 to 1.
    pub weight: f32,
}

impl Target {
    /// Integers of a mixed target.
    pub const WORDS: usize = 3;

    /// The target as integers: both labels, and the bits of the weight.
    pub const fn to_words(self) -> [u32; Self::WORDS] {
        [self.label, self.other, self.weight.to_bits()]
    }

    /// The target of sample `n`, among integers that hold it.
    #[inline]
    pub fn of(mixed: bool, labels: &[u32], n: usize) -> Self {
        if !mixed {
            return Target { label: labels[n], other: labels[n], weight: 1.0 };
        }
        let [label, other, weight] = labels.as_chunks().0[n];
        Target { label, other, weight: f32::from_bits(weight) }
    }

    /// The label that counts more: what a correct answer is.
    #[inline]
    pub fn main(self) -> u32 {
        if self.weight >= 0.5 { self.label } else { self.other }
    }
}

impl SoftmaxXent {
    /// Integers that say what `n` samples are compared with.
    pub const fn words(&self, n: usize) -> usize {
        if self.mixed { n.saturating_mul(Target::WORDS) } else { n }
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
