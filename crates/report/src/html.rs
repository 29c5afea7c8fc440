//! Parts of pages in the style of the report.

use std::fmt::{self, Write};
use towers_callbacks::printable;
use towers_plot::Panel;

static STYLE: &str = include_str!("style.css");

/// Text in HTML: names of runs, classes and files are somebody else's words.
///
/// ```
/// assert_eq!(towers_report::html::Escaped("Tom & 'Jerry'").to_string(), "Tom &amp; &#39;Jerry&#39;");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&towers_plot::escaped(&printable(self.0)))
    }
}

/// A whole page with a title, `head` in its head, and the elements `main` below the title.
pub fn document(title: &str, head: &str, main: &str) -> String {
    let (title, version) = (Escaped(title), env!("CARGO_PKG_VERSION"));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n{head}<title>{title} – towers</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<header><h1>{title}</h1></header>\n<main>\n{main}</main>\n<footer>towers {version}</footer>\n</body>\n</html>\n"
    )
}

/// Writes charts side by side, each with a legend where there are several curves.
pub fn charts(panels: impl IntoIterator<Item = Panel>, out: &mut String) {
    out.push_str("<div class=\"charts\">\n");
    for panel in panels {
        let title = Escaped(&panel.title);
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(out, "<figure class=\"chart\"><figcaption>{title}</figcaption>");
        if panel.curves.len() > 1 {
            out.push_str("<p class=\"legend\">");
            for curve in &panel.curves {
                let _ = write!(out, "<span>{}{}</span> ", curve.sample_svg(), Escaped(&curve.name));
            }
            out.push_str("</p>\n");
        }
        let _ = writeln!(out, "{}</figure>", panel.svg());
    }
    out.push_str("</div>\n");
}

/// An accuracy, as in the lines of a run.
pub fn accuracy(value: f64) -> String {
    format!("{value:.4}")
}

/// A duration in its two largest units.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.1} s"),
        s if s < 6000.0 => format!("{:.0} min {:02.0} s", (s / 60.0).floor(), s % 60.0),
        s => format!("{:.0} h {:02.0} min", (s / 3600.0).floor(), (s % 3600.0 / 60.0).floor()),
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

    #[test]
    fn times_are_short() {
        assert_eq!([2.34, 754.0, 7300.0].map(time), ["2.3 s", "12 min 34 s", "2 h 01 min"]);
    }
}
