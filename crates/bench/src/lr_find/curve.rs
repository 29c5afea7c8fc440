use serde::Serialize;
use towers_plot::{Axis, Chart, Curve, Panel, Scale, short};

/// How much of the smoothed loss each step keeps.
const BETA: f64 = 0.98;

/// The test ends when the smoothed loss is more than so many times the least one.
const DIVERGED: f64 = 4.0;

/// The picture cuts off losses above so many times the first one.
const CUT_OFF: f64 = 2.0;

/// The points before and behind those that the steepest descent is looked for in: as in PyTorch Lightning.
const SKIPPED: [usize; 2] = [10, 1];

/// The points behind those that the valley is looked for in, as in fastai.
const BEHIND_VALLEY: usize = 5;

/// The losses of a range test, with a value for each step in each list.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct LrCurve {
    /// The learning rates, in rising order.
    pub lr: Vec<f64>,
    /// The mean loss of each batch.
    pub loss: Vec<f64>,
    /// The average of the losses so far, in which each step keeps 98%, without the bias of its beginning.
    pub smoothed: Vec<f64>,
    /// Whether the test ended early, because the loss grew.
    pub diverged: bool,
    /// What the run warned of.
    pub warnings: Vec<String>,
    #[serde(skip)]
    average: f64,
    #[serde(skip)]
    least: Option<f64>,
}

impl LrCurve {
    /// Adds a step. A smoothed loss of more than four times the least one ends the test.
    pub(super) fn add(&mut self, lr: f64, loss: f64) {
        self.lr.push(lr);
        self.loss.push(loss);
        self.average = BETA * self.average + (1.0 - BETA) * loss;
        let smoothed = self.average / (1.0 - BETA.powi(self.lr.len() as i32));
        self.smoothed.push(smoothed);
        self.diverged = self.least.is_some_and(|least| smoothed > DIVERGED * least);
        self.least = Some(self.least.map_or(smoothed, |least| least.min(smoothed)));
    }

    /// The rate to train with: that of the [valley](Self::valley), or else of the [steepest](Self::steepest) descent. `None` if
    /// there are too few steps, or if the loss falls nowhere.
    pub fn suggestion(&self) -> Option<f64> {
        self.valley().or_else(|| self.steepest())
    }

    /// The rate at which the smoothed loss falls most with a step: PyTorch Lightning's `suggestion`.
    ///
    /// The slope is that over the steps, which is over the logarithm of the rate. The first ten steps and the last one don't count.
    /// The average of a few losses still has their noise, so small batches may have their steepest descent early.
    pub fn steepest(&self) -> Option<f64> {
        let [begin, end] = SKIPPED;
        let losses = self.smoothed.get(begin..self.smoothed.len().saturating_sub(end))?;
        let last = losses.len().checked_sub(1).filter(|last| *last > 0)?;
        let slope = |k: usize| {
            let (before, after) = (k.saturating_sub(1), (k + 1).min(last));
            (losses[after] - losses[before]) / (after - before) as f64
        };
        let steepest = (0..=last).min_by(|a, b| slope(*a).total_cmp(&slope(*b)))?;
        (slope(steepest) < 0.0).then(|| self.lr[begin + steepest])
    }

    /// The rate in the longest fall of the smoothed loss, at its half: fastai's "valley".
    ///
    /// The fall is the longest series of steps, with gaps, of which each has a lower loss than the one before. The first tenth of the
    /// steps and the last five don't count.
    pub fn valley(&self) -> Option<f64> {
        let begin = self.smoothed.len() / 10;
        let losses = self.smoothed.get(begin..self.smoothed.len().saturating_sub(BEHIND_VALLEY))?;
        let mut lengths = vec![1_usize; losses.len()];
        for (k, loss) in losses.iter().enumerate() {
            let before = (0..k).filter(|&j| losses[j] > *loss).map(|j| lengths[j]).max();
            lengths[k] = before.unwrap_or(0) + 1;
        }
        // The first of the longest ones.
        let longest = lengths.iter().copied().max().filter(|longest| *longest > 1)?;
        let last = lengths.iter().position(|length| *length == longest)?;
        self.lr.get(begin + last + longest / 3 + longest / 6 - longest).copied()
    }

