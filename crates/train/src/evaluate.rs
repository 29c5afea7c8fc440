use crate::{Classifier, Error, Result};
use cifar::Split;

/// How well a classifier does on labelled pictures.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// How many pictures.
    pub samples: usize,
    /// The mean cross-entropy.
    pub loss: f64,
    /// The share that was classified correctly.
    pub acc: f64,
    /// How often a picture of the row's class was taken for the column's.
    pub confusion: Vec<Vec<u64>>,
}

impl Evaluation {
    /// The share of each class that was classified correctly; NaN for a class without pictures.
    pub fn class_accuracy(&self) -> Vec<f64> {
        let share = |(k, row): (usize, &Vec<u64>)| row[k] as f64 / row.iter().sum::<u64>() as f64;
        self.confusion.iter().enumerate().map(share).collect()
    }
}

/// Evaluates a classifier on all pictures of `split`; `progress` hears how many are done.
///
/// # Errors
/// [`Error::Option`] if a label is outside of the classifier's classes, or there are no pictures.
pub fn evaluate(
    classifier: &mut Classifier,
    split: &Split,
    mut progress: impl FnMut(usize, usize),
) -> Result<Evaluation> {
    let classes = classifier.classes.len();
    if let Some(&label) = split.labels.iter().find(|&&label| usize::from(label) >= classes) {
        let accepted = format!("below {classes}, as the model was trained on {}", classifier.dataset);
        return Err(Error::Option { option: "a label of the data", value: label.to_string(), accepted });
    }
    if split.is_empty() {
        let accepted = "at least 1".to_owned();
        return Err(Error::Option { option: "the number of test samples", value: "0".into(), accepted });
    }
    let images = split.images.as_standard_layout();
    let bytes = images.as_slice().unwrap_or_default();
    let (len, batch) = (bytes.len() / split.len(), classifier.network_mut().max_batch());
    let mut confusion = vec![vec![0; classes]; classes];
    let (mut loss, mut done) = (0.0, 0);
    for pictures in bytes.chunks(batch * len) {
        for prediction in classifier.classify(pictures)? {
            let label = usize::from(split.labels[done]);
            loss -= f64::from(prediction.probabilities[label].max(f32::MIN_POSITIVE)).ln();
            confusion[label][prediction.ranked()[0].0] += 1;
            done += 1;
        }
        progress(done, split.len());
    }
    let correct: u64 = confusion.iter().enumerate().map(|(k, row)| row[k]).sum();
    let samples = split.len();
    Ok(Evaluation { samples, loss: loss / samples as f64, acc: correct as f64 / samples as f64, confusion })
}
