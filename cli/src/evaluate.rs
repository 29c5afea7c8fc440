//! `towers evaluate`.

use crate::args::EvaluateArgs;
use crate::error::at_least_one;
use crate::output::newest_run;
use crate::{data, print};
use serde_json::json;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use train::{Classifier, Config, DataOptions, Evaluation, MODEL_FILE};

pub fn run(args: EvaluateArgs) -> anyhow::Result<ExitCode> {
    at_least_one("--batch-size", args.batch_size)?;
    let run = args.run.clone().or(args.model.clone()).map_or_else(|| newest_run(&[MODEL_FILE]), Ok)?;
    let mut classifier = args.network.open(&run, args.batch_size)?;
    let mut options = trained_on(&run, &classifier);
    args.network.data.apply(&mut options);
    let limit = args.limit.limit_test.or(options.limit_test.take());
    let mut data = data::load(&options, true)?;
    let all = data.test.len();
    if let Some(limit) = limit.filter(|&limit| limit < all) {
        data.test = data.test.take(limit);
    }
    let evaluation = train::evaluate(&mut classifier, &data.test, |_, _| {})?;
    let measured = Measured { run, dataset: data.name, all, as_trained: args.limit.limit_test.is_none() };
    print::text(&match args.json {
        true => format!("{}\n", object(&measured, &classifier, &evaluation)),
        false => table(&measured, &classifier, &evaluation),
    })
}

/// What was measured on what.
struct Measured {
    run: PathBuf,
    dataset: String,
    /// How many test images the data set has.
    all: usize,
    /// Whether the run says how many are taken, and not the command line.
    as_trained: bool,
}

/// The data that the run was trained on: from its configuration or, where that is gone, from the model's metadata.
pub fn trained_on(run: &Path, classifier: &Classifier) -> DataOptions {
    let config = |folder: &Path| -> Option<Config> {
        let text = std::fs::read_to_string(folder.join("config.json")).ok()?;
        serde_json::from_str(&text).ok()
    };
    // A checkpoint lies up to two folders deeper, and a file of `--checkpoint-path` in folders of its own.
    let config = run.ancestors().take(4).find_map(config);
    let named = || DataOptions { dataset: classifier.dataset.clone(), ..DataOptions::default() };
    config.map_or_else(named, |config| config.data)
}

fn object(measured: &Measured, classifier: &Classifier, e: &Evaluation) -> serde_json::Value {
    let Measured { run, dataset, all, .. } = measured;
    json!({
        "run": run, "dataset": dataset, "samples": e.samples, "test_samples": all, "loss": e.loss, "acc": e.acc,
        "classes": classifier.classes, "class_acc": e.class_accuracy(), "confusion": e.confusion,
    })
}

fn table(measured: &Measured, classifier: &Classifier, e: &Evaluation) -> String {
    let Measured { run, dataset, all, as_trained } = measured;
    let mut out = match e.samples {
        samples if samples == *all => format!("{} on the {all} test images of {dataset}\n", run.display()),
        samples => {
            let why = if *as_trained { ", as the run was; --limit-test changes that" } else { "" };
            format!("{} on the first {samples} of {all} test images of {dataset}{why}\n", run.display())
        }
    };
    // Writing to a string cannot fail.
    let _ = writeln!(out, "loss: {:.4} - acc: {:.4}\n", e.loss, e.acc);
    let width = classifier.classes.iter().map(String::len).max().unwrap_or(0);
    for (k, (class, acc)) in classifier.classes.iter().zip(e.class_accuracy()).enumerate() {
        let wrong =
            e.confusion[k].iter().enumerate().filter(|&(other, _)| other != k).max_by_key(|&(_, n)| n);
        let taken = wrong.filter(|&(_, &n)| n > 0);
        let note = taken.map_or(String::new(), |(other, n)| {
            format!("  most often taken for {} ({n})", classifier.classes[other])
        });
        let share = if acc.is_nan() { "no images".into() } else { format!("{acc:.4}") };
        let _ = writeln!(out, "  {class:width$}  {share}{note}");
    }
    out
}
