//! The effect of signals on a run.

use crate::print::note;
use clap::ValueEnum;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use towers_launch::INTERRUPTED;
use towers_launch::signals::{ONE_REQUEST, Signal, end_process, on_signals};
use towers_live::tui;
use towers_train::{Process, StopFlag};

/// What SIGUSR1 and SIGUSR2 do to a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SignalAction {
    /// Save a checkpoint, and continue
    #[default]
    Save,
    /// Save a checkpoint, and stop
    Stop,
}

/// The signals of a run.
pub struct Interrupts {
    pub stop: StopFlag,
    voice: Arc<Mutex<Voice>>,
}

/// How a process answers signals.
#[derive(Clone, Copy)]
struct Voice {
    /// Whether it prints its answers.
    prints: bool,
    /// Whether the run has a live view in the terminal, which says that it stops.
    has_view: bool,
    /// Whether a launcher ends the process if it does not end by itself.
    launched: bool,
}

impl Interrupts {
    /// Listens to signals from now on. Before the run begins, each ends the process. `has_view`
    /// says that the run has a live view in the terminal.
    pub fn listen(action: SignalAction, has_view: bool) -> anyhow::Result<Interrupts> {
        let (stop, launched) = (StopFlag::default(), towers_launch::is_launched());
        let voice = Arc::new(Mutex::new(Voice { prints: !has_view, has_view, launched }));
        let interrupts = Interrupts { stop, voice };
        let (stop, voice, mut first) =
            (interrupts.stop.clone(), Arc::clone(&interrupts.voice), None::<Instant>);
        let handle = move |signal: Signal| {
            let voice = *voice.lock().unwrap_or_else(PoisonError::into_inner);
            if signal.is_of_user() && action == SignalAction::Save {
                return voice.save(&stop);
            }
            let apart = first.is_none_or(|first| first.elapsed() >= ONE_REQUEST);
            if !stop.is_raised() || (signal == Signal::Interrupt && apart && !voice.launched) {
                first.get_or_insert_with(Instant::now);
                voice.stop(&stop);
            }
        };
        let handle = Arc::new(Mutex::new(handle));
        let same = Arc::clone(&handle);
        towers_launch::on_orders(move |signal| same.lock().unwrap_or_else(PoisonError::into_inner)(signal));
        on_signals(move |signal| handle.lock().unwrap_or_else(PoisonError::into_inner)(signal))?;
        Ok(interrupts)
    }

    /// Says that this process is one of several. Their launcher ends them if they don't end, and may send
    /// each a signal that all have got already. Only the first process prints.
    pub fn joined(&self, process: &Process) {
        let mut voice = self.voice.lock().unwrap_or_else(PoisonError::into_inner);
        voice.launched = true;
        voice.prints &= process.is_first();
    }
}

impl Voice {
    fn stop(self, stop: &StopFlag) {
        if self.launched && !self.has_view && stop.is_watched() {
            self.note("stopping after this step, then saving");
            return stop.raise();
        }
        interrupt(stop, self.has_view);
        self.note("stopping after this step, then saving; press Ctrl-C again to stop at once");
    }

    fn save(self, stop: &StopFlag) {
        match stop.is_watched() {
            true => stop.save(),
            false => return self.note("nothing to save yet: the run has not begun"),
        }
        self.note("saving a checkpoint after this step");
    }

    fn note(self, text: &str) {
        if self.prints {
            note(text);
        }
    }
}

/// The first Ctrl-C asks the run to stop after the current step. A second one ends the process in the middle of a step, and so
/// does one before the run. So do keys of a live view in the terminal.
pub fn interrupt(stop: &StopFlag, has_view: bool) {
    if stop.is_raised() || !stop.is_watched() {
        if has_view {
            tui::give_back();
        }
        note("stopped at once; the checkpoints saved before are kept");
        end_process(i32::from(INTERRUPTED))
    }
    stop.raise();
}
