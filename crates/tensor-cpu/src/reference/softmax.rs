use super::operand::{Input, Output};
use tensor_backend::SoftmaxXent;

/// The logarithms of the classes' probabilities. The largest logit is taken away first, so that nothing overflows and no
/// large one swallows the sum.
fn log_probabilities(x: &[f64]) -> impl Fn(f64) -> f64 + use<> {
    let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let log = x.iter().map(|x| (x - largest).exp()).sum::<f64>().ln();
    move |x| x - largest - log
}

pub(super) fn probabilities(x: Input, mut y: Output) {
    for row in 0..x.shape().rows() {
        let log = log_probabilities(x.row(row));
        y.row(row).iter_mut().zip(x.row(row)).for_each(|(y, &x)| *y = log(x).exp());
    }
}

/// The cross-entropy of one sample with its smoothed target; NaN for a label outside of the classes.
fn loss(smoothing: f64, x: &[f64], label: usize, log: &impl Fn(f64) -> f64) -> f64 {
    let Some(&own) = x.get(label) else { return f64::NAN };
    let hard = (smoothing - 1.0) * log(own);
    if smoothing == 0.0 {
        return hard;
    }
    hard - smoothing / x.len() as f64 * x.iter().map(|&x| log(x)).sum::<f64>()
}

/// The target of class `k`; NaN, so that the gradient is too, for a label outside of the classes.
fn target(smoothing: f64, classes: usize, label: usize, k: usize) -> f64 {
    let share = smoothing / classes as f64;
    match label {
        _ if label >= classes => f64::NAN,
        _ if label == k => 1.0 - smoothing + share,
        _ => share,
    }
}

pub(super) fn cross_entropy(
    xent: &SoftmaxXent,
    logits: Input,
    labels: &[u32],
    mut dlogits: Option<Output>,
    metrics: &mut [f64],
) {
    let (smoothing, classes) = (f64::from(xent.label_smoothing), logits.shape().c);
    metrics.fill(0.0);
    for (n, &label) in labels.iter().enumerate() {
        let (x, label) = (logits.row(n), label as usize);
        let log = log_probabilities(x);
        metrics[0] += loss(smoothing, x, label, &log);
        let largest = (0..classes).fold(0, |best, k| if x[k] > x[best] { k } else { best });
        metrics[1] += if label == largest && classes > 0 { 1.0 } else { 0.0 };
        if let Some(d) = &mut dlogits {
            for (k, d) in d.row(n).iter_mut().enumerate() {
                let target = target(smoothing, classes, label, k);
                *d = f64::from(xent.scale) * (log(x[k]).exp() - target);
            }
        }
    }
}
