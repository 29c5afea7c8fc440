//! No file of tests is left out.

use super::files::Files;
use super::violation::Violation;
use crate::workspace::Workspace;

/// Where a crate's test files are modules of one program, `tests/main.rs`, Cargo finds none by itself: each
/// must be one of its modules, or the root of a program that the manifest names.
pub fn check(workspace: &Workspace, files: &Files) -> Vec<Violation> {
    let mut violations = Vec::new();
    for krate in &workspace.crates {
        let folder = krate.manifest.replace("Cargo.toml", "tests/");
        let main = files.text(&format!("{folder}main.rs"));
        for (path, _) in files.texts(".rs").filter(|_| !main.is_empty()) {
            let Some(file) = path.strip_prefix(&folder) else { continue };
            let name = file.trim_end_matches(".rs").trim_end_matches("/mod");
            let built = file == "main.rs"
                || main.lines().any(|line| line == format!("mod {name};"))
                || files.text(&krate.manifest).contains(&format!("path = \"tests/{file}\""));
            // A file deeper down is for its own root to name.
            if !built && (!name.contains('/') || name.ends_with("/main")) {
                let what = format!("no program of tests has this file; add `mod {name};` to {folder}main.rs");
                violations.push(Violation::new(path, 1, what));
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
        let files = Files::fake(&[
            ("crates/a/Cargo.toml", "[[test]]\npath = \"tests/own/main.rs\"\n"),
            ("crates/a/tests/main.rs", "mod one;\nmod harness;\n// mod two;\n"),
            ("crates/a/tests/one.rs", ""),
            ("crates/a/tests/two.rs", ""),
            ("crates/a/tests/harness/mod.rs", ""),
            ("crates/a/tests/own/main.rs", "mod inner;"),
            ("crates/a/tests/own/inner.rs", ""),
            ("crates/a/tests/other/main.rs", ""),
            ("crates/b/tests/found_by_cargo.rs", ""),
        ]);
        let found = check(&fake(&[("a", &[]), ("b", &[])]), &files);
        let paths: Vec<&str> = found.iter().map(|violation| violation.path.as_str()).collect();
        assert_eq!(paths, ["crates/a/tests/other/main.rs", "crates/a/tests/two.rs"]);
    }
}
