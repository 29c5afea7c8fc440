use crate::status::{now, write_json};
use crate::{Observer, Result, RunInfo};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Writes version, system, processor, devices and the size of the network to `environment.json` in the run
/// directory. Under `starts` are the date and the command line of every start.
///
/// After a resume all but the earlier starts are those of the resumed run.
#[derive(Clone, Debug)]
pub struct Environment(PathBuf);

impl Environment {
    /// The file in a run directory.
    pub fn new(run_dir: impl AsRef<Path>) -> Self {
        Environment(run_dir.as_ref().join("environment.json"))
    }

    /// The starts so far. A file that can't be read has none.
    fn starts(&self) -> Vec<Value> {
        let text = towers_files::read_text(&self.0).unwrap_or_default();
        let before: Value = serde_json::from_str(&text).unwrap_or_default();
        before["starts"].as_array().cloned().unwrap_or_default()
    }
}

/// The command line of this process, as a shell reads it, with the name of the program alone.
fn command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words = std::iter::once(program_name()).chain(words).map(|word| shell_word(&word));
    words.collect::<Vec<_>>().join(" ")
}

/// The name of this program, without its folder.
pub(crate) fn program_name() -> String {
    let program = std::env::args_os().next().unwrap_or_default();
    Path::new(&program).file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// A word of a command line: between single quotes, if a POSIX shell needs them.
///
/// ```
/// assert_eq!(["runs/a", "my run", "it's"].map(towers_callbacks::shell_word), ["runs/a", "'my run'", r"'it'\''s'"]);
/// ```
pub fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=+.,:/@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

impl Observer for Environment {
    fn on_begin(&mut self, run: &RunInfo<'_>) -> Result<()> {
        let mut starts = if run.state.step == 0 { Vec::new() } else { self.starts() };
        starts.push(json!({ "date": now(), "command": command_line() }));
        let environment = json!({
            "towers": env!("CARGO_PKG_VERSION"),
            "system": format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            "processor": processor(),
            "cores": std::thread::available_parallelism().map_or(1, usize::from),
            "simd": run.simd,
            "bf16": run.bf16,
            "devices": run.devices,
            "parameters": run.parameters,
            "flops": run.flops,
            "starts": starts,
        });
        write_json(&self.0, &environment)
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
    use crate::TrainState;
    use crate::testing::{run, state};

    #[test]
    fn a_run_says_what_computed_it() {
        let folder = tempfile::tempdir().unwrap();
        let (epochs, state) = (1, state(vec![]));
        Environment::new(folder.path()).on_begin(&run(epochs, &state)).unwrap();
        let read = || std::fs::read_to_string(folder.path().join("environment.json")).unwrap();
        let text = read();
        let environment: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(environment["towers"], env!("CARGO_PKG_VERSION"));
        assert_eq!(environment["devices"], run(epochs, &state).devices);
        assert!(environment["cores"].as_u64() >= Some(1) && environment["simd"].is_string(), "{text}");
        assert_eq!(
            (&environment["parameters"], &environment["flops"]),
            (&1_234_567.into(), &25_000_000.into())
        );
        let resumed = TrainState { step: 1, ..state.clone() };
        for (state, starts) in [(&resumed, 2), (&resumed, 3), (&state, 1)] {
            Environment::new(folder.path()).on_begin(&run(epochs, state)).unwrap();
            let environment: Value = serde_json::from_str(&read()).unwrap();
            assert_eq!(environment["starts"].as_array().unwrap().len(), starts);
            assert!(environment["starts"][0]["command"].as_str().unwrap().contains("callbacks"));
        }
    }

    #[test]
    fn command_lines_are_those_of_a_shell() {
        assert_eq!(
            ["--lr=3e-4", "my run", "it's", ""].map(shell_word),
            ["--lr=3e-4", "'my run'", r"'it'\''s'", "''"]
        );
    }
}
