//! The picture: two panels, drawn on any surface.

use crate::{EpochRecord, Monitor};
use plot::Axis;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};
use std::sync::Once;

/// Width and height of the picture, in pixels.
pub(super) const SIZE: (u32, u32) = (1600, 700);

/// The SVG uses this font where it is installed, elsewhere one of similar width.
const FONT: &str = "DejaVu Sans, Verdana, sans-serif";
static DEJAVU_SANS: &[u8] = include_bytes!("../../assets/DejaVuSans-subset.ttf");

/// Blue and vermilion of M. Okabe and K. Ito's palette, which colour-blind readers can distinguish.
const TRAINING: RGBColor = RGBColor(0, 114, 178);
const VALIDATION: RGBColor = RGBColor(213, 94, 0);
const INK: RGBColor = RGBColor(34, 34, 34);
const GREY: RGBColor = RGBColor(102, 102, 102);
const GRID: RGBColor = RGBColor(228, 228, 228);

/// With more epochs than this, points have no marks.
const MARKED: usize = 30;

/// With more epochs than this, lines are thin and plain.
const DENSE: usize = 120;

type Outcome<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;
type Plot<'a, B> = ChartContext<'a, B, Cartesian2d<Axis, Axis>>;

/// A curve of a panel: training solid, validation dashed.
struct Curve {
    label: &'static str,
    colour: RGBColor,
    dashed: bool,
    figure: fn(&EpochRecord) -> f64,
}

/// The content of a panel.
struct Panel<'a> {
    title: &'static str,
    history: &'a [EpochRecord],
    axis: Axis,
    curves: [Curve; 2],
    best: Option<&'a EpochRecord>,
}

/// Draws on a surface; a larger one with a larger `pen.unit` has the same picture in a higher resolution.
pub(super) fn draw<B: DrawingBackend>(
    root: &DrawingArea<B, Shift>,
    pen: Pen,
    title: &str,
    history: &[EpochRecord],
) -> Outcome<B> {
    static FONT_KNOWN: Once = Once::new();
    // The font is part of the program; a test loads it.
    FONT_KNOWN.call_once(|| drop(register_font(FONT, FontStyle::Normal, DEJAVU_SANS)));
    root.fill(&WHITE)?;
    let best = Monitor::default().best_of(history);
    let centre = Pos::new(HPos::Center, VPos::Top);
    let middle = root.dim_in_pixel().0 as i32 / 2;
    root.draw(&Text::new(title.to_owned(), (middle, pen.px(20.0)), pen.text(28.0, INK).pos(centre)))?;
    if let Some(best) = best {
        let line = format!("best validation accuracy {:.4} in epoch {}", best.val_acc, best.epoch);
        root.draw(&Text::new(line, (middle, pen.px(60.0)), pen.text(20.0, GREY).pos(centre)))?;
    }
    let (_, below) = root.split_vertically(pen.px(92.0));
    let (left, right) = below.split_horizontally(middle);
    pen.panel(&left, &Panel::loss(history))?;
    pen.panel(&right, &Panel::accuracy(history, best))?;
    root.present()
}

fn curves(training: fn(&EpochRecord) -> f64, validation: fn(&EpochRecord) -> f64) -> [Curve; 2] {
    [
        Curve { label: "training", colour: TRAINING, dashed: false, figure: training },
        Curve { label: "validation", colour: VALIDATION, dashed: true, figure: validation },
    ]
}

impl<'a> Panel<'a> {
    fn loss(history: &'a [EpochRecord]) -> Self {
        let axis = Axis::loss(history.iter().flat_map(|record| [record.loss, record.val_loss]));
        let curves = curves(|record| record.loss, |record| record.val_loss);
        Panel { title: "Loss", history, axis, curves, best: None }
    }

    fn accuracy(history: &'a [EpochRecord], best: Option<&'a EpochRecord>) -> Self {
        let curves = curves(|record| record.acc, |record| record.val_acc);
        Panel { title: "Accuracy", history, axis: Axis::accuracy(), curves, best }
    }

