//! `towers predict`.

use crate::args::PredictArgs;
use crate::error::at_least_one;
use crate::output::newest_run;
use crate::{model, print};
use anyhow::Context;
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;
use train::cifar::folder::picture;
use train::{Classifier, MODEL_FILE};

pub fn run(args: PredictArgs) -> anyhow::Result<ExitCode> {
    at_least_one("--top", args.top)?;
    let path = args.model.clone().map_or_else(|| newest_run(MODEL_FILE), Ok)?;
    let devices = train::open_devices(&args.devices.single()?)?;
    let device = devices.first().context("there is no device")?;
    let trained = model::open(&path, &args.weights, &args.data)?;
    let mut classifier = Classifier::new(&trained, device, args.images.len().clamp(1, 64))?;
    classifier.set_test_time(args.tta);
    let mut pictures = Vec::new();
    for path in &args.images {
        pictures.extend(picture(path).map_err(train::Error::from)?);
    }
    let mut out = String::new();
    for (path, prediction) in args.images.iter().zip(classifier.classify(&pictures)?) {
        let ranked = prediction.ranked();
        let top = ranked.iter().take(args.top).map(|&(k, p)| (classifier.classes[k].as_str(), p));
        // Writing to a string cannot fail.
        let _ = if args.json {
            let classes: Vec<_> = top.map(|(class, p)| json!({ "class": class, "probability": p })).collect();
            writeln!(out, "{}", json!({ "image": path, "classes": classes }))
        } else {
            let classes: Vec<_> = top.map(|(class, p)| format!("{class} {:.1}%", 100.0 * p)).collect();
            writeln!(out, "{}: {}", path.display(), classes.join(", "))
        };
    }
    print::text(&out)
}
