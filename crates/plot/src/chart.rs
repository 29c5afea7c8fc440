//! Charts, and their layout.

use crate::mark::{Anchor, Ink, Mark, Shape};
use crate::svg::{element, escaped};
use crate::{Axis, Scale, short};
use std::path::Path;

/// With more points than this, a curve has no marks.
const MARKED: usize = 60;

/// With more points than this, a curve is thin.
const DENSE: usize = 120;

/// The size of a [panel's own SVG](Panel::svg). A page stretches it.
const PANEL: [f64; 2] = [520.0, 316.0];

/// The size of a panel of a chart, and its sizes of lines and texts in relation to those of a panel alone.
const CHART_PANEL: [f64; 2] = [800.0, 608.0];
const CHART_UNIT: f64 = 1.5;

/// The most panels in a row.
const COLUMNS: usize = 3;

/// The height above the panels for the title and the subtitle.
const HEADER: f64 = 92.0;

/// Panels under a title, at most three in a row: 800 x 608 pixels each, and 92 for the title.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Chart {
    /// The title, as in "MODEL on DATASET".
    pub title: String,
    /// A line below the title.
    pub subtitle: String,
    /// The panels, row by row from left to right.
    pub panels: Vec<Panel>,
}

/// A format of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// SVG.
    Svg,
    /// PNG.
    #[cfg(feature = "png")]
    Png,
}

impl Format {
    /// The format that a file's extension names; `None` for another extension.
    ///
    /// ```
    /// use towers_plot::Format;
    ///
    /// assert_eq!(Format::of("runs/a/loss.SVG".as_ref()), Some(Format::Svg));
    /// assert_eq!(Format::of("loss.pdf".as_ref()), None);
    /// ```
    pub fn of(file: &Path) -> Option<Format> {
        match file.extension()?.to_string_lossy().to_ascii_lowercase().as_str() {
            "svg" => Some(Format::Svg),
            #[cfg(feature = "png")]
            "png" => Some(Format::Png),
            _ => None,
        }
    }
}

/// Curves with one axis of values, usually over the epochs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Panel {
    /// Its title, such as "Loss".
    pub title: String,
    /// What the curves are over: `epoch`, unless [`over`](Panel::over) names something else.
    pub over: String,
    /// The axis of the epochs. Points beyond its range are drawn at its ends.
    pub x: Axis,
    /// The axis of the values. It cuts off values beyond its range; an arrowhead shows one above.
    pub y: Axis,
    /// The curves. Later ones cover earlier ones.
    pub curves: Vec<Curve>,
    /// A point with a ring.
    pub highlight: Option<Highlight>,
}

/// A value over the epochs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Curve {
    /// The name for the legend.
    pub name: String,
    /// The number of one of six colours, which repeat.
    pub colour: usize,
    /// Whether the line is dashed, as those of validation are.
    pub dashed: bool,
    /// Epochs and values, in order. Numbers that are not finite leave a gap.
    pub points: Vec<(f64, f64)>,
}

/// A point with a ring around it, such as the best epoch.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Highlight {
    /// The name for the legend.
    pub name: String,
    /// The epoch and the value.
    pub at: (f64, f64),
}

impl Chart {
    /// These panels under a title.
    pub fn new(title: impl Into<String>, panels: Vec<Panel>) -> Chart {
        Chart { title: title.into(), subtitle: String::new(), panels }
    }

    /// The same with a line below the title.
    pub fn subtitle(self, subtitle: impl Into<String>) -> Chart {
        Chart { subtitle: subtitle.into(), ..self }
    }

    /// The picture as an SVG file.
    pub fn svg(&self) -> String {
        let (size @ [width, height], marks) = self.layout();
        let attributes = format!(
            " xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             font-family=\"DejaVu Sans, Verdana, sans-serif\""
        );
        let background = "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
        element(size, &attributes, background, &marks) + "\n"
    }

