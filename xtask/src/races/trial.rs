//! Running the tests of a changed kernel.

use super::mutants::Mutant;
use crate::cargo;
use crate::workspace::Workspace;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The arguments of Cargo for the programs with tests of kernels.
pub const CARGO: [&str; 9] = [
    "test",
    "--package",
    "towers-tensor-cuda",
    "--features",
    "emulation",
    "--lib",
    "--test=kernels",
    "--test=conformance",
    "--no-fail-fast",
];
/// The tests in them that launch kernels of the emulation: parts of their names.
pub const EMULATED: [&str; 15] = [
    "emulated",
    "sliding::",
    "small_window::",
    "batch_norm::",
    "convolution::",
    "dropout::",
    "elementwise::",
    "emulation::",
    "far::",
    "optimizer::",
    "pooling::",
    "programs::",
    "replay::",
    "softmax::",
    "compute_copies::",
];

/// A kernel file, and the parts of tests' names that launch its kernels: in the programs `conformance`, `kernels` and `tensor_cuda`.
const TESTS: &[(&str, [&[&str]; 3])] = &[
    ("compute_copies.cu", [&["convolution", "dense"], &["convolution", "programs"], &["compute_copies"]]),
    ("channels.cu", [&["channels"], &[], &[]]),
    ("convolution.cu", [&["convolution", "dense"], &["convolution"], &[]]),
    ("dropout.cu", [&["dropout"], &["dropout"], &[]]),
    ("elementwise.cu", [&["elementwise"], &["elementwise"], &[]]),
    ("grouped.cu", [&["convolution"], &["convolution"], &[]]),
    ("images.cu", [&["images"], &["replay"], &[]]),
    ("normalization.cu", [&["normalization", "replicas"], &["batch_norm"], &[]]),
    ("group_norm.cu", [&["normalization"], &[], &[]]),
    ("optimizer.cu", [&["optimizers", "meter"], &["optimizer"], &[]]),
    ("rules.cu", [&["optimizers"], &["optimizer"], &[]]),
    ("pooling.cu", [&["pooling"], &["pooling"], &[]]),
    ("product.cuh", [&["convolution", "dense"], &["convolution"], &[]]),
    ("rows.cu", [&["dense", "convolution"], &["convolution", "programs"], &[]]),
    ("sliding.cu", [&["convolution"], &["convolution"], &["sliding"]]),
    ("small_window.cu", [&["convolution"], &["convolution"], &["small_window"]]),
    ("softmax.cu", [&["softmax"], &["softmax"], &[]]),
    ("towers.cuh", [&["softmax", "normalization"], &["batch_norm", "softmax"], &[]]),
];
const PROGRAMS: [&str; 3] = ["conformance", "kernels", "tensor_cuda"];
/// The formats in the names of conformance tests. Tensor cores have the most barriers, so they come first.
const FORMATS: [&str; 3] = ["emulated_bf16", "emulated_fp32", "emulated_fp16"];

/// How long tests may take: a mutant may loop for ever.
const PATIENCE: Duration = Duration::from_secs(180);

/// What became of a mutant.
pub enum Outcome {
    /// This made a test fail.
    Caught(String),
    /// The compiler said this.
    Refused(String),
    Survived,
}

/// The test programs, built.
pub struct Trial {
    programs: HashMap<String, PathBuf>,
    folder: PathBuf,
}

impl Trial {
    /// Builds the programs, and checks that the unchanged kernels of some files pass. That leaves their objects in the first
    /// bench's cache.
    pub fn prepare(workspace: &Workspace, files: &[&str]) -> Result<Trial> {
        let mut build = cargo::command(&workspace.root, &CARGO);
        build.args(["--no-run", "--message-format=json-render-diagnostics"]).stderr(Stdio::inherit());
        let output = build.output().context("Cargo does not start")?;
        ensure!(output.status.success(), "the tests of kernels can't be built");
        let mut programs = HashMap::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let message: Value = serde_json::from_str(line)?;
            if let (Some(name), Some(program)) =
                (message["target"]["name"].as_str(), message["executable"].as_str())
            {
                programs.insert(name.to_owned(), PathBuf::from(program));
            }
        }
        let trial = Trial { programs, folder: workspace.root.join("target/races") };
        let bench = trial.bench(0)?;
        for (file, tests) in TESTS.iter().filter(|(file, _)| files.contains(file)) {
            if let Outcome::Caught(what) | Outcome::Refused(what) = bench.test(tests)? {
                bail!("the tests of {file} fail before anything is changed: {what}");
            }
        }
        Ok(trial)
    }

    /// A place for one thread's mutants.
    pub fn bench(&self, worker: usize) -> Result<Bench<'_>> {
        let bench = Bench {
            trial: self,
            sources: self.folder.join(format!("sources-{worker}")),
            objects: self.folder.join(format!("objects-{worker}")),
        };
        fs::create_dir_all(&bench.sources)?;
        fs::create_dir_all(&bench.objects)?;
        for file in list(&bench.sources)? {
            fs::remove_file(file)?;
        }
        // A stopped compiler leaves a folder.
        let objects = list(&self.folder.join("objects-0"))?;
        for object in objects.into_iter().filter(|object| object.is_file()) {
            let copy = bench.objects.join(object.file_name().unwrap_or_default());
            if !copy.exists() {
                fs::copy(&object, &copy)?;
            }
        }
        Ok(bench)
    }
}

