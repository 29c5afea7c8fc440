//! `cargo xtask gpu [FOLDER]`: a bundle for a machine that has a GPU and no Rust.
//!
//! The folder (by default `target/gpu`) receives the release binary, the test programs that use a GPU with
//! their golden files, and `time_by_kernel.so`, which times every kernel. The script `run.sh` of `xtask/gpu` runs
//! and measures everything there in one call, `imported.sh` imported networks.

use crate::failure::Failure;
use crate::workspace::Workspace;
use crate::{cargo, train_cifar};
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The crates whose tests run on a GPU where there is one.
const TESTED: [&str; 4] = ["towers-tensor-cuda", "towers-layers", "towers-models", "towers-train"];
/// Single test programs of others, of which `run.sh` runs a part: their names, and how Cargo is asked for
/// them.
const TESTED_IN_PART: [(&str, &[&str]); 2] = [
    ("tests-end_to_end", &["--package", "towers-tests", "--test", "end_to_end"]),
    ("parallel-towers_parallel", &["--package", "towers-parallel", "--features", "cuda", "--lib"]),
];

pub fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, Failure> {
    let folder = match arguments {
        [] => workspace.root.join("target/gpu"),
        [flag] if flag.starts_with('-') => {
            return Err(Failure::Usage(format!("`gpu` takes a folder and no flag, but got `{flag}`")));
        }
        [folder] => PathBuf::from(folder),
        _ => return Err(Failure::Usage("`gpu` takes one folder".to_owned())),
    };
    bundle(workspace, &folder)?;
    println!("{} is ready: there, `run.sh OUT [DATA]` tests and measures", folder.display());
    Ok(ExitCode::SUCCESS)
}

fn bundle(workspace: &Workspace, folder: &Path) -> Result<()> {
    let tests = folder.join("tests");
    if tests.is_dir() {
        fs::remove_dir_all(&tests).with_context(|| format!("can't clear {}", tests.display()))?;
    }
    fs::create_dir_all(&tests).with_context(|| format!("can't make {}", tests.display()))?;
    let program = train_cifar::build(workspace, &["--package", "towers"], "towers")?;
    put(&program, &folder.join("towers"))?;
    for (name, program) in test_programs(workspace)? {
        put(&program, &tests.join(name))?;
    }
    let sources = workspace.root.join("xtask/gpu");
    for name in ["run.sh", "imported.sh", "peer_torch.py"] {
        copy(&sources.join(name), &folder.join(name))?;
    }
    let networks = "imported_networks.py";
    copy(&workspace.root.join("docs/benchmarks").join(networks), &folder.join(networks))?;
    put_golden(&workspace.root.join("tests/golden"), &folder.join("golden"))?;
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O2", "-shared", "-fPIC", "-o"])
        .arg(folder.join("time_by_kernel.so"))
        .arg(sources.join("profile.c"));
    cargo::run(&mut compiler)
}

/// Copies the golden files that tests on a GPU read.
fn put_golden(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("can't make {}", to.display()))?;
    for file in fs::read_dir(from).with_context(|| format!("can't read {}", from.display()))? {
        let path = file?.path();
        if let (true, Some(name)) =
            (path.extension().is_some_and(|end| end == "safetensors"), path.file_name())
        {
            copy(&path, &to.join(name))?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("can't copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// Copies a program without its symbols: the bundle may have to travel.
fn put(program: &Path, to: &Path) -> Result<()> {
    copy(program, to)?;
    cargo::run(Command::new("strip").arg(to))
}

/// Builds the test programs; each under the name `CRATE-TARGET`.
fn test_programs(workspace: &Workspace) -> Result<Vec<(String, PathBuf)>> {
    let mut all = vec!["--tests"];
    all.extend(TESTED.iter().flat_map(|name| ["--package", name]));
    let mut programs = Vec::new();
    for selected in [&all[..]].into_iter().chain(TESTED_IN_PART.iter().map(|(_, selected)| *selected)) {
        let arguments =
            [&["test", "--no-run", "--message-format=json-render-diagnostics"][..], selected].concat();
        let mut command = cargo::command(&workspace.root, &arguments);
        let output = command.stderr(Stdio::inherit()).output().context("`cargo test` does not start")?;
        if !output.status.success() {
            bail!("the test programs don't build ({}); the errors are above", output.status);
        }
        programs.extend(executables(&String::from_utf8_lossy(&output.stdout)));
    }
    Ok(programs)
}

/// The test programs in Cargo's messages, one JSON object a line.
fn executables(messages: &str) -> Vec<(String, PathBuf)> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages
        .filter(|message| message["reason"] == "compiler-artifact" && message["profile"]["test"] == true)
        .filter_map(|message| {
            let program = PathBuf::from(message["executable"].as_str()?);
            let manifest = Path::new(message["manifest_path"].as_str()?);
            let krate = manifest.parent()?.file_name()?.to_str()?;
            let target = message["target"]["name"].as_str()?;
            Some((format!("{krate}-{target}"), program))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The script and the lists above name test programs: those that the manifests have.
    #[test]
    fn named_test_programs_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
        let script = read("xtask/gpu/run.sh");
        let named = script.lines().find_map(|line| line.strip_prefix("first='")?.strip_suffix('\'')).unwrap();
        for program in named.split_whitespace() {
            let (folder, target) = program.rsplit_once('-').unwrap();
            let manifest = if folder == "tests" { "tests" } else { &format!("crates/{folder}") };
            let manifest = read(&format!("{manifest}/Cargo.toml"));
            let is_lib = target == format!("towers_{}", folder.replace('-', "_"));
            assert!(is_lib || manifest.contains(&format!("[[test]]\nname = \"{target}\"")), "{program}");
        }
        for (program, _) in TESTED_IN_PART {
            assert!(named.contains(program) && script.contains(&format!(" {program}) part=")), "{program}");
        }
    }

    #[test]
    fn test_programs_are_found_among_the_messages() {
        let artifact = |manifest: &str, name: &str, test: bool, program: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"{manifest}","target":{{"name":"{name}"}},"profile":{{"test":{test}}},"executable":{program}}}"#
            )
        };
        let messages = [
            artifact("/w/crates/layers/Cargo.toml", "keras", true, r#""/t/keras-1f""#),
            artifact("/w/crates/layers/Cargo.toml", "layers", false, "null"),
            artifact("/w/crates/train/Cargo.toml", "train", true, r#""/t/train-2e""#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let expected = [("layers-keras", "/t/keras-1f"), ("train-train", "/t/train-2e")];
        let expected = expected.map(|(name, program)| (name.to_owned(), PathBuf::from(program)));
        assert_eq!(executables(&messages.join("\n")), expected);
    }
}
