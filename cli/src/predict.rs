//! `towers predict`.

use crate::args::PredictArgs;
use crate::error::at_least_one;
use crate::output::newest_run;
use crate::print;
use serde_json::json;
use std::fmt::Write;
use std::process::ExitCode;
use train::MODEL_FILE;
use train::cifar::folder::picture;

pub fn run(args: PredictArgs) -> anyhow::Result<ExitCode> {
    at_least_one("--top", args.top)?;
    let path = args.model.clone().map_or_else(|| newest_run(&[MODEL_FILE]), Ok)?;
    let mut classifier = args.network.open(&path, args.images.len().clamp(1, 64))?;
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
