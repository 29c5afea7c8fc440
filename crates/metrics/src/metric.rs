use crate::Result;

/// A metric of a classifier: counts of samples, and the number that they give.
///
/// ```
/// use towers_metrics::{Metric, Result, Tally};
///
/// /// The share of the samples whose class has a higher score than all others together.
/// struct Sure;
///
/// impl Metric for Sure {
///     fn name(&self) -> String {
///         "sure".into()
///     }
///     fn title(&self) -> String {
///         "Sure and right".into()
///     }
///     fn counts(&self, _: usize) -> Result<usize> {
///         Ok(2)
///     }
///     fn add(&self, scores: &[f32], label: usize, counts: &mut [u64]) {
///         let all: f32 = scores.iter().map(|score| score.exp()).sum();
///         counts[0] += u64::from(scores[label].exp() > all / 2.0);
///         counts[1] += 1;
///     }
///     fn value(&self, counts: &[u64]) -> f64 {
///         counts[0] as f64 / counts[1] as f64
///     }
/// }
///
/// let mut tally = Tally::new(vec![Box::new(Sure)], 2)?;
/// tally.add(&[3.0, 0.0], 0);
/// tally.add(&[3.0, 0.0], 1);
/// assert_eq!(tally.values().get("sure"), Some(0.5));
/// # Ok::<(), towers_metrics::Error>(())
/// ```
pub trait Metric: Send + Sync {
    /// Its name in files and options: lower-case letters, digits, underscores.
    fn name(&self) -> String;

    /// Its title for people.
    fn title(&self) -> String;

    /// Whether a higher value is better.
    fn higher_is_better(&self) -> bool {
        true
    }

    /// The unit of its values.
    fn unit(&self) -> Unit {
        Unit::Share
    }

    /// How many counts it keeps for so many classes.
    ///
    /// # Errors
    /// [`Error::Classes`](crate::Error::Classes) if it is not defined for so many.
    fn counts(&self, classes: usize) -> Result<usize>;

    /// Counts a sample. `scores` has a logit or a logarithm of a probability for each class.
    fn add(&self, scores: &[f32], label: usize, counts: &mut [u64]);

    /// The value; NaN where it is not defined, as without samples.
    fn value(&self, counts: &[u64]) -> f64;

    /// The metric of samples with any number of classes each. `None` by default.
    fn multi_label(&self) -> Option<Box<dyn MultiLabel>> {
        None
    }
}

/// A metric of samples with any number of classes each. A sample is taken for those whose logit is above 0: with a probability
/// above 1/2.
pub trait MultiLabel: Send + Sync {
    /// How many counts it keeps for so many classes.
    fn counts(&self, classes: usize) -> usize;

    /// Counts a sample. `scores` has a logit for each class; `has` tells which classes the sample has.
    fn add(&self, scores: &[f32], has: &dyn Fn(usize) -> bool, counts: &mut [u64]);

    /// The value; NaN where it is not defined, as without samples.
    fn value(&self, counts: &[u64]) -> f64;
}

/// The unit of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// None: a number of any size, such as a loss.
    None,
    /// A share, from 0 to 1.
    Share,
}
