//! `cargo xtask kernels`: compiles every CUDA kernel without a GPU, by the program in `xtask/kernels`.
//!
//! It is a separate program because it depends on the CUDA backend and on a download, and `xtask` must stay
//! small.

use crate::cargo;
use crate::failure::Failure;
use crate::tally::Tally;
use crate::workspace::Workspace;
use anyhow::{Context as _, Result};
use std::env::consts::EXE_SUFFIX;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

/// The program, and the package that it is in.
const PACKAGE: &str = "towers-kernels";

/// Runs it with all it has to show.
pub fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, Failure> {
    let mut command = cargo::command(&workspace.root, &["run", "--quiet", "--package", PACKAGE, "--"]);
    cargo::run(command.args(arguments))?;
    Ok(ExitCode::SUCCESS)
}

/// The step of `cargo xtask test`: only the sums, and the errors. It is skipped where the compiler can't be
/// fetched.
///
/// It is built with the whole workspace selected: so its dependencies have the features of the other steps,
/// and are not compiled once more without them.
pub fn step(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    tally.run(program(workspace)?.arg("--summary"))
}

/// The folders of packages for tests: `mpi`, `oldest-cuda` or `newest-cuda`. Where one can't be fetched, the tally counts it as
/// skipped.
pub fn fetch(workspace: &Workspace, packages: &str, tally: &mut Tally) -> Result<Vec<PathBuf>> {
    let fetch = format!("--fetch-{packages}");
    let output = program(workspace)?.arg(fetch).stderr(Stdio::inherit()).output()?;
    anyhow::ensure!(output.status.success(), "the packages for tests can't be unpacked");
    let mut folders = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        match line.strip_prefix("SKIPPED: ") {
            Some(why) => tally.skip(why),
            None => folders.push(PathBuf::from(line)),
        }
    }
    Ok(folders)
}

/// The program, built.
fn program(workspace: &Workspace) -> Result<Command> {
    cargo::run(&mut cargo::command(&workspace.root, &["build", "--workspace", "--bin", PACKAGE]))?;
    // Both are programs of one workspace and one profile.
    let us = std::env::current_exe().context("this program does not find itself")?;
    let mut command = Command::new(us.with_file_name(format!("{PACKAGE}{EXE_SUFFIX}")));
    command.current_dir(&workspace.root).env("CARGO_MANIFEST_DIR", workspace.root.join("xtask/kernels"));
    Ok(command)
}
