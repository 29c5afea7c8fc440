//! `cargo xtask golden`: runs the scripts that make the golden values, then shows what changed.
//!
//! The tests only read the values, which are committed beside their scripts. A script says in its head
//! which Python packages it needs; together they are numpy, scipy, torch, keras, keras_preprocessing,
//! safetensors and pillow.

use crate::workspace::Workspace;
use crate::{Failure, cargo};
use anyhow::{Context as _, Result, bail};
use std::process::{Command, ExitCode};

const FOLDER: &str = "tests/golden";

/// What the command line asks for.
#[derive(Debug, PartialEq)]
struct Options {
    python: String,
    /// The scripts to run, without their ending; all if there are none.
    names: Vec<String>,
}

/// Runs all scripts, or the named ones, and ends with Git's summary of the changed values.
pub fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, Failure> {
    let options = parse(arguments).map_err(Failure::Usage)?;
    let all = scripts(workspace)?;
    if let Some(unknown) = options.names.iter().find(|name| !all.contains(name)) {
        return Err(Failure::Usage(format!("{FOLDER} has no `{unknown}.py`; it has {}", all.join(", "))));
    }
    for name in all.iter().filter(|name| options.names.is_empty() || options.names.contains(name)) {
        let script = format!("{FOLDER}/{name}.py");
        println!("{script}");
        let mut python = Command::new(&options.python);
        python.arg(&script).current_dir(&workspace.root).env("KERAS_BACKEND", "torch");
        cargo::run(&mut python)
            .with_context(|| format!("{script} failed; its head lists the Python packages it needs"))?;
    }
    println!("\nChanges to the committed values (nothing below: none):");
    cargo::run(Command::new("git").args(["diff", "--stat", "--", FOLDER]).current_dir(&workspace.root))?;
    Ok(ExitCode::SUCCESS)
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options { python: "python3".to_owned(), names: Vec::new() };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "--python" {
            options.python = words.next().ok_or("`--python` needs the path of a Python interpreter")?.clone();
        } else if word.starts_with('-') {
            return Err(format!("`golden` has no flag `{word}`"));
        } else {
            options.names.push(word.trim_end_matches(".py").to_owned());
        }
    }
    Ok(options)
}

/// The names of the scripts, sorted.
fn scripts(workspace: &Workspace) -> Result<Vec<String>> {
    let folder = workspace.root.join(FOLDER);
    let mut names = Vec::new();
    for entry in folder.read_dir().with_context(|| format!("{FOLDER} can't be read"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(".py").map(str::to_owned));
    }
    if names.is_empty() {
        bail!("{FOLDER} has no scripts");
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn arguments() {
        let options = parse(&words("--python venv/bin/python optim.py augment")).unwrap();
        assert_eq!(options, Options { python: "venv/bin/python".to_owned(), names: words("optim augment") });
        assert_eq!(parse(&[]).unwrap(), Options { python: "python3".to_owned(), names: Vec::new() });
        assert!(parse(&words("--python")).is_err());
        assert!(parse(&words("--all")).unwrap_err().contains("--all"));
    }
}
