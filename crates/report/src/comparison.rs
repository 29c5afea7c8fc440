//! Runs side by side: what differs, and their curves in one picture.

use crate::{RunReport, figures, settings};
use towers_callbacks::{EpochRecord, Monitor, figure, metric_names};
use towers_plot::Chart;

/// The differences between runs, as rows of a table: a name, and the value of each run that has one.
///
/// The first rows are the metrics: the last value and the best one, by the direction in which the metric improves. They follow whether or
/// not they differ. Then come the size of the network, version, system and devices, and the options, where two runs differ.
///
/// ```
/// use towers_report::{RunReport, comparison};
///
/// # let folder = tempfile::tempdir()?;
/// let recipe = towers_config::recipe("quick")?;
/// let run = |lr: f64| {
///     let run = folder.path().join(lr.to_string());
///     std::fs::create_dir(&run)?;
///     towers_config::save_config(&recipe.with(|config| config.training.lr = lr), &run)?;
///     Ok::<_, Box<dyn std::error::Error>>(RunReport::read(&run, lr.to_string())?)
/// };
/// let differences = comparison(&[run(0.1)?, run(0.5)?]);
/// let rates = ["0.1", "0.5"].map(|rate| Some(rate.to_owned()));
/// assert_eq!(differences, [("lr".to_owned(), rates.to_vec())]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn comparison(runs: &[RunReport]) -> Vec<(String, Vec<Option<String>>)> {
    let metrics = metric_names(runs.iter().flat_map(|run| &run.history)).into_iter().map(|name| {
        let values = runs.iter().map(|run| last_and_best(&run.history, name));
        (name.to_owned(), values.collect::<Vec<_>>())
    });
    let of: [Settings; 3] = [|run| &run.about, |run| &run.environment, |run| &run.config];
    let differing = of.into_iter().flat_map(|of| {
        let keys = settings::keys(runs.iter().map(|run| of(run).as_slice()));
        // Starts always differ, and so do the options that differ from the recipe where others do.
        let told = keys.into_iter().filter(|key| !RunReport::is_start(key) && *key != "changed");
        let rows = told.map(move |key| (key, values(key, runs, of)));
        let differing = rows.filter(|(_, values)| values.iter().any(|value| *value != values[0]));
        let owned = |value: Option<&str>| value.map(str::to_owned);
        differing.map(move |(key, values)| (key.to_owned(), values.into_iter().map(owned).collect()))
    });
    let measured = metrics.filter(|(_, values)| values.iter().any(Option::is_some));
    measured.chain(differing).collect()
}

/// Some settings of a run, by key.
pub(crate) type Settings = fn(&RunReport) -> &Vec<(String, String)>;

/// The value of a setting in each run that has it.
pub(crate) fn values<'r>(key: &str, runs: &'r [RunReport], of: Settings) -> Vec<Option<&'r str>> {
    let value = |run| Some(of(run).iter().find(|(name, _)| name == key)?.1.as_str());
    runs.iter().map(value).collect()
}

/// The last value of a metric, and the best one with its epoch.
fn last_and_best(history: &[EpochRecord], name: &str) -> Option<String> {
    let value = |record: &EpochRecord| record.get(name).map(figure);
    let last = history.iter().rfind(|record| value(record).is_some())?;
    let shown = value(last)?;
    Some(match Monitor::of(name).best_of(history) {
        Some(best) if best.epoch == last.epoch => format!("{shown} (best)"),
        Some(best) => format!("{shown} (best {} in epoch {})", value(best)?, best.epoch),
        None => shown,
    })
}

/// The curves of all runs in one picture: the panels of the page.
pub fn chart(runs: &[RunReport]) -> Chart {
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    Chart::new(towers_callbacks::printable(&names.join(", ")), figures::panels(runs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use towers_callbacks::testing::{record, unvalidated};

    #[test]
    fn the_last_value_stands_beside_the_best() {
        let history = [[0.9, 0.5, 0.8, 0.6], [0.7, 0.6, 0.9, 0.5]];
        let mut history: Vec<_> =
            history.into_iter().zip(1..).map(|(values, epoch)| record(epoch, values)).collect();
        let shown = |history: &[EpochRecord]| {
            ["loss", "val_loss", "val_acc", "val_f1"].map(|name| last_and_best(history, name))
        };
        let some = |text: &str| Some(text.to_owned());
        let expected = [
            some("0.7000 (best)"),
            some("0.9000 (best 0.8000 in epoch 1)"),
            some("0.5000 (best 0.6000 in epoch 1)"),
            None,
        ];
        assert_eq!(shown(&history), expected);
        history.push(record(3, [f64::NAN; 4]));
        assert_eq!(last_and_best(&history, "loss"), some("nan (best 0.7000 in epoch 2)"));
        assert_eq!(last_and_best(&history[2..], "loss"), some("nan"));
        history.truncate(2);
        history.push(unvalidated(3, 0.5, 0.5));
        assert_eq!(shown(&history)[1], expected[1], "the last epoch that has it");
        assert_eq!(shown(&[]), [None, None, None, None]);
    }
}