pub struct Bench<'a> {
    trial: &'a Trial,
    /// With the changed file.
    sources: PathBuf,
    objects: PathBuf,
}

impl Bench<'_> {
    /// Runs the tests of a mutant's file with it.
    pub fn run(&self, mutant: &Mutant) -> Result<Outcome> {
        let Some((_, tests)) = TESTS.iter().find(|(file, _)| *file == mutant.file) else {
            bail!("{} has mutants and no tests in the list of xtask/src/races/trial.rs", mutant.file);
        };
        let before = list(&self.objects)?;
        let source = self.sources.join(&mutant.file);
        fs::write(&source, &mutant.text)?;
        let outcome = self.test(tests)?;
        fs::remove_file(source)?;
        for object in list(&self.objects)?.into_iter().filter(|object| !before.contains(object)) {
            // A stopped compiler leaves a folder.
            if object.is_dir() { fs::remove_dir_all(object)? } else { fs::remove_file(object)? }
        }
        Ok(outcome)
    }

    /// Runs tests up to the first program in which one fails.
    fn test(&self, [conformance, kernels, library]: &[&[&str]; 3]) -> Result<Outcome> {
        let of_format = |format| conformance.iter().map(move |topic| format!("{format}::{topic}::"));
        let mut steps: Vec<(&str, Vec<String>)> =
            FORMATS.map(|format| (PROGRAMS[0], of_format(format).collect())).into();
        let of = |topics: &[&str]| topics.iter().map(|topic| format!("{topic}::")).collect();
        steps.insert(1, (PROGRAMS[2], of(library)));
        steps.push((PROGRAMS[1], of(kernels)));
        for (program, filters) in steps.into_iter().filter(|(_, filters)| !filters.is_empty()) {
            match self.run_program(program, &filters)? {
                Outcome::Survived => {}
                outcome => return Ok(outcome),
            }
        }
        Ok(Outcome::Survived)
    }

    fn run_program(&self, program: &str, filters: &[String]) -> Result<Outcome> {
        let path =
            self.trial.programs.get(program).with_context(|| format!("Cargo built no program {program}"))?;
        let log = self.sources.join("log");
        let out = File::create(&log)?;
        let mut child = Command::new(path)
            .args(filters)
            .args(["--test-threads=1", "--nocapture"])
            .env("TOWERS_EMULATION_SOURCES", &self.sources)
            .env("TOWERS_EMULATION_CACHE", &self.objects)
            .env("RUST_BACKTRACE", "0")
            .stderr(out.try_clone()?)
            .stdout(out)
            .spawn()?;
        let start = Instant::now();
        let (said, status) = loop {
            let status = child.try_wait()?;
            let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
            if let Some(status) = status {
                break (said, status);
            }
            // The first failure is enough.
            if said.contains("FAILED\n") || start.elapsed() > PATIENCE {
                child.kill()?;
                break (said, child.wait()?);
            }
            thread::sleep(Duration::from_millis(50));
        };
        ensure!(!said.contains("running 0 tests"), "{program} has no tests {}", filters.join(", "));
        if status.success() {
            return Ok(Outcome::Survived);
        }
        if let Some((_, error)) = said.split_once("does not compile for") {
            return Ok(Outcome::Refused(error.lines().take(10).collect::<Vec<_>>().join("\n")));
        }
        let ended =
            || if start.elapsed() > PATIENCE { "does not end".into() } else { format!("ends with {status}") };
        Ok(Outcome::Caught(reason(&said).unwrap_or_else(|| format!("{program}, which {}", ended()))))
    }
}

/// The failed test and, where the emulation found the mistake, its words.
fn reason(said: &str) -> Option<String> {
    let failed =
        said.split("test ").find(|part| part.ends_with("FAILED\n") || part.contains("FAILED\n\n"))?;
    let test = failed.split(' ').next()?;
    let marks = ["message: \"kernel ", "the emulated GPU: kernel "];
    let found = marks.iter().find_map(|mark| failed.split_once(mark)).map(|(_, rest)| rest);
    let words = found.and_then(|rest| rest.split([',', '"', '\n']).next());
    Some(words.map_or_else(|| test.to_owned(), |words| format!("{test} ({words})")))
}

fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

/// Without repetitions of neighbours.
pub fn unique<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let mut words = words.to_vec();
    words.dedup();
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_test_is_named_with_what_the_emulation_found() {
        let said = "running 2 tests\ntest a::c ... ok\ntest a::b ... \nit runs: Device { device: \"x\", message: \"kernel sums: a \
                    race in shared memory: thread 1 reads it in a.cu:3, and thread 0 writes it\" }\nFAILED\n";
        assert_eq!(
            reason(said).unwrap(),
            "a::b (sums: a race in shared memory: thread 1 reads it in a.cu:3)"
        );
        assert_eq!(reason("test a::c ... ok\ntest a::b ... 0.1 is not 0.2\nFAILED\n").unwrap(), "a::b");
        assert_eq!(reason("running 2 tests\n"), None);
    }
}
