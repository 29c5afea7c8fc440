//! `towers evaluate`.

use crate::args::EvaluateArgs;
use crate::error::at_least_one;
use crate::flags::{Flags, Keys};
use crate::predict::{SEPARATOR, record};
use crate::{data, print};
use serde_json::json;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use towers_callbacks::figure;
use towers_config::Config;
use towers_dataset::Dataset;
use towers_runs::folder_must_exist;
use towers_runs::newest;
use towers_trained::{ClassScores, Classifier, ColorMode, Evaluation, MODEL_FILE, Prediction, Resizing};

pub fn run(args: EvaluateArgs) -> anyhow::Result<ExitCode> {
    at_least_one("--batch-size", args.batch_size)?;
    if let Some(file) = &args.predictions {
        folder_must_exist("predictions", file)?;
    }
    let run = args.run.clone().or(args.model.clone()).map_or_else(|| newest(&[MODEL_FILE]), Ok)?;
    let mut replicas = args.network.open(&run, args.batch_size)?;
    let (mut config, whole) = data_of(&run, &replicas[0], &args.network.data)?;
    args.limit.apply(&mut config)?;
    let (data, all) = data::load_test(&config.training.data, &config.placement.files, whole)?;
    let classes = replicas[0].classes.clone();
    let mut rows = Vec::new();
    let evaluation = towers_trained::evaluate_on(&mut replicas, &data, |sample, prediction| {
        if args.predictions.is_some() {
            rows.push(row(&data, &classes, sample, prediction));
        }
    })?;
    if let Some(file) = &args.predictions {
        let head = ["image", "label", "prediction"].map(str::to_owned).into_iter();
        let mut table = record(head.chain(classes))?;
        for row in rows {
            table += &record(row.into_iter())?;
        }
        towers_files::write_output(file, table.as_bytes())?;
    }
    let classifier = &replicas[0];
    let measured = Measured { run, data, all, as_trained: !args.limit.has("data.limit_test") };
    print::text(&match args.json {
        true => format!("{}\n", object(&measured, classifier, &evaluation)),
        false => table(&measured, classifier, &evaluation),
    })
}

/// Results, and the data they were measured on.
struct Measured {
    run: PathBuf,
    data: Dataset,
    /// The number of test images of the data set, if it is known.
    all: Option<usize>,
    /// Whether the limit comes from the run, not from the command line.
    as_trained: bool,
}

/// The data to measure on: those of the flags, or those that the run was trained on. The latter come from its
/// configuration or, if that is gone, from the model's metadata. Also returns whether all pictures of a
/// folder without splits count, since it is another folder than the run's.
pub fn data_of<K: Keys>(
    run: &Path,
    classifier: &Classifier,
    flags: &Flags<K>,
) -> anyhow::Result<(Config, bool)> {
    let config = |folder: &Path| -> Option<Config> {
        let text = towers_files::read_text(&folder.join("config.json")).ok()?;
        serde_json::from_str(&text).ok()
    };
    // A checkpoint is up to two folders deeper; a file of `--checkpoint-path` may be in subfolders.
    let config = run.ancestors().take(4).find_map(config);
    let (mut config, named_by) = match config {
        Some(config) => (config, "the run's config.json"),
        None => {
            let dataset = classifier.dataset.clone();
            let of_file = Config::default().with(|config| config.training.data.dataset = dataset);
            (of_file, "the model's file")
        }
    };
    let trained_on = config.training.data.clone();
    flags.apply(&mut config)?;
    let data = &mut config.training.data;
    let whole = !data.is_same_source(&trained_on);
    if !flags.names_data() {
        data.check_folder(named_by)?;
    }
    // Pictures become images of the network, whatever the run's configuration says.
    let is_folder = data.is_of_files();
    if is_folder && data.color_mode.is_none() {
        data.color_mode = ColorMode::of(classifier.image()[2]);
    }
    if is_folder || !flags.has("data.resize") {
        data.resize = if is_folder { classifier.resizing() } else { Resizing::default() };
    }
    data.image_size = (is_folder || data.is_scaled()).then(|| classifier.image_size());
    Ok((config, whole))
}

