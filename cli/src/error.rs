//! How a failure is told: one sentence, a hint where there is one, and the exit status.

use crate::print::note;
use anyhow::Context;
use std::error::Error as _;
use std::fmt;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
use std::process::ExitCode;
use train::{augment, cifar};

/// The exit status of bad usage.
pub const BAD_USAGE: u8 = 2;
/// The exit status after Ctrl-C, as shells count it: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;

/// Bad usage: the command line must change. Exit status [`BAD_USAGE`].
#[derive(Debug)]
pub struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// An error of bad usage.
pub fn usage(message: impl fmt::Display) -> anyhow::Error {
    Usage(message.to_string()).into()
}

/// Has Ctrl-C and SIGTERM call `handler`, on a thread of its own.
pub fn on_interrupt(handler: impl FnMut() + Send + 'static) -> anyhow::Result<()> {
    let failed = |error| match error {
        ctrlc::Error::System(source) => anyhow::Error::from(source),
        other => other.into(),
    };
    ctrlc::set_handler(handler).map_err(failed).context("can't listen for Ctrl-C")
}

/// Refuses 0 for an option that counts something.
pub fn at_least_one(option: &str, value: usize) -> anyhow::Result<()> {
    if value == 0 { Err(usage(format!("{option} is 0, but must be at least 1"))) } else { Ok(()) }
}

/// Ends the program as clap does, but says what a flag takes where clap has only what the standard library says of numbers.
pub fn refuse(error: &clap::Error) -> ! {
    let Some(cause) = error.source() else { error.exit() };
    let takes = match cause.downcast_ref::<ParseIntError>().map(ParseIntError::kind) {
        Some(IntErrorKind::InvalidDigit | IntErrorKind::Empty) => "it takes a whole number, 0 or more",
        None if cause.is::<ParseFloatError>() => "it takes a number, such as 0.01",
        _ => error.exit(),
    };
    note(error.to_string().replacen(&cause.to_string(), takes, 1).trim_end());
    std::process::exit(BAD_USAGE.into())
}

/// Tells the error on stderr and turns it into the exit status.
pub fn report(error: &anyhow::Error) -> ExitCode {
    note(format_args!("error: {}", sentence(error)));
    let ours = error.downcast_ref::<train::Error>();
    if let Some(hint) = ours.and_then(hint) {
        note(format_args!("hint: {hint}"));
    }
    let bad_usage = error.is::<Usage>()
        || matches!(ours, Some(train::Error::Augment(error)) if !matches!(error, augment::Error::Write { .. }))
        || matches!(
            ours,
            Some(
                train::Error::Option { .. }
                    | train::Error::Recipe { .. }
                    | train::Error::OtherData(_)
                    | train::Error::Moved { .. }
                    | train::Error::Optimizer(_)
                    | train::Error::Cut(_)
            )
        );
    if bad_usage { ExitCode::from(BAD_USAGE) } else { ExitCode::FAILURE }
}

/// The error and its causes, without what one already said of the next.
pub fn sentence(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// What to do about it, in the words of the command line.
fn hint(error: &train::Error) -> Option<&'static str> {
    match error {
        train::Error::Data(cifar::Error::NotFound { .. } | cifar::Error::NoSource { .. }) => Some(
            "--data-dir DIR (or TOWERS_DATA_DIR) names the folder with the files or its parent, --data-url URL another \
             archive, --dataset DIR a folder of class folders with pictures; --dataset synthetic needs no files",
        ),
        // What is missing says how to do without.
        train::Error::Cuda(missing) if missing.to_string().contains("--device cpu") => Some(
            "without GPUs, leave --gpus out; for several towers on the CPU, `towers train` has --replicas N",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cause_is_told_twice() {
        let io = || std::io::Error::other("the disk is full");
        let told = train::Error::io("write", "a.csv")(io());
        assert_eq!(sentence(&told.into()), "can't write a.csv: the disk is full");
        let context = Err::<(), _>(io()).context("can't listen").unwrap_err();
        assert_eq!(sentence(&context), "can't listen: the disk is full");
    }
}
