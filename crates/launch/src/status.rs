//! The exit statuses that a launcher knows.

/// The exit status of a process with a command line that makes no sense. It would fail again, so there is no restart.
pub const BAD_USAGE: u8 = 2;
/// The exit status of a process that a signal has interrupted, as shells count it: 128 + SIGINT. It is no failure.
pub const INTERRUPTED: u8 = 130;
/// The exit status of a process that has saved its work because others were lost: all are started again, and no failure
/// is reported. `EX_TEMPFAIL` of sysexits.h.
pub const INCOMPLETE: u8 = 75;
