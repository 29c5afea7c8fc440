//! `cargo xtask beside`: measures `towers bench` and other programs in turns, on the same networks, modes and batches.
//!
//! A machine's speed drifts, so two figures are worth comparing only when they were taken one right after the other: every round
//! runs ours and each peer once. A peer is a command that prints a JSON object with `images_per_s` and `peak_rss_mb` as the last
//! line of its output. Each object is appended to a file as a line, with the peer's name and the round.

use crate::cargo;
use crate::failure::Failure;
use crate::workspace::Workspace;
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

/// How the tables and the lines call our program.
const OURS: &str = "towers";

/// What the command line asks for.
#[derive(Debug, PartialEq)]
struct Options {
    rounds: usize,
    seconds: f64,
    ours: PathBuf,
    /// The arithmetic of ours.
    precision: String,
    /// A program that runs each command, one that waits for a quiet machine, say.
    under: Vec<String>,
    cases: Vec<Case>,
    output: Option<PathBuf>,
    /// Names and commands, in which `{model}`, `{mode}`, `{batch}` and `{seconds}` are replaced.
    peers: Vec<(String, String)>,
}

/// What is measured: `minigooglenet:train:64`.
#[derive(Clone, Debug, PartialEq)]
struct Case {
    model: String,
    mode: String,
    batch: usize,
}

/// What one run gave.
struct Measured {
    case: usize,
    name: String,
    images_per_s: f64,
    peak_rss_mb: f64,
}

/// Runs all rounds of each case, then prints medians and ratios.
pub fn run(_workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, Failure> {
    let options = parse(arguments).map_err(Failure::Usage)?;
    let mut all = Vec::new();
    for (number, case) in options.cases.iter().enumerate() {
        for round in 1..=options.rounds {
            for (name, words) in commands(&options, case) {
                match measure(&options, &words) {
                    Ok(mut result) => {
                        result["name"] = json!(name);
                        result["round"] = json!(round);
                        keep(&options, &result)?;
                        let number_of = |key: &str| result[key].as_f64().unwrap_or(f64::NAN);
                        let (images_per_s, peak_rss_mb) =
                            (number_of("images_per_s"), number_of("peak_rss_mb"));
                        all.push(Measured { case: number, name, images_per_s, peak_rss_mb });
                    }
                    // A long series goes on without the one that failed.
                    Err(error) => eprintln!("{name}, {}: {error:#}", show(case)),
                }
            }
        }
    }
    print!("{}", table(&options, &all));
    Ok(ExitCode::SUCCESS)
}

/// Our command and the peers' for one case.
fn commands(options: &Options, case: &Case) -> Vec<(String, Vec<String>)> {
    let words = |line: &str| line.split_whitespace().map(|word| fill(word, case, options.seconds)).collect();
    let recipe = case.model.replace('_', "-");
    let flags = format!(
        "bench --recipe {recipe} --mode {{mode}} --batch {{batch}} --precision {} --seconds {{seconds}} --repeats 1 --json",
        options.precision
    );
    let mut ours: Vec<String> = vec![options.ours.to_string_lossy().into_owned()];
    ours.extend::<Vec<String>>(words(&flags));
    let peers = options.peers.iter().map(|(name, line)| (name.clone(), words(line)));
    [(OURS.to_owned(), ours)].into_iter().chain(peers).collect()
}

fn fill(word: &str, case: &Case, seconds: f64) -> String {
    word.replace("{model}", &case.model)
        .replace("{mode}", &case.mode)
        .replace("{batch}", &case.batch.to_string())
        .replace("{seconds}", &seconds.to_string())
}

/// Runs a command and reads the last line of its output.
fn measure(options: &Options, words: &[String]) -> Result<Value> {
    let mut all = options.under.iter().chain(words);
    let mut command = Command::new(all.next().context("the command is empty")?);
    command.args(all).stdin(Stdio::null()).stderr(Stdio::inherit());
    let shown = cargo::show(&command);
    let output = command.output().with_context(|| format!("`{shown}` does not start"))?;
    if !output.status.success() {
        bail!("`{shown}` ended with {}", output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    let result: Value = serde_json::from_str(last).with_context(|| format!("`{shown}` printed `{last}`"))?;
    if !result["images_per_s"].is_number() {
        bail!("`{shown}` printed no images_per_s");
    }
    Ok(result)
}

/// Shows a line, and appends it to the file: what was measured stays when a later run is interrupted.
fn keep(options: &Options, result: &Value) -> Result<()> {
    println!("{result}");
    let Some(path) = &options.output else { return Ok(()) };
    let written = || format!("{} can't be written", path.display());
    let mut file = OpenOptions::new().create(true).append(true).open(path).with_context(written)?;
    writeln!(file, "{result}").with_context(written)
}

/// A row a case: medians with memory, and our speed over each peer's, round by round.
fn table(options: &Options, all: &[Measured]) -> String {
    let mut text = String::new();
    for (number, case) in options.cases.iter().enumerate() {
        let of = |name: &str| all.iter().filter(|m| m.case == number && m.name == name).collect::<Vec<_>>();
        let ours = of(OURS);
        let mut row = format!("| {} | {} ", show(case), cell(&ours));
        for (name, _) in &options.peers {
            let theirs = of(name);
            let ratios =
                ours.iter().zip(&theirs).map(|(a, b)| format!("{:.2}", a.images_per_s / b.images_per_s));
            let ratios: Vec<String> = ratios.collect();
            row += &format!("| {} | {} ", cell(&theirs), ratios.join(", "));
        }
        text += &(row + "|\n");
    }
    let names: Vec<String> = options.peers.iter().map(|(name, _)| format!("| {name} | ratios ")).collect();
    let rule = "| --- ".repeat(2 + 2 * options.peers.len());
    format!("\n| network, mode, batch | {OURS} {}|\n{rule}|\n{text}", names.concat())
}

/// The median speed and the largest memory.
fn cell(of: &[&Measured]) -> String {
    let mut speeds: Vec<f64> = of.iter().map(|m| m.images_per_s).collect();
    speeds.sort_by(f64::total_cmp);
    let Some(&upper) = speeds.get(speeds.len() / 2) else { return "none".to_owned() };
    let median = (speeds[(speeds.len() - 1) / 2] + upper) / 2.0;
    let memory = of.iter().fold(0.0_f64, |most, m| most.max(m.peak_rss_mb));
    format!("{median:.1} ({memory:.0} MB)")
}

fn show(case: &Case) -> String {
    format!("`{}`, {}, {}", case.model, case.mode, case.batch)
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        rounds: 3,
        seconds: 5.0,
        ours: PathBuf::from("target/release/towers"),
        precision: "fp32".to_owned(),
        under: Vec::new(),
        cases: Vec::new(),
        output: None,
        peers: Vec::new(),
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("`{word}` needs a value"));
        match word.as_str() {
            "--rounds" => options.rounds = number(word, value()?)?,
            "--seconds" => options.seconds = number(word, value()?)?,
            "--ours" => options.ours = value()?.into(),
            "--precision" => options.precision = value()?.to_owned(),
            "--under" => options.under = value()?.split_whitespace().map(str::to_owned).collect(),
            "--output" => options.output = Some(value()?.into()),
            "--case" => options.cases.push(case(value()?)?),
            peer => match peer.split_once('=') {
                Some((name, line)) if !name.starts_with('-') => {
                    options.peers.push((name.to_owned(), line.to_owned()));
                }
                _ => return Err(format!("`beside` has no flag `{peer}`; a peer is NAME=COMMAND")),
            },
        }
    }
    if options.cases.is_empty() {
        return Err("`beside` needs a `--case MODEL:MODE:BATCH`, such as keras_cnn:train:128".to_owned());
    }
    Ok(options)
}

fn number<T: std::str::FromStr>(flag: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("`{flag}` is `{value}`, but must be a number"))
}