    /// The picture as a PNG file.
    ///
    /// # Errors
    /// An error of the encoder, which is not expected.
    #[cfg(feature = "png")]
    pub fn png(&self) -> std::io::Result<Vec<u8>> {
        let (size, marks) = self.layout();
        crate::raster::png(size, &marks)
    }

    /// The picture as a file of this format.
    ///
    /// # Errors
    /// An error of the PNG encoder, which is not expected.
    pub fn picture(&self, format: Format) -> std::io::Result<Vec<u8>> {
        match format {
            Format::Svg => Ok(self.svg().into_bytes()),
            #[cfg(feature = "png")]
            Format::Png => self.png(),
        }
    }

    /// The size of the picture, and its marks.
    fn layout(&self) -> ([f64; 2], Vec<Mark>) {
        let [width, height] = CHART_PANEL;
        let columns = self.panels.len().clamp(1, COLUMNS);
        let rows = self.panels.len().div_ceil(columns).max(1);
        let size = [width * columns as f64, HEADER + height * rows as f64];
        let middle = size[0] / 2.0;
        let mut marks = vec![
            Mark::text([middle, 40.0], Anchor::Middle, 15.0 * CHART_UNIT, &self.title, Ink::Text),
            Mark::text([middle, 70.0], Anchor::Middle, 11.0 * CHART_UNIT, &self.subtitle, Ink::Label),
        ];
        for (row, panels) in self.panels.chunks(columns).enumerate() {
            let top = HEADER + height * row as f64;
            let frame = |column: usize| Frame {
                left: width * column as f64 + 10.0,
                top,
                right: width * (column + 1) as f64 - 14.0,
                bottom: top + height - 8.0,
                unit: CHART_UNIT,
            };
            // The plots of a row begin at one height, below the longest legend.
            let legends = panels.iter().enumerate().map(|(k, panel)| panel.legend(&frame(k), &mut marks));
            let top = legends.fold(top, f64::max);
            for (k, panel) in panels.iter().enumerate() {
                panel.plot(&Frame { top, ..frame(k) }, &mut marks);
            }
        }
        (size, marks)
    }
}

/// The rectangle that a layout fills.
struct Frame {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
    /// Pixels for a unit, in which the layout has the sizes of lines, marks and texts.
    unit: f64,
}

/// The ends of the axes in a frame, in its units: room for labels is left of the plot and below it.
const ROOM: [f64; 4] = [58.0, 10.0, 8.0, 48.0];

impl Panel {
    /// A panel whose axes fit the curves.
    ///
    /// ```
    /// use towers_plot::{Curve, Panel, Scale};
    ///
    /// let panel = Panel::new("Top-5 accuracy", Scale::Unit, vec![Curve::new("validation", [0.7, 0.9])]);
    /// assert_eq!((panel.x.ticks, panel.y.range), (vec![1.0, 2.0], 0.0..1.0));
    /// ```
    pub fn new(title: impl Into<String>, scale: Scale, curves: Vec<Curve>) -> Panel {
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let epochs = || points().map(|&(epoch, _)| epoch).filter(|epoch| epoch.is_finite());
        let (first, last) = (epochs().reduce(f64::min), epochs().reduce(f64::max));
        let x = Axis::epochs(first.unwrap_or(1.0).floor() as u64..=last.unwrap_or(1.0).ceil() as u64);
        let y = scale.axis(points().map(|&(_, value)| value));
        Panel { title: title.into(), over: "epoch".to_owned(), x, y, curves, highlight: None }
    }

    /// The same over something else than epochs.
    ///
    /// ```
    /// use towers_plot::{Axis, Curve, Panel, Scale};
    ///
    /// let loss = vec![Curve::of_points("loss", [(1e-3, 2.3), (1e-2, 1.9), (0.1, 5.0)])];
    /// let panel = Panel::new("Loss", Scale::Loss, loss).over("learning rate", Axis::powers(1e-3, 0.1));
    /// assert!(panel.svg().contains("learning rate 0.00100, loss: 2.30"));
    /// ```
    pub fn over(self, name: impl Into<String>, x: Axis) -> Panel {
        Panel { over: name.into(), x, ..self }
    }

