//! `towers predict`.

use crate::args::PredictArgs;
use crate::error::{at_least_one, sentence};
use crate::output::newest_network;
use crate::print::{self, note};
use crate::{model, pictures};
use anyhow::Context;
use serde_json::json;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use train::cifar::folder::picture;
use trained::{Classifier, ImageSize, Prediction};

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
    let mut classifier = args.network.open(&path, files.len().clamp(1, BATCH))?;
    let ImageSize { height, width } = classifier.image_size();
    for batch in files.chunks(BATCH) {
        let (mut names, mut pixels) = (Vec::new(), Vec::new());
        for file in batch {
            match picture(file, [height, width]) {
                Ok(picture) => {
                    names.push(file.as_path());
                    pixels.extend(picture);
                }
                Err(error) => refuse(&train::Error::from(error).into()),
            }
        }
        let mut out = String::new();
        for (name, prediction) in names.iter().zip(classifier.classify(&pixels)?) {
            line(&mut out, name, &prediction, &classifier, &args);
        }
        // A reader such as `head` may close the pipe early.
        if !print::is_read(&out)? {
            break;
        }
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn line(out: &mut String, name: &Path, prediction: &Prediction, classifier: &Classifier, args: &PredictArgs) {
    let ranked = prediction.ranked();
    let top = ranked.iter().take(args.top).map(|&(k, p)| (classifier.classes[k].as_str(), p));
    // Writing to a string cannot fail.
    let _ = if args.json {
        let classes: Vec<_> = top.map(|(class, p)| json!({ "class": class, "probability": p })).collect();
        writeln!(out, "{}", json!({ "image": name, "classes": classes }))
    } else {
        let classes: Vec<_> = top.map(|(class, p)| format!("{class} {:.1}%", 100.0 * p)).collect();
        writeln!(out, "{}: {}", name.display(), classes.join(", "))
    };
}
