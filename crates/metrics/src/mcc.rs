use crate::{Metric, Result, Unit, macro_average};

/// Matthews' correlation coefficient for any number of classes: 1 if all samples are right, about 0 for guesses, however
/// rare some classes are. Where all samples are of one class, or are taken for one, it is 0, as in scikit-learn.
struct Mcc;

const NAME: &str = "mcc";

pub(crate) fn named(name: &str) -> Option<Box<dyn Metric>> {
    (name == NAME).then(|| Box::new(Mcc) as _)
}

impl Metric for Mcc {
    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn title(&self) -> String {
        "Matthews' correlation".to_owned()
    }

    fn unit(&self) -> Unit {
        Unit::None
    }

    fn counts(&self, classes: usize) -> Result<usize> {
        Ok(3 * classes)
    }

    fn add(&self, scores: &[f32], label: usize, counts: &mut [u64]) {
        macro_average::count(scores, label, counts);
    }

    fn value(&self, counts: &[u64]) -> f64 {
        let classes = counts.as_chunks().0.iter().map(|counts: &[u64; 3]| counts.map(|count| count as f64));
        let sum = |of: fn([f64; 3]) -> f64| classes.clone().map(of).sum::<f64>();
        let (right, samples) = (sum(|[right, ..]| right), sum(|[_, _, actual]| actual));
        // The covariances of what samples are and what they are taken for, times the square of their number.
        let both = right * samples - sum(|[_, taken, actual]| taken * actual);
        let of_taken = samples * samples - sum(|[_, taken, _]| taken * taken);
        let of_actual = samples * samples - sum(|[.., actual]| actual * actual);
        match samples > 0.0 {
            true if of_taken * of_actual > 0.0 => both / (of_taken * of_actual).sqrt(),
            true => 0.0,
            false => f64::NAN,
        }
    }
}
