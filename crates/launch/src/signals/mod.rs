//! The signals that a program hears: Ctrl-C and those of schedulers.

#[cfg(not(unix))]
use crate::{Error, Result};
use std::time::Duration;

/// Signals within this time are one request. A closed terminal and `timeout` send two.
pub const ONE_REQUEST: Duration = Duration::from_secs(1);

/// A signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT, as by Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal was closed.
    HangUp,
    /// SIGXCPU: the limit of processor time is near.
    Processor,
    /// SIGUSR1.
    User1,
    /// SIGUSR2.
    User2,
}

/// All signals, with their names.
const NAMES: [(Signal, &str); 6] = [
    (Signal::Interrupt, "INT"),
    (Signal::Terminate, "TERM"),
    (Signal::HangUp, "HUP"),
    (Signal::Processor, "XCPU"),
    (Signal::User1, "USR1"),
    (Signal::User2, "USR2"),
];

impl Signal {
    /// Whether its meaning is the user's choice.
    pub fn is_of_user(self) -> bool {
        matches!(self, Signal::User1 | Signal::User2)
    }

    /// Its name, as `kill` takes it.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(signal, _)| *signal == self).map_or("", |(_, name)| name)
    }

    /// The signal with this name.
    pub fn named(name: &str) -> Option<Signal> {
        NAMES.iter().find(|(_, own)| *own == name).map(|(signal, _)| *signal)
    }
}

#[cfg(unix)]
mod unix;

#[cfg(unix)]
pub use unix::on_signals;

/// Ends this process at once, without the last calls of its libraries. Those could wait for a thread that is
/// inside of the library.
#[cfg(unix)]
pub use signal_hook::low_level::exit as end_process;

#[cfg(not(unix))]
pub use std::process::exit as end_process;

/// Calls `handler` on Ctrl-C, on a separate thread.
///
/// # Errors
/// If the system refuses it.
#[cfg(not(unix))]
pub fn on_signals(mut handler: impl FnMut(Signal) + Send + 'static) -> Result<()> {
    let failed = |error| match error {
        ctrlc::Error::System(source) => source,
        other => std::io::Error::other(other),
    };
    let set = ctrlc::set_handler(move || handler(Signal::Interrupt));
    set.map_err(failed).map_err(Error::system("can't listen for Ctrl-C"))
}
