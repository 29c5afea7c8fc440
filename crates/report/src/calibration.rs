//! Whether a network is as sure as it is right.

use towers_plot::{Axis, Curve, Panel, Scale};

/// Bins of equal width, as in the paper.
const BINS: usize = 15;

/// Predictions by the probability of their class: bin k has those in (k/15, (k+1)/15].
///
/// C. Guo et al., "On Calibration of Modern Neural Networks" (2017).
#[derive(Clone, Debug, Default)]
pub(crate) struct Calibration {
    bins: [Bin; BINS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    count: u64,
    right: u64,
    /// The sum of the probabilities.
    confidence: f64,
}

impl Bin {
    /// The mean probability and the share that was right, if there are predictions.
    fn means(&self) -> Option<(f64, f64)> {
        let count = self.count as f64;
        (self.count > 0).then(|| (self.confidence / count, self.right as f64 / count))
    }
}

impl Calibration {
    /// Adds a prediction with this probability.
    pub fn add(&mut self, confidence: f64, is_right: bool) {
        // A cast turns negative numbers and NaN to 0.
        let place = (confidence * BINS as f64).ceil() as usize;
        let bin = &mut self.bins[place.clamp(1, BINS) - 1];
        bin.count += 1;
        bin.right += u64::from(is_right);
        bin.confidence += confidence;
    }

    fn count(&self) -> f64 {
        self.bins.iter().map(|bin| bin.count).sum::<u64>() as f64
    }

    /// The expected calibration error: the mean distance of probability and accuracy over the bins, each with its share of the predictions.
    pub fn error(&self) -> f64 {
        let distance = |bin: &Bin| {
            let (confidence, accuracy) = bin.means()?;
            Some(bin.count as f64 * (accuracy - confidence).abs())
        };
        self.bins.iter().filter_map(distance).sum::<f64>() / self.count()
    }

    /// The reliability diagram, and the share of the predictions in each bin.
    pub fn panel(&self) -> Panel {
        let points = |value: fn(&Bin, f64) -> f64| {
            let of_bin = |bin: &Bin| Some((bin.means()?.0, value(bin, self.count())));
            Vec::from_iter(self.bins.iter().filter_map(of_bin))
        };
        let accuracy = points(|bin, _| bin.right as f64 / bin.count as f64);
        let share = points(|bin, all| bin.count as f64 / all);
        let curves = vec![
            Curve::of_points("share of the images", share).colour(1),
            Curve::of_points("perfect", [(0.0, 0.0), (1.0, 1.0)]).colour(2).dashed(true),
            Curve::of_points("accuracy", accuracy),
        ];
        unit_panel("Calibration", "probability of the predicted class", curves)
    }
}

/// A panel whose axes both go from 0 to 1.
pub(crate) fn unit_panel(title: &str, over: &str, curves: Vec<Curve>) -> Panel {
    Panel::new(title, Scale::Unit, curves).over(over, unit_axis())
}

fn unit_axis() -> Axis {
    Scale::Unit.axis([])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn bins_and_errors_are_those_of_the_paper() {
        let golden: Value =
            serde_json::from_str(include_str!("../../../tests/golden/report_curves.json")).unwrap();
        let cases = golden["calibrations"].as_array().unwrap();
        for case in cases {
            let mut calibration = Calibration::default();
            let confidence = case["confidence"].as_array().unwrap().iter();
            for (confidence, right) in confidence.zip(case["right"].as_array().unwrap()) {
                calibration.add(confidence.as_f64().unwrap(), right.as_bool().unwrap());
            }
            let error = case["error"].as_f64().unwrap();
            assert!((calibration.error() - error).abs() < 1e-12, "{error} {calibration:?}");
            let filled = calibration.bins.iter().enumerate().filter(|(_, bin)| bin.count > 0);
            let bins = Vec::from_iter(filled.map(|(k, bin)| (k as u64, bin.count)));
            let expected = case["bins"].as_array().unwrap().iter();
            let expected = expected.map(|bin| (bin[0].as_u64().unwrap(), bin[1].as_u64().unwrap()));
            assert_eq!(bins, Vec::from_iter(expected));
        }
        assert_eq!(cases.len(), 2);
    }

    #[test]
    fn edges_belong_to_the_bin_below() {
        let mut calibration = Calibration::default();
        for confidence in [0.2, 1.0, f64::MIN_POSITIVE] {
            calibration.add(confidence, true);
        }
        let filled = |k: &usize| calibration.bins[*k].count > 0;
        assert_eq!(Vec::from_iter((0..BINS).filter(filled)), [0, 2, 14]);
        assert!(Calibration::default().error().is_nan());
    }
}
