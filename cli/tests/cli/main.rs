//! The command line as users see it: every test runs the program in a new folder.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

mod callbacks;
mod commands;
#[cfg(target_os = "linux")]
mod cuda;
mod folders;
mod grey;
#[cfg(target_os = "linux")]
#[path = "../../../crates/mpi/tests/mpi/hosts.rs"]
mod hosts;
#[cfg(target_os = "linux")]
mod interrupt;
mod launch;
mod log_lines;
#[cfg(target_os = "linux")]
mod memory;
mod multi_label;
mod pages;
#[cfg(target_os = "linux")]
mod processes;
#[cfg(target_os = "linux")]
mod ranks;
mod real_data;
mod recipes;
mod refusals;
mod run_folders;
#[cfg(target_os = "linux")]
mod serve;
#[cfg(target_os = "linux")]
mod slurm;
#[cfg(target_os = "linux")]
#[path = "../../../crates/tensor-cuda/tests/driver/stand_ins.rs"]
mod stand_ins;
mod tables;
mod training;
#[cfg(target_os = "linux")]
mod tui;
mod weights;

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// A run that takes about a second.
const TRAIN: &str =
    "train --quick --dataset synthetic --limit-train 64 --limit-test 20 --epochs 1 --no-progress";

/// An empty folder with an empty home, so that no data of this machine is found.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// The program, ready to run here.
    fn command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_towers"));
        command.args(args.split_whitespace()).current_dir(self.path()).env("HOME", self.path());
        command.env_remove("TOWERS_DATA_DIR").env_remove("XDG_CACHE_HOME").env_remove("KERAS_HOME");
        command
    }

    fn run(&self, args: &str) -> Ran {
        self.run_with(args, &[])
    }

    /// The same with more environment variables.
    fn run_with(&self, args: &str, variables: &[(&str, &str)]) -> Ran {
        Ran(args.to_owned(), self.command(args).envs(variables.iter().copied()).output().unwrap())
    }

    /// Runs a command that succeeds and prints this text.
    fn prints(&self, args: &str, says: &str) -> Ran {
        self.run(args).ends(0).says(says)
    }

    /// Runs a command that is refused as bad usage with this text.
    fn refuses(&self, args: &str, says: &str) -> Ran {
        self.run(args).ends(2).complains(says)
    }

    /// Runs a command that fails with this text.
    fn fails(&self, args: &str, says: &str) -> Ran {
        self.run(args).ends(1).complains(says)
    }

    fn write(&self, file: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path().join(file), content).unwrap_or_else(|error| panic!("{file}: {error}"));
    }

    fn make_folder(&self, folder: &str) {
        fs::create_dir_all(self.path().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    }

    /// Removes a file, or a folder with its content.
    fn remove(&self, name: &str) {
        let path = self.path().join(name);
        let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        removed.unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    fn exists(&self, file: &str) -> bool {
        self.path().join(file).exists()
    }

    fn read_bytes(&self, file: &str) -> Vec<u8> {
        fs::read(self.path().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    /// The trained network of a run.
    fn model(&self, run: &str) -> Vec<u8> {
        self.read_bytes(&format!("{run}/model.safetensors"))
    }

    /// The last epoch of a run.
    fn last_epoch(&self, run: &str) -> Value {
        let history = self.read(&format!("{run}/history.jsonl"));
        serde_json::from_str(history.lines().last().unwrap()).unwrap()
    }
}

/// A command line and its result.
struct Ran(String, Output);

impl Ran {
    fn out(&self) -> String {
        text(&self.1.stdout)
    }

    /// Standard output, which is an object.
    fn json(&self) -> Value {
        serde_json::from_str(&self.out()).unwrap()
    }

    fn err(&self) -> String {
        text(&self.1.stderr)
    }

    /// Checks the exit status.
    fn ends(self, status: i32) -> Self {
        let Ran(args, output) = &self;
        assert_eq!(output.status.code(), Some(status), "towers {args}\n{}{}", self.out(), self.err());
        self
    }

    fn says(self, text: &str) -> Self {
        assert!(self.out().contains(text), "towers {}: no `{text}` in\n{}{}", self.0, self.out(), self.err());
        self
    }

    fn complains(self, text: &str) -> Self {
        assert!(self.err().contains(text), "towers {}: no `{text}` in\n{}", self.0, self.err());
        self
    }
}

/// Standard output, with `/` in paths on all systems.
fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if cfg!(windows) { text.replace('\\', "/") } else { text.into_owned() }
}
