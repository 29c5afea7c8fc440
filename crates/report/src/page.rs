use crate::escape::Escaped;
use crate::{RunReport, figures, results, settings};
use std::fmt::Write;

static STYLE: &str = include_str!("style.css");

/// A browser may show the page's content, and load or run nothing.
pub(crate) const POLICY: &str =
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

pub(crate) fn page(runs: &[RunReport]) -> String {
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let title = names.join(", ");
    let mut out = String::new();
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>{} – towers</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header><h1>{}</h1></header>\n<main>",
        Escaped(&title),
        Escaped(&title)
    );
    figures::summary(runs, &mut out);
    figures::charts(runs, &mut out);
    for run in runs {
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
            Ok(tested) => results::write(tested, &mut out),
            Err(why) => {
                let _ = writeln!(out, "<p class=\"note\">{}</p>", Escaped(why));
            }
        }
    }
    table("Environment", runs, |run| &run.environment, &mut out);
    table("Configuration", runs, |run| &run.config, &mut out);
    let _ = writeln!(out, "</main>\n<footer>towers {}</footer>\n</body>\n</html>", env!("CARGO_PKG_VERSION"));
    out
}

/// A row a setting, a column a run. Rows in which runs differ are marked, and so are values that differ from the recipe.
fn table(title: &str, runs: &[RunReport], of: fn(&RunReport) -> &Vec<(String, String)>, out: &mut String) {
    let keys = settings::keys(runs.iter().map(|run| of(run).as_slice()));
    if keys.is_empty() {
        return;
    }
    let _ = writeln!(out, "<h2>{title}</h2>\n<div class=\"scroll\"><table class=\"settings\">");
    if runs.len() > 1 {
        out.push_str("<tr><td>");
        for run in runs {
            let _ = write!(out, "<th>{}", Escaped(&run.name));
        }
        out.push_str("</tr>\n");
    }
    for key in keys.iter().copied().filter(|key| *key != "changed") {
        let value = |run| of(run).iter().find(|(name, _)| name == key).map_or("–", |(_, value)| value);
        let values: Vec<&str> = runs.iter().map(value).collect();
        let differ = values.iter().any(|value| *value != values[0]);
        let _ = write!(out, "<tr{}><th>{}", if differ { " class=\"differ\"" } else { "" }, Escaped(key));
        for (run, value) in runs.iter().zip(values) {
            let class = if run.is_changed(key) { " class=\"changed\"" } else { "" };
            let _ = write!(out, "<td{class}>{}", Escaped(value));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
    if keys.iter().any(|key| runs.iter().any(|run| run.is_changed(key))) {
        out.push_str("<p class=\"note\">Values in bold differ from the recipe.</p>\n");
    }
}
