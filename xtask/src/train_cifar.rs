//! `cargo xtask train-cifar FLAGS`: builds the release binary and becomes `towers train FLAGS`.

use crate::failure::Failure;
use crate::workspace::Workspace;
use crate::{cargo, cuda_libraries};
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

/// Builds, then runs in the caller's own folder, so that relative paths in the flags are right.
pub fn run(workspace: &Workspace, flags: &[String]) -> Result<ExitCode, Failure> {
    let program = build(workspace, &["--package", "towers"], "towers")?;
    let mut command = Command::new(program);
    command.arg("train").args(flags);
    if let Some(path) = cuda_libraries::search_path() {
        command.env(cuda_libraries::VARIABLE, path);
    }
    eprintln!("     Running `{}`", cargo::show(&command));
    Ok(replace_self(command)?)
}

/// Builds a program for release, with Cargo's progress on stderr, and returns its path.
pub fn build(workspace: &Workspace, of: &[&str], name: &str) -> Result<PathBuf> {
    let mut command = cargo::command(&workspace.root, &["build", "--release"]);
    command.args(of).arg("--message-format=json-render-diagnostics");
    let output = command.stderr(Stdio::inherit()).output().context("`cargo build` does not start")?;
    if !output.status.success() {
        bail!("the release build of {name} failed ({}); its errors are above", output.status);
    }
    executable(&String::from_utf8_lossy(&output.stdout), name)
        .with_context(|| format!("`cargo build` did not say where the program `{name}` is"))
}

/// Finds a program in Cargo's messages, one JSON object a line: the target folder may be anywhere.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact" && message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// Replaces this process by `command`: a signal (Ctrl-C) then reaches the training alone, which saves and
/// ends in its own time, and its exit status is ours.
#[cfg(unix)]
fn replace_self(mut command: Command) -> Result<ExitCode> {
    use std::os::unix::process::CommandExt as _;
    let error = command.exec();
    Err(error).with_context(|| format!("`{}` does not start", cargo::show(&command)))
}

/// Runs `command` and passes its exit status on. Ctrl-C is left to it: we stay until it has saved and ended.
#[cfg(not(unix))]
fn replace_self(mut command: Command) -> Result<ExitCode> {
    ctrlc::set_handler(|| {}).context("Ctrl-C can't be left to the training")?;
    let status = command.status().with_context(|| format!("`{}` does not start", cargo::show(&command)))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_found_among_the_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"train"},"executable":null}"#,
            "\n",
            "not JSON\n",
            r#"{"reason":"compiler-artifact","target":{"name":"towers"},"executable":"/t/release/towers"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        assert_eq!(executable(messages, "towers"), Some(PathBuf::from("/t/release/towers")));
        assert_eq!(executable("{\"reason\":\"build-finished\"}", "towers"), None);
    }
}
