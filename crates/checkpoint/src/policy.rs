use serde::{Deserialize, Serialize};

/// When to save a checkpoint, and which to keep: decisions only, without a file.
///
/// ```
/// use towers_checkpoint::{Best, BestSoFar, Mode, Policy};
///
/// let best = Best { metric: "val_acc".into(), mode: Mode::Auto };
/// let policy = Policy { every_epochs: 2, keep_last: Some(2), best: Some(best) };
/// let mut so_far: Option<BestSoFar> = None;
/// let mut saved = Vec::new();
/// for (epoch, val_acc) in [(1, 0.50), (2, 0.40), (3, 0.50), (4, f64::NAN), (5, 0.60)] {
///     let decision = policy.decide(epoch, Some(val_acc), so_far.as_ref());
///     if decision.best {
///         so_far = Some(BestSoFar { name: towers_checkpoint::epoch_name(epoch), value: val_acc });
///     }
///     if decision.save() {
///         saved.push(towers_checkpoint::epoch_name(epoch));
///     }
/// }
/// assert_eq!(saved, ["epoch-0001", "epoch-0002", "epoch-0004", "epoch-0005"]);
/// assert_eq!(policy.surplus(&saved, Some("epoch-0001")), ["epoch-0002"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Save after every so many epochs; 0 saves the best ones only.
    pub every_epochs: u64,
    /// Keep that many of the checkpoints saved last, at least one; `None` keeps all.
    pub keep_last: Option<usize>,
    /// Also save whenever a metric is better than ever, and keep that checkpoint.
    pub best: Option<Best>,
}

impl Default for Policy {
    /// Every epoch, the last three, no metric.
    fn default() -> Self {
        Policy { every_epochs: 1, keep_last: Some(3), best: None }
    }
}

/// Which metric is watched for the best checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Best {
    /// Its name: `val_loss`, `val_acc`.
    pub metric: String,
    /// Which way is better.
    pub mode: Mode,
}

/// Which way a metric gets better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Less is better.
    Min,
    /// More is better.
    Max,
    /// As Keras decides: more where the metric's name has "acc" in it, less elsewhere.
    #[default]
    Auto,
}

/// The best checkpoint of a run until now. Keep it in the state, so that a resumed run compares with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestSoFar {
    /// The checkpoint's name.
    pub name: String,
    /// The metric's value there; finite.
    pub value: f64,
}

/// What to do after an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decision {
    /// A checkpoint is due by the number of the epoch.
    pub periodic: bool,
    /// The metric is better than ever.
    pub best: bool,
}

impl Decision {
    /// Whether to save at all.
    pub fn save(self) -> bool {
        self.periodic || self.best
    }
}

impl Best {
    /// Whether `value` is strictly better than `so_far`; the first finite value is, and one that isn't finite
    /// never is.
    pub fn improves(&self, value: f64, so_far: Option<f64>) -> bool {
        let max = match self.mode {
            Mode::Min => false,
            Mode::Max => true,
            Mode::Auto => self.metric.contains("acc"),
        };
        let better = |old: f64| if max { value > old } else { value < old };
        value.is_finite() && so_far.filter(|old| !old.is_nan()).is_none_or(better)
    }
}

impl Policy {
    /// What to do after `epoch` epochs (the first is 1), where the watched metric has this `value`.
    pub fn decide(&self, epoch: u64, value: Option<f64>, so_far: Option<&BestSoFar>) -> Decision {
        let periodic = self.every_epochs > 0 && epoch > 0 && epoch.is_multiple_of(self.every_epochs);
        let best = match (&self.best, value) {
            (Some(best), Some(value)) => best.improves(value, so_far.map(|so_far| so_far.value)),
            _ => false,
        };
        Decision { periodic, best }
    }

    /// Those of `names` (oldest first) that are not kept: all but the last ones and `best`.
    pub fn surplus<'a>(&self, names: &'a [String], best: Option<&str>) -> Vec<&'a str> {
        let kept = self.keep_last.map_or(names.len(), |count| count.max(1));
        let old = &names[..names.len().saturating_sub(kept)];
        old.iter().map(String::as_str).filter(|&name| Some(name) != best).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(metric: &str, mode: Mode) -> Best {
        Best { metric: metric.into(), mode }
    }

    #[test]
    fn improvement_is_strict_and_follows_the_mode() {
        for (metric, mode, max) in [
            ("val_loss", Mode::Auto, false),
            ("val_acc", Mode::Auto, true),
            ("accuracy", Mode::Auto, true),
            ("val_acc", Mode::Min, false),
            ("val_loss", Mode::Max, true),
        ] {
            let best = best(metric, mode);
            assert_eq!(best.improves(2.0, Some(1.0)), max, "{metric} {mode:?}");
            assert_eq!(best.improves(1.0, Some(2.0)), !max, "{metric} {mode:?}");
            assert!(!best.improves(1.0, Some(1.0)), "{metric} {mode:?}");
            assert!(best.improves(1.0, None) && best.improves(1.0, Some(f64::NAN)));
            for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                assert!(!best.improves(odd, None) && !best.improves(odd, Some(1.0)), "{odd}");
            }
        }
    }

    #[test]
    fn decisions_by_period_and_by_metric() {
        let mut policy = Policy { every_epochs: 3, keep_last: None, best: None };
        let due: Vec<u64> = (0..10).filter(|&epoch| policy.decide(epoch, Some(1.0), None).save()).collect();
        assert_eq!(due, [3, 6, 9]);
        policy = Policy { every_epochs: 0, keep_last: None, best: Some(best("loss", Mode::Auto)) };
        assert_eq!(policy.decide(7, Some(1.0), None), Decision { periodic: false, best: true });
        assert!(!policy.decide(7, None, None).save());
        assert!(!policy.decide(7, Some(f64::NAN), None).save());
    }

    #[test]
    fn the_last_and_the_best_are_kept() {
        let names: Vec<String> = (1..=5).map(crate::epoch_name).collect();
        let surplus = |keep_last, best| {
            Policy { keep_last, ..Policy::default() }.surplus(&names, best).join(" ").replace("epoch-000", "")
        };
        assert_eq!(surplus(Some(2), None), "1 2 3");
        assert_eq!(surplus(Some(2), Some("epoch-0002")), "1 3");
        assert_eq!(surplus(Some(2), Some("epoch-0005")), "1 2 3");
        assert_eq!(surplus(Some(0), None), "1 2 3 4");
        assert_eq!(surplus(Some(9), None), "");
        assert_eq!(surplus(None, None), "");
    }
}
