//! `cargo xtask test`: every check and every test, the cheapest first, up to the first failure.
//!
//! All steps share one target folder and the `dev` profile, so from a cold start the dependencies are
//! checked once (clippy, each crate alone, docs) and compiled once (tests, documentation tests).

use crate::tally::{Reader, Tally};
use crate::workspace::Workspace;
use crate::{Failure, cargo, kernels, tidy};
use anyhow::{Context as _, Result, bail};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// A step: the name that selects it on the command line, and its body.
struct Step {
    name: &'static str,
    run: fn(&Workspace, &mut Tally) -> Result<()>,
    /// It runs tests, and counts them.
    counts: bool,
    /// It runs only when it is named.
    on_request: bool,
}

impl Step {
    const fn check(name: &'static str, run: fn(&Workspace, &mut Tally) -> Result<()>) -> Self {
        Step { name, run, counts: false, on_request: false }
    }

    const fn tests(name: &'static str, run: fn(&Workspace, &mut Tally) -> Result<()>) -> Self {
        Step { counts: true, ..Step::check(name, run) }
    }

    const fn on_request(self) -> Self {
        Step { on_request: true, ..self }
    }
}

/// Those on request compile much of the workspace again, with other features or for another processor or system.
const STEPS: &[Step] = &[
    Step::check("fmt", |workspace, _| cargo(workspace, &["fmt", "--all", "--check"])),
    Step::check("tidy", |workspace, _| tidy::rules(workspace)),
    Step::check("clippy", clippy),
    Step::tests("alone", tidy::alone).on_request(),
    Step::check("docs", docs),
    Step::tests("kernels", kernels::step),
    Step::tests("tests", tests),
    Step::tests("doctests", doctests),
    Step::tests("mpi", mpi).on_request(),
    Step::tests("arm", arm).on_request(),
    Step::tests("windows", windows).on_request(),
    Step::check("package", package).on_request(),
];

/// The names of the steps, in their order.
pub fn step_names() -> Vec<&'static str> {
    STEPS.iter().map(|step| step.name).collect()
}

/// Runs all steps, or those that `names` lists, and ends with a table and the sum of the tests.
pub fn run(workspace: &Workspace, names: &[String]) -> Result<ExitCode, Failure> {
    let steps = select(names).map_err(Failure::Usage)?;
    let mut tally = None;
    let mut times = Vec::new();
    let mut failure = None;
    for step in steps {
        println!("\n== {}", step.name);
        let start = Instant::now();
        let mut counted = Tally::default();
        let outcome = (step.run)(workspace, &mut counted);
        times.push((step.name, start.elapsed(), outcome.is_ok()));
        if step.counts {
            tally = Some(add(tally.unwrap_or_default(), counted, outcome.is_ok()));
        }
        if let Err(error) = outcome {
            failure = Some((step.name, error));
            break;
        }
    }
    print!("\n{}", table(&times));
    if let Some(tally) = tally {
        if tally.ignored > 0 {
            println!("{} ignored tests were not run", tally.ignored);
        }
        println!("{tally}");
    }
    let Some((name, error)) = failure else { return Ok(ExitCode::SUCCESS) };
    eprintln!("error: {name} failed: {error:#}\nhint: `cargo xtask test {name}` runs this step alone");
    Ok(ExitCode::FAILURE)
}

fn select(names: &[String]) -> Result<Vec<&'static Step>, String> {
    if let Some(unknown) = names.iter().find(|name| !step_names().contains(&name.as_str())) {
        return Err(format!("`test` has no step `{unknown}`; it has {}", step_names().join(", ")));
    }
    let by_default = |step: &Step| names.is_empty() && !step.on_request;
    let named = |step: &Step| names.iter().any(|name| name == step.name);
    Ok(STEPS.iter().filter(|step| by_default(step) || named(step)).collect())
}

/// Adds a step's count to the sum. A step that fails without a failed test (a compile error, a crash of a
/// test program) counts as one failure, so that the sum can't look like success.
fn add(sum: Tally, step: Tally, succeeded: bool) -> Tally {
    let unseen = u64::from(!succeeded && step.failed == 0);
    Tally {
        passed: sum.passed + step.passed,
        failed: sum.failed + step.failed + unseen,
        ignored: sum.ignored + step.ignored,
        skipped: sum.skipped + step.skipped,
    }
}