/// The line of a test image: its file or number, its label, the likeliest class, and the probabilities.
fn row(data: &Dataset, classes: &[String], sample: usize, prediction: &Prediction) -> Vec<String> {
    let image = data.test.path(sample).map_or_else(|| sample.to_string(), |path| path.display().to_string());
    let joined = |names: Vec<&str>| names.join(SEPARATOR);
    let (label, predicted) = match &data.test.multi_hot {
        Some(rows) => {
            let own = rows.row(sample).into_iter().zip(&data.classes).filter(|&(&has, _)| has == 1);
            let taken = classes.iter().zip(&prediction.probabilities).filter(|(_, share)| **share > 0.5);
            let taken = taken.map(|(class, _)| class.as_str()).collect();
            (joined(own.map(|(_, class)| class.as_str()).collect()), joined(taken))
        }
        None => {
            let label = data.classes[usize::from(data.test.labels[sample])].clone();
            (label, classes[prediction.ranked()[0].0].clone())
        }
    };
    let own = [image, label, predicted].into_iter();
    own.chain(prediction.probabilities.iter().map(f32::to_string)).collect()
}

fn object(measured: &Measured, classifier: &Classifier, e: &Evaluation) -> serde_json::Value {
    let Measured { run, data, all, .. } = measured;
    let mut object = json!({
        "run": run.display().to_string(), "dataset": data.name, "samples": e.samples, "test_samples": all, "loss": e.loss, "acc": e.acc,
        "classes": classifier.classes,
    });
    if classifier.is_multi_label() {
        let scores = e.class_scores();
        let of = |value: fn(&ClassScores) -> serde_json::Value| scores.iter().map(value).collect::<Vec<_>>();
        object["class_precision"] = of(|scores| scores.precision.into()).into();
        object["class_recall"] = of(|scores| scores.recall.into()).into();
        object["class_f1"] = of(|scores| scores.f1.into()).into();
        object["class_samples"] = of(|scores| scores.samples.into()).into();
    } else {
        (object["class_acc"], object["confusion"]) = (json!(e.class_accuracy()), json!(e.confusion));
    }
    e.metrics.iter().for_each(|(name, value)| object[name] = value.into());
    object
}

fn table(measured: &Measured, classifier: &Classifier, e: &Evaluation) -> String {
    let Measured { run, data, all, as_trained } = measured;
    let limited = *all != Some(e.samples);
    let why = if *as_trained && limited { ", as the run was; --limit-test changes that" } else { "" };
    let mut out = format!("{} on {}{why}\n", run.display(), towers_trained::measured_on(data, *all));
    // Writing to a string cannot fail.
    let more = e.metrics.iter().map(|(name, value)| format!(" - {name}: {value:.4}"));
    let _ = writeln!(out, "loss: {} - acc: {:.4}{}\n", figure(e.loss), e.acc, more.collect::<String>());
    let width = classifier.classes.iter().map(String::len).max().unwrap_or(0);
    if classifier.is_multi_label() {
        return out + &scores_by_class(&classifier.classes, e);
    }
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

/// A line for each class of pictures with any number of them.
fn scores_by_class(classes: &[String], e: &Evaluation) -> String {
    let width = classes.iter().map(String::len).max().unwrap_or(0).max("class".len());
    let mut out = format!("  {:width$}  precision  recall  f1      images\n", "class");
    let number = |share: f64| if share.is_nan() { "–".to_owned() } else { format!("{share:.4}") };
    for (class, ClassScores { samples, precision, recall, f1, .. }) in classes.iter().zip(e.class_scores()) {
        let [precision, recall, f1] = [precision, recall, f1].map(number);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {class:width$}  {precision:9}  {recall:6}  {f1:6}  {samples}");
    }
    out
}
