//! `towers completions` and `towers man`: made from the declarations of all flags.

use crate::args::{Args, CompletionsArgs, ManArgs};
use crate::error::usage;
use crate::print;
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, CommandFactory, ValueHint};
use std::process::ExitCode;
use towers_config::tables;
use towers_options::Kind;

/// Prints a script that completes command lines.
pub fn run(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut with_values(Args::command()), "towers", &mut script);
    print::text(&String::from_utf8_lossy(&script))
}

/// Prints a manual page.
pub fn man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let mut command = Args::command();
    command.build();
    let command = match &args.command {
        None => command,
        Some(name) => {
            let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
            let unknown = || {
                let (known, hint) = (names.join(", "), towers_options::hint(name, names.iter().copied()));
                usage(format!("there is no command `{name}`; there are {known}{hint}"))
            };
            command.find_subcommand(name).cloned().ok_or_else(unknown)?
        }
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    print::text(&String::from_utf8_lossy(&page))
}

/// Adds the values of flags, which are otherwise read and refused by the table of options.
fn with_values(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, |sub| with_values(sub.mut_args(with_value)))
    })
}

fn with_value(arg: Arg) -> Arg {
    let flag = arg.get_long().map(|long| format!("--{long}"));
    let mut options = tables().iter().flat_map(|table| table.options);
    let kind =
        options.find(|option| option.flag() == flag.as_deref() && flag.is_some()).map(|option| option.kind);
    let value = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    match (kind, value.as_deref().unwrap_or_default()) {
        (Some(Kind::OneOf(words)), _) => arg.value_parser(PossibleValuesParser::new(words)),
        (_, "DIR") => arg.value_hint(ValueHint::DirPath),
        (_, value) if ["FILE", "PATH", "RUN", "DIR"].iter().any(|path| value.contains(path)) => {
            arg.value_hint(ValueHint::AnyPath)
        }
        _ => arg,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap_complete::Shell;

    #[test]
    fn every_shell_completes_flags_and_their_values() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell, Shell::Elvish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut with_values(Args::command()), "towers", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("early-stop") && script.contains("evaluate"), "{shell}");
            // The scripts for PowerShell and Elvish list no values.
            if [Shell::Bash, Shell::Zsh, Shell::Fish].contains(&shell) {
                assert!(script.contains("bf16") && script.contains("grayscale"), "{shell}");
            }
        }
    }
}
