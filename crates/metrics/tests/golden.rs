//! Comparison with the values of Keras and scikit-learn in `tests/golden/metrics.json`.

// A test panics where something fails, its helper functions too.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use towers_metrics::{Error, Tally};

/// Keras' values are float32.
const TOLERANCE: f64 = 2e-6;

fn numbers(value: &Value) -> impl Iterator<Item = f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap())
}

#[test]
fn values_are_those_of_keras_and_scikit_learn() {
    let golden: Value = serde_json::from_str(include_str!("../../../tests/golden/metrics.json")).unwrap();
    let mut compared = 0;
    for case in golden["cases"].as_array().unwrap() {
        let labels = Vec::from_iter(numbers(&case["labels"]).map(|label| label as usize));
        let scores = case["scores"].as_array().unwrap();
        let scores =
            Vec::from_iter(scores.iter().map(|row| Vec::from_iter(numbers(row).map(|score| score as f32))));
        for (name, expected) in case["values"].as_object().unwrap() {
            if name == "exact auc" {
                continue;
            }
            // Two tallies, one for every third sample, added up.
            let mut tallies = [0, 1].map(|_| Tally::named(&[name], scores[0].len()).unwrap());
            for (k, (scores, label)) in scores.iter().zip(&labels).enumerate() {
                tallies[usize::from(k % 3 == 0)].add(scores, *label);
            }
            let [mut all, other] = tallies;
            all.add_counts(other.counts());
            let (value, expected) = (all.values().get(name).unwrap(), expected.as_f64().unwrap());
            assert!((value - expected).abs() < TOLERANCE, "{}: {name} {value}, {expected}", case["name"]);
            compared += 1;
        }
    }
    assert_eq!(compared, 3 * 5 + 4 + 4 + 1 + 1);
}

#[test]
fn values_of_several_labels_are_those_of_keras_and_scikit_learn() {
    let golden: Value = serde_json::from_str(include_str!("../../../tests/golden/metrics.json")).unwrap();
    let mut compared = 0;
    for case in golden["multi_label"].as_array().unwrap() {
        let rows = |key: &str| {
            let rows = case[key].as_array().unwrap();
            Vec::from_iter(rows.iter().map(|row| Vec::from_iter(numbers(row))))
        };
        let (labels, scores) = (rows("labels"), rows("scores"));
        let mut tallies = [0, 1].map(|_| Tally::all_multi_label(scores[0].len()));
        for (k, (scores, labels)) in scores.iter().zip(&labels).enumerate() {
            let scores = Vec::from_iter(scores.iter().map(|&score| score as f32));
            tallies[usize::from(k % 3 == 0)].add_multi_label(&scores, |class| labels[class] == 1.0);
        }
        let [mut all, other] = tallies;
        all.add_counts(other.counts());
        let values = all.values();
        for (name, expected) in case["values"].as_object().unwrap() {
            let (value, expected) = (values[name], expected.as_f64().unwrap());
            assert!((value - expected).abs() < TOLERANCE, "{}: {name} {value}, {expected}", case["name"]);
            compared += 1;
        }
    }
    assert_eq!(compared, 3 * 5);
}

/// With 199 steps between thresholds, the area is near the exact one.
#[test]
fn the_area_is_near_the_exact_one() {
    let golden: Value = serde_json::from_str(include_str!("../../../tests/golden/metrics.json")).unwrap();
    let values = golden["cases"]
        .as_array()
        .unwrap()
        .iter()
        .find_map(|case| case["values"].get("auc").map(|_| &case["values"]));
    let values = values.unwrap();
    assert!((values["auc"].as_f64().unwrap() - values["exact auc"].as_f64().unwrap()).abs() < 2e-3);
}

#[test]
fn what_is_not_defined_is_refused_or_nan() {
    let told = Tally::multi_label(&["mcc"], 3).err().map(|error| error.to_string());
    let says = "the metric `mcc` needs one label a sample; for several there are precision, recall, f1, auc, exact_acc";
    assert_eq!(told.as_deref(), Some(says));
    let empty = Tally::all_multi_label(3).values();
    assert!(empty["exact_acc"].is_nan() && empty["auc"].is_nan());
    let error = |names: &[&str], classes| {
        Tally::named(names, classes).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(error(&["f1", "f1"], 3), "the metric `f1` is named twice");
    assert_eq!(error(&["auc"], 10), "the metric `auc` needs two classes, and there are 10");
    assert_eq!(error(&["top5_acc"], 5), "the metric `top5_acc` needs more than 5 classes, and there are 5");
    for name in ["f2", "top0_acc", "top05_acc", "top5000_acc", "top_acc", "top+5_acc", "val_f1", ""] {
        assert!(matches!(Tally::named(&[name], 10), Err(Error::Unknown { name: told, .. }) if told == name));
    }
    for name in towers_metrics::names() {
        assert!(
            towers_metrics::NAMES.contains(name)
                && towers_metrics::named(name).is_some_and(|metric| metric.name() == name)
        );
    }
    let known = "top5_acc, balanced_acc, precision, recall, f1, mcc, auc, exact_acc";
    assert_eq!(error(&["f2"], 3), format!("the metric is `f2`, but must be one of {known}"));

    let names = ["top1_acc", "balanced_acc", "precision", "auc"];
    let mut tally = Tally::named(&names, 2).unwrap();
    assert!(tally.values().iter().all(|(_, value)| value.is_nan()));
    // Without samples of both classes there is no curve. A score that is no number is not right.
    tally.add(&[0.0, f32::NAN], 1);
    tally.add(&[0.0, 1.0], 1);
    let values = tally.values();
    assert_eq!(["top1_acc", "balanced_acc", "precision"].map(|name| values[name]), [0.5; 3]);
    assert!(values["auc"].is_nan());
    tally.clear();
    assert_eq!(tally.counts().iter().sum::<u64>(), 0);
}

#[test]
fn names_and_values_survive_json() {
    use towers_metrics::Values;
    let values = Values::from_iter([("f1", 0.25), ("val_acc", f64::INFINITY), ("loss", 0.5), ("auc", 1.0)]);
    let text = serde_json::to_string(&values).unwrap();
    assert_eq!(text, r#"{"loss":0.5,"val_acc":null,"auc":1.0,"f1":0.25}"#);
    let read: Values = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (Vec::from_iter(read.names()), read.get("f1")),
        (vec!["loss", "val_acc", "auc", "f1"], Some(0.25))
    );
    assert!(read.get("val_accuracy").unwrap().is_nan());
    for bad in [r#"{"loss":1,"loss":2}"#, r#"{"loss":"1"}"#, "[1]"] {
        assert!(serde_json::from_str::<Values>(bad).is_err(), "{bad}");
    }
}
