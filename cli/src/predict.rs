//! `towers predict`.

use crate::args::PredictArgs;
use crate::data::LoadProgress;
use crate::error::{at_least_one, sentence};
use crate::output::newest_network;
use crate::print::{self, note};
use crate::{model, pictures};
use anyhow::Context;
use serde_json::json;
use std::fmt::Write;
use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use train::cifar::{Progress, folder};
use trained::{Classifier, ImageSize, Prediction, classify_batches};

/// The number of pictures that are decoded, classified and printed together.
const BATCH: usize = 64;

pub fn run(args: PredictArgs) -> anyhow::Result<ExitCode> {
    at_least_one("--top", args.top)?;
    let path = match &args.model {
        Some(model) => model.clone(),
        // A run's folder is easily given as a picture here.
        None => newest_network().context("no --model names the network")?,
    };
    model::refuse_data(&path, &args.network.data)?;
    let mut failed = 0;
    // Reports a picture that is skipped, and continues.
    let mut refuse = |error: &anyhow::Error| {
        note(format_args!("error: {}", sentence(error)));
        failed += 1;
    };
    let files: Vec<PathBuf> =
        args.images.iter().flat_map(|image| pictures::named(image, &mut refuse)).collect();
    let mut replicas = args.network.open(&path, files.len().clamp(1, BATCH))?;
    let ImageSize { height, width } = replicas[0].image_size();
    let format = Format::new(&args, &replicas[0]);
    if !print::is_read(&format.header())? {
        return Ok(ExitCode::SUCCESS);
    }
    let batches: Vec<&[PathBuf]> = files.chunks(BATCH).collect();
    let read = |batch: usize| {
        let (mut seen, mut pixels) = (Vec::new(), Vec::new());
        for (file, picture) in batches[batch].iter().zip(folder::pictures(batches[batch], [height, width])) {
            seen.push((file.as_path(), picture.map(|picture| pixels.extend(picture))));
        }
        Ok::<_, anyhow::Error>((seen, pixels))
    };
    // On a terminal, the predictions are the progress.
    let mut progress = Some(LoadProgress::new(false)).filter(|_| !stdout().is_terminal());
    let mut done = 0;
    classify_batches(&mut replicas, batches.len(), read, |seen, predictions| {
        let (mut out, mut predictions) = (String::new(), predictions.iter());
        done += seen.len();
        for (file, picture) in seen {
            match picture {
                Ok(()) => predictions.by_ref().take(1).for_each(|of| format.line(&mut out, file, of)),
                Err(error) => refuse(&train::Error::from(error).into()),
            }
        }
        let told = Progress::Decoding { done, total: files.len() };
        progress.iter_mut().for_each(|progress| progress.report(&told));
        // A reader such as `head` may close the pipe early.
        print::is_read(&out)
    })?;
    progress.iter_mut().for_each(LoadProgress::finish);
    if failed == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let what = if failed == 1 { "file or folder" } else { "files or folders" };
    note(format_args!("{failed} {what} could not be read"));
    Ok(ExitCode::FAILURE)
}

/// How predictions are printed.
struct Format {
    classes: Vec<String>,
    top: usize,
    json: bool,
    csv: bool,
}

impl Format {
    fn new(args: &PredictArgs, classifier: &Classifier) -> Self {
        let classes = classifier.classes.clone();
        Format { top: args.top.min(classes.len()), classes, json: args.json, csv: args.csv }
    }

    /// The names of the columns of a table.
    fn header(&self) -> String {
        let column = |k| match k {
            1 => ",class,probability".to_owned(),
            k => format!(",class_{k},probability_{k}"),
        };
        let columns: String = (1..=self.top).map(column).collect();
        if self.csv { format!("image{columns}\n") } else { String::new() }
    }

    fn line(&self, out: &mut String, file: &Path, prediction: &Prediction) {
        let ranked = prediction.ranked();
        let top = ranked.iter().take(self.top).map(|&(k, p)| (self.classes[k].as_str(), p));
        // Writing to a string cannot fail.
        let _ = if self.json {
            let classes: Vec<_> = top.map(|(class, p)| json!({ "class": class, "probability": p })).collect();
            writeln!(out, "{}", json!({ "image": file, "classes": classes }))
        } else if self.csv {
            let classes: String = top.map(|(class, p)| format!(",{},{p}", quoted(class))).collect();
            writeln!(out, "{}{classes}", quoted(&file.display().to_string()))
        } else {
            let classes: Vec<_> = top.map(|(class, p)| format!("{class} {:.1}%", 100.0 * p)).collect();
            writeln!(out, "{}: {}", file.display(), classes.join(", "))
        };
    }
}

/// A field of a table, in quotes where RFC 4180 needs them.
fn quoted(field: &str) -> String {
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_are_quoted() {
        assert_eq!(quoted("cat.png"), "cat.png");
        assert_eq!(quoted("a, \"b\".png"), "\"a, \"\"b\"\".png\"");
    }
}
