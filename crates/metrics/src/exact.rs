use crate::metric::MultiLabel;
use crate::{Error, Metric, Result};

/// The share of the samples that were taken for just the classes that they have.
struct Exact;

const NAME: &str = "exact_acc";

pub(crate) fn named(name: &str) -> Option<Box<dyn Metric>> {
    (name == NAME).then(|| Box::new(Exact) as _)
}

impl Metric for Exact {
    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn title(&self) -> String {
        "Exact accuracy".to_owned()
    }

    /// With one label it is the accuracy.
    fn counts(&self, classes: usize) -> Result<usize> {
        Err(Error::Classes { name: NAME.to_owned(), needs: "several labels a sample".to_owned(), classes })
    }

    fn add(&self, _: &[f32], _: usize, _: &mut [u64]) {}

    fn value(&self, counts: &[u64]) -> f64 {
        counts[0] as f64 / counts[1] as f64
    }

    fn multi_label(&self) -> Option<Box<dyn MultiLabel>> {
        Some(Box::new(Exact))
    }
}

impl MultiLabel for Exact {
    fn counts(&self, _: usize) -> usize {
        2
    }

    fn add(&self, scores: &[f32], has: &dyn Fn(usize) -> bool, counts: &mut [u64]) {
        let right = scores.iter().enumerate().all(|(class, score)| (*score > 0.0) == has(class));
        counts[0] += u64::from(right);
        counts[1] += 1;
    }

    fn value(&self, counts: &[u64]) -> f64 {
        Metric::value(self, counts)
    }
}
