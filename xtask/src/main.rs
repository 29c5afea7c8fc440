//! Developer commands of the towers workspace: `cargo xtask COMMAND`.
//!
//! This is the first program that a newcomer compiles. So it has two small dependencies, reads its arguments
//! by hand, and depends on no other crate of the workspace. It needs Cargo, Git, and for `golden` Python. It
//! needs no data and no GPU, and a network only for the compiler that `kernels` fetches once.

#![forbid(unsafe_code)]

mod beside;
mod book_links;
mod cargo;
mod cuda_libraries;
mod failure;
mod golden;
mod gpu;
mod import;
mod kernels;
mod races;
mod scaling;
mod tally;
mod test;
mod tidy;
mod train_cifar;
mod workspace;

use failure::Failure;
use std::process::ExitCode;
use workspace::Workspace;

/// A command: its name, its arguments for the help page, its purpose in one line, and its function.
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
        arguments: "[--cycles]",
        summary: "arrows between crates, cycles of modules, links, traces of machines",
        run: tidy::run,
    },
    Command {
        name: "kernels",
        arguments: "[FILE...]",
        summary: "compile every CUDA kernel without a GPU; registers, memory, instructions",
        run: kernels::run,
    },
    Command {
        name: "races",
        arguments: "[--mutants [FILE...]]",
        summary: "look for races in every CUDA kernel, or in mutants of them",
        run: races::run,
    },
    Command {
        name: "golden",
        arguments: "[--python PATH] [NAME...]",
        summary: "make the golden values of tests/golden again, then show the changes",
        run: golden::run,
    },
    Command {
        name: "scaling",
        arguments: "FLAGS",
        summary: "predict training on many GPUs from measured layer times",
        run: scaling::run,
    },
    Command {
        name: "beside",
        arguments: "[FLAGS] NAME=COMMAND...",
        summary: "measure programs alternately: `towers bench --json` and others",
        run: beside::run,
    },
    Command {
        name: "book-links",
        arguments: "",
        summary: "the preprocessor of mdBook for links out of `docs`",
        run: book_links::run,
    },
    Command {
        name: "gpu",
        arguments: "[FOLDER]",
        summary: "a bundle of programs for a machine with a GPU and no Rust",
        run: gpu::run,
    },
];

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
    // `train-cifar` passes it on to `towers train`.
    if command.name != "train-cifar" && rest.iter().any(|word| word == "--help" || word == "-h") {
        print!("{}", help());
        return ExitCode::SUCCESS;
    }
    let outcome = match Workspace::load() {
        Ok(workspace) => (command.run)(&workspace, rest),
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(status) => status,
        Err(Failure::Usage(what)) => usage(&what),
        Err(Failure::Failed(error)) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The hint after an unknown command: a step of `test`, or a command that begins so.
fn meant(name: &str) -> String {
    if test::step_names().contains(&name) {
        return format!("; it is a step of `test`: `cargo xtask test {name}`");
    }
    let known = COMMANDS.iter().find(|command| command.name.starts_with(name));
    known.map_or_else(String::new, |command| format!("; did you mean `{}`?", command.name))
}

/// Prints the error of the command line and the way to the help page.
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
    fn unknown_commands_get_a_hint() {
        assert_eq!(meant("train"), "; did you mean `train-cifar`?");
        assert_eq!(meant("clippy"), "; it is a step of `test`: `cargo xtask test clippy`");
        assert_eq!(meant("deploy-all"), "");
    }

    #[test]
    fn the_help_page_names_every_command_on_one_line() {
        let page = help();
        for command in COMMANDS {
            let line = page.lines().find(|line| line.trim_start().starts_with(command.name)).unwrap();
            assert!(line.ends_with(command.summary) && line.len() <= 110, "{line}");
        }
    }

    /// Whether other commands of the pages work is for `cli/tests/cli/pages.rs` to find out, by running them.
    #[test]
    fn every_command_that_a_page_shows_exists() {
        let files = tidy::Files::load(&Workspace::load().unwrap().root).unwrap();
        for (page, text) in files.texts(".md") {
            for line in text.lines().filter_map(|line| line.trim_start().strip_prefix("cargo xtask ")) {
                let mut words = line.split('#').next().unwrap().split_whitespace();
                let name = words.next().unwrap();
                let known = name == "COMMAND" || COMMANDS.iter().any(|command| command.name == name);
                assert!(known, "{page}: there is no command `{name}`");
                let steps = test::step_names();
                let known = name != "test" || words.all(|step| steps.contains(&step));
                assert!(known, "{page}: `cargo xtask {line}` names a step that `test` does not have");
            }
        }
    }
}