fn case(text: &str) -> Result<Case, String> {
    let refuse =
        || format!("`--case` is `{text}`, but must be MODEL:MODE:BATCH, such as keras_cnn:train:128");
    let [model, mode, batch] = text.split(':').collect::<Vec<_>>()[..] else { return Err(refuse()) };
    let batch = batch.parse().map_err(|_| refuse())?;
    match mode {
        "train" | "infer" => Ok(Case { model: model.to_owned(), mode: mode.to_owned(), batch }),
        _ => Err(refuse()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Result<Options, String> {
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn commands_are_filled_in() {
        let peer = "torch=python bench.py {model} --mode {mode} --batch {batch} --seconds {seconds}";
        let options = options(&[
            "--case",
            "keras_cnn:infer:8",
            "--seconds",
            "2",
            "--ours",
            "t",
            "--precision",
            "bf16",
            peer,
        ])
        .unwrap();
        let commands = commands(&options, &options.cases[0]);
        let lines: Vec<String> = commands.iter().map(|(_, words)| words.join(" ")).collect();
        assert_eq!(
            lines,
            [
                "t bench --recipe keras-cnn --mode infer --batch 8 --precision bf16 --seconds 2 --repeats 1 --json",
                "python bench.py keras_cnn --mode infer --batch 8 --seconds 2",
            ]
        );
        assert_eq!(commands[1].0, "torch");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for words in
            [&["--case", "a:b:1"][..], &["--case", "a:train:x"], &["--rounds", "x"], &["--cases"], &[]]
        {
            assert!(options(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn tables_have_medians_and_ratios() {
        let options = options(&["--case", "m:train:1", "torch=x"]).unwrap();
        let of = |name: &str, images_per_s| Measured {
            case: 0,
            name: name.into(),
            images_per_s,
            peak_rss_mb: 5.0,
        };
        let all = [of(OURS, 10.0), of("torch", 5.0), of(OURS, 30.0), of("torch", 10.0)];
        let table = table(&options, &all);
        assert!(table.contains("| `m`, train, 1 | 20.0 (5 MB) | 7.5 (5 MB) | 2.00, 3.00 |"), "{table}");
    }
}
