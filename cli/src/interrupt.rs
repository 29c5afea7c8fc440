//! Ctrl-C and SIGTERM during a run.

use crate::error::{self, INTERRUPTED};
use crate::print::note;
use train::StopFlag;

/// A stop flag that Ctrl-C and SIGTERM raise.
pub fn stop_flag(raise: fn(&StopFlag)) -> anyhow::Result<StopFlag> {
    let stop = StopFlag::default();
    let raised = stop.clone();
    error::on_interrupt(move || raise(&raised))?;
    Ok(stop)
}

/// The first Ctrl-C asks the run to stop after the current step. A second one ends the process, and so does
/// one before the run.
pub fn interrupt(stop: &StopFlag) {
    if stop.is_raised() || !stop.is_watched() {
        end_at_once();
    }
    stop.raise();
    note("stopping after this step, then saving; press Ctrl-C again to stop at once");
}

/// Ends the process in the middle of a step.
pub fn end_at_once() -> ! {
    note("stopped at once; the checkpoints saved before are kept");
    std::process::exit(i32::from(INTERRUPTED))
}
