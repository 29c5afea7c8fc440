//! The figures of the epochs: a table of the runs, and the curves.

use crate::RunReport;
use crate::html::{Escaped, accuracy, time};
use std::fmt::Write;
use towers_callbacks::{
    EpochRecord, Monitor, Points, metric_names, metric_panels, points_by_epoch, speed_panels,
};
use towers_plot::{Panel, short};

/// A row a run: its recipe, its epochs, its figures, its speed.
pub(crate) fn summary(runs: &[RunReport], out: &mut String) {
    out.push_str("<div class=\"scroll\"><table class=\"summary\"><thead><tr><th>run<th>recipe<th>epochs<th>best val. accuracy\
                  <th>last val. accuracy<th>last val. loss<th>test accuracy<th>images/s<th>time</tr></thead><tbody>\n");
    for (k, run) in runs.iter().enumerate() {
        let last = run.history.iter().rfind(|record| record.is_validated());
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

/// A panel for each metric, one for the learning rate and one for the throughput.
pub(crate) fn panels(runs: &[RunReport]) -> Vec<Panel> {
    let names = metric_names(runs.iter().flat_map(|run| &run.history));
    let points = runs.iter().map(|run| |figure: &str| points_by_epoch(&run.history, figure));
    let points: Vec<_> = points.collect();
    let runs: Vec<(&str, &Points<'_>)> =
        runs.iter().zip(&points).map(|(run, points)| (run.name.as_str(), points as &Points<'_>)).collect();
    metric_panels(&names, &runs).into_iter().chain(speed_panels(&runs)).collect()
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