    /// Both losses over the learning rate, with a ring at the [suggestion](Self::suggestion).
    pub fn chart(&self, title: &str) -> Chart {
        let curve = |name: &str, losses: &[f64]| {
            Curve::of_points(name, self.lr.iter().copied().zip(losses.iter().copied()))
        };
        let curves =
            vec![curve("each batch", &self.loss).colour(1).dashed(true), curve("smoothed", &self.smoothed)];
        let ends = [self.lr.first(), self.lr.last()].map(|lr| lr.copied().unwrap_or(1.0));
        let mut panel =
            Panel::new("Loss", Scale::Loss, curves).over("learning rate", Axis::powers(ends[0], ends[1]));
        // The losses of the end would flatten all others.
        let highest = CUT_OFF * self.smoothed.first().copied().unwrap_or(1.0);
        let shown = self.loss.iter().chain(&self.smoothed).map(|loss| loss.min(highest));
        panel.y = Scale::Loss.axis(shown);
        let at = self.suggestion();
        let place = at.and_then(|at| Some((at, self.smoothed[self.lr.iter().position(|lr| *lr == at)?])));
        let panel = match place {
            Some(place) => panel.highlight(format!("suggestion: {}", short(place.0)), place),
            None => panel,
        };
        Chart::new(title, vec![panel])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates of 0, 1, 2, ... and these smoothed losses.
    fn curve(smoothed: &[f64]) -> LrCurve {
        let lr = (0..smoothed.len()).map(|k| k as f64).collect();
        LrCurve { lr, smoothed: smoothed.to_vec(), ..LrCurve::default() }
    }

    #[test]
    fn losses_are_smoothed_without_bias() {
        let mut curve = LrCurve::default();
        (1..=3).for_each(|k| curve.add(f64::from(k), f64::from(k)));
        let second = (0.98 * 0.02 + 0.04) / (1.0 - 0.98 * 0.98);
        let third = (0.98 * (0.98 * 0.02 + 0.04) + 0.06) / (1.0 - 0.98f64.powi(3));
        for (smoothed, expected) in curve.smoothed.iter().zip([1.0, second, third]) {
            assert!((smoothed - expected).abs() < 1e-12, "{smoothed} {expected}");
        }
        assert_eq!((curve.loss.as_slice(), curve.diverged), (&[1.0, 2.0, 3.0][..], false));
        // The average of 1 and 8 is above four times the first.
        let mut curve = LrCurve::default();
        [1.0, 8.0].into_iter().for_each(|loss| curve.add(loss, loss));
        assert!(curve.diverged, "{curve:?}");
    }

    #[test]
    fn the_steepest_descent_is_found() {
        // Ten steps that don't count, then slopes as of numpy.gradient: -1, -1.5, -2.5, -1.5, 1.5; the last step doesn't count.
        let counted = [10.0, 9.0, 7.0, 4.0, 4.0, 5.5, -100.0];
        let losses = [&[90.0, 50.0, 0.0, 90.0, 0.0, 90.0, 0.0, 90.0, 50.0, 11.0][..], &counted].concat();
        assert_eq!(curve(&losses).steepest(), Some(12.0));
        // Two points have one slope; the first has it.
        assert_eq!(curve(&losses[..13]).steepest(), Some(10.0));
        assert_eq!(curve(&losses[..12]).steepest(), None);
        assert_eq!(curve(&[1.0; 40]).steepest(), None, "it falls nowhere");
        assert_eq!(LrCurve::default().steepest(), None);
    }

    #[test]
    fn the_valley_is_the_longest_fall() {
        // Two steps don't count. The longest fall is 9, 8, 7, 6, 5, 4: it ends at step 10.
        let losses = [99.0, 98.0, 9.0, 9.5, 8.0, 8.0, 7.0, 6.0, 6.5, 5.0, 4.0, 7.0, 8.0, 9.0, 10.0];
        let tail = [1.0, 0.9, 0.8, 0.7, 0.6];
        let losses = [&losses[..], &tail].concat();
        // Six steps back from the end, and half of them forward: 10 - 6 + 2 + 1.
        assert_eq!(curve(&losses).valley(), Some(7.0));
        assert_eq!(curve(&[1.0; 40]).valley(), None);
        assert_eq!(curve(&[3.0, 2.0, 1.0]).valley(), None, "the last five don't count");
        // A fall over all that counts begins before it, as in fastai.
        let falling: Vec<f64> = (0..20).map(|k| f64::from(-k)).collect();
        assert_eq!(curve(&falling).suggestion(), Some(2.0 + 12.0 - 13.0 + 4.0 + 2.0));
    }

    #[test]
    fn the_picture_has_the_suggestion() {
        let mut curve = LrCurve::default();
        (0..30).for_each(|k| curve.add(10f64.powi(k - 20), if k < 15 { 2.0 } else { 1.0 }));
        let svg = curve.chart("small_cnn on synthetic").svg();
        for part in ["small_cnn on synthetic", "learning rate", "smoothed", "each batch", "suggestion: "] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(LrCurve::default().chart("nothing").svg().contains("nothing"));
    }
}
