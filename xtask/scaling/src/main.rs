//! `cargo xtask scaling`: predicts the step time of data-parallel training on 1 to 4096 GPUs.
//!
//! What goes in: the time of every layer, measured by `towers bench --profile --json` on one device; the bytes of gradients
//! that each layer leaves; and links with a bandwidth and a latency, which are assumptions with their sources in `link.rs`.
//! What comes out is a prediction and is called one: `docs/scaling.md` says what the model leaves out.
//!
//! It depends on none of our crates: the profile is a file, or the output of `towers`, which is built for it.

#![forbid(unsafe_code)]

#[path = "../../src/cargo_again.rs"]
mod cargo_again;
mod chart;
mod fabric;
mod link;
mod model;
mod options;
mod profile;
mod report;
mod schedule;
mod straggler;
mod sweep;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use model::Model;
use options::Options;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let model = load(options)?;
    let question = options.question(&model)?;
    let rows = sweep::sweep(&model, &question);
    print(&report::page(&model, &question, &rows))?;
    if let Some(folder) = &options.output {
        fs::create_dir_all(folder).with_context(|| format!("can't make the folder {}", folder.display()))?;
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("can't write {}", path.display()))
        };
        write("scaling.jsonl", &report::json_lines(&model, &rows)?)?;
        write("scaling.svg", &chart::svg(&model, &question, &rows)?)?;
        print(&format!("\nWrote scaling.jsonl and scaling.svg into {}\n", folder.display()))?;
    }
    Ok(())
}

/// Prints to stdout; a reader that has gone, as in `... | head`, is no error.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("can't write to standard output")
        }
        _ => Ok(()),
    }
}

/// The measured times: from files, or from a run of `towers` now.
fn load(options: &Options) -> Result<Model> {
    let texts = match &options.profile[..] {
        [] => vec![profile::measure(&options.recipe, options.threads)?],
        paths => {
            let read = |path| fs::read_to_string(path).with_context(|| format!("can't read {path:?}"));
            paths.iter().map(read).collect::<Result<_>>()?
        }
    };
    let profiles = texts.iter().map(|text| profile::parse(text)).collect::<Result<Vec<_>>>()?;
    Model::new(&profiles, options.fixed, options.speed)
}
