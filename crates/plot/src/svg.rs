//! Drawing instructions as SVG.

use crate::mark::{Anchor, Mark, Shape, arrowhead};
use std::fmt::{self, Write};

/// An `svg` element of a size, with more attributes, and with `first` before the shapes.
///
/// Each shape has its colour as an attribute, and a class by which a page's style sheet can change it.
pub(crate) fn element([width, height]: [f64; 2], attributes: &str, first: &str, marks: &[Mark]) -> String {
    let mut out = format!(
        "<svg{attributes} viewBox=\"0 0 {width} {height}\" fill=\"none\" stroke-linecap=\"round\" \
         stroke-linejoin=\"round\">\n{first}"
    );
    for mark in marks {
        // Writing to a string cannot fail.
        let _ = write(mark, &mut out);
    }
    out.push_str("</svg>");
    out
}

fn write(Mark { shape, ink }: &Mark, out: &mut String) -> fmt::Result {
    let (class, colour) = (ink.class(), ink.colour());
    let fill = format!("class=\"fill {class}\" fill=\"#{colour:06x}\"");
    let line = format!("class=\"line {class}\" stroke=\"#{colour:06x}\" stroke-width");
    match shape {
        Shape::Line { points, width, dash } => {
            let dash = dash.map_or(String::new(), |[on, off]| format!(" stroke-dasharray=\"{on} {off}\""));
            writeln!(out, "<path {line}=\"{width}\"{dash} d=\"{}\"/>", path(points))
        }
        Shape::Circle { centre: [x, y], radius, ring, tip } => {
            let style = ring.map_or(fill, |width| format!("{line}=\"{width}\""));
            writeln!(
                out,
                "<circle {style} cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"{}",
                content(tip, "circle")
            )
        }
        Shape::Arrowhead { centre, radius, tip } => {
            let corners = path(&arrowhead(*centre, *radius));
            writeln!(out, "<path {fill} d=\"{corners}Z\"{}", content(tip, "path"))
        }
        Shape::Text { at: [x, y], anchor, size, text } => {
            let anchor = match anchor {
                Anchor::Start => "",
                Anchor::Middle => " text-anchor=\"middle\"",
                Anchor::End => " text-anchor=\"end\"",
            };
            let text = escaped(text);
            writeln!(out, "<text {fill} x=\"{x:.1}\" y=\"{y:.1}\"{anchor} font-size=\"{size}\">{text}</text>")
        }
    }
}

/// The rest of an element after its attributes: a tooltip, or nothing.
fn content(tip: &str, element: &str) -> String {
    if tip.is_empty() { "/>".to_owned() } else { format!("><title>{}</title></{element}>", escaped(tip)) }
}

fn path(points: &[[f64; 2]]) -> String {
    let mut path = String::new();
    for (k, [x, y]) in points.iter().enumerate() {
        let _ = write!(path, "{}{x:.1} {y:.1}", if k == 0 { 'M' } else { 'L' });
    }
    path
}

/// Text for HTML and XML, in attributes too. XML has no control characters but line feeds and tabs, not even escaped:
/// U+FFFD replaces them.
///
/// ```
/// assert_eq!(towers_plot::escaped("cats & <dogs>\0"), "cats &amp; &lt;dogs&gt;\u{fffd}");
/// ```
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_becomes_text() {
        let text = escaped("<b class=\"x\">Tom & 'Jerry'</b>\0\n");
        assert_eq!(text, "&lt;b class=&quot;x&quot;&gt;Tom &amp; &#39;Jerry&#39;&lt;/b&gt;\u{fffd}\n");
    }
}
