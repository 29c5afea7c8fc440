//! The predicted curves: efficiency over the number of devices.

use crate::model::Model;
use crate::options::Question;
use crate::report::MEASURED;
use crate::sweep::{Row, Scaling};
use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};
use std::sync::Once;

const SIZE: (u32, u32) = (1600, 760);

/// Where the font below is known by name the SVG uses it, elsewhere something of nearly the same widths.
const FONT: &str = "DejaVu Sans, Verdana, sans-serif";
static DEJAVU_SANS: &[u8] = include_bytes!("../../../crates/callbacks/assets/DejaVuSans-subset.ttf");

/// M. Okabe and K. Ito's palette, which colour-blind readers can tell apart.
const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(230, 159, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
];
const MEASURED_COLOUR: RGBColor = RGBColor(213, 94, 0);
const INK: RGBColor = RGBColor(34, 34, 34);
const GREY: RGBColor = RGBColor(102, 102, 102);
const GRID: RGBColor = RGBColor(228, 228, 228);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Weak scaling on the left, strong scaling on the right, a curve for each fabric.
pub fn svg(model: &Model, question: &Question, rows: &[Row]) -> Result<String> {
    static FONT_KNOWN: Once = Once::new();
    // The font is part of the program; a test reads it.
    FONT_KNOWN.call_once(|| drop(register_font(FONT, FontStyle::Normal, DEJAVU_SANS)));
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    let failed = |error| anyhow!("the curves can't be drawn: {error}");
    draw(&root, model, question, rows).map_err(|error| failed(error.to_string()))?;
    drop(root);
    Ok(text)
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn draw(root: &Area, model: &Model, question: &Question, rows: &[Row]) -> Outcome {
    root.fill(&WHITE)?;
    let centre = Pos::new(HPos::Center, VPos::Top);
    let middle = SIZE.0 as i32 / 2;
    let title = format!("{}: predicted efficiency of data parallelism", model.name);
    root.draw(&Text::new(title, (middle, 18), style(28.0, INK).pos(centre)))?;
    let jitter = if question.jitter > 0.0 { format!(", jitter {}", question.jitter) } else { String::new() };
    let speed = if model.speed.is_some() { ", scaled to a stated speed" } else { "" };
    let below = format!(
        "layer times measured on {} at batch {}{speed}; links assumed{jitter}",
        model.device, model.batch
    );
    root.draw(&Text::new(below, (middle, 58), style(19.0, GREY).pos(centre)))?;
    let (_, panels) = root.split_vertically(88);
    let (left, right) = panels.split_horizontally(middle);
    let weak = format!("Weak scaling: {} samples a GPU", question.batch);
    let strong = format!("Strong scaling: {} samples in all", question.global_batch);
    panel(&left, &weak, question, rows, Scaling::Weak)?;
    panel(&right, &strong, question, rows, Scaling::Strong)?;
    root.present()?;
    Ok(())
}

fn style(size: f64, colour: RGBColor) -> TextStyle<'static> {
    (FONT, size).into_font().color(&colour)
}

fn panel(area: &Area, title: &str, question: &Question, rows: &[Row], scaling: Scaling) -> Outcome {
    let most = question.gpus.last().copied().unwrap_or(1).max(4) as f64;
    let mut plot = ChartBuilder::on(area)
        .margin_left(16)
        .margin_right(40)
        .margin_bottom(14)
        .caption(title, style(23.0, INK))
        .x_label_area_size(60)
        .y_label_area_size(74)
        .build_cartesian_2d((0.9..1.1 * most).log_scale().base(2.0), 0.0..1.05)?;
    plot.configure_mesh()
        .label_style(style(19.0, INK))
        .axis_desc_style(style(21.0, INK))
        .x_desc("GPUs")
        .x_label_formatter(&|gpus| format!("{gpus:.0}"))
        .y_desc("efficiency: speed-up a GPU")
        .y_labels(6)
        .y_label_formatter(&|efficiency| format!("{efficiency:.1}"))
        .axis_style(GREY.stroke_width(1))
        .bold_line_style(GRID.stroke_width(1))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (fabric, &colour) in question.fabrics.iter().zip(COLOURS.iter().cycle()) {
        let name = fabric.name();
        let of_curve = rows.iter().filter(|row| row.scaling == scaling && row.fabric == name);
        let points: Vec<(f64, f64)> = of_curve.map(|row| (row.gpus as f64, row.efficiency)).collect();
        plot.draw_series(LineSeries::new(points.clone(), colour.stroke_width(3)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 26, y)], colour.stroke_width(3)));
        plot.draw_series(points.into_iter().map(|point| Circle::new(point, 4, colour.filled())))?;
    }
    if scaling == Scaling::Weak {
        for measured in &MEASURED {
            let at = (measured.gpus as f64, measured.speed_up / measured.gpus as f64);
            plot.draw_series([TriangleMarker::new(at, 11, MEASURED_COLOUR.filled())])?
                .label(format!("measured with Keras, {}", measured.what))
                .legend(|(x, y)| TriangleMarker::new((x + 13, y), 8, MEASURED_COLOUR.filled()));
        }
    }
    plot.configure_series_labels()
        .position(SeriesLabelPosition::LowerLeft)
        .label_font(style(17.0, INK))
        .background_style(WHITE.mix(0.85))
        .border_style(GRID)
        .margin(10)
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::tests::fabric;
    use crate::profile::tests::profile;
    use crate::sweep::sweep;

    #[test]
    fn the_picture_names_every_fabric_and_what_was_measured() {
        let model = Model::new(&[profile(10, &[(500_000, 10.0, 20.0)])], 0.0, None).unwrap();
        for gpus in [vec![1], vec![1, 2, 4, 4096]] {
            let fabrics = vec![fabric(1e9, 1e-6, 8), fabric(2e9, 1e-6, 4)];
            let question = Question { gpus, fabrics, bucket: None, batch: 10, global_batch: 64, jitter: 0.0 };
            let picture = svg(&model, &question, &sweep(&model, &question)).unwrap();
            for fabric in &question.fabrics {
                assert_eq!(picture.matches(&fabric.name()).count(), 2, "once in each panel");
            }
            assert!(
                picture.contains("Titan X") && picture.contains("1080 Ti") && picture.contains("predicted")
            );
        }
    }
}
