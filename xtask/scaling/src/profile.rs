//! What was measured on one device: the lines of `towers bench --profile --json`.

use crate::cargo_again;
use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use std::path::Path;
use std::process::Stdio;

/// What of a profile counts here; `bench::Profile` says what each number is.
#[derive(Clone, Debug, Deserialize)]
pub struct Profile {
    pub model: String,
    pub mode: String,
    pub batch: usize,
    pub device: String,
    pub threads: usize,
    pub layers: Vec<Layer>,
    pub loss_ms: f64,
    pub gradients_ms: f64,
    pub update_ms: f64,
    pub tail_bytes: usize,
}

/// A layer, in the order of the forward pass.
#[derive(Clone, Debug, Deserialize)]
pub struct Layer {
    pub name: String,
    pub params: usize,
    pub forward_ms: f64,
    pub backward_ms: f64,
}

/// Reads a profile, and refuses one that can't be scaled.
pub fn parse(text: &str) -> Result<Profile> {
    let profile: Profile = serde_json::from_str(text.trim())
        .context("that is no profile; `towers bench --profile --json` prints one")?;
    ensure!(profile.mode == "train", "the profile is of inference; measure it with --mode train");
    ensure!(profile.batch > 0 && !profile.layers.is_empty(), "the profile is empty");
    let layers = profile.layers.iter().flat_map(|layer| [layer.forward_ms, layer.backward_ms]);
    let mut times = layers.chain([profile.loss_ms, profile.gradients_ms, profile.update_ms]);
    ensure!(times.all(|ms| ms.is_finite() && ms >= 0.0), "the profile has a time that is no time");
    Ok(profile)
}

/// Builds `towers` for release and has it measure a recipe on this machine.
pub fn measure(recipe: &str, threads: Option<usize>) -> Result<String> {
    let mut command = cargo_again::again();
    // Cargo says where the workspace is now; the caller may be anywhere.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let workspace = Path::new(&here).join("../../Cargo.toml");
    command.args(["run", "--quiet", "--release", "--package", "towers", "--manifest-path"]);
    command.arg(workspace).arg("--");
    command.args(["bench", "--profile", "--json", "--recipe", recipe]);
    if let Some(threads) = threads {
        command.args(["--threads", &threads.to_string()]);
    }
    eprintln!("     Running `towers bench --profile --json --recipe {recipe}`");
    let output = command.stderr(Stdio::inherit()).output().context("cargo does not start")?;
    if !output.status.success() {
        bail!("`towers bench --profile` ended with {}; its error is above", output.status);
    }
    String::from_utf8(output.stdout).context("the profile is not UTF-8")
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn profile(batch: usize, layers: &[(usize, f64, f64)]) -> Profile {
        let layer = |(k, &(params, forward_ms, backward_ms)): (usize, &(usize, f64, f64))| Layer {
            name: format!("layer_{k}"),
            params,
            forward_ms,
            backward_ms,
        };
        Profile {
            model: "test".into(),
            mode: "train".into(),
            batch,
            device: "cpu".into(),
            threads: 1,
            layers: layers.iter().enumerate().map(layer).collect(),
            loss_ms: 1.0,
            gradients_ms: 0.0,
            update_ms: 2.0,
            tail_bytes: 12,
        }
    }

    /// As `towers bench --profile --json` prints it, with fields that don't matter here.
    #[test]
    fn a_profile_is_read_and_a_bad_one_refused() {
        let text = r#"{"peer":"towers","version":"0.1.0","model":"m","mode":"train","batch":2,"device":"cpu","threads":1,
            "precision":"fp32","steps":5,"step_ms":3.0,"parts_ms":3.0,"set_input_ms":0.1,"layers":[{"name":"dense","kind":
            "Dense","input":[1,1,3],"output":[1,1,2],"multiply_adds":6,"params":8,"forward_ms":0.5,"backward_ms":1.5,
            "share":0.6,"forward_gflops":1.0,"backward_gflops":1.0}],"loss_ms":0.5,"gradients_ms":0.0,"update_ms":0.5,
            "tail_bytes":12}"#;
        let profile = parse(text).unwrap();
        assert_eq!((profile.batch, profile.layers[0].params, profile.tail_bytes), (2, 8, 12));
        assert!(parse(&text.replace("\"train\"", "\"infer\"")).is_err());
        assert!(parse(&text.replace("1.5", "-1.5")).is_err());
        assert!(parse("{}").is_err());
    }
}
