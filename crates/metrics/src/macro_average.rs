use crate::metric::MultiLabel;
use crate::{Metric, Result};

/// The mean of a score over the classes, each with the same weight.
#[derive(Clone, Copy)]
struct MacroAverage {
    name: &'static str,
    title: &'static str,
    /// The score of a class; `None` for a class that does not count.
    score: fn(&Class) -> Option<f64>,
}

/// The counts of a class.
struct Class {
    /// Samples of the class that were taken for it.
    right: f64,
    /// Samples that were taken for it.
    taken: f64,
    /// Samples of the class.
    actual: f64,
}

impl Class {
    /// As in scikit-learn, a class without samples that no sample was taken for does not count, and a division by zero gives zero.
    fn share(&self, of: f64) -> Option<f64> {
        (self.taken + self.actual > 0.0).then_some(if of > 0.0 { self.right / of } else { 0.0 })
    }
}

pub(crate) fn precision(name: &str) -> Option<Box<dyn Metric>> {
    let score = |class: &Class| class.share(class.taken);
    MacroAverage { name: "precision", title: "Macro precision", score }.if_named(name)
}

pub(crate) fn recall(name: &str) -> Option<Box<dyn Metric>> {
    let score = |class: &Class| class.share(class.actual);
    MacroAverage { name: "recall", title: "Macro recall", score }.if_named(name)
}

pub(crate) fn f1(name: &str) -> Option<Box<dyn Metric>> {
    let score = |class: &Class| class.share(f64::midpoint(class.taken, class.actual));
    MacroAverage { name: "f1", title: "Macro F1", score }.if_named(name)
}

pub(crate) fn balanced_acc(name: &str) -> Option<Box<dyn Metric>> {
    // Classes without samples don't count.
    let score = |class: &Class| (class.actual > 0.0).then(|| class.right / class.actual);
    MacroAverage { name: "balanced_acc", title: "Balanced accuracy", score }.if_named(name)
}

/// The class with the highest score, the first of equal ones.
fn best(scores: &[f32]) -> usize {
    let better =
        |best: usize, (class, &score): (usize, &f32)| if score > scores[best] { class } else { best };
    scores.iter().enumerate().fold(0, better)
}

/// Counts a sample: for each class those that are right, those that were taken for it, and those of it.
pub(crate) fn count(scores: &[f32], label: usize, counts: &mut [u64]) {
    let taken = best(scores);
    counts[3 * label] += u64::from(taken == label);
    counts[3 * taken + 1] += 1;
    counts[3 * label + 2] += 1;
}

impl MacroAverage {
    fn if_named(self, name: &str) -> Option<Box<dyn Metric>> {
        (self.name == name).then(|| Box::new(self) as _)
    }
}

impl Metric for MacroAverage {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn title(&self) -> String {
        self.title.to_owned()
    }

    fn counts(&self, classes: usize) -> Result<usize> {
        Ok(3 * classes)
    }

    fn add(&self, scores: &[f32], label: usize, counts: &mut [u64]) {
        count(scores, label, counts);
    }

    fn value(&self, counts: &[u64]) -> f64 {
        let scores = Vec::from_iter(self.scores(counts).flatten());
        scores.iter().sum::<f64>() / scores.len() as f64
    }

    fn multi_label(&self) -> Option<Box<dyn MultiLabel>> {
        // It is one with the recall.
        (self.name != "balanced_acc").then(|| Box::new(*self) as _)
    }
}

/// As in scikit-learn, all classes count: one without samples that no sample was taken for as 0.
impl MultiLabel for MacroAverage {
    fn counts(&self, classes: usize) -> usize {
        3 * classes
    }

    fn add(&self, scores: &[f32], has: &dyn Fn(usize) -> bool, counts: &mut [u64]) {
        let classes = counts.as_chunks_mut().0;
        for (class, (score, counts)) in scores.iter().zip::<&mut [[u64; 3]]>(classes).enumerate() {
            let (taken, actual) = (*score > 0.0, has(class));
            let own = [taken && actual, taken, actual];
            counts.iter_mut().zip(own).for_each(|(count, own)| *count += u64::from(own));
        }
    }

    fn value(&self, counts: &[u64]) -> f64 {
        let classes = counts.len() / 3;
        self.scores(counts).map(|score| score.unwrap_or(0.0)).sum::<f64>() / classes as f64
    }
}

impl MacroAverage {
    /// The score of each class.
    fn scores<'a>(&self, counts: &'a [u64]) -> impl Iterator<Item = Option<f64>> + use<'a> {
        let of = self.score;
        counts.as_chunks().0.iter().map(move |&counts: &[u64; 3]| {
            let [right, taken, actual] = counts.map(|count| count as f64);
            of(&Class { right, taken, actual })
        })
    }
}