    /// The same with a ring around the point (epoch, value), which the legend names.
    pub fn highlight(self, name: impl Into<String>, at: (f64, f64)) -> Panel {
        Panel { highlight: Some(Highlight { name: name.into(), at }), ..self }
    }

    /// The plot alone as an SVG element for a web page. It has no title and no legend: HTML has them.
    ///
    /// Marks have tooltips. A style sheet can set colours by class: `line` strokes and `fill` fills; `c0` to
    /// `c5` are the curves' colours, `ink`, `label` and `grid` the others.
    pub fn svg(&self) -> String {
        let [right, bottom] = PANEL;
        let mut marks = Vec::new();
        self.plot(&Frame { left: 0.0, top: 0.0, right, bottom, unit: 1.0 }, &mut marks);
        element(PANEL, &format!(" role=\"img\" aria-label=\"{}\"", escaped(&self.title)), "", &marks)
    }

    /// Draws the title and the legend from left to right, in as many rows as needed. Returns their end.
    fn legend(&self, frame: &Frame, marks: &mut Vec<Mark>) -> f64 {
        let unit = frame.unit;
        let left = frame.left + ROOM[0] * unit;
        let (mut x, mut y) = (left, frame.top + 14.0 * unit);
        let mut place = |name: &str, size: f64, sample: f64| {
            // Fonts differ between systems: this width is enough for common ones.
            let width = unit * (sample + 0.64 * size * name.chars().count() as f64);
            if x > left && x + width > frame.right {
                (x, y) = (left, y + 18.0 * unit);
            }
            let at = [x, y];
            let text = Mark::text([x + unit * sample, y], Anchor::Start, size * unit, name, Ink::Text);
            x += width + 18.0 * unit;
            (at, text)
        };
        marks.push(place(&self.title, 13.0, 0.0).1);
        for curve in &self.curves {
            let ([x, y], text) = place(&curve.name, 11.0, 32.0);
            let y = y - 4.0 * unit;
            marks.extend([curve.line(vec![[x, y], [x + SAMPLE * unit, y]], unit), text]);
        }
        if let Some(Highlight { name, .. }) = &self.highlight {
            let ([x, y], text) = place(name, 11.0, 17.0);
            marks.extend([Highlight::ring([x + 6.0 * unit, y - 4.0 * unit], unit), text]);
        }
        y + 6.0 * unit
    }

    /// Draws the axes and the curves.
    fn plot(&self, frame: &Frame, marks: &mut Vec<Mark>) {
        let unit = frame.unit;
        let [left, top, right, bottom] = [
            frame.left + ROOM[0] * unit,
            frame.top + ROOM[1] * unit,
            frame.right - ROOM[2] * unit,
            frame.bottom - ROOM[3] * unit,
        ];
        let at_x = |epoch: f64| left + (right - left) * self.x.share(epoch).clamp(0.0, 1.0);
        let at_y = |value: f64| bottom + (top - bottom) * self.y.share(value).clamp(0.0, 1.0);
        let line = |from, to, ink| {
            // Through the centres of pixels, for sharp edges.
            let points = [from, to].map(|at: [f64; 2]| at.map(|x| x.floor() + 0.5)).to_vec();
            Mark { shape: Shape::Line { points, width: 1.0, dash: None }, ink }
        };
        let label = |at, anchor, text: &str| Mark::text(at, anchor, 12.0 * unit, text, Ink::Label);
        for &tick in &self.y.ticks {
            let y = at_y(tick);
            marks.push(line([left, y], [right, y], Ink::Grid));
            marks.push(label([left - 8.0 * unit, y + 4.0 * unit], Anchor::End, &self.y.label(tick)));
        }
        for &tick in &self.x.ticks {
            let x = at_x(tick);
            marks.push(line([x, top], [x, bottom], Ink::Grid));
            marks.push(label([x, bottom + 18.0 * unit], Anchor::Middle, &self.x.label(tick)));
        }
        marks.push(line([left, top], [left, bottom], Ink::Label));
        marks.push(line([left, bottom], [right, bottom], Ink::Label));
        let middle = (left + right) / 2.0;
        marks.push(label([middle, bottom + 40.0 * unit], Anchor::Middle, &self.over));
        for curve in &self.curves {
            curve.draw(self, |(epoch, value)| [at_x(epoch), at_y(value)], unit, marks);
        }
        if let Some(Highlight { at: (epoch, value), .. }) = self.highlight {
            marks.push(Highlight::ring([at_x(epoch), at_y(value)], unit));
        }
    }
}

