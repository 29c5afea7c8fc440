//! The page of a run in progress: a script fetches the figures every second.

use crate::escape::Escaped;
use crate::numbers::{accuracy, time};
use crate::{Result, RunReport, figures, page};
use callbacks::{EpochRecord, RunStatus, RunTime, metric_names, scale};
use metrics::{Group, Unit, about, grouped};
use plot::{Axis, Curve, Panel, Scale, short};
use std::fmt::Write;
use std::path::Path;

/// The script of the [page](live_page), which fetches `figures` beside the page: [`live_figures`].
pub static LIVE_SCRIPT: &str = include_str!("live.js");

/// The content security policy of the [page](live_page): only the script from its own server.
pub static LIVE_POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; \
                                img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// So many of the newest epochs are listed.
const EPOCHS: usize = 12;

/// The page of the run in the folder `run`, in the style of the [report](crate::report). It needs [`LIVE_SCRIPT`] at
/// `live.js` beside it.
///
/// ```
/// use callbacks::RunStatus;
/// use report::live_page;
///
/// # let folder = tempfile::tempdir()?;
/// # let run = folder.path();
/// config::save_config(&config::recipe("keras-cnn")?, run)?;
/// let page = live_page(run, "a first try", &RunStatus::default(), None)?;
/// assert!(page.starts_with("<!doctype html>") && page.contains("<script src=\"live.js\""));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`RunReport::read`].
pub fn live_page(run: &Path, name: &str, status: &RunStatus, ended: Option<&str>) -> Result<String> {
    let run = RunReport::read(run, name)?;
    let (title, figures) = (Escaped(name), live_figures(status, ended));
    let mut out = page::head(name, "<script src=\"live.js\" defer></script>\n");
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        out,
        "<header><h1>{title}</h1></header>\n<main>\n<p id=\"lost\" class=\"alert\" hidden>The program no longer answers: the run \
         has ended, or the connection is lost. These are its last figures.</p>\n<noscript><p class=\"note\">Without scripts, \
         reload the page to see new figures.</p></noscript>\n<div id=\"live\" data-updates=\"0\">\n{figures}</div>"
    );
    page::settings_of(std::slice::from_ref(&run), &mut out);
    page::foot(&mut out);
    Ok(out)
}

/// The part of the page that changes during the run. `ended` says how the run ended.
///
/// ```
/// use callbacks::RunStatus;
/// use report::live_figures;
///
/// assert!(live_figures(&RunStatus::default(), Some("The run is done.")).contains("The run is done."));
/// ```
pub fn live_figures(status: &RunStatus, ended: Option<&str>) -> String {
    let mut out = String::new();
    let (share, words) = status.progress();
    let epochs = status.epochs.max(1);
    let epoch = status.epoch.clamp(1, epochs);
    match ended {
        Some(how) => {
            let _ = writeln!(out, "<p id=\"ended\" class=\"alert\">{}</p>", Escaped(how));
        }
        None => {
            let _ = writeln!(
                out,
                "<p>Epoch {epoch} of {epochs}: {words}</p>\n<div class=\"meter\"><i style=\"width:{:.1}%\"></i></div>",
                100.0 * share
            );
        }
    }
    tiles(status, ended.is_some(), &mut out);
    charts(status, &mut out);
    let _ = writeln!(
        out,
        "<p class=\"note\">{}, {} on {}</p>",
        Escaped(&status.recipe),
        Escaped(&status.model),
        Escaped(&status.devices)
    );
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
    let of_best =
        |best: &EpochRecord| Some((accuracy(best.get("val_acc")?), format!("best, epoch {}", best.epoch)));
    let best = status.best().and_then(of_best);
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

/// Training within the epochs, validation after each.
fn charts(status: &RunStatus, out: &mut String) {
    let x = Axis::epochs(0..=status.epochs_shown());
    let panel = |title: &str, scale, curves| {
        let mut panel = Panel::new(title, scale, curves);
        panel.x = x.clone();
        panel
    };
    let metrics = grouped(metric_names(&status.history));
    let metrics = metrics.into_iter().map(|Group { about, training, validation, .. }| {
        let training = training.map(|name| Curve::of_points("training", status.by_step(name)));
        let of_validation = |name| Curve::of_points("validation", status.by_epoch(name));
        let validation = validation.map(|name| of_validation(name).colour(1).dashed(true));
        panel(&about.title, scale(about.unit), training.into_iter().chain(validation).collect())
    });
    let others = [
        ("Learning rate", "learning rate", "lr"),
        ("Training images a second", "images a second", "images_per_second"),
    ];
    let others = others.map(|(title, name, figure)| {
        panel(title, Scale::FromZero, vec![Curve::of_points(name, status.by_step(figure))])
    });
    figures::figures(metrics.chain(others), out);
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
