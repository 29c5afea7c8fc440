//! The search path for CUDA's libraries, which is fixed when a program starts.

/// The variable that marks a restarted process.
#[cfg(target_os = "linux")]
const DONE: &str = "TOWERS_LIBRARY_PATH_SET";

/// Restarts this program, as the same process, with a `LD_LIBRARY_PATH` that has the right versions of CUDA's
/// libraries and NCCL: see [`train::library_path`]. Does nothing if the path is right already, or nothing
/// helps.
#[cfg(target_os = "linux")]
pub fn settle() {
    use std::os::unix::process::CommandExt;
    use std::{env, process};
    if env::var_os(DONE).is_some() {
        return;
    }
    let (Some(path), Ok(program)) = (train::library_path(), env::current_exe()) else { return };
    let mut arguments = env::args_os();
    let name = arguments.next().unwrap_or_else(|| program.clone().into());
    let mut again = process::Command::new(program);
    // `exec` returns only on failure; the program then continues with the old path.
    let _ = again.arg0(name).args(arguments).env("LD_LIBRARY_PATH", path).env(DONE, "1").exec();
}

/// Other systems need no search path.
#[cfg(not(target_os = "linux"))]
pub fn settle() {}
