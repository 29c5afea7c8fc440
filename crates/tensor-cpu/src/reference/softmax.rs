use super::operand::{Input, Output};
use towers_program::{Labels, Target, Xent};

/// The logarithms of the classes' probabilities. The largest logit is taken away first, so that nothing overflows and no
/// large one swallows the sum.
fn log_probabilities(x: &[f64]) -> impl Fn(f64) -> f64 + use<> {
    let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let log = x.iter().map(|x| (x - largest).exp()).sum::<f64>().ln();
    move |x| x - largest - log
}

/// A single logit is that of the second of two classes; the first one's is 0.
fn of_classes(x: &[f64]) -> Vec<f64> {
    if let [single] = x { vec![0.0, *single] } else { x.to_vec() }
}

pub(crate) fn probabilities(x: Input, mut y: Output) {
    for row in 0..x.shape().rows() {
        let log = log_probabilities(&of_classes(x.row(row)));
        y.row(row).iter_mut().zip(x.row(row)).for_each(|(y, &x)| *y = log(x).exp());
    }
}

/// The weighted probabilities that one sample is compared with; NaN, so that loss and gradient are too, for a label outside of the classes.
fn targets(smoothing: f64, classes: usize, target: Target) -> Vec<f64> {
    let Target { label, other, share, weights: [first, second] } = target;
    if label.max(other) as usize >= classes {
        return vec![f64::NAN; classes];
    }
    let mut targets = vec![target.weight() * smoothing / classes as f64; classes];
    targets[label as usize] += (1.0 - smoothing) * f64::from(share) * f64::from(first);
    targets[other as usize] += (1.0 - smoothing) * (1.0 - f64::from(share)) * f64::from(second);
    targets
}

/// The cross-entropy of one sample with its targets.
fn loss(x: &[f64], targets: &[f64], log: &impl Fn(f64) -> f64) -> f64 {
    // A class that is no target does not count, however small its probability.
    let parts = x.iter().zip(targets).filter(|(_, target)| **target != 0.0);
    -parts.map(|(&x, target)| target * log(x)).sum::<f64>()
}

pub(crate) fn cross_entropy(
    xent: &Xent,
    logits: Input,
    labels: &[u32],
    mut dlogits: Option<Output>,
    metrics: &mut [f64],
) {
    let smoothing = f64::from(xent.label_smoothing);
    metrics.fill(0.0);
    for n in 0..labels.len() / xent.words(1, 1) {
        let (x, target) =
            (&of_classes(logits.row(n))[..], Target::of(xent.labels == Labels::Target, labels, n));
        let classes = x.len();
        let (log, targets) = (log_probabilities(x), targets(smoothing, classes, target));
        metrics[0] += if classes > 0 { loss(x, &targets, &log) } else { f64::NAN };
        let largest = (0..classes).fold(0, |best, k| if x[k] > x[best] { k } else { best });
        metrics[1] += if target.main() as usize == largest && classes > 0 { 1.0 } else { 0.0 };
        if let Some(d) = &mut dlogits {
            let first = classes - logits.shape().c;
            for (k, d) in (first..).zip(d.row(n)) {
                *d = f64::from(xent.scale) * (target.weight() * log(x[k]).exp() - targets[k]);
            }
        }
    }
}

/// The loss of a sigmoid for each class, with multi-hot labels.
pub(crate) fn binary_cross_entropy(
    xent: &Xent,
    logits: Input,
    labels: &[u32],
    mut dlogits: Option<Output>,
    metrics: &mut [f64],
) {
    let (smoothing, classes) = (f64::from(xent.label_smoothing), logits.shape().c as f64);
    metrics.fill(0.0);
    for (n, words) in labels.chunks(xent.words(1, logits.shape().c).max(1)).enumerate() {
        let target = |k: usize| smoothing / 2.0 + if Labels::has(words, k) { 1.0 - smoothing } else { 0.0 };
        // The logarithm of 1 + e^x, without an exponential that overflows.
        let softplus = |x: f64| (-x.abs()).exp().ln_1p() + if x < 0.0 { 0.0 } else { x };
        for (k, &x) in logits.row(n).iter().enumerate() {
            let (has, lacks) = (target(k), 1.0 - target(k));
            // A target of 0 does not count, however large the loss.
            let part =
                |target: f64, loss: f64| if target == 0.0 && !loss.is_nan() { 0.0 } else { target * loss };
            metrics[0] += (part(has, softplus(-x)) + part(lacks, softplus(x))) / classes;
            metrics[1] += if (x > 0.0) == Labels::has(words, k) { 1.0 / classes } else { 0.0 };
            if let Some(d) = &mut dlogits {
                d.row(n)[k] = f64::from(xent.scale) * (1.0 / (1.0 + (-x).exp()) - has) / classes;
            }
        }
    }
}