fn table(times: &[(&str, Duration, bool)]) -> String {
    let mut table = format!("{:<10}{:>8}{:>10}\n", "step", "result", "seconds");
    for (name, time, succeeded) in times {
        let result = if *succeeded { "ok" } else { "FAILED" };
        table += &format!("{name:<10}{result:>8}{:>10.1}\n", time.as_secs_f64());
    }
    let total: Duration = times.iter().map(|(_, time, _)| *time).sum();
    table + &format!("{:<10}{:>8}{:>10.1}\n", "total", "", total.as_secs_f64())
}

fn cargo(workspace: &Workspace, arguments: &[&str]) -> Result<()> {
    cargo::run(&mut cargo::command(workspace, arguments))
}

fn clippy(workspace: &Workspace, _: &mut Tally) -> Result<()> {
    cargo(workspace, &["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"])
}

fn docs(workspace: &Workspace, _: &mut Tally) -> Result<()> {
    let mut command = cargo::command(workspace, &["doc", "--workspace", "--no-deps"]);
    cargo::run(command.env("RUSTDOCFLAGS", "--deny warnings"))
}

/// Unit and integration tests. Every test program runs, even if one before it fails.
///
/// Some tests wait for other processes or for time-outs: twice as many tests as processors run at a time, so that others
/// compute meanwhile.
fn tests(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = format!("--test-threads={}", 2 * processors);
    let mut arguments = vec!["test", "--workspace", "--no-fail-fast", "--tests"];
    let compiler = std::env::var("CXX").ok().filter(|cxx| !cxx.is_empty()).unwrap_or_else(|| "g++".into());
    if cfg!(target_os = "linux") && !starts(&compiler) {
        skip(
            tally,
            &format!("the crate tensor-cuda: its tests want a C++ compiler, and `{compiler}` does not run"),
        );
        arguments.extend(["--exclude", "tensor-cuda"]);
    }
    arguments.extend(["--", "--show-output", &threads]);
    counted(&mut cargo::command(workspace, &arguments), tally)
}

fn doctests(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let arguments = ["test", "--workspace", "--no-fail-fast", "--doc", "--", "--show-output"];
    counted(&mut cargo::command(workspace, &arguments), tally)
}

/// What is built with MPI alone, where there is an MPI to build with. Of the workspace only the crates that know the feature
/// are compiled again.
fn mpi(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    if !starts("mpicc") {
        skip(tally, "there is no mpicc; `.ci/install-mpi` installs Open MPI on Debian");
        return Ok(());
    }
    // With the whole workspace selected its dependencies have the features of the other steps, and are not built again.
    let packages = ["--workspace", "--features", "parallel/mpi,towers-tests/mpi"];
    let clippy = [&["clippy"][..], &packages, &["--all-targets", "--", "--deny", "warnings"]].concat();
    cargo(workspace, &clippy)?;
    // Jobs take turns: each has several processes.
    let tests = ["--no-fail-fast", "--test", "mpi", "--", "--show-output", "--test-threads=1"];
    let test = [&["test"][..], &packages, &tests].concat();
    counted(&mut cargo::command(workspace, &test), tally)
}

/// A system that this one can compile for, and whose programs something runs here.
struct Foreign {
    target: &'static str,
    linker: &'static str,
    /// The program that runs the tests, with its options.
    runner: &'static str,
    /// What Debian installs for it.
    packages: &'static str,
}

impl Foreign {
    /// Runs `cargo test` with these arguments for that system, where there are compiler, linker and runner.
    fn test(&self, workspace: &Workspace, arguments: &[&str], tally: &mut Tally) -> Result<()> {
        let Foreign { target, linker, runner, packages } = self;
        let program = runner.split(' ').next().unwrap_or_default();
        let library = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
        let has_library =
            library.is_ok_and(|out| Path::new(String::from_utf8_lossy(&out.stdout).trim()).is_dir());
        if !has_library || !starts(linker) || !starts(program) {
            let install =
                format!("`rustup target add {target}` and, on Debian, `apt-get install {packages}`");
            skip(tally, &format!("this step wants {install}"));
            return Ok(());
        }
        let mut command = cargo::command(workspace, &[&["test", "--target", target], arguments].concat());
        let variable =
            |what: &str| format!("CARGO_TARGET_{}_{what}", target.replace('-', "_").to_ascii_uppercase());
        command.env(variable("LINKER"), linker).env(variable("RUNNER"), runner);
        counted(&mut command, tally)
    }
}

