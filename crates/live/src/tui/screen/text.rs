//! Texts in lines of a given width.

use ratatui::text::{Line, Span};

/// Between two parts of a line.
const GAP: &str = "   ";

/// The parts in as few lines as they need, in their order. A part that is longer than a line is [folded](fold).
pub fn packed(parts: impl IntoIterator<Item = Span<'static>>, width: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if line.width() + GAP.len() + part.width() <= width => {
                line.push_span(GAP);
                line.push_span(part);
            }
            _ => {
                let style = part.style;
                lines.extend(
                    fold(&part.content, width).into_iter().map(|text| Line::from(Span::styled(text, style))),
                );
            }
        }
    }
    lines
}

/// A text in lines of at most `width` characters, broken at spaces where there are some.
pub fn fold(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = Vec::new();
    let mut rest: Vec<char> = text.chars().collect();
    while rest.len() > width {
        let space = rest[..=width].iter().rposition(|ch| *ch == ' ').filter(|&at| at > 0);
        let at = space.unwrap_or(width);
        lines.push(rest[..at].iter().collect());
        rest.drain(..at + usize::from(space.is_some()));
    }
    lines.push(rest.into_iter().collect());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_broken_at_spaces() {
        assert_eq!(fold("one two three", 7), ["one two", "three"]);
        assert_eq!(fold("one two three", 4), ["one", "two", "thre", "e"]);
        assert_eq!(fold("", 4), [""]);
        assert_eq!(fold("ab", 0), ["a", "b"]);
        let lines = packed(["ab", "cd", "efghijkl"].map(Span::raw), 7);
        let texts: Vec<String> = lines.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["ab   cd", "efghijk", "l"]);
    }
}
