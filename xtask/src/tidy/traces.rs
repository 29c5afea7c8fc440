//! No file names a folder that exists on somebody's machine and not on the reader's.

use super::files::Files;
use super::violation::Violation;

/// In two parts, so that this file doesn't break its own rule.
const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/tmp/", "target")];

/// Checks every text file line by line.
pub fn check(files: &Files) -> Vec<Violation> {
    let lines =
        files.texts("").flat_map(|(path, text)| (1..).zip(text.lines()).map(move |line| (path, line)));
    let violation = |(path, (line, text)): (&str, (usize, &str))| {
        let folder = MACHINE_PATHS.iter().find(|folder| text.contains(**folder))?;
        let what = format!("the line names a folder of one machine, `{folder}`; use a relative path");
        Some(Violation::new(path, line, what))
    };
    lines.filter_map(violation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_one_machine_are_found() {
        for folder in MACHINE_PATHS {
            let text = format!("open('framework/x')\nopen('{folder}x')\n");
            let found = check(&Files::fake(&[("a.py", &text)]));
            assert_eq!(found.iter().map(|violation| violation.line).collect::<Vec<_>>(), [2]);
        }
    }
}