/// The CPU backend on a 64-bit Arm processor that QEMU emulates.
fn arm(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let arm = Foreign {
        target: "aarch64-unknown-linux-gnu",
        linker: "aarch64-linux-gnu-gcc",
        runner: "qemu-aarch64-static -L /usr/aarch64-linux-gnu",
        packages: "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static",
    };
    arm.test(workspace, &["--package", "tensor-cpu", "--tests", "--", "--show-output"], tally)
}

/// All tests on Windows, as Wine has it (8.13 or newer: older ones lack a library of every Rust program), but for those that start
/// Cargo, which is no Windows program there.
fn windows(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let windows = Foreign {
        target: "x86_64-pc-windows-gnu",
        linker: "x86_64-w64-mingw32-gcc",
        runner: "wine",
        packages: "gcc-mingw-w64-x86-64 wine",
    };
    let selected = ["--workspace", "--exclude", "xtask", "--no-fail-fast", "--tests"];
    let of_programs = ["--", "--show-output", "--skip", "outside::"];
    windows.test(workspace, &[&selected[..], &of_programs].concat(), tally)
}

/// Every published crate is packed, and built from its package with the others' packages. Asks the registry, since what lies there
/// under the name of one of ours must not be taken for it. Cargo keeps the sources of packages by the folder that they were packed in,
/// and would build with those of an earlier time: so each run has a folder of its own.
fn package(workspace: &Workspace, _: &mut Tally) -> Result<()> {
    let kept = workspace.crates.iter().filter(|krate| !krate.published);
    let folder = workspace.root.join(format!("target/package-{}", std::process::id()));
    let target = folder.display().to_string();
    let mut arguments = vec!["package", "--workspace", "--target-dir", &target];
    kept.for_each(|krate| arguments.extend(["--exclude", &krate.name]));
    let packed = cargo(workspace, &arguments);
    // What is left over is in the way of nothing but room.
    let _ = std::fs::remove_dir_all(&folder);
    packed
}

/// Whether a program is on this machine.
fn starts(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Says why a step does not run here, and counts it.
fn skip(tally: &mut Tally, why: &str) {
    println!("SKIPPED: {why}");
    tally.skipped += 1;
}

/// Runs a command that tests, passing its output on line by line while counting.
pub fn counted(command: &mut Command, tally: &mut Tally) -> Result<()> {
    let shown = cargo::show(command);
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("`{shown}` does not start"))?;
    let mut lines = BufReader::new(child.stdout.take().context("the child's output is not piped")?);
    let (mut reader, mut bytes) = (Reader::default(), Vec::new());
    while lines.read_until(b'\n', &mut bytes)? > 0 {
        let line = String::from_utf8_lossy(&bytes);
        if reader.line(line.trim_end_matches(['\n', '\r'])) {
            std::io::stdout().write_all(line.as_bytes())?;
        }
        bytes.clear();
    }
    *tally = add(*tally, reader.tally, true);
    let status = child.wait()?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_selected_by_name_and_keep_their_order() {
        let names = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            select(&words).map(|steps| steps.iter().map(|step| step.name).collect::<Vec<_>>())
        };
        let by_default = ["fmt", "tidy", "clippy", "docs", "kernels", "tests", "doctests"];
        assert_eq!(names(&[]).unwrap(), by_default);
        assert_eq!(names(&["mpi"]).unwrap(), ["mpi"]);
        assert_eq!(names(&["docs", "fmt"]).unwrap(), ["fmt", "docs"]);
        assert!(names(&["lint"]).unwrap_err().contains("clippy"));
    }

    #[test]
    fn a_crash_counts_as_a_failure() {
        let counted = Tally { passed: 3, ..Tally::default() };
        assert_eq!(add(Tally::default(), counted, false).failed, 1);
        assert_eq!(add(counted, counted, true), Tally { passed: 6, ..Tally::default() });
        let failed = Tally { failed: 2, ..counted };
        assert_eq!(add(counted, failed, false), Tally { passed: 6, ..failed });
    }

    #[test]
    fn the_table_has_a_row_a_step_and_the_total() {
        let times = [("fmt", Duration::from_millis(1500), true), ("tidy", Duration::from_secs(1), false)];
        let table = table(&times);
        assert_eq!(table.lines().count(), 4);
        assert!(table.contains("FAILED") && table.ends_with("2.5\n"), "{table}");
    }
}