    fn is_dense(&self) -> bool {
        self.history.len() > DENSE
    }

    /// The segments of a curve, split at values that are not finite; values are cut to the axis.
    fn pieces(&self, curve: &Curve) -> Vec<Vec<(f64, f64)>> {
        let mut pieces = vec![Vec::new()];
        for record in self.history {
            let value = (curve.figure)(record);
            if value.is_finite() {
                let shown = value.clamp(self.axis.range.start, self.axis.range.end);
                pieces.last_mut().into_iter().for_each(|piece| piece.push((record.epoch as f64, shown)));
            } else {
                pieces.push(Vec::new());
            }
        }
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }

    /// Points above the axis, which are shown as arrowheads at its upper end.
    fn above(&self, curve: &Curve) -> impl Iterator<Item = (f64, f64)> {
        let top = self.axis.range.end;
        let above = self.history.iter().filter(move |record| {
            let value = (curve.figure)(record);
            value.is_finite() && value > top
        });
        above.map(move |record| (record.epoch as f64, top))
    }

    /// The corner with the fewest points, for a legend that is `width` x `height` of the plot. Returns
    /// whether it is on the right, and whether it is at the top.
    fn corner(&self, x: &Axis, width: f64, height: f64) -> (bool, bool) {
        let crowd = |&(right, top): &(bool, bool)| {
            let points = self.curves.iter().flat_map(|curve| self.pieces(curve)).flatten();
            let near = points.filter(|&(epoch, value)| {
                let (h, v) = (x.share(epoch), self.axis.share(value));
                (if right { h > 1.0 - width } else { h < width })
                    && (if top { v > 1.0 - height } else { v < height })
            });
            near.count()
        };
        // In a tie the first one wins: losses leave the upper right free, accuracies the lower right.
        let rising = self.best.is_some();
        let corners = [(true, !rising), (true, rising), (false, !rising), (false, rising)];
        corners.into_iter().min_by_key(crowd).unwrap_or((true, true))
    }
}

/// Sizes and styles on a surface.
#[derive(Clone, Copy)]
pub(super) struct Pen {
    /// Pixels of the surface for a unit; the picture is [`SIZE`] units big.
    pub unit: f64,
    /// The units by which the surface sets centred text too high.
    pub lift: f64,
}

impl Pen {
    fn px(self, units: f64) -> i32 {
        (units * self.unit).round() as i32
    }

