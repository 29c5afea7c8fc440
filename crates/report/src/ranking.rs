//! How well the scores of a class rank its samples before those of the other class.

use crate::calibration::unit_panel;
use towers_plot::{Curve, Panel};

/// A curve in a page has at most about so many points on each axis.
const DRAWN: f64 = 500.0;

/// The samples of two classes, by the score of the positive one.
#[derive(Clone, Debug)]
pub(crate) struct Ranking {
    /// Negative and positive samples whose score is at least a threshold, for each score as threshold from the highest on. The first are 0.
    counts: Vec<[f64; 2]>,
}

impl Ranking {
    /// The scores of samples, and whether they are positive.
    pub fn new(mut samples: Vec<(f64, bool)>) -> Ranking {
        samples.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut counts = vec![[0.0; 2]];
        let mut found = [0.0; 2];
        for equal in samples.chunk_by(|a, b| a.0 == b.0) {
            equal.iter().for_each(|(_, positive)| found[usize::from(*positive)] += 1.0);
            counts.push(found);
        }
        Ranking { counts }
    }

    /// The numbers of negative and positive samples.
    fn all(&self) -> [f64; 2] {
        self.counts.last().copied().unwrap_or_default()
    }

    /// Whether there are samples of both classes: otherwise there is no curve.
    pub fn is_defined(&self) -> bool {
        self.all().iter().all(|&count| count > 0.0)
    }

    /// The false positive rate and the true positive rate of each threshold: scikit-learn's `roc_curve`.
    pub fn roc(&self) -> Vec<(f64, f64)> {
        let [negative, positive] = self.all();
        self.counts.iter().map(|[wrong, right]| (wrong / negative, right / positive)).collect()
    }

    /// The area under the ROC curve, by trapezoids: `roc_auc_score`.
    pub fn roc_area(&self) -> f64 {
        let trapezoid = |pair: &[(f64, f64)]| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0;
        self.roc().windows(2).map(trapezoid).sum()
    }

    /// The recall and the precision of each threshold: `precision_recall_curve`. Without a sample above the threshold the precision is 1.
    pub fn precision_recall(&self) -> Vec<(f64, f64)> {
        let [_, positive] = self.all();
        let precision =
            |wrong: f64, right: f64| if wrong + right > 0.0 { right / (wrong + right) } else { 1.0 };
        self.counts.iter().map(|&[wrong, right]| (right / positive, precision(wrong, right))).collect()
    }

    /// The mean precision, in which each threshold has the recall that it adds: `average_precision_score`.
    pub fn average_precision(&self) -> f64 {
        self.precision_recall().windows(2).map(|pair| (pair[1].0 - pair[0].0) * pair[1].1).sum()
    }

    /// Both curves. `class` is the positive one.
    pub fn panels(&self, class: &str) -> [Panel; 2] {
        let curve = |points: Vec<(f64, f64)>| Curve::of_points("network", thinned(points));
        let chance = self.all()[1] / self.all().iter().sum::<f64>();
        let guessing =
            |from, to| Curve::of_points("guessing", [(0.0, from), (1.0, to)]).colour(2).dashed(true);
        let (area, mean) = (self.roc_area(), self.average_precision());
        [
            unit_panel(
                &format!("ROC curve of {class}, area {area:.4}"),
                "false positive rate",
                vec![guessing(0.0, 1.0), curve(self.roc())],
            ),
            unit_panel(
                &format!("Precision over recall of {class}, average {mean:.4}"),
                "recall",
                vec![guessing(chance, chance), curve(self.precision_recall())],
            ),
        ]
    }
}

/// Leaves out points that are too near to the one before to be seen.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let last = points.len().saturating_sub(1);
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for (k, point) in points.into_iter().enumerate() {
        let is_near = |before: &(f64, f64)| {
            (point.0 - before.0).abs() < 1.0 / DRAWN && (point.1 - before.1).abs() < 1.0 / DRAWN
        };
        if k == last || !kept.last().is_some_and(is_near) {
            kept.push(point);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn numbers(value: &Value) -> Vec<f64> {
        value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
    }

    #[test]
    fn curves_and_areas_are_those_of_scikit_learn() {
        let golden: Value =
            serde_json::from_str(include_str!("../../../tests/golden/report_curves.json")).unwrap();
        let cases = golden["rankings"].as_array().unwrap();
        for case in cases {
            let positive = case["positive"].as_array().unwrap().iter().map(|label| label.as_bool().unwrap());
            let ranking = Ranking::new(numbers(&case["scores"]).into_iter().zip(positive).collect());
            for (own, name) in [(ranking.roc(), "roc"), (ranking.precision_recall(), "precision_recall")] {
                let expected = Vec::from_iter(case[name].as_array().unwrap().iter().map(numbers));
                assert_eq!(own.len(), expected.len(), "{name} of {}", case["name"]);
                for (own, expected) in own.iter().zip(&expected) {
                    let distance = (own.0 - expected[0]).abs().max((own.1 - expected[1]).abs());
                    assert!(distance < 1e-12, "{name} of {}: {own:?}, {expected:?}", case["name"]);
                }
            }
            for (own, name) in
                [(ranking.roc_area(), "roc_area"), (ranking.average_precision(), "average_precision")]
            {
                let expected = case[name].as_f64().unwrap();
                assert!((own - expected).abs() < 1e-12, "{name} of {}: {own}, {expected}", case["name"]);
            }
        }
        assert_eq!(cases.len(), 4);
    }

    #[test]
    fn a_curve_needs_both_classes() {
        assert!(!Ranking::new(vec![]).is_defined() && !Ranking::new(vec![(0.5, true)]).is_defined());
        assert!(Ranking::new(vec![(0.5, true), (f64::NAN, false)]).is_defined());
    }

    #[test]
    fn long_curves_have_few_points() {
        let line = |count: u32| (0..=count).map(move |k| f64::from(k) / f64::from(count)).map(|x| (x, x));
        assert_eq!(thinned(line(100).collect()), Vec::from_iter(line(100)));
        let drawn = thinned(line(100_000).collect());
        assert!(drawn.len() <= 501 && drawn.ends_with(&[(1.0, 1.0)]), "{}", drawn.len());
    }
}
