//! The pages of `docs` as a book: which there are, and which of our commands they name.

use super::Violation;
use super::files::Files;

/// Every page is in `docs/SUMMARY.md`, and every `cargo xtask` command that a page shows exists, with its steps.
///
/// Whether other commands of the pages work is for `cli/tests/cli/pages.rs` to find out, by running them.
pub fn check(files: &Files, commands: &[&str], steps: &[&str]) -> Vec<Violation> {
    let summary = files.text("docs/SUMMARY.md").unwrap_or_default();
    let mut violations = Vec::new();
    for (page, text) in files.texts(".md") {
        let name = page.strip_prefix("docs/").filter(|name| *name != "SUMMARY.md" && !name.contains('/'));
        if name.is_some_and(|name| !summary.contains(&format!("]({name})"))) {
            let what = "the page is not in the book";
            violations.push(Violation::new(page, 1, what, "add it to docs/SUMMARY.md"));
        }
        for (line, command) in (1..).zip(text.lines()) {
            let Some(command) = command.trim_start().strip_prefix("cargo xtask ") else { continue };
            let mut words = command.split('#').next().unwrap_or_default().split_whitespace();
            let name = words.next().unwrap_or_default();
            let unknown_step = (name == "test").then(|| words.find(|word| !steps.contains(word))).flatten();
            if name != "COMMAND" && !commands.contains(&name) {
                let what = format!("there is no command `cargo xtask {name}`");
                violations.push(Violation::new(page, line, what, "`cargo xtask help` lists them"));
            } else if let Some(step) = unknown_step {
                let what = format!("`cargo xtask test` has no step `{step}`");
                violations.push(Violation::new(page, line, what, "name one that there is"));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_commands_that_nobody_knows_are_found() {
        let files = Files::fake(&[
            ("docs/SUMMARY.md", "- [A](a.md)\n"),
            ("docs/a.md", "```sh\ncargo xtask test fmt    # why\ncargo xtask test fnt\n```\n"),
            ("docs/b.md", "cargo xtask train --quick\n"),
            ("docs/benchmarks/c.md", ""),
            ("README.md", "cargo xtask train-cifar --quick\n"),
        ]);
        let found = check(&files, &["test", "train-cifar"], &["fmt"]);
        let found: Vec<_> = found.iter().map(|v| (v.path.as_str(), v.line, v.what.as_str())).collect();
        let expected = [
            ("docs/a.md", 3, "`cargo xtask test` has no step `fnt`"),
            ("docs/b.md", 1, "the page is not in the book"),
            ("docs/b.md", 1, "there is no command `cargo xtask train`"),
        ];
        assert_eq!(found, expected);
    }
}
