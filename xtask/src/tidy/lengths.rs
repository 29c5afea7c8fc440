//! How long a source file may be, and what it may not be called.

use super::Violation;
use super::files::Files;
use std::path::Path;

/// A file longer than this is an error.
const LIMIT: usize = 500;
/// A file longer than this is worth a note: which second concept moved in?
const NOTE: usize = 400;
/// Names that say nothing of what is inside.
const HOLLOW: &[&str] = &["base", "common", "helper", "helpers", "manager", "util", "utils"];

/// No Rust file is longer than the limit or has a hollow name, nor has a folder on its path.
pub fn check(files: &Files) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in files.texts(".rs") {
        let lines = text.lines().count();
        if lines > LIMIT {
            let what = format!("the file has {lines} lines, {LIMIT} are allowed");
            violations.push(Violation::new(path, LIMIT + 1, what, "find its second concept and move it out"));
        }
        if let Some(name) = hollow(path) {
            let what = format!("`{name}` is a name without a meaning");
            violations.push(Violation::new(path, 1, what, "name it after the one concept inside"));
        }
    }
    violations
}

/// A line for each file between the note and the limit.
pub fn notes(files: &Files) -> Vec<String> {
    let lengths = files.texts(".rs").map(|(path, text)| (path, text.lines().count()));
    let long = lengths.filter(|(_, lines)| (NOTE + 1..=LIMIT).contains(lines));
    long.map(|(path, lines)| format!("{path} has {lines} lines; past {NOTE} ask which concept to move out"))
        .collect()
}

fn hollow(path: &str) -> Option<&'static str> {
    let stem = path.trim_end_matches(".rs");
    let parts = Path::new(stem).iter();
    parts.filter_map(|part| HOLLOW.iter().find(|name| part == **name)).next().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_checked_at_the_boundary() {
        let lines = |n: usize| "x\n".repeat(n);
        let (short, fair, long, too_long) = (lines(400), lines(401), lines(500), lines(501));
        let files = Files::fake(&[
            ("a.rs", &short),
            ("b.rs", &fair),
            ("c.rs", &long),
            ("d.rs", &too_long),
            ("data.txt", &too_long),
        ]);
        let found = check(&files);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].path.as_str(), found[0].line), ("d.rs", 501));
        let notes = notes(&files);
        assert_eq!(notes.len(), 2);
        assert!(notes[0].starts_with("b.rs has 401") && notes[1].starts_with("c.rs has 500"));
    }

    #[test]
    fn hollow_names_are_found_in_files_and_folders() {
        let files = Files::fake(&[("a/src/utils.rs", ""), ("b/common/mod.rs", ""), ("c/baseline.rs", "")]);
        let found: Vec<String> = check(&files).into_iter().map(|violation| violation.path).collect();
        assert_eq!(found, ["a/src/utils.rs", "b/common/mod.rs"]);
    }
}
