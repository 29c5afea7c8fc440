use std::fmt;
use train::is_control;

/// Text in HTML: names of runs, classes and files are somebody else's words.
pub(crate) struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            // As on a terminal.
            c if is_control(c) && c != '\n' && c != '\t' => write!(f, "\\u{:04x}", u32::from(c)),
            c => write!(f, "{c}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_becomes_text() {
        let text = Escaped("<b class=\"x\">Tom & 'Jerry'</b>\0\u{202e}").to_string();
        assert_eq!(text, "&lt;b class=&quot;x&quot;&gt;Tom &amp; &#39;Jerry&#39;&lt;/b&gt;\\u0000\\u202e");
    }
}
