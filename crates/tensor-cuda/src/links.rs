//! Names under which the libraries are found.
//!
//! cudarc first tries names without a version, and then few versions. So a `libcudnn.so` of an older CUDA in
//! the system's folders wins over the `libcudnn.so.9` of a wheel, and the `libnccl.so.2` of NCCL's wheel is
//! never found. A folder of links under these names solves both, if it comes first in the path when a program
//! starts.

use crate::cache;
use crate::libraries::ALL;
use sha2::{Digest as _, Sha256};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The value of `LD_LIBRARY_PATH` with which a restart of this program finds the right versions of the
/// libraries. `None` if it finds them already, or there are none. Makes a folder of links in the user's
/// cache.
pub fn library_path() -> Option<OsString> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let links: Vec<(String, PathBuf)> = ALL.iter().filter_map(|library| library.link()).collect();
    if links.is_empty() {
        return None;
    }
    // A folder for each set of links: programs with other libraries may start at the same time.
    let mut set = Sha256::new();
    for (name, file) in &links {
        set.update(format!("{name} {}\n", file.display()));
    }
    let set: String = set.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = cache::folder()?.join("libraries").join(set);
    std::fs::create_dir_all(&folder).ok()?;
    for (name, file) in &links {
        link(file, &folder.join(name)).ok()?;
    }
    let before = std::env::var_os("LD_LIBRARY_PATH").filter(|before| !before.is_empty());
    std::env::join_paths([folder].into_iter().chain(before.iter().flat_map(std::env::split_paths))).ok()
}

#[cfg(unix)]
fn link(file: &Path, at: &Path) -> std::io::Result<()> {
    if std::fs::read_link(at).is_ok_and(|there| there == file) {
        return Ok(());
    }
    // Under a temporary name first: another process must not find a half-made link.
    let fresh = at.with_extension(format!("so.{}", std::process::id()));
    let _ = std::fs::remove_file(&fresh);
    std::os::unix::fs::symlink(file, &fresh)?;
    std::fs::rename(&fresh, at)
}

#[cfg(not(unix))]
fn link(_: &Path, _: &Path) -> std::io::Result<()> {
    Ok(())
}
