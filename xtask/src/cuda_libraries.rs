//! Where `pip` puts CUDA's libraries: the dynamic linker must be told before a program starts.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The variable that names the folders of libraries.
pub const VARIABLE: &str = if cfg!(windows) { "PATH" } else { "LD_LIBRARY_PATH" };

/// Where Python runs, and where the libraries are in each of NVIDIA's packages.
const PYTHON: &str = if cfg!(windows) { "python" } else { "python3" };
const INSIDE: &[&str] = if cfg!(windows) { &["bin", "bin/x86_64"] } else { &["lib"] };

/// The value of [`VARIABLE`] with which a program finds the CUDA libraries among the wheels of this machine's
/// Python. They stand in front of the variable's old value. `None` where there are none.
///
/// The program itself sees to the names that libraries are looked for under.
pub fn search_path() -> Option<OsString> {
    let script = "import nvidia; print('\\n'.join(nvidia.__path__))";
    let python = Command::new(PYTHON).args(["-c", script]).stderr(Stdio::null()).output().ok()?;
    let packages: Vec<PathBuf> = String::from_utf8(python.stdout).ok()?.lines().map(PathBuf::from).collect();
    joined(&packages, env::var_os(VARIABLE))
}

fn joined(packages: &[PathBuf], before: Option<OsString>) -> Option<OsString> {
    let mut folders = library_folders(packages);
    if folders.is_empty() {
        return None;
    }
    folders.extend(before.iter().flat_map(env::split_paths));
    env::join_paths(folders).ok()
}

/// The folders of `nvidia/*` that hold libraries.
fn library_folders(packages: &[PathBuf]) -> Vec<PathBuf> {
    let entries = packages.iter().filter_map(|package| fs::read_dir(package).ok()).flatten().flatten();
    let inside = |entry: fs::DirEntry| INSIDE.iter().map(move |folder| entry.path().join(folder));
    let mut folders: Vec<PathBuf> = entries.flat_map(inside).filter(|folder| folder.is_dir()).collect();
    folders.sort();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wheels_folders_come_first() {
        let root = env::temp_dir().join(format!("towers-xtask-{}", std::process::id()));
        let (of_wheels, others) = if cfg!(windows) {
            (vec!["cu13/bin", "cu13/bin/x86_64", "cudnn/bin"], "cudnn/include")
        } else {
            (vec!["cu13/lib", "nccl/lib"], "cudnn/include")
        };
        let of_wheels: Vec<PathBuf> = of_wheels.into_iter().map(|folder| root.join(folder)).collect();
        for folder in of_wheels.iter().chain([&root.join(others)]) {
            fs::create_dir_all(folder).unwrap();
        }
        let path = joined(std::slice::from_ref(&root), Some("before".into())).unwrap();
        let folders: Vec<PathBuf> = env::split_paths(&path).collect();
        assert_eq!(folders, [&of_wheels[..], &["before".into()]].concat());
        assert_eq!(joined(&[root.join("absent")], None), None);
        fs::remove_dir_all(&root).unwrap();
    }
}
