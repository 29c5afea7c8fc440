//! The command line as users see it: every test runs the program in a new folder.

mod callbacks;
mod commands;
#[cfg(target_os = "linux")]
mod cuda;
mod folders;
#[cfg(target_os = "linux")]
#[path = "../../../crates/parallel/tests/mpi/hosts.rs"]
mod hosts;
mod image_size;
mod interrupt;
mod launch;
mod pages;
#[cfg(target_os = "linux")]
mod processes;
#[cfg(target_os = "linux")]
mod ranks;
mod real_data;
mod refusals;
#[cfg(target_os = "linux")]
mod slurm;
#[cfg(target_os = "linux")]
#[path = "../../../crates/tensor-cuda/tests/driver/stand_ins.rs"]
mod stand_ins;
mod training;
#[cfg(target_os = "linux")]
mod tui;
mod weights;

use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// An empty folder with an empty home, so that no data of this machine is found.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Place(tempfile::tempdir().expect("a temporary folder can be made"))
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
        Ran(args.to_owned(), self.command(args).output().expect("the binary starts"))
    }

    fn exists(&self, file: &str) -> bool {
        self.path().join(file).exists()
    }

    fn read_bytes(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.path().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.path().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }
}

/// A command line and its result.
struct Ran(String, Output);

impl Ran {
    fn out(&self) -> String {
        text(&self.1.stdout)
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
