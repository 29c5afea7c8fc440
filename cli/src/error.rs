//! Error messages: one sentence, a hint if there is one, and the exit status.

use crate::print::{brief, note, say};
use crate::spelling::flag_of;
use clap::error::{ContextKind, ContextValue};
use std::error::Error as _;
use std::fmt::Display;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
use std::process::ExitCode;
use towers_callbacks::LogLine;
use towers_launch::BAD_USAGE;
use towers_train::cifar;

/// Bad usage: the command line must change. Exit status [`BAD_USAGE`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(String);

/// An error of bad usage.
pub fn usage(message: impl Display) -> anyhow::Error {
    Usage(message.to_string()).into()
}

/// Refuses 0 for an option that counts something.
pub fn at_least_one(option: &str, value: usize) -> anyhow::Result<()> {
    if value == 0 { Err(usage(format!("{option} is 0, but must be at least 1"))) } else { Ok(()) }
}

/// Flags of whole numbers for which 0 means something.
const FROM_ZERO: [&str; 3] = ["--grace", "--seed", "--warmup-epochs"];

/// Ends the program as clap does. Where clap shows only a parser's error, the message names the values that
/// the flag takes.
pub fn refuse(error: &clap::Error) -> ! {
    // Help and the version are no errors.
    if !error.use_stderr() {
        error.exit();
    }
    let flag = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(arg)) => arg.split(' ').next().unwrap_or_default(),
        _ => "",
    };
    let mut text = error.to_string();
    if let Some((cause, takes)) = error.source().and_then(|cause| Some((cause, takes(flag, cause)?))) {
        text = text.replacen(&cause.to_string(), &takes, 1);
    }
    note(text.trim_end());
    std::process::exit(BAD_USAGE.into())
}

/// The values that a flag takes, if a value was refused for this `cause`.
fn takes(flag: &str, cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    let least = if FROM_ZERO.contains(&flag) { 0 } else { 1 };
    match cause.downcast_ref::<ParseIntError>().map(ParseIntError::kind) {
        Some(IntErrorKind::InvalidDigit | IntErrorKind::Empty) => {
            Some(format!("it takes a whole number, {least} or more"))
        }
        Some(IntErrorKind::PosOverflow) => {
            Some(format!("it takes a whole number from {least} to {}", u64::MAX))
        }
        _ if cause.is::<ParseFloatError>() => Some("it takes a number, such as 0.01".to_owned()),
        _ => cause.downcast_ref::<towers_augment::Error>().map(must_be),
    }
}

/// The accepted values of an augmentation error whose flag is known.
pub fn must_be(error: &towers_augment::Error) -> String {
    match error {
        towers_augment::Error::Option { accepted, .. } => format!("it must be {accepted}"),
        other => other.to_string(),
    }
}

/// Prints the error on stderr and returns the exit status.
pub fn report(error: &anyhow::Error) -> ExitCode {
    say(&LogLine::error(brief(sentence(error))));
    if let Some(hint) = hint(error) {
        say(&LogLine::hint(brief(hint)));
    }
    let bad_usage = error.is::<Usage>()
        || matches!(error.downcast_ref(), Some(towers_train::Error::OtherData(_)))
        || matches!(error.downcast_ref(), Some(towers_trained::Error::Option(_)))
        || matches!(error.downcast_ref(), Some(towers_runs::Error::Refused(_)))
        || of_augmentation(error).is_some_and(|error| !is_of_the_machine(error))
        || of_config(error).is_some_and(|error| {
            use towers_config::Error::{Cut, Moved, Optimizer, Option, Recipe};
            matches!(error, Option(_) | Recipe { .. } | Moved { .. } | Optimizer(_) | Cut(_))
        });
    if bad_usage { ExitCode::from(BAD_USAGE) } else { ExitCode::FAILURE }
}

/// The error about the configuration, data or network inside of `error`, if there is one.
fn of_config(error: &anyhow::Error) -> Option<&towers_config::Error> {
    match error.downcast_ref() {
        Some(towers_train::Error::Config(error)) => Some(error),
        _ => error.downcast_ref(),
    }
}

/// Whether the machine is the cause, such as its disk, and not the command line.
fn is_of_the_machine(error: &towers_augment::Error) -> bool {
    use towers_augment::Error;
    matches!(error, Error::Write { .. } | Error::Read { .. } | Error::Spawn { .. } | Error::Worker { .. })
}

/// The augmentation error inside of `error`, if there is one.
fn of_augmentation(error: &anyhow::Error) -> Option<&towers_augment::Error> {
    match (of_config(error), error.downcast_ref()) {
        (Some(towers_config::Error::Augment(error)), _)
        | (_, Some(towers_trained::Error::Augment(error))) => Some(error),
        _ => None,
    }
}

