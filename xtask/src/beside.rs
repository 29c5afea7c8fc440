//! `cargo xtask beside NAME=COMMAND...`: measures several programs alternately.
//!
//! A machine's speed drifts, so two speeds are worth comparing only when they were taken one right after the
//! other: every round runs each command once. A command prints a JSON object with `images_per_s` and
//! `peak_rss_mb` as the last line of its output, as `towers bench --json` does. Each object is shown with the
//! name and the round.

use crate::cargo;
use crate::failure::Failure;
use crate::workspace::Workspace;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::process::{Command, ExitCode, Stdio};

/// The command line: the number of rounds, and the commands with their names.
type Options<'a> = (usize, Vec<(&'a str, &'a str)>);

/// Runs all rounds, then prints the medians and how many times as fast the first command was.
pub fn run(_: &Workspace, arguments: &[String]) -> Result<ExitCode, Failure> {
    let (rounds, commands) = parse(arguments).map_err(Failure::Usage)?;
    let mut results = vec![Vec::new(); commands.len()];
    for round in 1..=rounds {
        for (results, (name, line)) in results.iter_mut().zip(&commands) {
            let mut result = measure(line).with_context(|| (*name).to_owned())?;
            result["name"] = json!(name);
            result["round"] = json!(round);
            println!("{result}");
            let number = |key: &str| result[key].as_f64().unwrap_or(f64::NAN);
            results.push((number("images_per_s"), number("peak_rss_mb")));
        }
    }
    for ((name, _), of_command) in commands.iter().zip(&results) {
        println!("{}", row(name, &results[0], of_command));
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a command and reads the last line of its output.
fn measure(line: &str) -> Result<Value> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().context("the command is empty")?);
    command.args(words).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("`{}` does not start", cargo::show(&command)))?;
    ensure!(output.status.success(), "`{line}` ended with {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    let result: Value = serde_json::from_str(last).with_context(|| format!("`{line}` printed `{last}`"))?;
    ensure!(result["images_per_s"].is_number(), "`{line}` printed no images_per_s");
    Ok(result)
}

/// The median speed, the largest memory, and the first command's speed over this one's, round by round.
fn row(name: &str, first: &[(f64, f64)], of_command: &[(f64, f64)]) -> String {
    let mut speeds: Vec<f64> = of_command.iter().map(|result| result.0).collect();
    speeds.sort_by(f64::total_cmp);
    let median = (speeds[(speeds.len() - 1) / 2] + speeds[speeds.len() / 2]) / 2.0;
    let memory = of_command.iter().fold(0.0_f64, |most, result| most.max(result.1));
    let ratios = first.iter().zip(of_command).map(|(first, this)| format!("{:.2}", first.0 / this.0));
    format!("| {name} | {median:.1} ({memory:.0} MB) | {} |", ratios.collect::<Vec<_>>().join(", "))
}

fn parse(arguments: &[String]) -> Result<Options<'_>, String> {
    let (rounds, commands) = match arguments {
        [flag, rounds, commands @ ..] if flag == "--rounds" => (rounds.parse().unwrap_or(0), commands),
        commands => (3, commands),
    };
    let commands: Option<Vec<_>> = commands.iter().map(|command| command.split_once('=')).collect();
    let named = |commands: &Vec<(&str, &str)>| !commands.is_empty() && !commands[0].0.starts_with('-');
    match commands.filter(named) {
        Some(commands) if rounds > 0 => Ok((rounds, commands)),
        _ => Err("`beside` needs commands as NAME=COMMAND, after `--rounds N` if not 3".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_names() {
        let parsed = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            parse(&words).map(|(rounds, commands)| (rounds, commands.len(), commands[0].1.to_owned()))
        };
        assert_eq!(parsed(&["a=x --batch=2", "b=y"]).unwrap(), (3, 2, "x --batch=2".to_owned()));
        assert_eq!(parsed(&["--rounds", "1", "a=x"]).unwrap(), (1, 1, "x".to_owned()));
        for bad in [&[][..], &["x"], &["--rounds", "0", "a=x"], &["--seconds=2", "a=x"]] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn rows_have_medians_and_ratios() {
        let row = row("torch", &[(10.0, 5.0), (30.0, 5.0)], &[(5.0, 6.0), (10.0, 7.0)]);
        assert_eq!(row, "| torch | 7.5 (7 MB) | 2.00, 3.00 |");
    }
}
