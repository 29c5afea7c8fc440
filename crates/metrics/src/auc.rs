use crate::metric::MultiLabel;
use crate::{Error, Metric, Result};

/// The area under the ROC curve of the second of two classes, with the thresholds of Keras' `AUC`: 200 of them, in equal steps from 0 to
/// 1, and trapezoids between them.
struct Auc;

const NAME: &str = "auc";

/// The spaces between the thresholds.
const SPACES: usize = 199;

pub(crate) fn named(name: &str) -> Option<Box<dyn Metric>> {
    (name == NAME).then(|| Box::new(Auc) as _)
}

impl Metric for Auc {
    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn title(&self) -> String {
        "AUC".to_owned()
    }

    fn counts(&self, classes: usize) -> Result<usize> {
        if classes != 2 {
            return Err(Error::Classes { name: NAME.to_owned(), needs: "two classes".to_owned(), classes });
        }
        Ok(2 * SPACES)
    }

    fn add(&self, scores: &[f32], label: usize, counts: &mut [u64]) {
        count(f64::from(scores[1]) - f64::from(scores[0]), label, counts);
    }

    fn value(&self, counts: &[u64]) -> f64 {
        area(counts).unwrap_or(f64::NAN)
    }

    fn multi_label(&self) -> Option<Box<dyn MultiLabel>> {
        Some(Box::new(Auc))
    }
}

/// The mean over the classes, as of Keras' `AUC(multi_label=True)`: 0 of a class that all samples have, or none.
impl MultiLabel for Auc {
    fn counts(&self, classes: usize) -> usize {
        2 * SPACES * classes
    }

    fn add(&self, scores: &[f32], has: &dyn Fn(usize) -> bool, counts: &mut [u64]) {
        for (class, (score, counts)) in scores.iter().zip(counts.chunks_mut(2 * SPACES)).enumerate() {
            count(f64::from(*score), usize::from(has(class)), counts);
        }
    }

    fn value(&self, counts: &[u64]) -> f64 {
        if counts[..2 * SPACES].iter().sum::<u64>() == 0 {
            return f64::NAN;
        }
        let classes = counts.chunks(2 * SPACES);
        classes.clone().filter_map(area).sum::<f64>() / classes.len() as f64
    }
}

/// Counts a sample by its logit; its label is 0 or 1.
fn count(logit: f64, label: usize, counts: &mut [u64]) {
    let probability = 1.0 / (1.0 + (-logit).exp());
    // The space below the probability: a threshold itself belongs to the space below it.
    let space = (probability * SPACES as f64).ceil().max(1.0) as usize - 1;
    counts[2 * space + label] += 1;
}

/// The area under the curve of these counts; `None` without samples of either label.
fn area(counts: &[u64]) -> Option<f64> {
    let spaces = counts.as_chunks().0;
    let all = |label: usize| spaces.iter().map(|space: &[u64; 2]| space[label]).sum::<u64>() as f64;
    let [negative, positive] = [all(0), all(1)];
    // Each space adds a trapezoid to the area, beginning with the highest threshold.
    let (mut found, mut area) = (0.0, 0.0);
    for space in spaces.iter().rev() {
        let [wrong, right] = space.map(|count| count as f64);
        area += wrong / negative * (found + right / 2.0) / positive;
        found += right;
    }
    (negative > 0.0 && positive > 0.0).then_some(area)
}
