//! The figures of the epochs: a table of the runs, and the curves.

use crate::RunReport;
use crate::escape::Escaped;
use crate::numbers::{accuracy, time};
use callbacks::{EpochRecord, printable};
use callbacks::{Monitor, metric_names, scale};
use metrics::{Group, grouped};
use plot::{Curve, Panel, Scale, short};
use std::fmt::Write;

/// A row a run: its recipe, its epochs, its figures, its speed.
pub(crate) fn summary(runs: &[RunReport], out: &mut String) {
    out.push_str("<div class=\"scroll\"><table class=\"summary\"><thead><tr><th>run<th>recipe<th>epochs<th>best val. accuracy\
                  <th>last val. accuracy<th>last val. loss<th>test accuracy<th>images/s<th>time</tr></thead><tbody>\n");
    for (k, run) in runs.iter().enumerate() {
        let last = run.history.last();
        let of = |record: &EpochRecord, name| record.get(name).unwrap_or(f64::NAN);
        let figure = |figure: Option<f64>| figure.map_or("–".to_owned(), short);
        let best = Monitor::default().best_of(&run.history).map_or("–".to_owned(), |best| {
            format!("{} (epoch {})", accuracy(of(best, "val_acc")), best.epoch)
        });
        let cells = [
            Escaped(run.setting("recipe")).to_string(),
            format!("{} of {}", run.history.len(), Escaped(run.setting("epochs"))),
            best,
            last.map_or("–".to_owned(), |record| accuracy(of(record, "val_acc"))),
            figure(last.and_then(|record| record.get("val_loss"))),
            run.test.as_ref().map_or("–".to_owned(), |test| match test.split {
                "test" => accuracy(test.evaluation.acc),
                split => format!("{} ({split})", accuracy(test.evaluation.acc)),
            }),
            figure(median(run.history.iter().map(|record| record.images_per_second))),
            time(run.history.iter().map(|record| record.seconds).sum()),
        ];
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "<tr><th><i class=\"dot c{}\"></i>{}<td>{}</tr>",
            k % 6,
            Escaped(&run.name),
            cells.join("<td>")
        );
    }
    out.push_str("</tbody></table></div>\n");
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// A chart for each metric, one for the learning rate and one for the throughput.
pub(crate) fn charts(runs: &[RunReport], out: &mut String) {
    let history = runs.iter().flat_map(|run| &run.history);
    let metrics =
        grouped(metric_names(history)).into_iter().map(|Group { about, training, validation, .. }| {
            let of = [("training", training), ("validation", validation)];
            Panel::new(about.title, scale(about.unit), curves(runs, &of))
        });
    let others = [
        ("Learning rate", "learning rate", "lr"),
        ("Training images a second", "images a second", "images_per_second"),
    ];
    let others = others.map(|(title, name, figure)| {
        Panel::new(title, Scale::FromZero, curves(runs, &[(name, Some(figure))]))
    });
    figures(metrics.chain(others), out);
}

/// Charts side by side, each with a legend where there are several curves.
pub(crate) fn figures(panels: impl IntoIterator<Item = Panel>, out: &mut String) {
    out.push_str("<div class=\"charts\">\n");
    for panel in panels {
        let title = Escaped(&panel.title);
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

/// A run alone has a colour for training and one for validation; several have a colour each, with validation dashed.
fn curves(runs: &[RunReport], figures: &[(&str, Option<&str>)]) -> Vec<Curve> {
    let several = runs.len() > 1;
    let of_run = |(k, run): (usize, &RunReport)| {
        let curve = |(f, (name, figure)): (usize, &(&str, Option<&str>))| {
            let figure = (*figure)?;
            let value = |record: &EpochRecord| record.get(figure).unwrap_or(f64::NAN);
            // Tooltips show it too, and do not escape control characters.
            let name = if several { printable(&format!("{} {name}", run.name)) } else { (*name).to_owned() };
            let points = run.history.iter().map(|record| (record.epoch as f64, value(record)));
            Some(Curve::of_points(name, points).colour(if several { k } else { f }).dashed(f == 1))
        };
        figures.iter().enumerate().filter_map(curve).collect::<Vec<_>>()
    };
    runs.iter().enumerate().flat_map(of_run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_of_finite_numbers() {
        assert_eq!(median([3.0, f64::NAN, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([].into_iter()), None);
    }
}
