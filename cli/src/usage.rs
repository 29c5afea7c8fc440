//! Messages for command lines that clap refuses.

use crate::args::Args;
use crate::{elsewhere, short_help};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};

/// Measurements that were flags of `towers bench`.
const MEASUREMENTS: [&str; 3] = ["--profile", "--roofline", "--first-step"];

/// Flags with an optional value.
const WITH_EQUALS: [&str; 2] = ["--tta", "--backup-and-restore"];

/// Parses the command line of this process.
pub fn parse() -> Result<Args, clap::Error> {
    // A right command line needs neither help nor usages, which take most of the time.
    let plain = Args::command().args_override_self(true).try_get_matches();
    if let Ok(args) = plain.and_then(|mut matches| Args::from_arg_matches_mut(&mut matches)) {
        return Ok(args);
    }
    // clap has one form of help where no flag has two texts.
    let mut command = command(std::env::args_os().any(|word| word == "-h"));
    let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Args::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// The commands, each with the usage of its help: clap would list every given flag, and all conflicting ones.
/// The last one of a repeated flag counts, so that scripts can append flags. If `short`, the help of `train` is a selection.
fn command(short: bool) -> clap::Command {
    let mut built = Args::command();
    built.build();
    let command = match short {
        true => Args::command().mut_subcommand("train", short_help::shortened),
        false => Args::command(),
    };
    with_usage(command.args_override_self(true), &mut built)
}

/// The command with the usages of `built` for its commands.
fn with_usage(command: clap::Command, built: &mut clap::Command) -> clap::Command {
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        let Some(built) = built.find_subcommand_mut(&name) else { return command };
        let usage = built.render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").to_owned();
        command.mut_subcommand(name, |sub| with_usage(sub.override_usage(usage), built))
    })
}

/// Adds advice for flags and commands of other programs. Removes clap's suggestion if it is not similar to
/// the given word.
pub fn advised(mut error: clap::Error) -> clap::Error {
    let line: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(variable) = variable(&error, &line) {
        error.insert(ContextKind::InvalidArg, ContextValue::String(variable));
    }
    let advice = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::InvalidSubcommand, _) => {
            let name = line.get(1).map(String::as_str);
            let advice = name.and_then(elsewhere::command);
            if advice.is_some() {
                error.remove(ContextKind::SuggestedSubcommand);
            }
            advice.map(str::to_owned)
        }
        (ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) => {
            let near = match error.get(ContextKind::SuggestedArg) {
                Some(ContextValue::String(suggested)) => is_near(flag, suggested),
                _ => false,
            };
            let advice = advice(&line, flag, near);
            if !near || advice.is_some() {
                error.remove(ContextKind::SuggestedArg);
            }
            // A value after `--` is hardly ever meant.
            error.remove(ContextKind::Suggested);
            advice
        }
        (ErrorKind::InvalidValue, _) => {
            suggest_value(&mut error);
            None
        }
        _ => return error,
    };
    if let Some(advice) = advice {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
    }
    error
}

/// Suggests an accepted value; clap itself compares only letters.
fn suggest_value(error: &mut clap::Error) {
    let (Some(ContextValue::String(given)), Some(ContextValue::Strings(valid))) =
        (error.get(ContextKind::InvalidValue), error.get(ContextKind::ValidValue))
    else {
        return;
    };
    if let Some(near) = towers_options::nearest(given, valid.iter().map(String::as_str)).map(str::to_owned) {
        error.insert(ContextKind::SuggestedValue, ContextValue::String(near));
    }
}

/// The environment variable that gave the refused value, if the command line did not.
fn variable(error: &clap::Error, line: &[String]) -> Option<String> {
    let Some(ContextValue::String(refused)) = error.get(ContextKind::InvalidArg) else { return None };
    let flag = refused.split_once(' ').map_or(refused.as_str(), |(flag, _)| flag);
    let is_given = |word: &String| word.split_once('=').map_or(word.as_str(), |(given, _)| given) == flag;
    if line.iter().any(is_given) {
        return None;
    }
    let command = Args::command();
    let mut arguments = command.get_subcommands().flat_map(clap::Command::get_arguments);
    let of_flag = |long: &str| flag.strip_prefix("--") == Some(long);
    let argument = arguments
        .find(|argument| argument.get_env().is_some() && argument.get_long().is_some_and(of_flag))?;
    Some(argument.get_env()?.to_string_lossy().into_owned())
}

/// Advice for a word that the command does not take; `near` if it is probably a misspelt flag.
fn advice(line: &[String], word: &str, near: bool) -> Option<String> {
    let command = line.get(1)?;
    let before = line.iter().position(|other| other == word).and_then(|at| line.get(at.checked_sub(1)?));
    if let Some(flag) = before.filter(|flag| WITH_EQUALS.contains(&flag.as_str())) {
        return Some(format!("a value is joined to this flag: {flag}={word}"));
    }
    if command == "bench" && MEASUREMENTS.contains(&word) {
        return Some(format!("it is a command: towers bench {}", word.trim_start_matches('-')));
    }
    if command == "launch" && !near {
        let advice =
            "the command to start comes after `--`, as in towers launch --processes 2 -- train --quick";
        return Some(advice.to_owned());
    }
    elsewhere::flag(word).filter(|_| command == "train").map(str::to_owned)
}

/// Whether a flag is probably a misspelling of another one, or a part or extension of it.
fn is_near(flag: &str, suggested: &str) -> bool {
    let [flag, suggested] = [flag, suggested].map(|flag| flag.trim_start_matches('-'));
    flag.contains(suggested)
        || suggested.contains(flag)
        || towers_options::nearest(flag, [suggested]).is_some()
}