/// The error and its causes, with flags for options. A cause that the previous message already contains is left out.
pub fn sentence(error: &anyhow::Error) -> String {
    let (mut plain, mut text) = (String::new(), String::new());
    for cause in error.chain() {
        let own = cause.to_string();
        if plain.is_empty() || !plain.contains(&own) {
            let joint = if plain.is_empty() { "" } else { ": " };
            text = text + joint + &spelled(cause).unwrap_or_else(|| own.clone());
            plain = plain + joint + &own;
        }
    }
    text
}

/// The message of an error that has options in it, with their flags.
fn spelled(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let of_train = error.downcast_ref().map(towers_train::Error::message);
    let of_config = || error.downcast_ref().map(towers_config::Error::message);
    let of_trained = || error.downcast_ref().map(towers_trained::Error::message);
    let of_runs = || error.downcast_ref().map(towers_runs::Error::message);
    Some(of_train.or_else(of_config).or_else(of_trained).or_else(of_runs)?.spelled(flag_of))
}

/// A remedy, in terms of the command line.
fn hint(error: &anyhow::Error) -> Option<&'static str> {
    use cifar::Error::{NoSource, NotFound};
    if let Some(towers_config::Error::Fetch(NotFound { .. } | NoSource { .. })) = of_config(error) {
        return Some(
            "--data-dir DIR (or TOWERS_DATA_DIR) names the folder with the files or its parent, --data-url URL another \
             archive, --dataset DIR a folder of class folders with pictures; --dataset synthetic needs no files",
        );
    }
    match error.downcast_ref()? {
        towers_train::Error::Cuda(missing) if missing.lacks_gpu() => Some(
            "to compute on the CPU, give --device cpu in place of --gpus; for several replicas there, `towers train` has \
             --replicas N",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_for_which_nothing_is_something_are_there() {
        let command = <crate::args::Args as clap::CommandFactory>::command();
        let args: Vec<&clap::Arg> =
            command.get_subcommands().flat_map(clap::Command::get_arguments).collect();
        for flag in FROM_ZERO {
            assert!(args.iter().any(|arg| arg.get_long() == Some(&flag[2..])), "{flag}");
        }
    }

    /// A picture that goes missing during a run is no reason not to start the run again.
    #[test]
    fn a_picture_that_cannot_be_read_is_no_bad_usage() {
        let read = towers_augment::Error::Read { reason: "can't read a.png".to_owned() };
        assert_eq!(report(&towers_config::Error::Augment(read).into()), ExitCode::FAILURE);
        let flag = towers_augment::Error::NoWhitening;
        assert_eq!(report(&towers_config::Error::Augment(flag).into()), ExitCode::from(BAD_USAGE));
    }

    /// A layer may be called as an option is.
    #[test]
    fn names_of_layers_are_those_of_the_file() {
        use towers_config::Model;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.json");
        let layer = r#"{"class_name": "LSTM", "config": {"name": "random_crop"}}"#;
        let text = format!(r#"{{"class_name": "Sequential", "config": {{"layers": [{layer}]}}}}"#);
        std::fs::write(&file, text).unwrap();
        let config = towers_config::Config::default()
            .with(|config| config.training.model = file.display().to_string());
        let error = config.layers_file("".as_ref()).unwrap_err();
        assert!(sentence(&error.into()).contains("its layer `random_crop` is a LSTM"));

        let layers = "like = 'quick'\n[[layer]]\nclass = 'Rescaling'\nname = 'rescale'\nscale = 2.0\n\
                      [[layer]]\nclass = 'Flatten'\n[[layer]]\nclass = 'Dense'\n";
        let config = towers_config::read_recipe(layers, "mine").unwrap();
        let model: Model = config.network([8, 8, 3], 2).unwrap();
        let graph = model.graph();
        let cut = graph.cut_behind("rescal", model.logits()).unwrap_err();
        let told = sentence(&towers_config::Error::Cut(cut).into());
        assert!(told.starts_with("--split-at: the network can't be cut behind `rescal`: "), "{told}");
        let network = graph.cut_behind("epochs", model.logits()).unwrap_err();
        let told = sentence(&towers_config::Error::Network(network).into());
        assert!(told.starts_with("the network can't be cut behind `epochs`: "), "{told}");
    }

    #[test]
    fn no_cause_has_final_words_twice() {
        let io = || std::io::Error::other("the disk is full");
        let error = towers_train::Error::io("write", "a.csv".as_ref())(io());
        assert_eq!(sentence(&error.into()), "can't write a.csv: the disk is full");
        let context = anyhow::Error::from(io()).context("can't listen");
        assert_eq!(sentence(&context), "can't listen: the disk is full");
    }
}
