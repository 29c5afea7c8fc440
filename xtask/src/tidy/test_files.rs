//! That no file of tests is left out.

use super::Violation;
use super::files::Files;
use crate::workspace::Workspace;

/// In a crate whose test files are modules of one program, `tests/main.rs`, Cargo finds no test file by itself: each must be
/// one of its modules, or the root of a program that the manifest names.
pub fn check(workspace: &Workspace, files: &Files) -> Vec<Violation> {
    let mut violations = Vec::new();
    for krate in &workspace.crates {
        let folder = krate.manifest.replace("Cargo.toml", "tests/");
        let Some(main) = files.text(&format!("{folder}main.rs")) else { continue };
        let manifest = files.text(&krate.manifest).unwrap_or_default();
        for (path, _) in files.texts(".rs") {
            let Some(file) = path.strip_prefix(&folder) else { continue };
            let name = match file.split_once('/') {
                None => file.trim_end_matches(".rs"),
                Some((name, "main.rs" | "mod.rs")) => name,
                // What is deeper down is for its own root to name: the compiler minds what is named and absent.
                Some(_) => continue,
            };
            let built = main.lines().any(|line| line == format!("mod {name};"))
                || manifest.contains(&format!("path = \"tests/{file}\""));
            if !built {
                let mend =
                    format!("add `mod {name};` to {folder}main.rs, or a [[test]] to {}", krate.manifest);
                violations.push(Violation::new(path, 1, "no program of tests has this file", mend));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::fake;

    #[test]
    fn every_file_of_tests_is_built() {
        let manifest =
            "autotests = false\n[[test]]\npath = \"tests/main.rs\"\n[[test]]\npath = \"tests/own/main.rs\"\n";
        let files = Files::fake(&[
            ("crates/a/Cargo.toml", manifest),
            ("crates/a/tests/main.rs", "mod one;\nmod harness;\n// mod two;\n"),
            ("crates/a/tests/one.rs", ""),
            ("crates/a/tests/two.rs", ""),
            ("crates/a/tests/harness/mod.rs", ""),
            ("crates/a/tests/own/main.rs", "mod inner;"),
            ("crates/a/tests/own/inner.rs", ""),
            ("crates/a/tests/other/main.rs", ""),
            ("crates/b/Cargo.toml", ""),
            ("crates/b/tests/found_by_cargo.rs", ""),
        ]);
        let found = check(&fake::workspace(&[("a", &[], &[]), ("b", &[], &[])]), &files);
        let paths: Vec<&str> = found.iter().map(|violation| violation.path.as_str()).collect();
        assert_eq!(paths, ["crates/a/tests/other/main.rs", "crates/a/tests/two.rs"]);
        assert!(found[1].mend.contains("`mod two;` to crates/a/tests/main.rs"), "{}", found[1].mend);
    }
}
