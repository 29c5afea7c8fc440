//! A hint for a run that will take hours on a CPU.

use crate::StepInfo;
use callbacks::RunTime;

/// The seconds of an epoch after which the time of a step is known, and a run of which length is long.
const MEASURED: f64 = 10.0;
const LONG: f64 = 2.0 * 3600.0;

/// Estimates the time of a run on a CPU, until it has warned or need not.
pub(crate) struct LongRun(Option<RunTime>);

impl LongRun {
    /// On the CPU, with the times so far; elsewhere `None`.
    pub(crate) fn new(time: Option<RunTime>) -> Self {
        LongRun(time)
    }

    /// After a step: the hint, once.
    pub(crate) fn after(&mut self, step: &StepInfo) -> Option<String> {
        if step.seconds < MEASURED {
            return None;
        }
        let mut time = self.0.take()?;
        time.step(step);
        let left = time.left().filter(|left| *left >= LONG)?;
        Some(format!(
            "this run will take about {} on the CPU; Ctrl-C stops and saves it, and --resume continues it; for a trial \
             give --epochs N, --limit-train N or --quick",
            RunTime::words(left)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbacks::testing::{run, state, step};

    #[test]
    fn a_run_of_hours_is_announced_once() {
        let state = state(vec![]);
        // Of 1563 steps of an epoch, 100 take 12 seconds.
        let hint = |epochs| {
            let mut long = LongRun::new(Some(RunTime::new(&run(epochs, &state))));
            let after = |seconds, long: &mut LongRun| long.after(&StepInfo { seconds, ..step(0, 100, 1563) });
            assert_eq!(after(9.0, &mut long), None, "it is not measured yet");
            let hint = after(12.0, &mut long);
            assert_eq!(after(12.5, &mut long), None, "once");
            hint
        };
        assert_eq!(hint(30), None);
        let text = hint(70).unwrap_or_default();
        assert!(text.starts_with("this run will take about 3h5") && text.contains("--resume"), "{text}");
        assert_eq!(LongRun::new(None).after(&StepInfo { seconds: 99.0, ..step(0, 1, 9999) }), None);
    }
}
