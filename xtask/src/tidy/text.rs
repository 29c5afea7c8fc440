//! What no text file may contain: traces of one machine, unfinished work, invisible characters.

use super::Violation;
use super::files::Files;

// Written in two parts, so that this file doesn't break its own rules.
/// Folders that exist on somebody's machine and not on the reader's.
const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/tmp/", "target")];
/// Marks of unfinished work in Rust sources.
const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
    concat!("db", "g!("),
];

/// Checks every text file line by line. Licence texts are left as their authors wrote them.
pub fn check(files: &Files) -> Vec<Violation> {
    let ours = files.texts("").filter(|(path, _)| !path.contains("LICENSE"));
    ours.flat_map(|(path, text)| check_file(path, text)).collect()
}

fn check_file(path: &str, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut count = 0;
    for (k, line) in text.split_terminator('\n').enumerate() {
        count = k + 1;
        let mut broken = |what: String, mend: &str| violations.push(Violation::new(path, count, what, mend));
        let (line, carriage_return) = match line.strip_suffix('\r') {
            Some(line) => (line, true),
            None => (line, false),
        };
        if carriage_return {
            broken("the line ends in CR LF".to_owned(), "save the file with LF line ends");
        }
        if line.ends_with(char::is_whitespace) {
            broken("the line ends in white space".to_owned(), "remove it");
        }
        if let Some(c) = line.chars().find(|&c| invisible(c)) {
            let what = format!("the line contains the invisible character U+{:04X}", u32::from(c));
            broken(what, "write it as an escape, or remove it");
        }
        if let Some(folder) = MACHINE_PATHS.iter().find(|folder| line.contains(**folder)) {
            let what = format!("the line names a folder of one machine, `{folder}`");
            broken(what, "use a path relative to the repository, or an environment variable");
        }
        let mark = UNFINISHED.iter().find(|mark| path.ends_with(".rs") && line.contains(**mark));
        if let Some(mark) = mark {
            broken(format!("`{mark}` marks unfinished work"), "finish it, or open an issue");
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        violations.push(Violation::new(
            path,
            count,
            "the last line has no end",
            "end the file with a newline",
        ));
    }
    violations
}

/// Control characters, and the marks of Unicode that reorder or hide text. A tab is fine.
fn invisible(c: char) -> bool {
    let hidden =
        matches!(c, '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}');
    hidden || (c.is_control() && c != '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        check_file(path, text).into_iter().map(|violation| (violation.line, violation.what)).collect()
    }

    #[test]
    fn clean_text_passes() {
        assert_eq!(found("a.rs", "fn main() {\n\tlet caf\u{e9} = 1;\n}\n"), []);
        assert_eq!(found("empty", ""), []);
    }

    #[test]
    fn licence_texts_are_left_alone() {
        let files = Files::fake(&[("fonts/LICENSE.txt", "a \n"), ("fonts/README.md", "a \n")]);
        let found: Vec<String> = check(&files).into_iter().map(|violation| violation.path).collect();
        assert_eq!(found, ["fonts/README.md"]);
    }

    #[test]
    fn line_ends() {
        let lines: Vec<usize> = found("a.md", "a\r\nb \nc\t\nd").into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 2, 3, 4]);
        assert!(found("a.md", "d")[0].1.contains("no end"));
    }

    #[test]
    fn invisible_characters() {
        for text in ["a\u{1b}[0m\n", "\u{feff}a\n", "a\u{202e}b\n", "a\u{85}b\n", "a\rb\n"] {
            assert!(found("a.md", text)[0].1.contains("invisible"), "{text:?}");
        }
    }

    #[test]
    fn paths_of_one_machine() {
        for folder in MACHINE_PATHS {
            assert_eq!(found("a.py", &format!("x\nopen('{folder}x')\n"))[0].0, 2);
        }
        assert_eq!(found("a.py", "open('framework/x')\n"), []);
    }

    #[test]
    fn unfinished_work_counts_in_sources_alone() {
        for mark in UNFINISHED {
            assert_eq!(found("a.rs", &format!("{mark}\n")).len(), 1);
            assert_eq!(found("a.md", &format!("{mark}\n")), []);
        }
    }
}
