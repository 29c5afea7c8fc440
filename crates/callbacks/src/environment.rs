use crate::{Error, Observer, Result, RunInfo};
use checkpoint::write_file;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Writes version, system, processor and devices of a run to `environment.json` in the run directory.
///
/// After a resume it has those of the resumed run.
#[derive(Clone, Debug)]
pub struct Environment(PathBuf);

impl Environment {
    /// The file in a run directory.
    pub fn new(run_dir: impl AsRef<Path>) -> Self {
        Environment(run_dir.as_ref().join("environment.json"))
    }
}

impl Observer for Environment {
    fn on_begin(&mut self, run: &RunInfo<'_>) -> Result<()> {
        let environment = json!({
            "towers": env!("CARGO_PKG_VERSION"),
            "system": format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            "processor": processor(),
            "cores": std::thread::available_parallelism().map_or(1, usize::from),
            "simd": run.simd,
            "bf16": run.bf16,
            "devices": run.devices,
        });
        let text = serde_json::to_string_pretty(&environment)
            .map_err(|error| Error::io("write", &self.0)(error.into()))?;
        write_file(&self.0, (text + "\n").as_bytes()).map_err(Error::io("write", &self.0))
    }
}

/// The processor's name, if the system has it.
fn processor() -> Option<String> {
    let about = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = about.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run, state};

    #[test]
    fn a_run_says_what_computed_it() {
        let folder = tempfile::tempdir().unwrap();
        let (epochs, state) = (1, state(vec![]));
        Environment::new(folder.path()).on_begin(&run(epochs, &state)).unwrap();
        let text = std::fs::read_to_string(folder.path().join("environment.json")).unwrap();
        let environment: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(environment["towers"], env!("CARGO_PKG_VERSION"));
        assert_eq!(environment["devices"], run(epochs, &state).devices);
        assert!(environment["cores"].as_u64() >= Some(1) && environment["simd"].is_string(), "{text}");
    }
}
