//! `cargo xtask test`: every check and every test, the cheapest first, up to the first failure.
//!
//! All steps share one target folder and the `dev` profile. So from a cold start the dependencies are checked
//! once (clippy, each crate alone, docs) and compiled once (tests, documentation tests).

use crate::failure::Failure;
use crate::tally::Tally;
use crate::workspace::Workspace;
use crate::{cargo, import, kernels, tidy};
use anyhow::Result;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// The name of a step, and its body.
type Step = (&'static str, fn(&Workspace, &mut Tally) -> Result<()>);

const STEPS: &[Step] = &[
    ("fmt", |workspace, _| cargo(workspace, &["fmt", "--all", "--check"])),
    ("tidy", |workspace, _| tidy::rules(workspace)),
    ("clippy", clippy),
    ("alone", tidy::alone),
    ("frameworks", frameworks),
    ("docs", docs),
    ("kernels", kernels::step),
    ("tests", tests),
    ("doctests", doctests),
    ("mpi", mpi),
    ("cuda", cuda),
    ("arm", arm),
    ("windows", windows),
    ("package", package),
    ("import", import::step),
];

/// The steps that run only when they are named: they compile much of the workspace again, with other features
/// or for another processor or system.
const ON_REQUEST: &[&str] =
    &["alone", "frameworks", "kernels", "mpi", "cuda", "arm", "windows", "package", "import"];

/// The names of the steps, in their order.
pub fn step_names() -> Vec<&'static str> {
    STEPS.iter().map(|(name, _)| *name).collect()
}

/// Runs all steps, or those that `names` lists, and ends with a table and the sum of the tests.
///
/// A step that fails without a failed test, by a compile error or a crash, counts as one failure.
pub fn run(workspace: &Workspace, names: &[String]) -> Result<ExitCode, Failure> {
    let steps = select(names).map_err(Failure::Usage)?;
    let (mut tally, start) = (Tally::default(), Instant::now());
    let mut table = format!("{:<10}{:>8}{:>10}\n", "step", "result", "seconds");
    let mut failure = None;
    for (name, body) in steps {
        println!("\n== {name}");
        let (failed_before, start) = (tally.failed, Instant::now());
        let outcome = body(workspace, &mut tally);
        let result = if outcome.is_ok() { "ok" } else { "FAILED" };
        table += &format!("{name:<10}{result:>8}{:>10.1}\n", start.elapsed().as_secs_f64());
        if let Err(error) = outcome {
            tally.failed = tally.failed.max(failed_before + 1);
            failure = Some((name, error));
            break;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("\n{table}{:<18}{seconds:>10.1}\n\n{}{tally}", "total", tally.skips());
    let Some((name, error)) = failure else { return Ok(ExitCode::SUCCESS) };
    eprintln!("error: {name} failed: {error:#}\nhint: `cargo xtask test {name}` runs this step alone");
    Ok(ExitCode::FAILURE)
}

fn select(names: &[String]) -> Result<Vec<&'static Step>, String> {
    if let Some(unknown) = names.iter().find(|name| !step_names().contains(&name.as_str())) {
        return Err(format!("`test` has no step `{unknown}`; it has {}", step_names().join(", ")));
    }
    let selected = |name: &str| match names {
        [] => !ON_REQUEST.contains(&name),
        names => names.iter().any(|named| named == name),
    };
    Ok(STEPS.iter().filter(|(name, _)| selected(name)).collect())
}

fn cargo(workspace: &Workspace, arguments: &[&str]) -> Result<()> {
    cargo::run(&mut cargo::command(&workspace.root, arguments))
}

fn clippy(workspace: &Workspace, _: &mut Tally) -> Result<()> {
    cargo(workspace, &["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"])
}

fn docs(workspace: &Workspace, _: &mut Tally) -> Result<()> {
    let mut command = cargo::command(&workspace.root, &["doc", "--workspace", "--no-deps"]);
    cargo::run(command.env("RUSTDOCFLAGS", "--deny warnings"))
}

/// Unit and integration tests, and examples. Every test program runs, even if one before it fails.
///
/// Cargo runs one program after the other, and many tests wait: for processes, for a lock, for a time-out. So two
/// halves run at a time, each with as many tests as there are processors, and others compute meanwhile.
fn tests(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let mut of = vec!["test", "--workspace", "--no-fail-fast"];
    let compiler = std::env::var("CXX").ok().filter(|cxx| !cxx.is_empty()).unwrap_or_else(|| "g++".into());
    if cfg!(target_os = "linux") && !starts(&compiler) {
        tally.skip(&format!(
            "the crate tensor-cuda: its tests want a C++ compiler, and `{compiler}` does not run"
        ));
        of.extend(["--exclude", "towers-tensor-cuda"]);
    }
    cargo(workspace, &[&of[..], &["--tests", "--no-run"]].concat())?;
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = format!("--test-threads={processors}");
    let half = |targets: &[&str]| {
        let arguments = [&of[..], targets, &["--", "--show-output", &threads]].concat();
        cargo::command(&workspace.root, &arguments)
    };
    let tested = workspace.crates.iter().filter(|krate| !of.contains(&krate.name.as_str()));
    let examples: Vec<&str> =
        tested.flat_map(|krate| &krate.examples).flat_map(|name| ["--example", name]).collect();
    let others = [&["--lib", "--bins", "--test", "[!a-d]*"], &examples[..]].concat();
    tally.run_both(&mut half(&["--test", "[a-d]*"]), &mut half(&others))
}

fn doctests(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let arguments = ["test", "--workspace", "--no-fail-fast", "--doc", "--", "--show-output"];
    tally.run(&mut cargo::command(&workspace.root, &arguments))
}

/// Networks of other frameworks learn from batches of our crates. The test says so where no registry can be reached.
fn frameworks(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let test = "outside::other_frameworks_train_on_our_batches";
    let arguments = ["test", "-p", "towers-tests", "--test", "end_to_end", "--", "--exact", "--ignored"];
    let arguments = [&arguments[..], &["--show-output", test]].concat();
    let passed_before = tally.passed;
    tally.run(&mut cargo::command(&workspace.root, &arguments))?;
    anyhow::ensure!(tally.passed > passed_before, "there is no test `{test}`");
    Ok(())
}

/// The tests of several processes, once under each MPI that can be had here: those of the Python package
/// index, and the one of the machine.
fn mpi(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let mut folders = kernels::fetch(workspace, "mpi", tally)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = std::env::split_paths(&path).find(|folder| folder.join("mpiexec").exists());
    folders.extend(own.and_then(|bin| Some(bin.parent()?.to_owned())));
    for folder in folders {
        println!("under {}", folder.display());
        // Jobs take turns: each has several processes.
        let path = [folder.join("bin")].into_iter().chain(std::env::split_paths(&path));
        let path = std::env::join_paths(path)?;
        for tests in
            [&["--workspace", "--test", "mpi", "--"][..], &["-p", "towers", "--test", "cli", "--", "by_mpi"]]
        {
            let tests = [&["test", "--no-fail-fast"], tests, &["--show-output", "--test-threads=1"]].concat();
            let mut command = cargo::command(&workspace.root, &tests);
            command.env("PATH", &path);
            // As root, as in a container, Open MPI asks for both.
            for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
                command.env(name, "1");
            }
            tally.run(&mut command)?;
        }
    }
    Ok(())
}

