//! Functions, constants and structures, compared with NVIDIA's headers by the C++ compiler.
//!
//! `cargo xtask test cuda` fetches the oldest headers and libraries that are supported and new ones, and starts
//! these tests once with each: `TOWERS_TEST_CUDA` holds the folders with headers, as `PATH` does.

mod calls;

use crate::libraries::{self, libraries};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the headers say, by expression.
type Facts = BTreeMap<String, String>;

/// What stands before the headers.
const SMALL_FLOATS: &str = r#"
// Small floats, which calls name by pointers alone. Their headers need one more package.
#define __CUDA_FP16_H__
#define __CUDA_BF16_H__
#define __CUDA_FP8_H__
struct __half;
struct __nv_bfloat16;
"#;

/// Prints the type of each function and the value of each number.
const BEGIN: &str = r#"
#include <cxxabi.h>
#include <stddef.h>
#include <stdio.h>
#include <typeinfo>
#include <cuda.h>
#include <nvrtc.h>
#include <cublasLt.h>
#include <cudnn.h>
#include <nccl.h>
template <class T> const char* type() { return abi::__cxa_demangle(typeid(T).name(), nullptr, nullptr, nullptr); }
#define FUNCTION(name) printf("%s\t%s\n", #name, type<decltype(name)>());
#define NUMBER(what) printf("%s\t%lld\n", #what, (long long)(what));
int main() {
"#;

/// What the compiler makes of the headers in these folders; `None`, which is said, without a compiler.
fn facts(folders: &str) -> Option<Facts> {
    let functions = calls::functions().into_iter().map(|(name, _)| format!("FUNCTION({name})\n"));
    let numbers = [calls::constants(), calls::layouts()].concat();
    let numbers = numbers.into_iter().map(|(what, _)| format!("NUMBER(({what}))\n"));
    let text = format!("{SMALL_FLOATS}{BEGIN}{}}}\n", functions.chain(numbers).collect::<String>());
    let folder = tempfile::tempdir().unwrap();
    let [source, program] = ["facts.cpp", "facts"].map(|name| folder.path().join(name));
    std::fs::write(&source, text).unwrap();
    compile(folders, &[source.as_os_str(), "-o".as_ref(), program.as_os_str()])?;
    let printed = Command::new(program).output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    let fact = |line: &str| line.split_once('\t').map(|(what, is)| (what.to_owned(), is.to_owned()));
    Some(printed.lines().filter_map(fact).collect())
}

/// Compiles with these headers; `None`, which is said, without a compiler.
fn compile(folders: &str, arguments: &[&OsStr]) -> Option<()> {
    let compiler = std::env::var("CXX").ok().filter(|cxx| !cxx.is_empty()).unwrap_or_else(|| "g++".into());
    let mut command = Command::new(&compiler);
    command.args(["-std=c++17", "-w", "-O0"]).args(arguments);
    for folder in std::env::split_paths(folders) {
        command.arg("-I").arg(folder);
    }
    let Ok(output) = command.output() else {
        println!("SKIPPED: NVIDIA's headers: `{compiler}` does not start");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

/// The folders of headers, if `cargo xtask test cuda` started this.
fn folders() -> Option<String> {
    let folders = std::env::var("TOWERS_TEST_CUDA").ok();
    if folders.is_none() {
        println!("SKIPPED: NVIDIA's headers and libraries: `cargo xtask test cuda` fetches them");
    }
    folders
}

/// A function's type as the C++ compiler would print it: `int (char*, unsigned int)`. Integers of 8 bytes have one
/// name, for C has several.
fn in_c(rust: &str) -> String {
    let signature = rust.strip_prefix("unsafe fn(").unwrap();
    let (arguments, result) = signature.rsplit_once(')').unwrap();
    let arguments: Vec<String> = arguments.split(", ").filter(|one| !one.is_empty()).map(type_in_c).collect();
    let result = result.strip_prefix(" -> ").map_or("void".into(), type_in_c);
    format!("{result} ({})", arguments.join(", "))
}

fn type_in_c(rust: &str) -> String {
    if let Some(to) = rust.strip_prefix("*mut ") {
        return type_in_c(to) + "*";
    }
    if let Some(to) = rust.strip_prefix("*const ") {
        return type_in_c(to) + " const*";
    }
    let name = match rust.rsplit("::").next().unwrap_or(rust) {
        "()" | "c_void" => "void",
        "i8" => "char",
        "i32" => "int",
        "u32" => "unsigned int",
        "u64" | "usize" => "8 bytes",
        "i64" => "long",
        "u8" => "unsigned char",
        "f32" => "float",
        name => name,
    };
    without_version(name).into()
}

/// NCCL numbers its settings by the version that last added to their end.
fn without_version(name: &str) -> &str {
    if name.starts_with("ncclConfig_v") { "ncclConfig" } else { name }
}

fn with_one_name(c: &str) -> String {
    let c = c.replace("unsigned long long", "8 bytes").replace("unsigned long", "8 bytes");
    // The version has five digits.
    let settings = c.find("ncclConfig_v").map(|at| (at + "ncclConfig".len(), at + "ncclConfig_v22700".len()));
    settings.map_or(c.clone(), |(from, to)| c[..from].to_owned() + &c[to..])
}

#[test]
fn functions_constants_and_structures_are_those_of_the_headers() {
    let Some(facts) = folders().and_then(|folders| facts(&folders)) else { return };
    let functions = calls::functions().into_iter().map(|(name, rust)| (name.to_owned(), in_c(rust)));
    let numbers = [calls::constants(), calls::layouts()].concat();
    let numbers = numbers.into_iter().map(|(what, value)| (format!("({what})"), value.to_string()));
    let mut others = Vec::new();
    let ours: Facts = functions.chain(numbers).collect();
    for (what, ours) in &ours {
        let theirs = facts.get(what).map_or("nothing".into(), |theirs| with_one_name(theirs));
        if theirs != *ours {
            others.push(format!("{what} is {theirs} in the header, and {ours} here"));
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
    println!("{} facts of the headers agree", ours.len());
}

/// What stands in for CUDA in other tests has the functions of NVIDIA, with its types and numbers.
#[test]
fn stand_ins_have_the_declarations_of_the_headers() {
    let Some(folders) = folders() else { return };
    let folder = tempfile::tempdir().unwrap();
    let before = folder.path().join("before.h");
    std::fs::write(&before, SMALL_FLOATS).unwrap();
    let emulation = Path::new(env!("CARGO_MANIFEST_DIR")).join("emulation");
    for source in ["driver/driver.cpp", "libraries/cublaslt.cpp", "libraries/cudnn.cpp", "libraries/nccl.cpp"]
    {
        let real = ["-fsyntax-only", "-DREAL_CUDA_H=1", "-DREAL_HEADERS=1", "-DEMULATION=\"\"", "-include"];
        let source = emulation.join(source);
        let files = [before.as_os_str(), source.as_os_str()];
        let arguments: Vec<&OsStr> = real.iter().map(OsStr::new).chain(files).collect();
        if compile(&folders, &arguments).is_none() {
            return;
        }
    }
}

/// Not those of the driver, which no package has.
#[test]
fn libraries_have_every_function() {
    let Some(folders) = folders() else { return };
    let packages: Vec<PathBuf> =
        std::env::split_paths(&folders).filter_map(|folder| Some(folder.parent()?.to_owned())).collect();
    let mut missing = Vec::new();
    for library in libraries() {
        match library.state {
            Ok(found) => {
                // The fetched one, and none of the machine.
                let path = found.path.unwrap();
                println!("{} {} in {}", library.name, found.version, path.display());
                assert!(packages.iter().any(|package| path.starts_with(package)), "{}", path.display());
            }
            Err(why) => assert_eq!(library.name, "the NVIDIA driver", "{why}"),
        }
    }
    for (name, _) in calls::functions() {
        let is_drivers = name.starts_with("cu") && name.as_bytes()[2].is_ascii_uppercase();
        if !is_drivers && libraries::address(name) == 0 {
            missing.push(name);
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}

/// The words of this crate's sources that a mark stands before.
fn words_behind(marks: &[&str]) -> BTreeSet<String> {
    fn files(folder: &Path, all: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => files(&path, all),
                false => all.push(path),
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    files(&root, &mut all);
    let mut words = BTreeSet::new();
    for file in all.iter().filter(|file| !file.starts_with(root.join("headers"))) {
        let text = std::fs::read_to_string(file).unwrap();
        for mark in marks {
            for (at, _) in text.match_indices(mark) {
                let rest = &text[at + mark.len()..];
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                // With what follows: a call, or the end of a string.
                words.insert(rest[..rest.len().min(end + 1)].to_owned());
            }
        }
    }
    words
}

/// A call that the lists lack would not be compared.
#[test]
fn the_lists_are_complete() {
    if !Path::new(env!("CARGO_MANIFEST_DIR")).join("src").exists() {
        println!("SKIPPED: the lists of calls: the sources are not on this machine");
        return;
    }
    let marks = ["sys::", ">(\"", "words(\"", "said(\"", "Returns(\"", "Writes(\"", "WritesTwo(\""];
    let is_call = |word: &str| {
        let begins = ["cu", "nvrtc", "nccl"].iter().any(|prefix| word.starts_with(prefix));
        begins && (word.ends_with('(') || word.ends_with('"'))
    };
    let called = words_behind(&marks).into_iter().filter(|word| is_call(word));
    let called: BTreeSet<String> = called.map(|word| word[..word.len() - 1].to_owned()).collect();
    let listed: BTreeSet<String> = calls::functions().into_iter().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(
        called.symmetric_difference(&listed).collect::<Vec<_>>(),
        [""; 0],
        "called or listed, not both"
    );

    let is_constant = |word: &str| {
        let prefixes = [
            "CU_",
            "CUDA_",
            "CUDNN_",
            "CUBLAS_",
            "CUBLASLT_",
            "NVRTC_",
            "ncclFloat",
            "ncclSum",
            "ncclSuccess",
            "ncclIn",
        ];
        prefixes.iter().any(|prefix| word.starts_with(prefix))
    };
    let trimmed = |word: String| word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned();
    let used: BTreeSet<String> =
        words_behind(&["::"]).into_iter().map(trimmed).filter(|word| is_constant(word)).collect();
    let listed: BTreeSet<String> = calls::constants().into_iter().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(used.symmetric_difference(&listed).collect::<Vec<_>>(), [""; 0], "used or listed, not both");
}
