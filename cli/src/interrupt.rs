//! Ctrl-C and SIGTERM.

use crate::error::INTERRUPTED;
use crate::print::note;
use anyhow::Context;
use train::StopFlag;

/// Calls `handler` on Ctrl-C and SIGTERM, on a separate thread.
pub fn on_interrupt(handler: impl FnMut() + Send + 'static) -> anyhow::Result<()> {
    let failed = |error| match error {
        ctrlc::Error::System(source) => anyhow::Error::from(source),
        other => other.into(),
    };
    ctrlc::set_handler(handler).map_err(failed).context("can't listen for Ctrl-C")
}

/// A stop flag that Ctrl-C and SIGTERM raise.
pub fn stop_flag(raise: fn(&StopFlag)) -> anyhow::Result<StopFlag> {
    let stop = StopFlag::default();
    let raised = stop.clone();
    on_interrupt(move || raise(&raised))?;
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
