use crate::comparison::{Settings, values};
use crate::html::{self, Escaped};
use crate::{RunReport, augmented, figures, results, settings};
use std::fmt::Write;

/// A browser may show the page's content, and load or run nothing.
pub(crate) const POLICY: &str =
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

pub(crate) fn page(runs: &[RunReport]) -> String {
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let title = names.join(", ");
    let policy = format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n");
    let mut out = String::new();
    figures::summary(runs, &mut out);
    html::charts(figures::panels(runs), &mut out);
    for (k, run) in runs.iter().enumerate() {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            out,
            "<h2>{}</h2>",
            match &run.test {
                _ if runs.len() > 1 => Escaped(&run.name),
                Ok(tested) if tested.split == "validation" => Escaped("Validation images"),
                _ => Escaped("Test images"),
            }
        );
        match &run.test {
            Ok(tested) => results::write(k, tested, &mut out),
            Err(why) => {
                let _ = writeln!(out, "<p class=\"note\">{}</p>", Escaped(why));
            }
        }
        run.augmented.iter().for_each(|strip| augmented::write(strip, &mut out));
    }
    out += &run_settings(runs);
    html::document(&title, &policy, &out)
}

/// The part of a page that says how the runs were started, on what, and with which options.
pub fn run_settings(runs: &[RunReport]) -> String {
    let mut out = String::new();
    heading("Run", runs, |run| &run.about, &mut out);
    heading("Environment", runs, |run| &run.environment, &mut out);
    configuration(runs, &mut out);
    out
}

fn keys(runs: &[RunReport], of: Settings) -> Vec<&str> {
    settings::keys(runs.iter().map(|run| of(run).as_slice()))
}

/// A heading and a table, unless that is empty.
fn heading(title: &str, runs: &[RunReport], of: Settings, out: &mut String) {
    let keys = keys(runs, of);
    if !keys.is_empty() {
        let _ = writeln!(out, "<h2>{title}</h2>");
        table(&keys, runs, of, out);
    }
}

/// The options that differ from the recipe or between the runs, and folded all.
fn configuration(runs: &[RunReport], out: &mut String) {
    let of: Settings = |run| &run.config;
    let mut all = keys(runs, of);
    all.retain(|key| *key != "changed");
    let differ: Vec<&str> = all
        .iter()
        .copied()
        .filter(|key| {
            let values = values(key, runs, of);
            runs.iter().zip(&values).any(|(run, value)| run.is_changed(key) || *value != values[0])
        })
        .collect();
    out.push_str("<h2>Configuration</h2>\n");
    match (&differ[..], runs) {
        ([], [run]) => {
            let _ = writeln!(
                out,
                "<p>All options are those of the recipe {}.</p>",
                Escaped(run.setting("recipe"))
            );
        }
        ([], _) => out.push_str("<p>All options are those of the recipe.</p>\n"),
        (_, [run]) => {
            let _ = writeln!(out, "<p>The recipe {}, except for:</p>", Escaped(run.setting("recipe")));
        }
        _ => out.push_str("<p>What differs from the recipe (in bold) or between the runs:</p>\n"),
    }
    if !differ.is_empty() {
        table(&differ, runs, of, out);
    }
    let _ = writeln!(out, "<details><summary>All {} options</summary>", all.len());
    table(&all, runs, of, out);
    out.push_str("</details>\n");
}

/// A row a setting, a column a run. Rows in which runs differ are marked, and so are values that differ from the recipe.
fn table(keys: &[&str], runs: &[RunReport], of: Settings, out: &mut String) {
    out.push_str("<div class=\"scroll\"><table class=\"settings\">\n");
    if runs.len() > 1 {
        out.push_str("<tr><td>");
        for run in runs {
            let _ = write!(out, "<th>{}", Escaped(&run.name));
        }
        out.push_str("</tr>\n");
    }
    for key in keys {
        let values = values(key, runs, of);
        let differ = values.iter().any(|value| *value != values[0]);
        let _ = write!(out, "<tr{}><th>{}", if differ { " class=\"differ\"" } else { "" }, Escaped(key));
        for (run, value) in runs.iter().zip(values) {
            let class = if run.is_changed(key) { " class=\"changed\"" } else { "" };
            let _ = write!(out, "<td{class}>{}", Escaped(value.unwrap_or("–")));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
}
