//! A launcher that is killed takes its processes with it, on Linux.

use std::process::Command;

/// The process id of the launcher.
const LAUNCHER: &str = "TOWERS_LAUNCHER_PID";
/// The program to become, such as MPI's launcher; by default this one.
const PROGRAM: &str = "TOWERS_LAUNCHER_EXEC";

/// Whether a launcher has started this process.
pub fn is_launched() -> bool {
    std::env::var_os(LAUNCHER).is_some()
}

/// Makes `command`, which starts this program, end when the launcher does. It becomes `program`, if one is
/// named.
pub fn end_with_launcher(command: &mut Command, program: Option<&std::path::Path>) {
    command.env(LAUNCHER, std::process::id().to_string());
    if let Some(program) = program {
        command.env(PROGRAM, program);
    }
}

/// The other side: to be called first in the started process. The system then sends this process a signal when
/// the launcher ends: SIGTERM, so that a run saves its state and stops, or SIGHUP for MPI's launcher.
///
/// MPI's launcher kills on SIGTERM and SIGINT, so those are kept from it. They may come to all processes of a
/// service at once, and this launcher passes them on by its own channel.
#[cfg(target_os = "linux")]
pub fn follow_launcher() {
    use nix::sys::prctl::set_pdeathsig;
    use nix::sys::signal::{SigSet, Signal};
    use std::env;
    use std::os::unix::process::CommandExt;
    let Some(launcher) = env::var_os(LAUNCHER) else { return };
    let program = env::var_os(PROGRAM);
    // It can't fail for a signal that there is.
    let _ = set_pdeathsig(if program.is_some() { Signal::SIGHUP } else { Signal::SIGTERM });
    if *nix::unistd::getppid().to_string() != *launcher {
        // The launcher has ended before the request.
        std::process::exit(1);
    }
    let Some(program) = program else { return };
    let kept: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
    let _ = kept.thread_block();
    let mut command = Command::new(&program);
    // `exec` keeps all this, and returns only on failure.
    let error = command.args(env::args_os().skip(1)).env_remove(LAUNCHER).env_remove(PROGRAM).exec();
    eprintln!("error: can't start {program:?}: {error}");
    std::process::exit(1);
}

/// Other systems have no such request.
#[cfg(not(target_os = "linux"))]
pub fn follow_launcher() {}
