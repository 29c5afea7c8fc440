//! The page of a run in progress: a script fetches the figures every second. [`Server`](crate::Server) serves it.

use crate::RunStatus;
use std::fmt::Write;
use std::path::Path;
use towers_callbacks::{RunTime, metric_names};
use towers_metrics::{Unit, about};
use towers_plot::short;
use towers_report::html::{self, Escaped, accuracy, time};
use towers_report::{Result, RunReport, run_settings};

/// The script of the [page](page()), which fetches `figures` beside the page: [`figures`].
pub static SCRIPT: &str = include_str!("live.js");

/// The content security policy of the [page](page()): only the script from its own server.
pub static POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; \
                           img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// So many of the newest epochs are listed.
const EPOCHS: usize = 12;

/// The page of the run in the folder `run`, in the style of the [report](towers_report). It loads [`SCRIPT`] from `live.js` in the same folder.
/// `ended` says how the run ended.
///
/// ```
/// use towers_live::RunStatus;
///
/// # let folder = tempfile::tempdir()?;
/// # let run = folder.path();
/// towers_config::save_config(&towers_config::recipe("keras-cnn")?, run)?;
/// let page = towers_live::page::page(run, "a first try", &RunStatus::default(), None)?;
/// assert!(page.starts_with("<!doctype html>") && page.contains("<script src=\"live.js\""));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`RunReport::read`].
pub fn page(run: &Path, name: &str, status: &RunStatus, ended: Option<&str>) -> Result<String> {
    let (run, figures) = (RunReport::read(run, name)?, figures(status, ended));
    let main = format!(
        "<p id=\"lost\" class=\"alert\" hidden>The program no longer answers: the run has ended, or the connection is \
         lost. These are its last figures.</p>\n<noscript><p class=\"note\">Without scripts, reload the page to see new \
         figures.</p></noscript>\n<div id=\"live\" data-updates=\"0\">\n{figures}</div>\n{}",
        run_settings(&[run])
    );
    Ok(html::document(name, "<script src=\"live.js\" defer></script>\n", &main))
}

/// The part of the page that changes during the run.
///
/// ```
/// use towers_live::RunStatus;
///
/// assert!(towers_live::page::figures(&RunStatus::default(), Some("The run is done.")).contains("The run is done."));
/// ```
pub fn figures(status: &RunStatus, ended: Option<&str>) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail, here and below.
    let _ = match ended {
        Some(how) => writeln!(out, "<p id=\"ended\" class=\"alert\">{}</p>", Escaped(how)),
        None => {
            let (share, words) = status.progress();
            let meter = format!("<div class=\"meter\"><i style=\"width:{:.1}%\"></i></div>", 100.0 * share);
            writeln!(out, "<p>{words}</p>\n{meter}")
        }
    };
    tiles(status, ended.is_some(), &mut out);
    html::charts(status.metric_panels().into_iter().chain(status.speed_panels()), &mut out);
    let [recipe, model, devices] = [&status.recipe, &status.model, &status.devices].map(|text| Escaped(text));
    let _ = writeln!(out, "<p class=\"note\">{recipe}, {model} on {devices}</p>");
    if !status.replica_rates.is_empty() {
        let rates =
            status.replica_rates.iter().map(|rate| format!("{rate:.0}")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(out, "<p class=\"note\">Images/s of each replica while it computes: {rates}</p>");
    }
    for warning in &status.warnings {
        let _ = writeln!(out, "<p class=\"note\">Warning: {}</p>", Escaped(warning));
    }
    newest_epochs(status, &mut out);
    out
}

/// The most important numbers.
fn tiles(status: &RunStatus, ended: bool, out: &mut String) {
    let step = status.step.as_ref();
    let best = status.best().map(|(epoch, acc)| (accuracy(acc), format!("best, epoch {epoch}")));
    let last = status.history.last();
    let number = |value: Option<f64>| value.map_or("–".to_owned(), short);
    let left = status.time.left().filter(|_| !ended).map_or("–".to_owned(), RunTime::words);
    let (best, which) = best.unwrap_or(("–".to_owned(), "best".to_owned()));
    let newest = |name| step.map_or_else(|| last?.get(name), |step| step.metrics.get(name));
    let so_far = if step.is_some() { "this epoch so far" } else { "last epoch" };
    let all = [
        ("training loss", number(newest("loss")), so_far.to_owned()),
        ("training accuracy", newest("acc").map_or("–".to_owned(), accuracy), so_far.to_owned()),
        ("val. accuracy", best, which),
        ("learning rate", number(step.map(|step| step.lr).or(last.map(|last| last.lr))), String::new()),
        ("images/s", status.rate().map_or("–".to_owned(), |rate| format!("{rate:.0}")), String::new()),
        ("time left", left, "of the whole run".to_owned()),
        ("elapsed", RunTime::words(status.time.elapsed()), String::new()),
    ];
    out.push_str("<div class=\"tiles\">\n");
    for (name, value, note) in all {
        let _ = writeln!(out, "<div><span>{name}</span><b>{value}</b><span>{note}</span></div>");
    }
    out.push_str("</div>\n");
}

