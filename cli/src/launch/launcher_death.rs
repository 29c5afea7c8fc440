//! A launcher that is killed takes its processes with it, on Linux.

use std::process::Command;

/// The process id of the launcher.
const LAUNCHER: &str = "TOWERS_LAUNCHER_PID";
/// The program to become, such as MPI's launcher; by default this one.
const PROGRAM: &str = "TOWERS_LAUNCHER_EXEC";

/// Makes `command`, which starts this program, end when the launcher does. It becomes `program`, if one is
/// named.
pub fn end_with_launcher(command: &mut Command, program: Option<&std::path::Path>) {
    command.env(LAUNCHER, std::process::id().to_string());
    if let Some(program) = program {
        command.env(PROGRAM, program);
    }
}

/// The other side: to be called first in the started process. The system then sends this process SIGTERM when
/// the launcher ends, so a run saves its state and stops.
#[cfg(target_os = "linux")]
pub fn follow_launcher() {
    use nix::sys::prctl::set_pdeathsig;
    use std::env;
    use std::os::unix::process::CommandExt;
    let Some(launcher) = env::var_os(LAUNCHER) else { return };
    // It can't fail for a signal that there is.
    let _ = set_pdeathsig(nix::sys::signal::Signal::SIGTERM);
    if *nix::unistd::getppid().to_string() != *launcher {
        // The launcher has ended before the request.
        std::process::exit(1);
    }
    let Some(program) = env::var_os(PROGRAM) else { return };
    let mut command = Command::new(&program);
    // `exec` keeps the request, and returns only on failure.
    let error = command.args(env::args_os().skip(1)).env_remove(LAUNCHER).env_remove(PROGRAM).exec();
    crate::print::note(format_args!("error: can't start {}: {error}", program.display()));
    std::process::exit(1);
}

/// Other systems have no such request.
#[cfg(not(target_os = "linux"))]
pub fn follow_launcher() {}
