//! `towers predict`.

use crate::args::PredictArgs;
use crate::data::LoadProgress;
use crate::error::{at_least_one, sentence, usage};
use crate::model::{self, newest_network};
use crate::print::{self, note};
use anyhow::{Context, anyhow};
use serde_json::json;
use std::io::{IsTerminal, stdout};
use std::iter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use towers_pictures::{Decoder, ENDINGS, Found, Progress};
use towers_trained::{Prediction, classify_batches};

/// Between the labels of a picture in a table.
pub const SEPARATOR: &str = "|";

/// The number of pictures that are decoded, classified and printed together.
const BATCH: usize = 64;

pub fn run(args: PredictArgs) -> anyhow::Result<ExitCode> {
    args.top.map_or(Ok(()), |top| at_least_one("--top", top))?;
    if let Some(threshold) = args.threshold.filter(|threshold| !(0.0..=1.0).contains(threshold)) {
        return Err(usage(format!("--threshold is {threshold}, but must be a probability from 0 to 1")));
    }
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
    let files: Vec<PathBuf> = args.images.iter().flat_map(|image| pictures(image, &mut refuse)).collect();
    let mut replicas = args.network.open(&path, files.len().clamp(1, BATCH))?;
    let decoder = Decoder::new(replicas[0].image()).map_err(towers_config::Error::from)?;
    let decoder = decoder.resize(replicas[0].resizing().0).free_memory(towers_config::memory::available);
    let classes = replicas[0].classes.clone();
    let several = replicas[0].is_multi_label();
    if let Some(threshold) = args.threshold.filter(|_| !several) {
        let accepted = "left out: the network tells one class a picture";
        return Err(usage(format!("--threshold is {threshold}, but must be {accepted}")));
    }
    let threshold = several.then_some(args.threshold.unwrap_or(0.5));
    let top = args.top.unwrap_or(if several { classes.len() } else { TOP }).min(classes.len());
    let format = Format { top, threshold, classes, json: args.json, csv: args.csv };
    if !print::is_read(&format.header()?)? {
        return Ok(ExitCode::SUCCESS);
    }
    let batches: Vec<&[PathBuf]> = files.chunks(BATCH).collect();
    let read = |batch: usize| {
        let (mut seen, mut pixels) = (Vec::new(), Vec::new());
        for (file, picture) in batches[batch].iter().zip(decoder.decode_all(batches[batch])) {
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
                Ok(()) => {
                    for prediction in predictions.by_ref().take(1) {
                        out += &format.line(file, prediction)?;
                    }
                }
                Err(error) => refuse(&towers_config::Error::from(error).into()),
            }
        }
        let told = Progress::Decoding { done, total: files.len() };
        progress.iter_mut().for_each(|progress| progress.report(&towers_config::Progress::Pictures(told)));
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

/// Classes that are printed by default.
const TOP: usize = 3;

/// The file itself, whatever its name; for a folder, the pictures in it and below, and a note on the other
/// files. Calls `refuse` for folders that can't be read, and continues.
fn pictures(path: &Path, refuse: &mut impl FnMut(&anyhow::Error)) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let Found { pictures, others, unlisted, .. } = Found::below(path);
    if pictures.is_empty() && unlisted.is_empty() {
        let endings = ENDINGS.map(|ending| format!(".{ending}")).join(", ");
        refuse(&anyhow!("{}: the folder has no picture: {endings}", path.display()));
    }
    for error in unlisted {
        refuse(&towers_config::Error::from(error).into());
    }
    if let Some(first) = others.first() {
        note(Progress::PassedOver { files: others.len(), first });
    }
    pictures
}

/// How predictions are printed.
struct Format {
    classes: Vec<String>,
    top: usize,
    /// The probability above which a picture has a class, if it has any number of them.
    threshold: Option<f32>,
    json: bool,
    csv: bool,
}

impl Format {
    /// The names of the columns of a table.
    fn header(&self) -> anyhow::Result<String> {
        let column = |k| match k {
            1 => ["class".to_owned(), "probability".to_owned()],
            k => [format!("class_{k}"), format!("probability_{k}")],
        };
        if !self.csv {
            return Ok(String::new());
        }
        if self.threshold.is_some() {
            return record(["image", "labels", "probabilities"].map(str::to_owned).into_iter());
        }
        record(iter::once("image".to_owned()).chain((1..=self.top).flat_map(column)))
    }

    fn line(&self, file: &Path, prediction: &Prediction) -> anyhow::Result<String> {
        // JSON has no names that are not UTF-8.
        let file = file.display().to_string();
        let ranked = self.threshold.map_or_else(|| prediction.ranked(), |least| prediction.above(least));
        let top = ranked.iter().take(self.top).map(|&(k, p)| (self.classes[k].as_str(), p));
        if self.json {
            let classes: Vec<_> = top.map(|(class, p)| json!({ "class": class, "probability": p })).collect();
            return Ok(format!("{}\n", json!({ "image": file, "classes": classes })));
        }
        if let Some(threshold) = self.threshold.filter(|_| self.csv || ranked.is_empty()) {
            if !self.csv {
                return Ok(format!("{file}: no class above {:.1}%\n", 100.0 * threshold));
            }
            let (classes, probabilities): (Vec<_>, Vec<_>) =
                top.map(|(class, p)| (class, p.to_string())).unzip();
            return record([file, classes.join(SEPARATOR), probabilities.join(SEPARATOR)].into_iter());
        }
        if self.csv {
            return record(
                iter::once(file).chain(top.flat_map(|(class, p)| [class.to_owned(), p.to_string()])),
            );
        }
        let classes: Vec<_> = top.map(|(class, p)| format!("{class} {:.1}%", 100.0 * p)).collect();
        Ok(format!("{file}: {}\n", classes.join(", ")))
    }
}

/// A line of a table, with the quotes that RFC 4180 demands.
pub fn record(fields: impl Iterator<Item = String>) -> anyhow::Result<String> {
    let mut table = csv::Writer::from_writer(Vec::new());
    table.write_record(fields.collect::<Vec<_>>())?;
    Ok(String::from_utf8(table.into_inner()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_are_quoted() {
        let fields = ["a, \"b\".png", "cat", "0.5"].map(String::from);
        assert_eq!(record(fields.into_iter()).unwrap(), "\"a, \"\"b\"\".png\",cat,0.5\n");
    }
}
