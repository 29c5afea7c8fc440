//! Texts of files in messages.

/// A text of a file for people: it may be of any length, and have characters that can't be seen. For one, an accent may be a
/// separate character behind its letter.
pub(crate) fn shortened(text: &str) -> String {
    let shown = |c: char| match c {
        '"' | '\'' | '\\' => c.to_string(),
        c => c.escape_debug().to_string(),
    };
    let rest = if text.chars().nth(80).is_some() { "..." } else { "" };
    text.chars().take(80).map(shown).collect::<String>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_the_same_differs_in_messages() {
        let names = ["caf\u{e9}", "cafe\u{301}", "a\u{200b}b", "it's", "a\nb"];
        assert_eq!(names.map(shortened), ["caf\u{e9}", "cafe\\u{301}", "a\\u{200b}b", "it's", "a\\nb"]);
        assert_eq!(shortened(&"x".repeat(81)), "x".repeat(80) + "...");
    }
}