/// The length of a line in a legend.
const SAMPLE: f64 = 24.0;

impl Curve {
    /// A solid curve in the first colour: a value for each epoch from the first one on.
    ///
    /// ```
    /// use towers_plot::Curve;
    ///
    /// let validation = Curve::new("validation", [0.9, 0.7]).colour(1).dashed(true);
    /// assert_eq!(validation.points, [(1.0, 0.9), (2.0, 0.7)]);
    /// ```
    pub fn new(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Curve {
        Curve::of_points(name, values.into_iter().zip(1..).map(|(value, epoch)| (f64::from(epoch), value)))
    }

    /// The same through these points: epochs, in order, and values.
    pub fn of_points(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Curve {
        Curve { name: name.into(), colour: 0, dashed: false, points: points.into_iter().collect() }
    }

    /// The same in another of six colours, which repeat.
    pub fn colour(self, colour: usize) -> Curve {
        Curve { colour, ..self }
    }

    /// The same with a dashed line, as validation has.
    pub fn dashed(self, dashed: bool) -> Curve {
        Curve { dashed, ..self }
    }

    /// A short piece of the line as an SVG element, for the legend of a [panel](Panel::svg) in a web page.
    pub fn sample_svg(&self) -> String {
        element([SAMPLE, 8.0], "", "", &[self.line(vec![[1.0, 4.0], [SAMPLE - 1.0, 4.0]], 1.0)])
    }

    fn line(&self, points: Vec<[f64; 2]>, unit: f64) -> Mark {
        let width = if self.points.len() > DENSE { 1.0 } else { 2.0 } * unit;
        // The round ends make a dash longer by the width.
        let dash = self.dashed.then_some([4.0 * unit, 3.0 * width]);
        Mark { shape: Shape::Line { points, width, dash }, ink: Ink::Curve(self.colour) }
    }

    /// Draws the line, then its marks. Values above the panel's axis are arrowheads.
    fn draw(&self, panel: &Panel, at: impl Fn((f64, f64)) -> [f64; 2], unit: f64, marks: &mut Vec<Mark>) {
        let highest = panel.y.range.end;
        let is_gap = |(epoch, value): &(f64, f64)| !epoch.is_finite() || !value.is_finite();
        let pieces = || self.points.split(is_gap).filter(|piece| !piece.is_empty());
        let lines = pieces().filter(|piece| piece.len() > 1);
        marks.extend(lines.map(|piece| self.line(piece.iter().copied().map(&at).collect(), unit)));
        for piece in pieces() {
            // A single point between gaps has only its mark.
            let all_marked = self.points.len() <= MARKED || piece.len() == 1;
            for &point in piece.iter().filter(|(_, value)| all_marked || *value > highest) {
                let tip =
                    format!("{} {}, {}: {}", panel.over, panel.x.place(point.0), self.name, short(point.1));
                let centre = at(point);
                let shape = match point.1 > highest {
                    true => Shape::Arrowhead { centre, radius: 6.0 * unit, tip },
                    false => Shape::Circle { centre, radius: 3.0 * unit, ring: None, tip },
                };
                marks.push(Mark { shape, ink: Ink::Curve(self.colour) });
            }
        }
    }
}

impl Highlight {
    fn ring(centre: [f64; 2], unit: f64) -> Mark {
        let shape = Shape::Circle { centre, radius: 5.5 * unit, ring: Some(1.5 * unit), tip: String::new() };
        Mark { shape, ink: Ink::Text }
    }
}

#[cfg(test)]
mod tests;
