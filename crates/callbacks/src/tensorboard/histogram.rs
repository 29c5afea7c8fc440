//! Histograms of weights for TensorBoard.

/// As in Keras' callback.
const BUCKETS: usize = 30;

/// The counts of finite values in buckets of the same width.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Histogram {
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) sum: f64,
    pub(super) sum_squares: f64,
    /// The upper end of each bucket; the last holds its end too.
    pub(super) limits: Vec<f64>,
    pub(super) counts: Vec<f64>,
}

impl Histogram {
    /// The histogram of the finite values; `None` if there are none.
    pub(super) fn of(values: &[f32]) -> Option<Histogram> {
        let finite = || values.iter().filter(|value| value.is_finite()).map(|value| f64::from(*value));
        let (min, max) = finite().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
        if min > max {
            return None;
        }
        let width = (max - min) / BUCKETS as f64;
        if width == 0.0 {
            let count = finite().count() as f64;
            let (sum, sum_squares) = (min * count, min * min * count);
            return Some(Histogram { min, max, sum, sum_squares, limits: vec![max], counts: vec![count] });
        }
        let mut counts = vec![0.0; BUCKETS];
        let (mut sum, mut sum_squares) = (0.0, 0.0);
        for value in finite() {
            counts[(((value - min) / width) as usize).min(BUCKETS - 1)] += 1.0;
            (sum, sum_squares) = (sum + value, sum_squares + value * value);
        }
        let mut limits: Vec<f64> = (1..=BUCKETS).map(|k| min + width * k as f64).collect();
        limits[BUCKETS - 1] = max;
        Some(Histogram { min, max, sum, sum_squares, limits, counts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_their_buckets() {
        let values = [0.0, 0.5, 1.0, 1.5, 30.0, f32::NAN, f32::INFINITY];
        let histogram = Histogram::of(&values).unwrap();
        assert_eq!((histogram.min, histogram.max, histogram.sum), (0.0, 30.0, 33.0));
        assert_eq!(histogram.sum_squares, 0.25 + 1.0 + 2.25 + 900.0);
        assert_eq!((histogram.counts[0], histogram.counts[1], histogram.counts[29]), (2.0, 2.0, 1.0));
        assert_eq!((histogram.counts.iter().sum::<f64>(), histogram.counts.len()), (5.0, 30));
        assert_eq!((histogram.limits[0], histogram.limits[29]), (1.0, 30.0));
    }

    #[test]
    fn equal_values_and_none() {
        let histogram = Histogram::of(&[-2.0; 5]).unwrap();
        assert_eq!((histogram.limits, histogram.counts), (vec![-2.0], vec![5.0]));
        assert_eq!((histogram.sum, histogram.sum_squares), (-10.0, 20.0));
        assert_eq!((Histogram::of(&[]), Histogram::of(&[f32::NAN])), (None, None));
    }
}
