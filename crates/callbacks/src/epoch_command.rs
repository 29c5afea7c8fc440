use crate::callback::Callback;
use crate::{EpochRecord, Error, Flow, Observer, Result, Run, Snapshot, TrainState, shortened};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use towers_options::{Kind, Refused, Table, options};

options! {
    /// A command after every epoch, for what Keras' `LambdaCallback` does. [`EpochCommand`] runs it. By default
    /// the command is empty, which a run refuses.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct EpochCommandOptions {
        ["Callbacks"]
        /// Run COMMAND by the shell after every epoch, with TOWERS_EPOCH, TOWERS_RUN, TOWERS_LR, TOWERS_LOSS, TOWERS_VAL_ACC and so on in its environment
        command: String = String::new(), COMMAND, "--epoch-command COMMAND";
    }
}

const KEY: &str = "epoch_command.command";
const COMMAND: Kind = Kind::form(read_command, "a command of the shell in quotes");

fn read_command(text: &str) -> Result<Value, Refused> {
    match text.trim() {
        "" => Err(Refused::MustBe(COMMAND.accepted().into())),
        _ => Ok(text.into()),
    }
}

impl Callback for EpochCommandOptions {
    const TABLE: Table = Table {
        key: "epoch_command",
        options: EpochCommandOptions::OPTIONS,
        begins: Some(|| json!(EpochCommandOptions::default())),
    };

    fn build(&self, run: &Run<'_>) -> Result<Box<dyn Observer>> {
        Ok(Box::new(EpochCommand::new(self.clone(), run.folder)?))
    }
}

/// Runs a command of the user after every epoch, by `sh -c`, or by `cmd /C` on Windows. The run waits for it.
/// Its output goes to standard error, and it has no input.
///
/// Its environment has `TOWERS_EPOCH` (from 1), `TOWERS_RUN` (the run's folder, absolute), `TOWERS_LR`, and each
/// metric in capitals, as `TOWERS_VAL_ACC`. Numbers are written as in `history.csv`.
///
/// ```
/// use towers_callbacks::{EpochCommand, EpochCommandOptions};
///
/// let options = EpochCommandOptions { command: "echo $TOWERS_EPOCH: $TOWERS_VAL_ACC".into() };
/// let observer = EpochCommand::new(options, "runs/a")?;
/// # Ok::<(), towers_callbacks::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct EpochCommand {
    options: EpochCommandOptions,
    run: PathBuf,
}

impl EpochCommand {
    /// A command for the run in this folder.
    ///
    /// # Errors
    /// [`Error::File`] if there is no current folder.
    pub fn new(options: EpochCommandOptions, run: impl Into<PathBuf>) -> Result<Self> {
        let run = run.into();
        let run = std::path::absolute(&run).map_err(Error::io("find", &run))?;
        Ok(EpochCommand { options, run })
    }

    fn failed(&self, how: String) -> Error {
        let command = shortened(&self.options.command);
        Error::option(KEY, format_args!("`{command}`, which {how}"), "a command that ends with status 0")
    }
}

#[cfg(not(windows))]
fn shell(command: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]);
    shell
}

#[cfg(windows)]
fn shell(command: &str) -> Command {
    use std::os::windows::process::CommandExt;
    let mut shell = Command::new("cmd");
    // `cmd` has quotes of its own.
    shell.arg("/C").raw_arg(command);
    shell
}

/// The environment variables for an epoch's figures.
fn variables(record: &EpochRecord) -> impl Iterator<Item = (String, String)> {
    let metrics = record.metrics.names().filter_map(|name| Some((name, record.get(name)?)));
    let figures = metrics.chain([("lr", record.lr)]);
    let figures = figures.map(|(name, value)| (name, format!("{value:?}")));
    let all = figures.chain([("epoch", record.epoch.to_string())]);
    all.map(|(name, value)| (format!("TOWERS_{}", name.to_uppercase()), value))
}

impl Observer for EpochCommand {
    fn is_optional(&self) -> bool {
        true
    }

    fn on_epoch_end(&mut self, record: &EpochRecord, _: &TrainState, _: &dyn Snapshot) -> Result<Flow> {
        let mut shell = shell(&self.options.command);
        shell.stdin(Stdio::null()).stdout(std::io::stderr()).stderr(Stdio::inherit());
        shell.envs(variables(record)).env("TOWERS_RUN", &self.run);
        match shell.status() {
            Ok(status) if status.success() => Ok(Flow::Continue),
            Ok(status) => Err(self.failed(format!("ended with {status}"))),
            Err(error) => Err(self.failed(format!("can't be started: {error}"))),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::testing::{Fake, record, state};

    /// Calls it after the second epoch of a run.
    fn call(command: &str, run: &str) -> Result<Flow> {
        let options = EpochCommandOptions { command: command.to_owned() };
        let mut metrics = record(2, [0.5, 0.25, f64::NAN, 1e-7]);
        metrics.metrics.set("val_top3_acc", 1.0);
        EpochCommand::new(options, run)?.on_epoch_end(&metrics, &state(vec![]), &Fake(0.0))
    }

    #[test]
    fn it_sees_the_epoch() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a file");
        let command = format!(
            "sleep 0.1; echo \"$TOWERS_EPOCH $TOWERS_RUN $TOWERS_LR $TOWERS_LOSS $TOWERS_ACC $TOWERS_VAL_LOSS \
             $TOWERS_VAL_ACC $TOWERS_VAL_TOP3_ACC\" > '{}'; ! read line",
            file.display()
        );
        assert_eq!(call(&command, "runs/a run").unwrap(), Flow::Continue);
        let run = std::env::current_dir().unwrap().join("runs/a run");
        let expected = format!("2 {} 0.005 0.5 0.25 NaN 1e-7 1.0\n", run.display());
        assert_eq!(std::fs::read_to_string(file).unwrap(), expected, "the run has waited");
    }

    #[test]
    fn a_failure_is_an_error_that_does_not_end_the_run() {
        let options = EpochCommandOptions { command: "true".to_owned() };
        assert!(EpochCommand::new(options, "run").unwrap().is_optional());
        for (command, says) in [
            (
                "exit 3",
                "`exit 3`, which ended with exit status: 3, but must be a command that ends with status 0",
            ),
            ("kill -9 $$", "`kill -9 $$`, which ended with signal: 9"),
            ("no-such-command-of-towers 2>&-", "which ended with exit status: 127"),
            ("echo \0", "which can't be started"),
        ] {
            let error = call(command, "run").unwrap_err().to_string();
            assert!(error.starts_with("`epoch_command.command` is `") && error.contains(says), "{error}");
        }
    }

    #[test]
    fn no_command_is_refused() {
        for command in ["", " \n"] {
            let options = EpochCommandOptions { command: command.to_owned() };
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains("but must be a command of the shell"), "{error}");
        }
        assert!(EpochCommandOptions { command: "make".to_owned() }.check().is_ok());
    }
}
