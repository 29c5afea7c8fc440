//! CUDA's libraries are found by names that are settled before a program starts.

/// The variable that says that this was done.
#[cfg(target_os = "linux")]
const DONE: &str = "TOWERS_LIBRARY_PATH_SET";

/// Starts this program anew, as the same process, where the linker would find other versions of CUDA's libraries than are wanted, or not
/// find NCCL's: see [`train::library_path`]. Does nothing where all is well, or nothing helps.
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
    // It returns only where the program can't be started: then all stays as it is.
    let _ = again.arg0(name).args(arguments).env("LD_LIBRARY_PATH", path).env(DONE, "1").exec();
}

/// Other systems find libraries by the names that are asked for.
#[cfg(not(target_os = "linux"))]
pub fn settle() {}
