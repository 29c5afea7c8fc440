//! Compiles kernel files by the host's C++ compiler into shared objects, which are kept on disk.

use super::error::error;
use crate::source::{HEADERS, Source};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, io, process};
use towers_program::Result;

/// The files of `emulation/`, by their names.
const SHIM: [(&str, &str); 7] = [
    ("copies.h", include_str!("../../../emulation/copies.h")),
    ("half.h", include_str!("../../../emulation/half.h")),
    ("launch.h", include_str!("../../../emulation/launch.h")),
    ("machine.h", include_str!("../../../emulation/machine.h")),
    ("races.h", include_str!("../../../emulation/races.h")),
    ("shim.h", include_str!("../../../emulation/shim.h")),
    ("warp.h", include_str!("../../../emulation/warp.h")),
];

/// The instrumentation of the thread sanitizer calls `races.h`, so the sanitizer's own library is left out.
const RACES: &str = "-fsanitize=thread";

/// No fused multiply-adds except explicit ones, and no strict aliasing, which kernels break for wide loads.
/// Warnings that no correct kernel causes are errors. So is a kernel that no list names, since it could not
/// be launched. Loops stay loops, since [`RACES`] does not see `memset` and `memcpy`. `-g1` gives the lines of a
/// race.
const FLAGS: &[&str] = &[
    "-std=c++17",
    "-O2",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fPIC",
    "-shared",
    "-fno-exceptions",
    "-nodefaultlibs",
    "-fno-tree-loop-distribute-patterns",
    "-g1",
    "-U_FORTIFY_SOURCE", // which takes a switch of stacks for damage
    "-DTOWERS_EMULATION",
    "-Werror=return-type",
    "-Werror=unused-function",
    "-Werror=overflow",
];

/// The compiler's command: `$CXX`, else `g++`.
fn command() -> String {
    env::var("CXX").ok().filter(|cxx| !cxx.is_empty()).unwrap_or_else(|| "g++".into())
}

/// The first line of the compiler's version.
///
/// # Errors
/// If there is no compiler, or the system is not Linux, for which the emulation is written.
pub(super) fn version() -> Result<&'static str> {
    static VERSION: OnceLock<Option<String>> = OnceLock::new();
    if !cfg!(target_os = "linux") {
        return Err(error("the emulation needs Linux"));
    }
    let version = VERSION.get_or_init(|| {
        let output = Command::new(command()).arg("--version").output().ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).lines().next().map(String::from))?
    });
    version.as_deref().ok_or_else(|| {
        error(format!(
            "the emulation needs a C++17 compiler, and `{}` does not run: install g++ or set CXX",
            command()
        ))
    })
}

