//! The constants of each binary interface, compared with the real headers by the C compiler.

#[allow(dead_code, reason = "only constants are looked at")]
#[path = "../../src/abi.rs"]
mod abi;

use abi::Abi;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folders of headers beside the MPI in PATH.
fn headers() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let bin = std::env::split_paths(&path).find(|folder| folder.join("mpiexec").exists());
    let include = bin.and_then(|bin| Some(bin.parent()?.join("include")));
    let files = include.into_iter().flat_map(|folder| ["mpi.h", "mpi_abi.h"].map(|name| folder.join(name)));
    files.filter(|file| file.exists()).collect()
}

/// The value of each expression, as the compiler sees it.
fn values(header: &Path, expressions: &[&str]) -> Option<Vec<i64>> {
    let folder = tempfile::tempdir().unwrap();
    let [source, program] = ["values.c", "values"].map(|name| folder.path().join(name));
    let prints: String =
        expressions.iter().map(|e| format!("printf(\"%lld\\n\", (long long)({e}));\n")).collect();
    let text = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include \"{}\"\nint main(void) {{ {prints} return 0; }}\n",
        header.display()
    );
    std::fs::write(&source, text).unwrap();
    // Handles of Open MPI are addresses in the library, which is not needed for numbers.
    let include = header.parent().unwrap_or(header);
    let mut compiler = Command::new("cc");
    compiler.arg("-w").arg("-I").arg(include).arg(&source).arg("-o").arg(&program);
    let compiled = compiler.status().ok()?;
    assert!(compiled.success(), "{} does not compile", header.display());
    let output = Command::new(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| line.parse().unwrap()).collect())
}

#[test]
fn constants_are_those_of_the_headers() {
    let headers = headers();
    if headers.is_empty() {
        println!("SKIPPED: there are no headers of MPI beside mpiexec");
    }
    let numbers = [
        "MPI_ANY_SOURCE",
        "MPI_THREAD_FUNNELED",
        "MPI_COMM_TYPE_SHARED",
        "offsetof(MPI_Status, MPI_SOURCE) / sizeof(int)",
        "sizeof(MPI_Status) <= 64",
    ];
    let handles = ["MPI_COMM_WORLD", "MPI_BYTE", "MPI_INFO_NULL"];
    for header in headers {
        let is_open_mpi = std::fs::read_to_string(&header).unwrap().contains("OPEN_MPI");
        let abi = match header.ends_with("mpi_abi.h") {
            true => Abi::STANDARD,
            false if is_open_mpi => Abi::OPEN_MPI,
            false => Abi::MPICH,
        };
        let expressions = if is_open_mpi { numbers.to_vec() } else { [&numbers[..], &handles].concat() };
        let Some(found) = values(&header, &expressions) else {
            println!("SKIPPED: the headers of MPI, because there is no C compiler `cc`");
            return;
        };
        let [any_source, funneled, shared] = [abi.any_source, abi.funneled, abi.shared].map(i64::from);
        let handles = [abi.world, abi.byte, abi.no_info].map(|handle| handle as i64);
        let mut expected = vec![any_source, funneled, shared, abi.source_at as i64, 1];
        expected.extend(handles.iter().filter(|_| !is_open_mpi));
        assert_eq!(found, expected, "{}", header.display());
    }
}
