use callbacks::printable;
use std::fmt;

/// Text in HTML: names of runs, classes and files are somebody else's words.
pub(crate) struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&plot::escaped(&printable(self.0)))
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