    fn text(self, size: f64, colour: RGBColor) -> TextStyle<'static> {
        (FONT, size * self.unit).into_font().color(&colour)
    }

    fn line(self, colour: RGBColor, width: f64) -> ShapeStyle {
        colour.stroke_width(self.px(width) as u32)
    }

    fn panel<B: DrawingBackend>(self, area: &DrawingArea<B, Shift>, panel: &Panel<'_>) -> Outcome<B> {
        let epoch = |record: Option<&EpochRecord>| record.map_or(1, |record| record.epoch);
        let x = Axis::epochs(epoch(panel.history.first())..=epoch(panel.history.last()));
        let mut plot = ChartBuilder::on(area)
            .margin_left(self.px(16.0))
            .margin_right(self.px(40.0))
            .margin_bottom(self.px(14.0))
            .caption(panel.title, self.text(23.0, INK))
            .x_label_area_size(self.px(60.0))
            .y_label_area_size(self.px(74.0))
            .build_cartesian_2d(x.clone(), panel.axis.clone())?;
        plot.configure_mesh()
            .y_label_offset(self.px(self.lift))
            .label_style(self.text(19.0, INK))
            .axis_desc_style(self.text(21.0, INK))
            .x_desc("Epoch")
            .axis_style(self.line(GREY, 1.5))
            .bold_line_style(self.line(GRID, 1.0))
            .light_line_style(TRANSPARENT)
            .set_all_tick_mark_size(self.px(6.0))
            .draw()?;
        for curve in &panel.curves {
            self.curve(&mut plot, panel, curve)?;
        }
        if let Some(best) = panel.best {
            let at = (best.epoch as f64, best.val_acc);
            plot.draw_series([Circle::new(at, self.px(9.0), self.line(INK, 2.0))])?;
        }
        self.legend(&plot, panel, &x)
    }

    fn curve<B: DrawingBackend>(
        self,
        plot: &mut Plot<'_, B>,
        panel: &Panel<'_>,
        curve: &Curve,
    ) -> Outcome<B> {
        let style = self.line(curve.colour, if panel.is_dense() { 1.5 } else { 3.0 });
        let all_marked = panel.history.len() <= MARKED;
        for piece in panel.pieces(curve) {
            // A single point between gaps has only its mark.
            let marked = if all_marked || piece.len() == 1 { piece.as_slice() } else { &[] };
            plot.draw_series(marked.iter().map(|&at| Circle::new(at, self.px(5.0), curve.colour.filled())))?;
            if curve.dashed && !panel.is_dense() {
                let (dash, gap) = (self.px(9.0), self.px(5.0));
                plot.draw_series(DashedLineSeries::new(piece, dash, gap, style))?;
            } else {
                plot.draw_series(LineSeries::new(piece, style))?;
            }
        }
        let arrows =
            panel.above(curve).map(|at| TriangleMarker::new(at, self.px(10.0), curve.colour.filled()));
        plot.draw_series(arrows)?;
        Ok(())
    }

    fn legend<B: DrawingBackend>(self, plot: &Plot<'_, B>, panel: &Panel<'_>, x: &Axis) -> Outcome<B> {
        let area = plot.plotting_area().strip_coord_spec();
        let (width, height) = area.dim_in_pixel();
        let rows = panel.curves.len() + usize::from(panel.best.is_some());
        let size = (self.px(190.0), self.px(14.0 + 30.0 * rows as f64));
        let gap = self.px(14.0);
        let share = |size: i32, all: u32| f64::from(size + 2 * gap) / f64::from(all.max(1));
        let (right, top) = panel.corner(x, share(size.0, width), share(size.1, height));
        let left = if right { width as i32 - gap - size.0 } else { gap };
        let upper = if top { gap } else { height as i32 - gap - size.1 };
        let frame = [(left, upper), (left + size.0, upper + size.1)];
        area.draw(&Rectangle::new(frame, WHITE.mix(0.85).filled()))?;
        area.draw(&Rectangle::new(frame, self.line(GRID, 1.0)))?;

        let row = |k: usize| upper + self.px(22.0 + 30.0 * k as f64);
        let (from, to) = (left + self.px(12.0), left + self.px(58.0));
        let label = self.text(19.0, INK).pos(Pos::new(HPos::Left, VPos::Center));
        let write = |text: String, y| {
            area.draw(&Text::new(text, (to + self.px(12.0), y + self.px(self.lift)), label.clone()))
        };
        for (k, curve) in panel.curves.iter().enumerate() {
            let style = self.line(curve.colour, 3.0);
            let y = row(k);
            if curve.dashed && !panel.is_dense() {
                for start in [0.0, 18.0, 36.0] {
                    let start = from + self.px(start);
                    area.draw(&PathElement::new(vec![(start, y), (start + self.px(10.0), y)], style))?;
                }
            } else {
                area.draw(&PathElement::new(vec![(from, y), (to, y)], style))?;
            }
            if panel.history.len() <= MARKED {
                area.draw(&Circle::new(((from + to) / 2, y), self.px(5.0), curve.colour.filled()))?;
            }
            write(curve.label.to_owned(), y)?;
        }
        if let Some(best) = panel.best {
            let y = row(panel.curves.len());
            area.draw(&Circle::new(((from + to) / 2, y), self.px(9.0), self.line(INK, 2.0)))?;
            write(format!("best {:.4}", best.val_acc), y)?;
        }
        Ok(())
    }
}