/// A kernel file for a number format, and the place of its object.
pub(super) struct Unit {
    name: &'static str,
    format: &'static str,
    define: String,
    files: Vec<(&'static str, String)>,
    flags: Vec<&'static str>,
    path: PathBuf,
}

impl Unit {
    /// Whether races are found too: its accesses of memory then take several times as long.
    pub(super) fn new(source: &Source, (format, number): (&'static str, u32), races: bool) -> Result<Unit> {
        let define = format!("-DTOWERS_ACT={number}");
        let flags: Vec<&str> = FLAGS.iter().copied().chain(races.then_some(RACES)).collect();
        let fixed = SHIM.iter().chain(HEADERS).copied().chain([(source.name, source.text)]);
        let files: Vec<(&str, String)> = fixed
            .map(|(name, text)| (name, changed(name, text)))
            .chain([("unit.cpp", unit(source))])
            .collect();
        let path = folder().join(format!("{}-{format}-{}.so", source.name, key(&files, &flags, &define)?));
        Ok(Unit { name: source.name, format, define, files, flags, path })
    }

    /// The object's file, whether it is there or not.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Compiles it, unless it is on disk already.
    ///
    /// # Errors
    /// With the compiler's first lines, if it rejects the file.
    pub(super) fn build(&self) -> Result<()> {
        if self.path.exists() {
            return Ok(());
        }
        // One process compiles it, and the others wait. Without locks each compiles it, in its own folder, and the last one wins.
        let _lock = self.lock();
        if self.path.exists() {
            return Ok(());
        }
        let build = folder().join(format!("build-{}-{}", process::id(), number()));
        let done = self.compile(&build);
        // A file that stays does no harm.
        let _ = fs::remove_dir_all(&build);
        done
    }

    /// A file that is locked until it is dropped.
    fn lock(&self) -> io::Result<fs::File> {
        fs::create_dir_all(folder())?;
        let file = fs::File::create(self.path.with_extension("lock"))?;
        file.lock()?;
        Ok(file)
    }

    fn compile(&self, build: &Path) -> Result<()> {
        let put = |e: io::Error| error(format!("{} cannot be written: {e}", build.display()));
        fs::create_dir_all(build).map_err(put)?;
        for (name, text) in &self.files {
            fs::write(build.join(name), text).map_err(put)?;
        }
        // In that folder, so that messages show bare file names.
        let output = Command::new(command())
            .current_dir(build)
            .args(&self.flags)
            .args([&self.define, "unit.cpp", "-o", "unit.so", "-lc", "-lm", "-lgcc"])
            .output()
            .map_err(|e| error(format!("{} cannot be run: {e}", command())))?;
        if output.status.success() {
            return fs::rename(build.join("unit.so"), &self.path).map_err(put);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let first: Vec<&str> = said.lines().take(30).collect();
        Err(error(format!("{} does not compile for {}:\n{}", self.name, self.format, first.join("\n"))))
    }
}

/// The kernel file's line at a place in the code of an object, and those from which it was inlined. `None` without
/// binutils' `addr2line`.
pub(super) fn lines(object: &Path, place: &str) -> Option<String> {
    // A place is that behind a call: the call ends one byte before.
    let place = u64::from_str_radix(place.trim_start_matches("0x"), 16).ok()?.checked_sub(1)?;
    let mut command = Command::new("addr2line");
    let output = command
        .args(["--inlines", "--basenames", &format!("{place:#x}"), "--exe"])
        .arg(object)
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let lines = said.lines().map(|line| line.split(" (").next().unwrap_or(line));
    let lines: Vec<&str> = lines.filter(|line| line.contains(".cu")).collect();
    (!lines.is_empty()).then(|| lines.join(" < "))
}

/// The translation unit: the kernel file in an unnamed namespace, so that its inline functions and their
/// shared variables are private.
fn unit(source: &Source) -> String {
    let kernels: Vec<String> =
        source.kernels.iter().map(|name| format!("    TOWERS_KERNEL({name})\n")).collect();
    format!(
        "#include \"shim.h\"\nnamespace {{\n#include \"{}\"\n}}\n#include \"launch.h\"\nTOWERS_KERNELS(\n{})\n",
        source.name,
        kernels.concat()
    )
}

/// The text of a file, or of the one with its name in the folder `$TOWERS_EMULATION_SOURCES`: to try changed kernels without
/// building this crate.
fn changed(name: &str, text: &str) -> String {
    let there = env::var_os("TOWERS_EMULATION_SOURCES").map(|folder| Path::new(&folder).join(name));
    there.and_then(|file| fs::read_to_string(file).ok()).unwrap_or_else(|| text.into())
}

/// A digest of all inputs of an object.
fn key(files: &[(&str, String)], flags: &[&str], define: &str) -> Result<String> {
    let mut hash = Sha256::new();
    let flags = flags.iter().copied().chain([define, env::consts::ARCH, version()?]);
    for part in flags.chain(files.iter().flat_map(|(name, text)| [*name, text])) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    Ok(hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}

/// The folder of objects: `$TOWERS_EMULATION_CACHE`, else beside the running program, which is in Cargo's
/// target folder for a test. `cargo clean` empties it. A program elsewhere keeps no objects.
fn folder() -> PathBuf {
    if let Some(folder) = env::var_os("TOWERS_EMULATION_CACHE") {
        return folder.into();
    }
    let program = env::current_exe().unwrap_or_default();
    let target = program.ancestors().find(|folder| folder.join(".cargo-lock").exists());
    let alone = || env::temp_dir().join(format!("towers-emulation-{}", process::id()));
    target.map_or_else(alone, |target| target.join("emulation"))
}

/// A number that is unique in this process.
fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
