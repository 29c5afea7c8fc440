//! What is said of a command line that clap refuses.

use crate::args::Args;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};

/// Flags that there are elsewhere under a name that nothing here resembles, and what does the same.
const ELSEWHERE: [(&str, &[&str], &str); 3] = [
    (
        "train",
        &["--model", "--network", "--arch"],
        "a network comes with its recipe: give --recipe NAME; `towers recipes` lists them",
    ),
    (
        "train",
        &["--weight-decay", "--wd", "--l2"],
        "it is an option of the optimizer, as in --optimizer sgd:weight-decay=5e-4",
    ),
    (
        "train",
        &["--nesterov"],
        "it is an option of the optimizer, as in --optimizer sgd:momentum=0.9,nesterov",
    ),
];

/// The command line of this process.
pub fn parse() -> Result<Args, clap::Error> {
    let mut command = command();
    let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Args::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// The commands, each with the usage that its help shows. By itself clap would list every flag that was given, and all that they
/// exclude.
fn command() -> clap::Command {
    let mut built = Args::command();
    built.build();
    let names: Vec<String> = Args::command().get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.into_iter().fold(Args::command(), |command, name| {
        let usage = built.find_subcommand_mut(&name).map(|sub| sub.render_usage().to_string());
        let usage = usage.unwrap_or_default();
        let usage = usage.trim_start_matches("Usage: ").to_owned();
        command.mut_subcommand(name, |sub| sub.override_usage(usage))
    })
}

/// The error with advice of ours for a flag that is known elsewhere, and without that of clap where it is far from what was given.
pub fn advised(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return error };
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let command = std::env::args().nth(1).unwrap_or_default();
    let known = |(of, flags, _): &&(&str, &[&str], &str)| *of == command && flags.contains(&flag.as_str());
    let advice = ELSEWHERE.iter().find(known).map(|(_, _, advice)| (*advice).to_owned());
    let far = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(suggested)) => !is_near(flag, suggested),
        _ => false,
    };
    if far || advice.is_some() {
        error.remove(ContextKind::SuggestedArg);
    }
    if let Some(advice) = advice {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
    }
    error
}

/// Whether a flag is probably a misspelt other one, or part of it, or more of it.
fn is_near(flag: &str, suggested: &str) -> bool {
    let [flag, suggested] = [flag, suggested].map(|flag| flag.trim_start_matches('-'));
    flag.contains(suggested) || suggested.contains(flag) || !train::did_you_mean(flag, [suggested]).is_empty()
}
