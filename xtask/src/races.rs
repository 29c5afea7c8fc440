//! `cargo xtask races`: the tests in which the emulated GPU looks for races, and with `--mutants` proof that they find them.

mod mutants;
mod trial;

use crate::cargo;
use crate::failure::Failure;
use crate::tally::Tally;
use crate::workspace::Workspace;
use anyhow::{Context as _, Result, bail};
use mutants::Mutant;
use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use std::{fs, thread};
use trial::{Bench, Outcome, Trial};

/// The page that explains the mutants that no test catches.
const PAGE: &str = "docs/testing.md";
const KERNELS: &str = "crates/tensor-cuda/kernels";

/// Runs all tests of kernels on the emulated GPU; or with `--mutants` the tests of each mutant of the named
/// files, or of all.
pub fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, Failure> {
    match arguments.split_first() {
        None => {
            let mut tests = cargo::command(&workspace.root, &trial::CARGO);
            tests.args(["--", "--show-output"]).args(trial::EMULATED);
            let mut tally = Tally::default();
            tally.run(&mut tests)?;
            println!("{tally}");
            Ok(ExitCode::SUCCESS)
        }
        Some((flag, files)) if flag == "--mutants" => try_mutants(workspace, files),
        Some((word, _)) => {
            Err(Failure::Usage(format!("`races` has no `{word}`; it has `--mutants [FILE...]`")))
        }
    }
}

fn try_mutants(workspace: &Workspace, files: &[String]) -> Result<ExitCode, Failure> {
    let start = Instant::now();
    let all = read_mutants(workspace)?;
    if let Some(unknown) = files.iter().find(|file| !all.iter().any(|mutant| mutant.file == **file)) {
        let known: Vec<&str> = all.iter().map(|mutant| mutant.file.as_str()).collect();
        return Err(Failure::Usage(format!(
            "no mutant is of `{unknown}`, but of {}",
            trial::unique(&known).join(", ")
        )));
    }
    let chosen: Vec<Mutant> =
        all.into_iter().filter(|mutant| files.is_empty() || files.contains(&mutant.file)).collect();
    let count = chosen.len();
    let page = fs::read_to_string(workspace.root.join(PAGE)).context("the page can't be read")?;
    let survivors = survivors(workspace, chosen)?;
    let (explained, others): (Vec<&Mutant>, Vec<&Mutant>) =
        survivors.iter().partition(|mutant| mutant.is_explained(&page));
    explained.iter().for_each(|mutant| println!("explained: {mutant}"));
    others.iter().for_each(|mutant| println!("survives: {mutant}"));
    println!(
        "{} of {count} mutants are caught; {PAGE} explains {} of the others; {:.0} s",
        count - survivors.len(),
        explained.len(),
        start.elapsed().as_secs_f64()
    );
    Ok(if others.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read_mutants(workspace: &Workspace) -> Result<Vec<Mutant>> {
    let folder = workspace.root.join(KERNELS);
    let mut names: Vec<String> = fs::read_dir(&folder)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names.sort();
    let mut all = Vec::new();
    for name in names {
        all.extend(mutants::of(&name, &fs::read_to_string(folder.join(&name))?));
    }
    Ok(all)
}

/// Tries the mutants on all processors, and returns those that no test catches.
fn survivors(workspace: &Workspace, mutants: Vec<Mutant>) -> Result<Vec<Mutant>> {
    let files: Vec<&str> = mutants.iter().map(|mutant| mutant.file.as_str()).collect();
    let trial = Trial::prepare(workspace, &files)?;
    let threads = thread::available_parallelism().map_or(1, |n| n.get());
    let benches = (0..threads).map(|number| trial.bench(number)).collect::<Result<Vec<Bench>>>()?;
    let (queue, survivors) = (Mutex::new(VecDeque::from(mutants)), Mutex::new(Vec::new()));
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = |bench: &Bench| -> Result<()> {
        while let Some(mutant) = next() {
            match bench.run(&mutant)? {
                Outcome::Caught(by) => println!("caught: {mutant}, by {by}"),
                Outcome::Refused(why) => bail!("{mutant} does not compile:\n{why}"),
                Outcome::Survived => {
                    println!("not caught: {mutant}");
                    survivors.lock().unwrap_or_else(PoisonError::into_inner).push(mutant);
                }
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = benches.iter().map(|bench| scope.spawn(|| work(bench))).collect();
        let ended =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| bail!("a thread panicked")));
        ended.collect::<Result<()>>()
    })?;
    Ok(survivors.into_inner().unwrap_or_else(PoisonError::into_inner))
}
