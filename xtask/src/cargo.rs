//! Running Cargo, with its own messages left visible.

use anyhow::{Context as _, Result, bail};
use std::path::Path;
use std::process::Command;

/// A call, without arguments yet, of the Cargo that started us, or else of the one on the path.
///
/// The variables that `cargo run` sets for the package that it runs are removed. Build scripts that read
/// them, as that of `ring` does, would otherwise run again whenever a user alternates Cargo and xtask.
pub fn again() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    let of_package = |name: &&str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().as_ref().is_some_and(of_package)) {
        command.env_remove(name);
    }
    command
}

/// A call of Cargo in the root of the workspace.
pub fn command(root: &Path, arguments: &[&str]) -> Command {
    let mut command = again();
    command.args(arguments).current_dir(root);
    command
}

/// Runs a prepared `command` to its end; an error if it can't start or doesn't succeed.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command.status().with_context(|| format!("`{shown}` does not start"))?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

/// A command as one would type it.
pub fn show(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut words = vec![program.file_stem().unwrap_or(program.as_os_str()).to_string_lossy()];
    words.extend(command.get_args().map(|word| word.to_string_lossy()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_is_not_told_which_package_runs() {
        assert!(std::env::var_os("CARGO_PKG_NAME").is_some(), "Cargo tells its tests");
        let command = again();
        for name in ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"] {
            assert!(command.get_envs().any(|(removed, value)| removed == name && value.is_none()), "{name}");
        }
    }
}
