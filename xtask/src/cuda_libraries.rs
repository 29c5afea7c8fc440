//! Where `pip` puts CUDA's libraries: the dynamic linker must be told before a program starts.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The variable that names the folders of libraries.
pub const VARIABLE: &str = if cfg!(windows) { "PATH" } else { "LD_LIBRARY_PATH" };

/// Where Python runs, and where the libraries are in each of NVIDIA's packages.
const PYTHON: &str = if cfg!(windows) { "python" } else { "python3" };
const INSIDE: &[&str] = if cfg!(windows) { &["bin", "bin/x86_64"] } else { &["lib"] };

/// The value of [`VARIABLE`] with which a program finds the CUDA libraries that this machine's Python has as wheels,
/// in front of what it was before; `None` where there are none.
///
/// NCCL's wheel has its library under one name only, and not the one that is looked for: a link in `links` mends that.
pub fn search_path(links: &Path) -> Option<OsString> {
    let script = "import nvidia; print('\\n'.join(nvidia.__path__))";
    let python = Command::new(PYTHON).args(["-c", script]).stderr(Stdio::null()).output().ok()?;
    let packages: Vec<PathBuf> = String::from_utf8(python.stdout).ok()?.lines().map(PathBuf::from).collect();
    joined(&packages, links, env::var_os(VARIABLE))
}

fn joined(packages: &[PathBuf], links: &Path, before: Option<OsString>) -> Option<OsString> {
    let mut folders = library_folders(packages);
    if folders.is_empty() {
        return None;
    }
    if link_nccl(&folders, links).is_some() {
        folders.push(links.to_owned());
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

#[cfg(unix)]
fn link_nccl(folders: &[PathBuf], links: &Path) -> Option<()> {
    let library = folders.iter().map(|folder| folder.join("libnccl.so.2")).find(|file| file.is_file())?;
    let link = links.join("libnccl.so");
    fs::create_dir_all(links).ok()?;
    if fs::read_link(&link).ok().as_deref() != Some(&library) {
        // Under a name of this process first: two that start at once must not meet a half-made link.
        let fresh = links.join(format!("libnccl.so.{}", std::process::id()));
        let _ = fs::remove_file(&fresh);
        std::os::unix::fs::symlink(&library, &fresh).ok()?;
        fs::rename(&fresh, &link).ok()?;
    }
    Some(())
}

#[cfg(not(unix))]
fn link_nccl(_: &[PathBuf], _: &Path) -> Option<()> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(windows)]
    #[test]
    fn the_wheels_folders_come_first() {
        let root = env::temp_dir().join(format!("towers-xtask-{}", std::process::id()));
        for folder in ["cu13/bin/x86_64", "cudnn/bin", "cudnn/include"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let path = joined(std::slice::from_ref(&root), &root, Some("before".into())).unwrap();
        let folders: Vec<PathBuf> = env::split_paths(&path).collect();
        let of_wheels = ["cu13/bin", "cu13/bin/x86_64", "cudnn/bin"].map(|folder| root.join(folder));
        assert_eq!(folders, [&of_wheels[..], &["before".into()]].concat());
        fs::remove_dir_all(&root).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn the_wheels_folders_come_first_and_nccl_gets_its_name() {
        let root = env::temp_dir().join(format!("towers-xtask-{}", std::process::id()));
        let (package, links) = (root.join("nvidia"), root.join("links"));
        for folder in ["cu13/lib", "nccl/lib", "cudnn/include"] {
            fs::create_dir_all(package.join(folder)).unwrap();
        }
        fs::write(package.join("nccl/lib/libnccl.so.2"), "").unwrap();
        for _ in 0..2 {
            let path = joined(std::slice::from_ref(&package), &links, Some("/before".into())).unwrap();
            let folders: Vec<PathBuf> = env::split_paths(&path).collect();
            let expected =
                [package.join("cu13/lib"), package.join("nccl/lib"), links.clone(), "/before".into()];
            assert_eq!(folders, expected);
            assert_eq!(
                fs::read_link(links.join("libnccl.so")).unwrap(),
                package.join("nccl/lib/libnccl.so.2")
            );
        }
        assert_eq!(joined(&[root.join("absent")], &links, None), None);
        fs::remove_dir_all(&root).unwrap();
    }
}
