use crate::element::Element;
use crate::rows::{Rows, RowsMut};
use towers_program::{Labels, Target, View, ViewMut, Xent};

// Logits are few beside activations, so everything here runs on one thread and in f64.

/// What turns logits into logarithms of probabilities: the largest logit, and the logarithm of the sum of the exponentials of
/// all logits less that one. Apart, neither overflows, and no large logit swallows the sum.
#[derive(Clone, Copy)]
struct Total {
    largest: f64,
    log: f64,
}

impl Total {
    fn of<E: Element>(x: &[E]) -> Total {
        let largest = f64::from(x.iter().map(|x| x.get()).fold(f32::NEG_INFINITY, f32::max));
        Total { largest, log: x.iter().map(|x| (f64::from(x.get()) - largest).exp()).sum::<f64>().ln() }
    }

    /// The logarithm of the probability of the class with this logit.
    fn log_probability(self, x: impl Element) -> f64 {
        f64::from(x.get()) - self.largest - self.log
    }
}

/// A single logit is that of the second of two classes; the first one's is 0. The softmax of both is a sigmoid.
fn of_two<E: Element>(x: &[E]) -> Option<[E; 2]> {
    if let [single] = x { Some([E::of(0.0), *single]) } else { None }
}

/// A single logit gives the probability of the second class alone.
pub(crate) fn probabilities<E: Element, O: Element>(x: View<[E]>, y: ViewMut<[O]>) {
    let (x, y) = (Rows::new(x), RowsMut::new(y));
    for row in 0..x.count() {
        let x = x.row(row);
        let total = of_two(x).map_or_else(|| Total::of(x), |two| Total::of(&two));
        // SAFETY: one row is lent at a time.
        let y = unsafe { y.row(row) };
        y.iter_mut().zip(x).for_each(|(y, &x)| *y = O::of(total.log_probability(x).exp() as f32));
    }
}

/// The cross-entropy of one sample with its smoothed target; NaN for a label outside of the classes.
fn loss<E: Element>(smoothing: f64, x: &[E], target: Target, total: Total) -> f64 {
    let (Some(&own), Some(&other)) = (x.get(target.label as usize), x.get(target.other as usize)) else {
        return f64::NAN;
    };
    let [first, second] = target.weights.map(f64::from);
    let mut log = first * total.log_probability(own);
    if target.share < 1.0 {
        let share = f64::from(target.share);
        log = share * log + (1.0 - share) * (second * total.log_probability(other));
    }
    let hard = (smoothing - 1.0) * log;
    if smoothing == 0.0 {
        return hard;
    }
    let all = smoothing / x.len() as f64 * x.iter().map(|&x| total.log_probability(x)).sum::<f64>();
    hard - target.weight() * all
}

/// The gradient of [`loss`] with respect to the logits, scaled.
fn gradient<E: Element>(xent: &Xent, x: &[E], target: Target, total: Total, dx: &mut [E]) {
    let (smoothing, scale) = (f64::from(xent.label_smoothing), f64::from(xent.scale));
    let Target { label, other, share, weights } = target;
    let ([first, second], share, weight) = (weights.map(f64::from), f64::from(share), target.weight());
    let of_each = weight * (smoothing / x.len() as f64);
    if label.max(other) as usize >= x.len() {
        return dx.fill(E::of(f32::NAN));
    }
    for (k, (dx, &x)) in dx.iter_mut().zip(x).enumerate() {
        let of = |label: u32, weight: f64| if k == label as usize { weight } else { 0.0 };
        let hard = of(label, share * first) + of(other, (1.0 - share) * second);
        let target = if hard == 0.0 { of_each } else { (1.0 - smoothing) * hard + of_each };
        *dx = E::of((scale * (weight * total.log_probability(x).exp() - target)) as f32);
    }
}

/// The place of the largest number, the first among equals.
fn largest<E: Element>(x: &[E]) -> usize {
    (0..x.len()).fold(0, |best, k| if x[k].get() > x[best].get() { k } else { best })
}

pub(crate) fn cross_entropy<E: Element>(
    xent: &Xent,
    logits: View<[E]>,
    labels: &[u32],
    dlogits: Option<ViewMut<[E]>>,
    metrics: &mut [f32],
) {
    let (x, dx) = (Rows::new(logits), dlogits.map(RowsMut::new));
    let (mut losses, mut correct) = (0.0, 0.0);
    let count = labels.len() / xent.words(1, 1);
    for row in 0..count.min(x.count()) {
        let (own, target) = (x.row(row), Target::of(xent.labels == Labels::Target, labels, row));
        let two = of_two(own);
        let x = two.as_ref().map_or(own, |two| two);
        let total = Total::of(x);
        losses += loss(f64::from(xent.label_smoothing), x, target, total);
        correct += if largest(x) == target.main() as usize { 1.0 } else { 0.0 };
        if let Some(dx) = &dx {
            // SAFETY: one row is lent at a time.
            let dx = unsafe { dx.row(row) };
            match dx {
                // The first of the two is no number of the network.
                [single] if two.is_some() => {
                    let mut both = [E::of(0.0); 2];
                    gradient(xent, x, target, total, &mut both);
                    *single = both[1];
                }
                dx => gradient(xent, x, target, total, dx),
            }
        }
    }
    metrics.copy_from_slice(&[losses as f32, correct]);
}

/// Binary cross-entropy of a sigmoid for each class, with multi-hot labels.
pub(crate) fn binary_cross_entropy<E: Element>(
    xent: &Xent,
    logits: View<[E]>,
    labels: &[u32],
    dlogits: Option<ViewMut<[E]>>,
    metrics: &mut [f32],
) {
    let (smoothing, scale) = (f64::from(xent.label_smoothing), f64::from(xent.scale));
    let (x, dx) = (Rows::new(logits), dlogits.map(RowsMut::new));
    let (mut losses, mut right) = (0.0, 0.0);
    for (row, words) in labels.chunks(xent.words(1, logits.layout.shape.c).max(1)).enumerate().take(x.count())
    {
        let own = x.row(row);
        let classes = own.len() as f64;
        // SAFETY: one row is lent at a time.
        let mut dx = dx.as_ref().map(|dx| unsafe { dx.row(row) });
        let (mut loss, mut hits) = (0.0, 0_u32);
        for (k, x) in own.iter().enumerate() {
            let (x, has) = (f64::from(x.get()), Labels::has(words, k));
            let target = if has { 1.0 - smoothing / 2.0 } else { smoothing / 2.0 };
            // An exponential that does not overflow, and a product that is no number only if x is none.
            let (small, wrong) = ((-x.abs()).exp(), if x > 0.0 { 1.0 - target } else { target });
            loss += if wrong == 0.0 { 0.0 } else { wrong * x.abs() } + small.ln_1p();
            hits += u32::from((x > 0.0) == has);
            if let Some(dx) = &mut dx {
                let probability = if x > 0.0 { 1.0 } else { small } / (1.0 + small);
                dx[k] = E::of((scale * (probability - target) / classes) as f32);
            }
        }
        losses += loss / classes;
        right += f64::from(hits) / classes;
    }
    metrics.copy_from_slice(&[losses as f32, right as f32]);
}
