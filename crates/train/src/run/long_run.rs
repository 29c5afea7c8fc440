//! A hint for a run that will take hours on a CPU.

use towers_callbacks::RunTime;
use towers_callbacks::StepInfo;
use towers_options::{Message, message};

/// The seconds of an epoch after which the time of a step is known, and a run of which length is long.
const MEASURED: f64 = 10.0;
const LONG: f64 = 2.0 * 3600.0;

/// The hint after a step, if the run is long. `time` is that of a run on a CPU, until a step's time is known.
pub(crate) fn hint(time: &mut Option<RunTime>, step: &StepInfo) -> Option<Message> {
    if step.seconds < MEASURED {
        return None;
    }
    let mut time = time.take()?;
    time.step(step);
    let left = time.left().filter(|left| *left >= LONG)?;
    let left = RunTime::words(left);
    Some(message!(
        "this run will take about {left} on the CPU; a run that is stopped is saved, and ",
        ["resume"],
        " continues it; for a trial give less by ",
        ["epochs"],
        ", by ",
        ["data.limit_train"],
        ", or by the recipe quick"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use towers_callbacks::testing::{run, state, step};

    #[test]
    fn a_run_of_hours_is_announced_once() {
        let state = state(vec![]);
        let at = |seconds, steps_done| {
            let mut step = step(1, steps_done, 1563);
            step.seconds = seconds;
            step
        };
        // Of 1563 steps of an epoch, 100 take 12 seconds.
        let of_run = |epochs| {
            let mut time = Some(RunTime::new(&run(epochs, &state)));
            let mut after = |seconds| hint(&mut time, &at(seconds, 100));
            assert_eq!(after(9.0), None, "it is not measured yet");
            let hint = after(12.0);
            assert_eq!(after(12.5), None, "once");
            hint
        };
        assert_eq!(of_run(30), None);
        let text = of_run(70).unwrap_or_default();
        let text = text.to_string();
        assert!(text.starts_with("this run will take about 3h5") && text.contains("`resume`"), "{text}");
        assert_eq!(hint(&mut None, &at(99.0, 1)), None);
    }
}
