//! `cargo xtask kernels`: compiles every kernel file for every number format and several architectures,
//! without a GPU, and says how many registers and how much memory each kernel takes, and which instructions it
//! has.
//!
//! The compilers are two versions of NVRTC, fetched with `nvdisasm` once from the Python package index into
//! `target/`. Each is found through LD_LIBRARY_PATH, which counts only for a process that starts with it: so this program fetches,
//! and starts itself again for each.
//!
//! It also fetches the MPIs, and the headers and libraries of CUDA, that tests run with.

#![forbid(unsafe_code)]

mod check;
mod index;
mod packages;
mod ptxas;
mod sass;
mod wheel;

use anyhow::{Context as _, Result};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use wheel::{Fetched, Package};

/// The first argument of the second start.
const CHECK: &str = "--check";
/// The arguments to fetch packages for tests instead, and print their folders.
const FETCH: [(&str, &[Package]); 3] = [
    ("--fetch-mpi", &packages::MPI),
    ("--fetch-oldest-cuda", &packages::OLDEST_CUDA),
    ("--fetch-newest-cuda", &packages::NEWEST_CUDA),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first() {
        Some((first, rest)) if first == CHECK => match rest {
            [folder, nvdisasm, rest @ ..] => check::run(folder.as_ref(), nvdisasm.as_ref(), rest),
            _ => Err(anyhow::anyhow!("{CHECK} wants the folder with NVRTC, and nvdisasm")),
        },
        Some((first, _)) => match FETCH.iter().find(|(name, _)| first == name) {
            Some((_, packages)) => fetch(packages),
            None => fetch_and_check(&arguments),
        },
        None => fetch_and_check(&arguments),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn fetch(packages: &[Package]) -> Result<ExitCode> {
    for package in packages {
        match wheel::fetch(package, &target_folder())? {
            Fetched::Folder(folder) => println!("{}", folder.display()),
            Fetched::Unavailable(why) => println!("SKIPPED: tests with {}: {why}", package.title),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn fetch_and_check(arguments: &[String]) -> Result<ExitCode> {
    let program = std::env::current_exe().context("this program does not find itself")?;
    // An empty part would mean the current folder.
    let before = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let before: Vec<PathBuf> =
        std::env::split_paths(&before).filter(|part| !part.as_os_str().is_empty()).collect();
    let nvdisasm = match wheel::fetch(&packages::NVDISASM, &target_folder())? {
        Fetched::Folder(folder) => folder.join(packages::NVDISASM.only[0]),
        Fetched::Unavailable(why) => {
            println!("SKIPPED: kernels: {why}");
            return Ok(ExitCode::SUCCESS);
        }
    };
    for package in &packages::NVRTC {
        let folder = match wheel::fetch(package, &target_folder())? {
            Fetched::Folder(folder) => folder.join("lib"),
            Fetched::Unavailable(why) => {
                println!("SKIPPED: kernels: {why}");
                continue;
            }
        };
        let path = std::env::join_paths([folder.clone()].iter().chain(&before))?;
        let mut again = Command::new(&program);
        // The check must not run with another version than was fetched.
        let check = again.args([CHECK.as_ref(), folder.as_os_str(), nvdisasm.as_os_str()]).args(arguments);
        let status =
            check.env("LD_LIBRARY_PATH", path).status().context("this program does not start itself")?;
        if !status.success() {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The workspace's `target`, which Git ignores wherever Cargo builds. Cargo says where the workspace is now.
fn target_folder() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    manifest.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()).join("../../target")
}
