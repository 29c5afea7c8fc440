//! Text of others, such as names of files and classes, made fit to be shown to people.

use std::ops::RangeInclusive;

/// What errors quote is no longer than this, in characters.
const LONGEST: usize = 80;
/// So many characters of it are kept at the end.
const KEPT_AT_END: usize = 20;
/// Stands for what was left out.
const LEFT_OUT: &str = "[...]";
/// Paths are shown whole: Linux takes none that is longer, in bytes.
const LONGEST_PATH: usize = 4096;

/// Characters that change the direction of the text around them, so that it reads as something else (CVE-2021-42574).
const DIRECTION: [RangeInclusive<char>; 4] =
    ['\u{61c}'..='\u{61c}', '\u{200e}'..='\u{200f}', '\u{202a}'..='\u{202e}', '\u{2066}'..='\u{2069}'];

/// Whether a character acts on what shows it instead of being shown: the controls of ASCII (C0, DEL) and of Latin-1 (C1), and marks
/// of direction.
///
/// ```
/// assert!(callbacks::is_control('\u{1b}') && callbacks::is_control('\u{202e}') && !callbacks::is_control('a'));
/// ```
pub fn is_control(c: char) -> bool {
    c.is_control() || DIRECTION.iter().any(|some| some.contains(&c))
}

/// The text without what would act on a terminal: control characters are written as JSON writes them, `\u001b`. Line feeds and tabs
/// stay, since text has lines. JSON means the same as before.
///
/// ```
/// assert_eq!(callbacks::printable("cat\u{1b}[2J\n"), "cat\\u001b[2J\n");
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

/// The text with no more than some 80 characters of each word and of each part between backticks or quotation marks; paths stay
/// whole, and lines of more than 4096 characters do not.
///
/// ```
/// let long = "x".repeat(1000);
/// let told = callbacks::shortened(&format!("--recipe is `{long}`, but must be one of a, b"));
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
        // A mark without its other half is a character like any other.
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

/// The length of what stands behind an opening mark, as far as the closing one.
fn quoted(mark: char, behind: &str) -> Option<usize> {
    if "`\"".contains(mark) { behind.find(mark) } else { None }
}

fn shortened_to(text: &str, longest: usize) -> String {
    // Most texts are short, and bytes are counted at once.
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
            let told =
                shortened(&format!("lr is {open}{}{close}, but must be less\nhint", long.repeat(5_000_000)));
            assert!(told.chars().count() < 150 && told.contains("[...]"), "{told}");
            assert!(
                told.starts_with(&format!("lr is {open}{long}"))
                    && told.ends_with(", but must be less\nhint"),
                "{told}"
            );
        }
        for odd in ["a ", "\"x` ", "//"] {
            let told = shortened(&odd.repeat(1_000_000));
            assert!(told.chars().count() <= LONGEST_PATH, "{}", told.len());
            assert_eq!(shortened(&told), told);
        }
    }
}
