//! `cargo xtask golden`: runs the scripts that make the golden values, then shows the changes.
//!
//! The tests only read the values, which are committed beside their scripts. A script says in its head which
//! Python packages it needs; together they are numpy, scipy, torch, keras, keras_preprocessing, h5py,
//! safetensors, pillow, onnx and onnxscript. A script that one environment can't run with the others, or that
//! makes no values, says so in a line of its head, `# golden: by name only (why)`: without names it is left out, and named.

use crate::cargo;
use crate::failure::Failure;
use crate::workspace::Workspace;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::process::{Command, ExitCode};

const FOLDER: &str = "tests/golden";

/// How the line begins that a script has among its first [`HEAD`] lines if it is to run only when named.
const BY_NAME_ONLY: &str = "# golden: by name only";
const HEAD: usize = 30;

/// Runs the named scripts, or all that one environment runs, and ends with Git's summary of the changed
/// values.
pub fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, Failure> {
    let (python, names) = parse(arguments).map_err(Failure::Usage)?;
    let all = scripts(workspace)?;
    if let Some(unknown) = names.iter().find(|name| !all.contains(name)) {
        return Err(Failure::Usage(format!("{FOLDER} has no `{unknown}.py`; it has {}", all.join(", "))));
    }
    for name in all.iter().filter(|name| names.is_empty() || names.contains(name)) {
        let script = format!("{FOLDER}/{name}.py");
        let source = fs::read_to_string(workspace.root.join(&script))
            .with_context(|| format!("{script} can't be read"))?;
        if let (true, Some(why)) = (names.is_empty(), by_name_only(&source)) {
            println!("{script}: left out{why}; to run it: cargo xtask golden {name}");
            continue;
        }
        println!("{script}");
        let mut python = Command::new(&python);
        python.arg(&script).current_dir(&workspace.root).env("KERAS_BACKEND", "torch");
        cargo::run(&mut python)
            .with_context(|| format!("{script} failed; its head lists the Python packages it needs"))?;
    }
    println!("\nChanges to the committed values (nothing below: none):");
    cargo::run(Command::new("git").args(["diff", "--stat", "--", FOLDER]).current_dir(&workspace.root))?;
    Ok(ExitCode::SUCCESS)
}

/// The Python to run, and the scripts without their ending; if there are none, all but those by name only.
fn parse(arguments: &[String]) -> Result<(String, Vec<String>), String> {
    let (mut python, mut names) = ("python3".to_owned(), Vec::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "--python" {
            python = words.next().ok_or("`--python` needs the path of a Python interpreter")?.clone();
        } else if word.starts_with('-') {
            return Err(format!("`golden` has no flag `{word}`"));
        } else {
            names.push(word.trim_end_matches(".py").to_owned());
        }
    }
    Ok((python, names))
}

/// Whether a script runs only when named, and the rest of its line: ` (why)`.
fn by_name_only(source: &str) -> Option<&str> {
    source.lines().take(HEAD).find_map(|line| line.strip_prefix(BY_NAME_ONLY)).map(str::trim_end)
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
        let parsed = parse(&words("--python venv/bin/python optim.py augment")).unwrap();
        assert_eq!(parsed, ("venv/bin/python".to_owned(), words("optim augment")));
        assert_eq!(parse(&[]).unwrap(), ("python3".to_owned(), Vec::new()));
        assert!(parse(&words("--python")).is_err());
        assert!(parse(&words("--all")).unwrap_err().contains("--all"));
    }

    #[test]
    fn a_script_may_ask_to_be_named() {
        let marked = "# golden: by name only (it needs a folder)\n\"\"\"Measures something.\"\"\"\n";
        assert_eq!(by_name_only(marked), Some(" (it needs a folder)"));
        assert_eq!(by_name_only("\"\"\"Makes a.json.\"\"\"\n# golden: by name only\n"), Some(""));
        assert_eq!(by_name_only("import numpy\n"), None);
        assert_eq!(by_name_only("say = '# golden: by name only'\n"), None);
        let late = format!("{}{BY_NAME_ONLY}\n", "import this\n".repeat(HEAD));
        assert_eq!(by_name_only(&late), None, "only the head counts");
    }

    #[test]
    fn the_scripts_that_need_something_of_their_own_say_so() {
        let workspace = Workspace::load().unwrap();
        let marked = |name: &String| {
            let source = fs::read_to_string(workspace.root.join(FOLDER).join(format!("{name}.py"))).unwrap();
            by_name_only(&source).is_some()
        };
        let marked: Vec<String> = scripts(&workspace).unwrap().into_iter().filter(marked).collect();
        let expected = [
            "cifar_synthetic",
            "keras2_models",
            "keras_compile",
            "keras_multi_gpu",
            "keras_weights_keras2",
            "onnx_mutations",
            "optim_keras2",
            "real_files",
        ];
        assert_eq!(marked, expected);
    }
}
