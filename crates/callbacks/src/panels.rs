//! The panels of a chart about one or several runs.

use crate::{EpochRecord, printable};
use towers_metrics::{Group, Unit, grouped};
use towers_plot::{Curve, Panel, Scale};

/// The points of a figure, such as `val_acc` or `lr`: epochs and values.
pub type Points<'a> = dyn Fn(&str) -> Vec<(f64, f64)> + 'a;

/// The value of a figure in each epoch that has it.
pub fn points_by_epoch(history: &[EpochRecord], figure: &str) -> Vec<(f64, f64)> {
    history.iter().filter_map(|record| Some((record.epoch as f64, record.get(figure)?))).collect()
}

/// A panel for each metric of these `names`, with curves of training and validation of each of `runs`: their names
/// and points.
///
/// A run alone has a colour for training and one for validation. Several have a colour each, and their names are in
/// the legend. Validation is dashed.
///
/// ```
/// use towers_callbacks::{metric_panels, points_by_epoch, testing};
///
/// let history = [testing::record(1, [0.9, 0.5, 0.8, 0.6])];
/// let run = |figure: &str| points_by_epoch(&history, figure);
/// let panels = metric_panels(&["loss", "acc", "val_loss", "val_acc"], &[("a", &run)]);
/// assert_eq!((panels.len(), panels[1].title.as_str()), (2, "Accuracy"));
/// assert_eq!((panels[1].curves[1].name.as_str(), &panels[1].curves[1].points[..]), ("validation", &[(1.0, 0.6)][..]));
/// ```
pub fn metric_panels(names: &[&str], runs: &[(&str, &Points<'_>)]) -> Vec<Panel> {
    let groups = grouped(names.iter().copied()).into_iter();
    let panels = groups.map(|Group { about, training, validation, .. }| {
        let scale = match about.unit {
            Unit::Share => Scale::Unit,
            Unit::None => Scale::Loss,
        };
        panel(&about.title, scale, &[("training", training), ("validation", validation)], runs)
    });
    panels.collect()
}

/// A panel for the learning rate, and one for the throughput.
pub fn speed_panels(runs: &[(&str, &Points<'_>)]) -> [Panel; 2] {
    let panels = [
        ("Learning rate", "learning rate", "lr"),
        ("Training images a second", "images a second", "images_per_second"),
    ];
    panels.map(|(title, name, figure)| panel(title, Scale::FromZero, &[(name, Some(figure))], runs))
}

fn panel(title: &str, scale: Scale, figures: &[(&str, Option<&str>)], runs: &[(&str, &Points<'_>)]) -> Panel {
    let several = runs.len() > 1;
    let curves = runs.iter().enumerate().flat_map(|(k, (run, points))| {
        figures.iter().enumerate().filter_map(move |(f, (name, figure))| {
            // Tooltips show it too, and do not escape control characters.
            let name = if several { printable(&format!("{run} {name}")) } else { (*name).to_owned() };
            let points = points((*figure)?);
            Some(Curve::of_points(name, points).colour(if several { k } else { f }).dashed(f == 1))
        })
    });
    Panel::new(title, scale, curves.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{record, unvalidated};

    #[test]
    fn a_curve_goes_on_behind_an_epoch_without_the_figure() {
        let history = [record(1, [0.9, 0.5, 0.8, 0.6]), unvalidated(2, 0.5, 0.5), record(3, [f64::NAN; 4])];
        assert_eq!(points_by_epoch(&history, "loss")[..2], [(1.0, 0.9), (2.0, 0.5)]);
        let points = points_by_epoch(&history, "val_acc");
        assert!(points[0] == (1.0, 0.6) && points[1].0 == 3.0 && points[1].1.is_nan(), "NaN leaves a gap");
    }

    #[test]
    fn several_runs_have_a_name_and_a_colour_each() {
        let histories = [vec![record(1, [0.9, 0.5, 0.8, 0.6])], vec![]];
        let points = histories.each_ref().map(|history| |figure: &str| points_by_epoch(history, figure));
        let runs: [(&str, &Points<'_>); 2] = [("a", &points[0]), ("b\u{202e}", &points[1])];
        let of = |panel: &Panel| {
            Vec::from_iter(
                panel
                    .curves
                    .iter()
                    .map(|curve| (curve.name.clone(), curve.colour, curve.dashed, curve.points.len())),
            )
        };
        let named = |name: &str, colour, dashed, points| (name.to_owned(), colour, dashed, points);
        let panels = metric_panels(&["loss", "val_loss", "val_f1"], &runs);
        let loss = [
            named("a training", 0, false, 1),
            named("a validation", 0, true, 1),
            named("b\\u202e training", 1, false, 0),
            named("b\\u202e validation", 1, true, 0),
        ];
        assert_eq!((panels.len(), of(&panels[0])), (2, loss.to_vec()));
        let alone = &metric_panels(&["val_f1"], &runs[..1])[0];
        assert_eq!((alone.title.as_str(), of(alone)), ("Macro F1", vec![named("validation", 1, true, 0)]));
        let [rate, speed] = speed_panels(&runs[..1]);
        assert_eq!(of(&rate), [named("learning rate", 0, false, 1)]);
        assert_eq!(speed.curves[0].points, [(1.0, histories[0][0].images_per_second)]);
    }
}
