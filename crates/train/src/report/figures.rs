//! The figures of the epochs: a table of the runs, and the curves.

use super::RunReport;
use super::chart::{Chart, Curve};
use super::escape::Escaped;
use crate::EpochRecord;
use crate::axis::Axis;
use std::fmt::Write;

/// A number with four digits that matter.
pub(super) fn short(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e5).contains(&value.abs()) {
        format!("{value:.2e}")
    } else {
        let before = value.abs().log10().floor().max(0.0) as usize;
        format!("{value:.*}", 4_usize.saturating_sub(before))
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.1} s"),
        s if s < 6000.0 => format!("{:.0} min {:02.0} s", (s / 60.0).floor(), s % 60.0),
        s => format!("{:.0} h {:02.0} min", (s / 3600.0).floor(), (s % 3600.0 / 60.0).floor()),
    }
}

/// A row a run: what it is, how far it got, how fast it was.
pub(super) fn summary(runs: &[RunReport], out: &mut String) {
    out.push_str("<div class=\"scroll\"><table class=\"summary\"><thead><tr><th>run<th>recipe<th>epochs<th>best val. accuracy\
                  <th>last val. accuracy<th>last val. loss<th>test accuracy<th>images/s<th>time</tr></thead><tbody>\n");
    for (k, run) in runs.iter().enumerate() {
        let last = run.history.last();
        let figure = |figure: Option<f64>| figure.map_or("–".to_owned(), short);
        let best = EpochRecord::best(&run.history)
            .map_or("–".to_owned(), |best| format!("{} (epoch {})", short(best.val_acc), best.epoch));
        let cells = [
            Escaped(run.setting("recipe")).to_string(),
            format!("{} of {}", run.history.len(), Escaped(run.setting("epochs"))),
            best,
            figure(last.map(|record| record.val_acc)),
            figure(last.map(|record| record.val_loss)),
            run.test.as_ref().map_or("–".to_owned(), |test| match test.split {
                "test" => short(test.evaluation.acc),
                split => format!("{} ({split})", short(test.evaluation.acc)),
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

type Figure = fn(&EpochRecord) -> f64;

/// Four charts: loss, accuracy, learning rate, throughput.
pub(super) fn charts(runs: &[RunReport], out: &mut String) {
    let epochs = || runs.iter().flat_map(|run| run.history.iter().map(|record| record.epoch));
    let x = Axis::epochs(epochs().min().unwrap_or(1)..=epochs().max().unwrap_or(1));
    let values = |figures: &[Figure]| -> Vec<f64> {
        runs.iter()
            .flat_map(|run| &run.history)
            .flat_map(|r| figures.iter().map(|figure| figure(r)))
            .collect()
    };
    let loss: &[(&str, Figure)] = &[("training", |r| r.loss), ("validation", |r| r.val_loss)];
    let accuracy: &[(&str, Figure)] = &[("training", |r| r.acc), ("validation", |r| r.val_acc)];
    let lr: &[(&str, Figure)] = &[("learning rate", |r| r.lr)];
    let rate: &[(&str, Figure)] = &[("images a second", |r| r.images_per_second)];
    let panels = [
        ("Loss", loss, Axis::loss(values(&[|r| r.loss, |r| r.val_loss]))),
        ("Accuracy", accuracy, Axis::accuracy()),
        ("Learning rate", lr, Axis::from_zero(values(&[|r| r.lr]))),
        ("Training images a second", rate, Axis::from_zero(values(&[|r| r.images_per_second]))),
    ];
    out.push_str("<div class=\"charts\">\n");
    for (title, figures, y) in panels {
        Chart { title, x: &x, y, curves: curves(runs, figures) }.write(out);
    }
    out.push_str("</div>\n");
}

/// A run alone has a colour for training and one for validation; several have a colour each, with validation dashed.
fn curves<'a>(runs: &'a [RunReport], figures: &[(&str, Figure)]) -> Vec<Curve<'a>> {
    let several = runs.len() > 1;
    let curve = |(k, run): (usize, &'a RunReport)| {
        figures.iter().enumerate().map(move |(f, (name, figure))| Curve {
            name: (*name).to_owned(),
            run: several.then_some(run.name.as_str()),
            colour: if several { k } else { f },
            dashed: f == 1,
            points: run.history.iter().map(|record| (record.epoch, figure(record))).collect(),
        })
    };
    runs.iter().enumerate().flat_map(curve).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_are_short() {
        let numbers = [0.0, 0.5, 0.98765, 12.3456, 1234.56, 123_456.0, 1e-4, -2.5, f64::NAN].map(short);
        let expected =
            ["0.0000", "0.5000", "0.9877", "12.346", "1234.6", "1.23e5", "1.00e-4", "-2.5000", "NaN"];
        assert_eq!(numbers, expected);
        assert_eq!([2.34, 754.0, 7300.0].map(time), ["2.3 s", "12 min 34 s", "2 h 01 min"]);
        assert_eq!(median([3.0, f64::NAN, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([].into_iter()), None);
    }
}
