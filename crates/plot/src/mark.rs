//! The drawing instructions: the result of a layout, before it is text or pixels.

/// A shape in one colour. Coordinates are pixels from the upper left corner.
pub(crate) struct Mark {
    pub shape: Shape,
    pub ink: Ink,
}

impl Mark {
    pub fn text(at: [f64; 2], anchor: Anchor, size: f64, text: &str, ink: Ink) -> Mark {
        Mark { shape: Shape::Text { at, anchor, size, text: text.to_owned() }, ink }
    }
}

pub(crate) enum Shape {
    /// A line through points, with round ends. `dash` has the lengths of a dash and of the gap after it.
    Line { points: Vec<[f64; 2]>, width: f64, dash: Option<[f64; 2]> },
    /// A disc, or with `ring` only its edge, of that width. `tip` is text for the reader who points at it.
    Circle { centre: [f64; 2], radius: f64, ring: Option<f64>, tip: String },
    /// A triangle around its centre that points up.
    Arrowhead { centre: [f64; 2], radius: f64, tip: String },
    /// A line of text on its baseline.
    Text { at: [f64; 2], anchor: Anchor, size: f64, text: String },
}

/// The part of a text that is at its position.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A colour by its purpose, so that a page can give it another one in a dark theme.
#[derive(Clone, Copy)]
pub(crate) enum Ink {
    Text,
    Label,
    Grid,
    Curve(usize),
}

/// M. Okabe and K. Ito's colours, darkened for thin lines. Colour-blind readers can distinguish them.
const CURVES: [u32; 6] = [0x0072b2, 0xd55e00, 0x008d66, 0xb2568c, 0x8a6d00, 0x5b5bd6];

impl Ink {
    /// The colour on white, as in `0xRRGGBB`.
    pub fn colour(self) -> u32 {
        match self {
            Ink::Text => 0x222222,
            Ink::Label => 0x666666,
            Ink::Grid => 0xe2e2e2,
            Ink::Curve(k) => CURVES[k % CURVES.len()],
        }
    }

    /// The class of SVG elements.
    pub fn class(self) -> String {
        match self {
            Ink::Text => "ink".to_owned(),
            Ink::Label => "label".to_owned(),
            Ink::Grid => "grid".to_owned(),
            Ink::Curve(k) => format!("c{}", k % CURVES.len()),
        }
    }
}

/// The corners of an arrowhead.
pub(crate) fn arrowhead([x, y]: [f64; 2], radius: f64) -> [[f64; 2]; 3] {
    [[x, y - radius], [x + 0.9 * radius, y + 0.5 * radius], [x - 0.9 * radius, y + 0.5 * radius]]
}
