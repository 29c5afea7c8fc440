//! MPI's own launcher, which starts processes that use MPI.

use crate::{Error, Result};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// MPI's launcher.
pub struct Launcher {
    pub file: PathBuf,
    /// Its options with which the other processes continue after one was lost.
    pub tolerance: &'static [&'static str],
}

/// Finds MPI's launcher.
pub fn launcher() -> Result<Launcher> {
    let path = env::var_os("PATH").unwrap_or_default();
    let files =
        env::split_paths(&path).flat_map(|folder| ["mpiexec", "mpirun"].map(|name| folder.join(name)));
    let file = files.into_iter().find(|file| file.is_file()).ok_or(Error::NoMpi)?;
    Ok(Launcher { tolerance: tolerance(&file), file })
}

/// Open MPI has these options since version 5.
fn tolerance(launcher: &Path) -> &'static [&'static str] {
    let said = Command::new(launcher).arg("--version").output();
    let version = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
    let number = version.split_once("(Open MPI) ").map(|(_, number)| number);
    let major = number.and_then(|number| number.split('.').next()?.trim().parse::<u32>().ok());
    if major.is_some_and(|major| major >= 5) { &["--with-ft", "ulfm"] } else { &[] }
}

/// The options that Open MPI 4 and 5 read from these variables: root may start processes, also more of them
/// than there are cores, and they share all cores. MPICH does the same by itself.
pub fn set_options(command: &mut Command) {
    for (name, value) in [
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("PRTE_ALLOW_RUN_AS_ROOT", "1"),
        ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
        ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
        ("OMPI_MCA_hwloc_base_binding_policy", "none"),
        ("PRTE_MCA_hwloc_default_binding_policy", "none"),
        // The end of MPI would wait for lost processes too.
        ("OMPI_MCA_async_mpi_finalize", "1"),
    ] {
        // What the user sets counts.
        if env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
}
