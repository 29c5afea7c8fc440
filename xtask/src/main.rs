//! Developer commands of the towers workspace: `cargo xtask COMMAND`.
//!
//! This is the first program that a newcomer compiles, so it has two small dependencies, reads its
//! arguments by hand and depends on no other crate of the workspace. It needs Cargo, Git, and for `golden`
//! Python; it needs no network but for the compiler that `kernels` fetches once, no data and no GPU.

#![forbid(unsafe_code)]

mod beside;
mod book_links;
mod cargo;
mod cuda_libraries;
mod golden;
mod gpu;
mod kernels;
mod scaling;
mod tally;
mod test;
mod tidy;
mod train_cifar;
mod workspace;

use std::process::ExitCode;
use workspace::Workspace;

/// Why a command ended without success; the exit status says which.
enum Failure {
    /// The command line can't be understood: exit status 2.
    Usage(String),
    /// The command was understood and did not succeed: exit status 1.
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::Failed(error.into())
    }
}

/// A command: its name, its arguments for the help page, what it does in one line, and its body.
struct Command {
    name: &'static str,
    arguments: &'static str,
    summary: &'static str,
    run: fn(&Workspace, &[String]) -> Result<ExitCode, Failure>,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "train-cifar",
        arguments: "[FLAGS]",
        summary: "build towers for release and run `towers train FLAGS`; begin with --quick",
        run: train_cifar::run,
    },
    Command {
        name: "test",
        arguments: "[STEP...]",
        summary: "every check and every test, the cheapest first; or the named steps alone",
        run: test::run,
    },
    Command {
        name: "tidy",
        arguments: "",
        summary: "the rules of the house: dependency arrows, file lengths, links, ...",
        run: tidy::run,
    },
    Command {
        name: "kernels",
        arguments: "[FILE...]",
        summary: "compile every CUDA kernel without a GPU; registers, memory and spills",
        run: kernels::run,
    },
    Command {
        name: "golden",
        arguments: "[--python PATH] [NAME...]",
        summary: "make the golden values of tests/golden anew, then show what changed",
        run: golden::run,
    },
    Command {
        name: "scaling",
        arguments: "--profile FILE [FLAGS]",
        summary: "predict training on many GPUs from measured layer times",
        run: scaling::run,
    },
    Command {
        name: "beside",
        arguments: "[FLAGS] [NAME=COMMAND...]",
        summary: "measure `towers bench` and peers in turns",
        run: beside::run,
    },
    Command {
        name: "book-links",
        arguments: "",
        summary: "what mdBook runs for links out of `docs`",
        run: book_links::run,
    },
    Command {
        name: "gpu",
        arguments: "[FOLDER]",
        summary: "a bundle of programs for a machine with a GPU and no Rust",
        run: gpu::run,
    },
];

/// The names of all commands.
fn command_names() -> Vec<&'static str> {
    COMMANDS.iter().map(|command| command.name).collect()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = match std::env::args_os().skip(1).map(|word| word.into_string()).collect() {
        Ok(words) => words,
        Err(word) => return usage(&format!("the argument {} is not UTF-8", word.display())),
    };
    let Some((name, rest)) = arguments.split_first() else {
        print!("{}", help());
        return ExitCode::SUCCESS;
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        print!("{}", help());
        return ExitCode::SUCCESS;
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return usage(&format!("there is no command `{name}`{}", meant(name)));
    };
    // That one has a page of its own.
    if command.name != "train-cifar" && rest.iter().any(|word| word == "--help" || word == "-h") {
        print!("{}", help());
        return ExitCode::SUCCESS;
    }
    let outcome =
        Workspace::load().map_err(Failure::from).and_then(|workspace| (command.run)(&workspace, rest));
    match outcome {
        Ok(status) => status,
        Err(Failure::Usage(what)) => usage(&what),
        Err(Failure::Failed(error)) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What was probably meant by a command that there is not: a step of `test`, or a command that is nearly called so.
fn meant(name: &str) -> String {
    if test::step_names().contains(&name) {
        return format!("; it is a step of `test`: `cargo xtask test {name}`");
    }
    let begins = |known: &str| name.len() > 2 && (known.starts_with(name) || name.starts_with(known));
    let near = command_names().into_iter().find(|known| begins(known) || distance(known, name) <= 2);
    near.map_or_else(String::new, |known| format!("; did you mean `{known}`?"))
}

/// How many letters have to be put in, taken out or changed to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, y) in b.chars().enumerate() {
            let change = before + usize::from(x != y);
            before = row[j + 1];
            row[j + 1] = change.min(before + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

/// Says what is wrong with the command line and how to learn more.
fn usage(what: &str) -> ExitCode {
    eprintln!("error: {what}\nhint: `cargo xtask --help` lists the commands");
    ExitCode::from(2)
}

fn help() -> String {
    let mut page =
        String::from("Developer commands of the towers workspace\n\nUsage: cargo xtask COMMAND\n\n");
    let heads: Vec<String> = COMMANDS.iter().map(|c| format!("{} {}", c.name, c.arguments)).collect();
    let width = heads.iter().map(String::len).max().unwrap_or(0);
    for (head, command) in heads.iter().zip(COMMANDS) {
        page += &format!("  {head:width$}  {}\n", command.summary);
    }
    page += &format!("\nSteps of `test`: {}\n", test::step_names().join(", "));
    page += "Flags of `train-cifar`: `cargo xtask train-cifar --help`\n";
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_told() {
        assert_eq!(meant("train"), "; did you mean `train-cifar`?");
        assert_eq!(meant("tset"), "; did you mean `test`?");
        assert_eq!(meant("tidi"), "; did you mean `tidy`?");
        assert_eq!(meant("clippy"), "; it is a step of `test`: `cargo xtask test clippy`");
        assert_eq!(meant("deploy-all") + &meant("--quick"), "");
        assert_eq!((distance("", "abc"), distance("kitten", "sitting"), distance("same", "same")), (3, 3, 0));
    }

    #[test]
    fn the_help_page_names_every_command_on_one_line() {
        let page = help();
        for command in COMMANDS {
            let line = page.lines().find(|line| line.trim_start().starts_with(command.name)).unwrap();
            assert!(line.ends_with(command.summary));
            assert!(line.len() <= 110, "{line}");
        }
    }
}
