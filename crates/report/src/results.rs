//! A network on test images: accuracy by class, confusions, calibration, the surest mistakes, the first layer's filters.

use crate::html::{self, Escaped};
use crate::pictures;
use crate::run_report::{Shown, Tested};
use std::fmt::Write;
use towers_plot::short;
use towers_trained::{ClassScores, thousands};

/// With more classes than this a matrix can't be read.
const MATRIX: usize = 20;

/// The most pairs of classes in the list of confusions, half of them beside a matrix.
const LISTED: usize = 20;

/// The most pictures of a pair that the list leads to.
const EXAMPLES: usize = 3;

/// Writes the results of run number `run` of the page.
pub(crate) fn write(run: usize, tested: &Tested, out: &mut String) {
    let Tested { images, classes, evaluation, .. } = tested;
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        out,
        "<p>On {}: accuracy <b>{:.4}</b>, loss <b>{}</b>.</p>",
        Escaped(images),
        evaluation.acc,
        short(evaluation.loss)
    );
    let more = evaluation
        .metrics
        .iter()
        .map(|(name, value)| format!("{} {value:.4}", towers_metrics::about(name).title));
    let _ = writeln!(out, "<p class=\"note\">{}</p>", Escaped(&more.collect::<Vec<_>>().join(", ")));
    out.push_str("<div class=\"pair\">\n");
    by_class(tested, out);
    // Where a picture has any number of classes, none is taken for another.
    if evaluation.confusion.is_empty() {
        out.push_str("</div>\n");
        return filters(tested, out);
    }
    let has_matrix = classes.len() <= MATRIX;
    if has_matrix {
        matrix(tested, out);
        out.push_str("</div>\n<div class=\"pair\">\n");
    }
    // The matrix of two classes is this list.
    if classes.len() > 2 {
        confusions(run, tested, if has_matrix { LISTED / 2 } else { LISTED }, out);
    }
    certainty(tested, out);
    out.push_str("</div>\n");
    mistakes(run, tested, out);
    filters(tested, out);
}

fn by_class(Tested { classes, evaluation, .. }: &Tested, out: &mut String) {
    out.push_str("<section><h3>Accuracy by class</h3><div class=\"scroll\"><table class=\"bars\">\n");
    out.push_str("<tr><td><td><th>recall<th>precision<th>F1<th>images</tr>\n");
    for (class, scores) in classes.iter().zip(evaluation.class_scores()) {
        let ClassScores { samples, precision, recall, f1, .. } = scores;
        let percent =
            |share: f64| if share.is_finite() { format!("{:.1}%", 100.0 * share) } else { "–".into() };
        let width = 100.0 * if recall.is_finite() { recall } else { 0.0 };
        let _ = writeln!(
            out,
            "<tr><th>{}<td><div><i style=\"width:{width:.1}%\"></i></div><td>{}<td>{}<td>{}<td>{}</tr>",
            Escaped(class),
            percent(recall),
            percent(precision),
            percent(f1),
            thousands(samples as usize)
        );
    }
    out.push_str(
        "</table></div><p class=\"note\">Recall: the share of a class's images that were taken for it. Precision: the share of the \
         images taken for a class that show it. F1: the harmonic mean of both.</p></section>\n",
    );
}

