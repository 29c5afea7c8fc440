//! Makes text of others, such as names of files and classes, safe and short enough to print.

use std::ops::RangeInclusive;

/// The longest quotation in an error, in characters.
const LONGEST: usize = 80;
/// The number of its last characters that are kept.
const KEPT_AT_END: usize = 20;
/// The mark for omitted characters.
const LEFT_OUT: &str = "[...]";
/// Paths are shown whole: longer ones, in bytes, are invalid on Linux.
const LONGEST_PATH: usize = 4096;

/// Characters that change the direction of the surrounding text, and can disguise it (CVE-2021-42574).
const DIRECTION: [RangeInclusive<char>; 4] =
    ['\u{61c}'..='\u{61c}', '\u{200e}'..='\u{200f}', '\u{202a}'..='\u{202e}', '\u{2066}'..='\u{2069}'];

/// Whether a character controls a terminal: the control characters of ASCII (C0, DEL) and of Latin-1 (C1),
/// and marks of direction.
///
/// ```
/// assert!(towers_callbacks::is_control('\u{1b}') && towers_callbacks::is_control('\u{202e}') && !towers_callbacks::is_control('a'));
/// ```
pub fn is_control(c: char) -> bool {
    c.is_control() || DIRECTION.iter().any(|some| some.contains(&c))
}

/// Escapes control characters as JSON does: `\u001b`. Line feeds and tabs stay. JSON keeps its meaning.
///
/// ```
/// assert_eq!(towers_callbacks::printable("cat\u{1b}[2J\n"), "cat\\u001b[2J\n");
/// ```
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            // All of them have four digits.
            c if is_control(c) => shown += &format!("\\u{:04x}", u32::from(c)),
            c => shown.push(c),
        }
    }
    shown
}

/// Rows of cells, each column as wide as its widest cell. The first columns are `words`; the others are numbers.
///
/// ```
/// let row = |cells: [&str; 3]| cells.map(str::to_owned);
/// let rows = [row(["a", "Conv2D", "1"]), row(["longest", "", "10"])];
/// assert_eq!(towers_callbacks::aligned(&rows, 2), "a        Conv2D   1\nlongest          10\n");
/// ```
pub fn aligned(rows: &[impl AsRef<[String]>], words: usize) -> String {
    let mut widths = Vec::new();
    for row in rows {
        let row = row.as_ref();
        widths.resize(row.len().max(widths.len()), 0);
        widths.iter_mut().zip(row).for_each(|(width, cell)| *width = cell.chars().count().max(*width));
    }
    let mut text = String::new();
    for row in rows {
        let cells = row.as_ref().iter().zip(widths.iter().copied()).enumerate();
        let line: Vec<String> = cells
            .map(|(column, (cell, width))| match column < words {
                true => format!("{cell:width$}"),
                false => format!("{cell:>width$}"),
            })
            .collect();
        text += line.join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// Shortens each word, and each part between backticks or quotation marks, to about 80 characters. Paths stay
/// whole; lines are shortened to 4096 characters.
///
/// ```
/// let long = "x".repeat(1000);
/// let told = towers_callbacks::shortened(&format!("--recipe is `{long}`, but must be one of a, b"));
/// assert!(told.starts_with("--recipe is `xxx") && told.ends_with("xxx`, but must be one of a, b") && told.len() < 130);
/// ```
pub fn shortened(text: &str) -> String {
    text.split_inclusive('\n').map(|line| shortened_to(&shortened_line(line), LONGEST_PATH)).collect()
}

fn shortened_line(line: &str) -> String {
    let (mut shown, mut rest) = (String::new(), line);
    while let Some(first) = rest.chars().next() {
        let quoted = quoted(first, &rest[first.len_utf8()..]);
        let is_end = |c: char| c.is_whitespace() || "`\"".contains(c);
        // A mark without a closing one is an ordinary character.
        let len = quoted.unwrap_or_else(|| {
            rest[first.len_utf8()..].find(is_end).unwrap_or(rest.len() - first.len_utf8())
        });
        let (piece, behind) = rest.split_at(first.len_utf8() + len);
        let longest = if piece.contains(['/', '\\']) { LONGEST_PATH } else { LONGEST };
        shown += &shortened_to(piece, longest);
        rest = behind;
    }
    shown
}

/// The length of the quoted text after an opening mark, with the closing one.
fn quoted(mark: char, behind: &str) -> Option<usize> {
    if "`\"".contains(mark) { Some(behind.find(mark)? + mark.len_utf8()) } else { None }
}

fn shortened_to(text: &str, longest: usize) -> String {
    // Most texts are short, and counting bytes is fast.
    let count = if text.len() <= longest { 0 } else { text.chars().count() };
    if count <= longest {
        return text.to_owned();
    }
    let at = |place: usize| text.char_indices().nth(place).map_or(text.len(), |(at, _)| at);
    let (start, end) = (at(longest - LEFT_OUT.len() - KEPT_AT_END), at(count - KEPT_AT_END));
    format!("{}{LEFT_OUT}{}", &text[..start], &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_and_marks_of_direction_are_shown() {
        let text = "a\u{1b}]0;x\u{7}\r\u{7f}\u{9b}2J\u{202e}gnp.\u{2066}é猫\n\tb\0";
        let shown = "a\\u001b]0;x\\u0007\\u000d\\u007f\\u009b2J\\u202egnp.\\u2066é猫\n\tb\\u0000";
        assert_eq!(printable(text), shown);
        assert_eq!(printable(shown), shown);
        let json = serde_json::json!({ "name": text }).to_string();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&printable(&json)).unwrap()["name"], text);
    }

    #[test]
    fn what_is_quoted_is_short_and_paths_are_whole() {
        let path = format!("/{}/model.safetensors", "folder/".repeat(40));
        let plain = format!("can't read {path}: it's no \"file\", `towers train --resume` says so");
        assert_eq!(shortened(&plain), plain);
        for (long, between) in [("x", ["", ""]), ("a b ", ["`", "`"]), ("é ", ["\"", "\""])] {
            let [open, close] = between;
            let shown =
                shortened(&format!("lr is {open}{}{close}, but must be less\nhint", long.repeat(5_000_000)));
            assert!(shown.chars().count() < 150 && shown.contains("[...]"), "{shown}");
            assert!(
                shown.starts_with(&format!("lr is {open}{long}"))
                    && shown.ends_with(", but must be less\nhint"),
                "{shown}"
            );
        }
        // Between two quotations nothing is left out.
        let between = format!("`layer` is {}, but must be a table with a `class`", "one, two, ".repeat(50));
        assert_eq!(shortened(&between), between);
        for odd in ["a ", "\"x` ", "//"] {
            let shown = shortened(&odd.repeat(1_000_000));
            assert!(shown.chars().count() <= LONGEST_PATH, "{}", shown.len());
            assert_eq!(shortened(&shown), shown);
        }
    }
}
