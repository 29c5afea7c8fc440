//! `cargo xtask test import`: real networks of Keras, torchvision, timm and ONNX' model zoo are read, and their scores compared.

use crate::tally::Tally;
use crate::workspace::Workspace;
use crate::{cargo, train_cifar};
use anyhow::Result;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The packages of the scripts. Keras computes with JAX, since not all of its models do with PyTorch.
const PACKAGES: [&str; 9] =
    ["keras", "jax", "torch", "torchvision", "timm", "onnx", "onnxscript", "onnxruntime", "numpy"];

/// The scripts, and the networks of each.
const SCRIPTS: [(&str, &[&str]); 2] =
    [("import_keras.py", &[]), ("import_onnx.py", &["light", "torchvision", "timm"])];

/// Hours on two processors. A script's `table` fails if fewer networks are right than the project promises.
pub fn step(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let folder = workspace.root.join("target/import");
    fs::create_dir_all(&folder)?;
    let python = match env::var_os("TOWERS_PYTHON") {
        Some(python) => python,
        None => match environment(&folder) {
            Some(python) => python,
            None => {
                tally.skip("networks of other libraries: python3 can't make an environment with them; TOWERS_PYTHON names one");
                return Ok(());
            }
        },
    };
    let example = ["--package", "towers-interchange", "--example", "onnx_logits"];
    let binary = train_cifar::build(workspace, &example, "onnx_logits")?;
    for (script, groups) in SCRIPTS {
        let (file, rows) = (format!("docs/benchmarks/{script}"), folder.join(script).with_extension("jsonl"));
        // Rows of an earlier run are of another program.
        let _ = fs::remove_file(&rows);
        let call = || {
            let mut command = Command::new(&python);
            command.arg(&file).current_dir(&workspace.root).env("KERAS_BACKEND", "jax");
            command
        };
        if groups.is_empty() {
            cargo::run(call().arg(&binary).arg(&rows))?;
        }
        for group in groups {
            cargo::run(call().arg(&binary).arg(&rows).arg(group))?;
        }
        cargo::run(call().arg("table").arg(&rows))?;
    }
    Ok(())
}

/// The Python of an environment with the packages. `None` where there is no Python, or no package index.
fn environment(folder: &Path) -> Option<OsString> {
    let succeeds =
        |command: &mut Command| command.stdin(Stdio::null()).status().is_ok_and(|status| status.success());
    let place = folder.join("python");
    let python = place.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let made = succeeds(Command::new("python3").args(["-m", "venv"]).arg(&place))
        && succeeds(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES));
    made.then(|| python.into_os_string())
}