fn matrix(Tested { classes, evaluation, .. }: &Tested, out: &mut String) {
    out.push_str("<section><h3>Confusion matrix</h3><div class=\"scroll\"><table class=\"matrix\"><tr><td>");
    for class in classes {
        let _ = write!(out, "<th class=\"down\"><span>{}</span>", Escaped(class));
    }
    out.push_str("</tr>\n");
    for (k, row) in evaluation.confusion.iter().enumerate() {
        let all = row.iter().sum::<u64>().max(1) as f64;
        let _ = write!(out, "<tr><th>{}", Escaped(&classes[k]));
        for (other, &count) in row.iter().enumerate() {
            // The square root shows rare mistakes too.
            let shade = (count as f64 / all).sqrt();
            let (class, dark) =
                (if other == k { "right" } else { "wrong" }, if shade > 0.7 { " dark" } else { "" });
            let title = format!("{} taken for {}: {count}", Escaped(&classes[k]), Escaped(&classes[other]));
            let _ =
                write!(out, "<td class=\"{class}{dark}\" style=\"--a:{shade:.2}\" title=\"{title}\">{count}");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div><p class=\"note\">Rows: what the images show. Columns: what they were taken for.</p></section>\n");
}

/// The pairs of classes that are confused most often, with links to the pictures among the surest mistakes.
fn confusions(run: usize, tested: &Tested, most: usize, out: &mut String) {
    let Tested { classes, evaluation, .. } = tested;
    let rows = evaluation.confusion.iter().enumerate();
    let cells =
        rows.flat_map(|(k, row)| row.iter().enumerate().map(move |(other, &count)| (count, k, other)));
    let mut wrong: Vec<(u64, usize, usize)> =
        cells.filter(|(count, k, other)| *count > 0 && k != other).collect();
    wrong.sort_by(|a, b| b.0.cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    if wrong.is_empty() {
        return;
    }
    out.push_str("<section><h3>Most confused pairs</h3><div class=\"scroll\"><table class=\"pairs\">");
    out.push_str("<tr><th>images<th>share<th>show<th>taken for<th>below</tr>\n");
    for (count, k, other) in wrong.into_iter().take(most) {
        let share = 100.0 * count as f64 / evaluation.confusion[k].iter().sum::<u64>() as f64;
        let shown = evaluation.mistakes.iter().take(tested.mistakes.len()).enumerate();
        let examples = shown.filter(|(_, mistake)| (mistake.label, mistake.taken_for) == (k, other));
        let links = examples
            .take(EXAMPLES)
            .map(|(place, _)| format!("<a href=\"#{}\">{}</a>", mistake_id(run, place), place + 1));
        let _ = writeln!(
            out,
            "<tr><td class=\"n\">{count}<td class=\"n\">{share:.1}%<td>{}<td>{}<td>{}</tr>",
            Escaped(&classes[k]),
            Escaped(&classes[other]),
            links.collect::<Vec<_>>().join(" ")
        );
    }
    out.push_str("</table></div><p class=\"note\">Share: of the images of the class.</p></section>\n");
}

/// Charts of the probabilities: calibration and, for two classes, the ranking.
fn certainty(Tested { classes, calibration, ranking, .. }: &Tested, out: &mut String) {
    let class = if ranking.is_some() { " class=\"wide\"" } else { "" };
    let _ = writeln!(out, "<section{class}>");
    let ranking = ranking.iter().flat_map(|ranking| ranking.panels(&classes[1]));
    html::charts([calibration.panel()].into_iter().chain(ranking), out);
    let _ = writeln!(
        out,
        "<p class=\"note\">Calibration: of the images with a probability of 0.8 for the predicted class, 80% should be right. The \
         expected calibration error is <b>{:.4}</b>, the mean distance of both over 15 bins of equal width.</p></section>",
        calibration.error()
    );
}

/// The address of a mistake's picture within the page.
fn mistake_id(run: usize, place: usize) -> String {
    format!("mistake-{run}-{place}")
}

fn mistakes(run: usize, tested: &Tested, out: &mut String) {
    if tested.mistakes.is_empty() {
        return;
    }
    out.push_str("<h3>The surest mistakes</h3>\n<div class=\"gallery\">\n");
    let mistakes = tested.evaluation.mistakes.iter().zip(&tested.mistakes);
    for (place, (mistake, Shown { picture, file, heat })) in mistakes.enumerate() {
        let class = |k: usize| Escaped(&tested.classes[k]);
        let (label, taken_for) = (class(mistake.label), class(mistake.taken_for));
        let file =
            file.as_ref().map_or_else(String::new, |file| format!("<br><code>{}</code>", Escaped(file)));
        let heat = heat.as_ref().map_or_else(String::new, |heat| {
            format!("<img class=\"heat\" src=\"{}\" alt=\"\">", pictures::address(heat))
        });
        let _ = writeln!(
            out,
            "<figure id=\"{}\" title=\"{} image {}\"><div><img src=\"{}\" alt=\"{label}\">{heat}</div><figcaption>{label}, taken for \
             <b>{taken_for}</b> ({:.1}%){file}</figcaption></figure>",
            mistake_id(run, place),
            tested.split,
            mistake.sample,
            pictures::address(picture),
            100.0 * mistake.probability
        );
    }
    out.push_str("</div>\n");
    if tested.mistakes.iter().any(|shown| shown.heat.is_some()) {
        out.push_str(
            "<p class=\"note\">Colours from yellow to red: where the picture looks like the class that it was taken for (Grad-CAM). \
             Point at a picture to see it without.</p>\n",
        );
    }
}

fn filters(tested: &Tested, out: &mut String) {
    if tested.filters.is_empty() {
        return;
    }
    out.push_str("<h3>The first layer's filters</h3>\n<div class=\"filters\">\n");
    for (k, filter) in tested.filters.iter().enumerate() {
        let _ = writeln!(
            out,
            "<img src=\"{}\" alt=\"filter {k}\" title=\"filter {k}\">",
            pictures::address(filter)
        );
    }
    out.push_str("</div>\n");
}
