use super::Signal;
use crate::{Error, Result};
use nix::sys::signal::SigSet;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::ffi::c_int;

const NUMBERS: [(c_int, Signal); 6] = [
    (SIGINT, Signal::Interrupt),
    (SIGTERM, Signal::Terminate),
    (SIGHUP, Signal::HangUp),
    (nix::libc::SIGXCPU, Signal::Processor),
    (SIGUSR1, Signal::User1),
    (SIGUSR2, Signal::User2),
];

/// Calls `handler` on each signal, on a separate thread. A signal that this process was started to ignore
/// stays ignored: `nohup` ignores SIGHUP, and a shell SIGINT for commands in the background of a script.
///
/// # Errors
/// If the system refuses it.
pub fn on_signals(mut handler: impl FnMut(Signal) + Send + 'static) -> Result<()> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let heard = NUMBERS.iter().filter(|(number, _)| !is_ignored(&status, *number));
    let failed = || Error::system("can't listen for Ctrl-C");
    // MPI's launcher may have been started with some of them blocked.
    SigSet::all().thread_unblock().map_err(|error| failed()(error.into()))?;
    let mut signals = Signals::new(heard.map(|(number, _)| number)).map_err(failed())?;
    let listen = move || {
        for number in signals.forever() {
            let signal = NUMBERS.iter().find(|(own, _)| *own == number);
            signal.iter().for_each(|(_, signal)| handler(*signal));
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(listen).map_err(failed())?;
    Ok(())
}

/// Whether a process ignores a signal, from what Linux tells about it.
fn is_ignored(status: &str, number: c_int) -> bool {
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_some_and(|set| set >> (number - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_found_in_what_linux_tells() {
        let status = "Name:\ttowers\nSigBlk:\t0000000000000003\nSigIgn:\t0000000000001001\n";
        let ignored = [1, 2, 13, 15].map(|number| is_ignored(status, number));
        assert_eq!(ignored, [true, false, true, false]);
        assert!(!is_ignored("", 1));
    }
}