fn newest_epochs(status: &RunStatus, out: &mut String) {
    if status.history.is_empty() {
        return;
    }
    let names = metric_names(&status.history);
    let title = |name: &&str| format!("<th>{}", Escaped(name));
    let titles: String = names.iter().map(title).collect();
    let _ = writeln!(
        out,
        "<h2>Epochs</h2>\n<div class=\"scroll\"><table class=\"summary\"><thead><tr><th>epoch{titles}\
         <th>lr<th>images/s<th>time</tr></thead><tbody>"
    );
    for record in status.history.iter().rev().take(EPOCHS) {
        let metric = |name: &&str| match (record.get(name), about(name).unit) {
            (None, _) => "<td>–".to_owned(),
            (Some(value), Unit::Share) => format!("<td>{}", accuracy(value)),
            (Some(value), Unit::None) => format!("<td>{}", short(value)),
        };
        let _ = writeln!(
            out,
            "<tr><th>{}{}<td>{}<td>{:.0}<td>{}</tr>",
            record.epoch,
            names.iter().map(metric).collect::<String>(),
            short(record.lr),
            record.images_per_second,
            time(record.seconds)
        );
    }
    out.push_str("</tbody></table></div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LiveStatus;
    use towers_callbacks::Observer;
    use towers_callbacks::testing::{means, record, run, state, step, step_record};
    use towers_config::{recipe, save_config};

    #[test]
    fn a_live_page_has_figures_and_settings() {
        let folder = tempfile::tempdir().unwrap();
        let markup = "<script>alert(1)</script>\u{202e}";
        save_config(&recipe("quick").unwrap(), folder.path()).unwrap();
        let state = state(vec![record(1, [0.75, 0.5, 0.9, 0.375])]);
        let mut status = LiveStatus::default();
        let mut begun = run(70, &state);
        (begun.model, begun.recipe, begun.devices) = (markup, markup, markup.into());
        begun.steps_per_epoch = 10;
        let record = |step| {
            let mut record = step_record(step, 0.625, 0.5);
            (record.epoch, record.images_per_second) = (2, 99.0);
            record
        };
        let mut seen = step(2, 5, 10);
        seen.metrics = means(0.6875, 0.5);
        for seen in [
            status.on_begin(&begun),
            status.on_epoch_begin(2),
            status.on_step(&seen),
            status.on_record(&record(12)),
            status.on_record(&record(15)),
            status.on_warning(markup),
            status.on_replica_rates(&[3.0, 4.0]),
        ] {
            seen.unwrap();
        }
        let status = status.now();
        let shown = page(folder.path(), markup, &status, None).unwrap();
        for expected in [
            "<p>Epoch 2 of 70: step 5 of 10, ",
            "<span>training loss</span><b>0.688</b><span>this epoch so far</span>",
            "<span>val. accuracy</span><b>0.3750</b><span>best, epoch 1</span>",
            "<title>epoch 1.5, training: 0.625</title>",
            "<tr><th>1<td>0.750<td>0.5000<td>0.900<td>0.3750<td>0.00500<td>792<td>63.2 s</tr>",
            "Images/s of each replica while it computes: 3, 4",
            "Warning: &lt;script&gt;",
            "<summary>All ",
            "<p id=\"lost\" class=\"alert\" hidden>",
        ] {
            assert!(shown.contains(expected), "{expected} in {shown}");
        }
        assert_eq!(shown.matches("<script").count(), 1, "its own");
        assert!(!shown.contains("id=\"ended\"") && !shown.contains('\u{202e}'));
        let ended = figures(&status, Some(markup));
        assert!(ended.starts_with("<p id=\"ended\" class=\"alert\">&lt;script&gt;alert(1)"), "{ended}");
        assert!(figures(&RunStatus::default(), None).contains("</svg></figure>"));
    }
}
