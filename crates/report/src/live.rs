//! The page of a run in progress: a script fetches the figures every second.

use crate::escape::Escaped;
use crate::numbers::{accuracy, time};
use crate::{Result, RunReport, figures, page};
use callbacks::{EpochRecord, RunStatus, RunTime};
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
/// train::save_config(&train::recipe("keras-cnn")?, run)?;
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
    let epoch = (status.epoch + 1).min(epochs);
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
    let best = status.best().map(|best| (accuracy(best.val_acc), format!("best, epoch {}", best.epoch)));
    let last = status.history.last();
    let number = |value: Option<f64>| value.map_or("–".to_owned(), short);
    let left = status.time.left().filter(|_| !ended).map_or("–".to_owned(), RunTime::words);
    let (best, which) = best.unwrap_or(("–".to_owned(), "best".to_owned()));
    let so_far = if step.is_some() { "this epoch so far" } else { "last epoch" };
    let all = [
        (
            "training loss",
            number(step.map(|step| step.loss).or(last.map(|last| last.loss))),
            so_far.to_owned(),
        ),
        (
            "training accuracy",
            step.map(|step| step.acc).or(last.map(|last| last.acc)).map_or("–".to_owned(), accuracy),
            so_far.to_owned(),
        ),
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
    let [loss, val_loss] = status.losses();
    let acc = status.by_step(|record| record.acc, |epoch| epoch.acc);
    let lr = status.by_step(|record| record.lr, |epoch| epoch.lr);
    let rate = status.by_step(|record| record.images_per_second, |epoch| epoch.images_per_second);
    let val_acc = status.by_epoch(|epoch| epoch.val_acc);
    let x = Axis::epochs(0..=status.epochs_shown());
    let panels = [
        ("Loss", Scale::Loss, vec![("training", loss), ("validation", val_loss)]),
        ("Accuracy", Scale::Unit, vec![("training", acc), ("validation", val_acc)]),
        ("Learning rate", Scale::FromZero, vec![("learning rate", lr)]),
        ("Training images a second", Scale::FromZero, vec![("images a second", rate)]),
    ];
    let panels = panels.map(|(title, scale, curves)| {
        let named = curves.into_iter().enumerate();
        let curves =
            named.map(|(k, (name, points))| Curve { name: name.into(), colour: k, dashed: k == 1, points });
        Panel { x: x.clone(), ..Panel::new(title, scale, curves.collect()) }
    });
    figures::figures(panels, out);
}

fn newest_epochs(status: &RunStatus, out: &mut String) {
    if status.history.is_empty() {
        return;
    }
    out.push_str("<h2>Epochs</h2>\n<div class=\"scroll\"><table class=\"summary\"><thead><tr><th>epoch<th>loss<th>accuracy\
                  <th>val. loss<th>val. accuracy<th>learning rate<th>images/s<th>time</tr></thead><tbody>\n");
    for record in status.history.iter().rev().take(EPOCHS) {
        let EpochRecord { loss, acc, val_loss, val_acc, lr, .. } = record;
        let figures = [short(*loss), accuracy(*acc), short(*val_loss), accuracy(*val_acc), short(*lr)];
        let _ = writeln!(
            out,
            "<tr><th>{}<td>{}<td>{:.0}<td>{}</tr>",
            record.epoch,
            figures.join("<td>"),
            record.images_per_second,
            time(record.seconds)
        );
    }
    out.push_str("</tbody></table></div>\n");
}
