//! A line chart as SVG whose colours are the page's.

use crate::escape::Escaped;
use plot::Axis;
use plotters::coord::ranged1d::ValueFormatter;
use std::fmt::Write;

/// The colours that the style sheet has for lines.
const COLOURS: usize = 6;

/// With more points than this, a curve has no marks.
const MARKED: usize = 60;

/// The size of the drawing, in its own units: the page stretches it.
const SIZE: [f64; 2] = [520.0, 316.0];
/// Where the plot's corners are: left, top, right, bottom.
const PLOT: [f64; 4] = [58.0, 10.0, 512.0, 268.0];

/// A figure over the epochs.
pub(crate) struct Chart<'a> {
    pub title: &'static str,
    pub x: &'a Axis,
    pub y: Axis,
    pub curves: Vec<Curve<'a>>,
}

/// A line of a chart. Points that are not finite leave a gap.
pub(crate) struct Curve<'a> {
    pub name: String,
    /// The name of its run, where there are several.
    pub run: Option<&'a str>,
    pub colour: usize,
    pub dashed: bool,
    pub points: Vec<(f64, f64)>,
}

impl Chart<'_> {
    /// The chart, with a legend where there are several curves.
    pub fn write(&self, out: &mut String) {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(out, "<figure class=\"chart\"><figcaption>{}</figcaption>", self.title);
        if self.curves.len() > 1 {
            self.legend(out);
        }
        let [w, h] = SIZE;
        let _ = writeln!(out, "<svg viewBox=\"0 0 {w} {h}\" role=\"img\" aria-label=\"{}\">", self.title);
        self.grid(out);
        self.curves.iter().for_each(|curve| self.curve(curve, out));
        out.push_str("</svg></figure>\n");
    }

    fn legend(&self, out: &mut String) {
        out.push_str("<p class=\"legend\">");
        for curve in &self.curves {
            let _ = write!(
                out,
                "<span><svg viewBox=\"0 0 24 8\"><path class=\"{}\" d=\"M0 4H24\"/></svg>{}{}</span> ",
                curve.class(),
                curve.run.map_or(String::new(), |run| format!("{} ", Escaped(run))),
                Escaped(&curve.name)
            );
        }
        out.push_str("</p>\n");
    }

    fn grid(&self, out: &mut String) {
        let [left, top, right, bottom] = PLOT;
        for tick in &self.y.ticks {
            let (y, label) = (self.at_y(*tick), Axis::format_ext(&self.y, tick));
            let _ = writeln!(out, "<path class=\"grid\" d=\"M{left} {y:.1}H{right}\"/>");
            let _ =
                writeln!(out, "<text x=\"{}\" y=\"{:.1}\" class=\"y\">{label}</text>", left - 8.0, y + 4.0);
        }
        for tick in &self.x.ticks {
            let x = self.at_x(*tick);
            let _ = writeln!(out, "<path class=\"axis\" d=\"M{x:.1} {bottom}v4\"/>");
            let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{}\" class=\"x\">{tick}</text>", bottom + 20.0);
        }
        let _ = writeln!(out, "<path class=\"axis\" d=\"M{left} {top}V{bottom}H{right}\"/>");
        let middle = (left + right) / 2.0;
        let _ = writeln!(out, "<text x=\"{middle}\" y=\"{}\" class=\"x\">epoch</text>", bottom + 40.0);
    }

    fn curve(&self, curve: &Curve<'_>, out: &mut String) {
        let mut path = String::new();
        let mut pen = 'M';
        for &(epoch, value) in &curve.points {
            if value.is_finite() {
                let _ = write!(path, "{pen}{:.1} {:.1}", self.at_x(epoch), self.at_y(value));
                pen = 'L';
            } else {
                pen = 'M';
            }
        }
        let class = curve.class();
        let _ = writeln!(out, "<path class=\"{class}\" d=\"{path}\"/>");
        if curve.points.len() > MARKED {
            return;
        }
        for &(epoch, value) in curve.points.iter().filter(|(_, value)| value.is_finite()) {
            let (x, y) = (self.at_x(epoch), self.at_y(value));
            let name = Escaped(&curve.name);
            let title = format!("<title>epoch {epoch}, {name}: {}</title>", crate::numbers::short(value));
            let _ = writeln!(
                out,
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\">{title}</circle>"
            );
        }
    }

    fn at_x(&self, value: f64) -> f64 {
        PLOT[0] + (PLOT[2] - PLOT[0]) * self.x.share(value)
    }

    /// What is above or below the axis is drawn at its end.
    fn at_y(&self, value: f64) -> f64 {
        PLOT[3] + (PLOT[1] - PLOT[3]) * self.y.share(value).clamp(0.0, 1.0)
    }
}

impl Curve<'_> {
    fn class(&self) -> String {
        format!("line c{}{}", self.colour % COLOURS, if self.dashed { " dashed" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(points: Vec<(f64, f64)>) -> String {
        let epochs = Axis::epochs(1..=points.len() as u64);
        let curve = |name: &str| Curve {
            name: name.into(),
            run: None,
            colour: 7,
            dashed: true,
            points: points.clone(),
        };
        let y = Axis::loss(points.iter().map(|&(_, value)| value));
        let mut out = String::new();
        Chart { title: "Loss", x: &epochs, y, curves: vec![curve("a < b"), curve("b")] }.write(&mut out);
        out
    }

    #[test]
    fn gaps_break_a_line() {
        let svg = drawn(vec![(1.0, 2.0), (2.0, 1.0), (3.0, f64::NAN), (4.0, 0.5)]);
        let path = svg.lines().find(|line| line.starts_with("<path class=\"line")).unwrap();
        assert_eq!((path.matches('M').count(), path.matches('L').count()), (2, 1), "{path}");
        assert!(path.contains("line c1 dashed"), "{path}");
        assert_eq!((svg.matches("<circle").count(), svg.matches(">epoch</text>").count()), (6, 1));
        assert!(svg.contains("<title>epoch 4, b: 0.500"), "{svg}");
        assert!(svg.contains("a &lt; b") && !svg.contains("a < b") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn long_runs_have_no_marks() {
        let svg = drawn((1..=200).map(|epoch| (f64::from(epoch), 1.0 / f64::from(epoch))).collect());
        assert_eq!((svg.matches("<circle").count(), svg.matches("</svg>").count()), (0, 3));
    }

    #[test]
    fn nothing_is_a_chart_too() {
        assert!(drawn(vec![]).contains("</svg></figure>"));
    }
}