/// Compares the declarations of CUDA's libraries with their headers, and calls the libraries without a GPU: once
/// with the oldest that are supported, and once with new ones.
fn cuda(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    for generation in ["oldest-cuda", "newest-cuda"] {
        let skipped = tally.skipped;
        let folders = kernels::fetch(workspace, generation, tally)?;
        if tally.skipped > skipped {
            continue;
        }
        let inside = |name: &str| {
            let folders = folders.iter().map(|folder| folder.join(name)).filter(|folder| folder.is_dir());
            std::env::join_paths(folders)
        };
        let tests = ["headers::", "nccl::installed", "understands_the_descriptors", "nvrtc_compiles"];
        let arguments = ["test", "-p", "towers-tensor-cuda", "--lib", "--", "--show-output"];
        let mut command = cargo::command(&workspace.root, &[&arguments[..], &tests].concat());
        tally.run(
            command.env("LD_LIBRARY_PATH", inside("lib")?).env("TOWERS_TEST_CUDA", inside("include")?),
        )?;
    }
    Ok(())
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
            tally.skip(&format!("this step wants {install}"));
            return Ok(());
        }
        let mut command =
            cargo::command(&workspace.root, &[&["test", "--target", target], arguments].concat());
        let variable =
            |what: &str| format!("CARGO_TARGET_{}_{what}", target.replace('-', "_").to_ascii_uppercase());
        command.env(variable("LINKER"), linker).env(variable("RUNNER"), runner);
        tally.run(&mut command)
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
    arm.test(workspace, &["--package", "towers-tensor-cpu", "--tests", "--", "--show-output"], tally)
}

/// All tests on Windows, as Wine has it (8.13 or newer: older ones lack a library of every Rust program), but
/// for those that start Cargo, which is no Windows program there.
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

/// Every published crate is packed, and built from its package with the others' packages. It asks the
/// registry: a package of the same name there must not be taken for ours. Cargo keeps the sources of packages
/// by their folder and would build with older ones, so each run has a new folder.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_selected_by_name_and_keep_their_order() {
        let names = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            select(&words).map(|steps| steps.iter().map(|(name, _)| *name).collect::<Vec<_>>())
        };
        let by_default = ["fmt", "tidy", "clippy", "docs", "tests", "doctests"];
        assert_eq!(names(&[]).unwrap(), by_default);
        assert_eq!(names(&["mpi"]).unwrap(), ["mpi"]);
        assert_eq!(names(&["docs", "fmt"]).unwrap(), ["fmt", "docs"]);
        assert!(names(&["lint"]).unwrap_err().contains("clippy"));
    }
}
