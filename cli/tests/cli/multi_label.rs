//! Several labels a picture: sigmoid outputs, binary cross-entropy.

use super::*;
use serde_json::json;

/// Grey images of three squares, each of which is there or not.
const SQUARES: &[u8] = include_bytes!("../../../tests/golden/numpy_npz/squares.npz");

const FLAGS: &str = "train --quick --dataset squares.npz --schedule constant --no-progress --no-warnings";

fn place() -> Place {
    let place = Place::new();
    place.write("squares.npz", SQUARES);
    place
}

#[test]
fn a_run_learns_resumes_evaluates_and_predicts() {
    let place = place();
    let train = |more: &str| place.run(&format!("{FLAGS} --batch-size 16 {more}")).ends(0);
    train("--epochs 12 --metrics f1,exact_acc -o whole")
        .says("several labels a picture: sigmoid outputs, binary cross-entropy");
    // Guessing has an accuracy of a half, and an F1 score below it.
    let f1 = place.last_epoch("whole")["val_f1"].as_f64().unwrap();
    assert!(f1 > 0.7, "{f1}");
    train("--epochs 6 --metrics f1,exact_acc -o half");
    place.run("train --resume half --epochs 12").ends(0);
    assert!(place.model("whole") == place.model("half"), "a resumed run has other bits");

    let told: Value = serde_json::from_str(&place.run("evaluate whole --json").ends(0).out()).unwrap();
    assert_eq!((&told["samples"], told["confusion"].is_null()), (&json!(40), true));
    assert!((told["f1"].as_f64().unwrap() - f1).abs() < 1e-9);
    assert_eq!(told["class_samples"].as_array().unwrap().len(), 3);
    place.run("evaluate whole --predictions all.csv").ends(0).says("class  precision  recall  f1");
    let table = place.read("all.csv");
    assert!(table.starts_with("image,label,prediction,0,1,2\n") && table.lines().count() == 41, "{table}");

    let picture = image::GrayImage::from_fn(16, 16, |x, y| {
        let of = |range: std::ops::Range<u32>, at| range.contains(&at);
        image::Luma([if of(1..7, y) && (of(1..7, x) || of(9..15, x)) { 220 } else { 40 }])
    });
    picture.save(place.path().join("two.png")).unwrap();
    let told = place.run("predict two.png --model whole --json").ends(0).out();
    let told: Value = serde_json::from_str(&told).unwrap();
    let mut classes: Vec<_> = told["classes"].as_array().unwrap().iter().map(|one| &one["class"]).collect();
    classes.sort_by_key(|class| class.to_string());
    assert_eq!(classes, [&json!("0"), &json!("1")]);
    place.prints("predict two.png --model whole --threshold 1", "two.png: no class above 100.0%");
    place.prints("predict two.png --model whole --threshold 0 --csv", "image,labels,probabilities\ntwo.png,");
    place.refuses("predict two.png --model whole --threshold 2", "must be a probability from 0 to 1");
    // The exported graph has the sigmoids.
    place.run("export whole -o net.onnx").ends(0);
    let own = place.run("predict two.png --model whole").ends(0).out();
    assert_eq!(place.run("predict two.png --model net.onnx").ends(0).out(), own);
    // A state dict of PyTorch says that they belong to it.
    place.run("export whole -o net.py").ends(0);
    assert_eq!(place.run("predict two.png --model net.safetensors").ends(0).out(), own);
    place.run("export whole -o own.safetensors").ends(0);
    assert_eq!(place.run("predict two.png --model own.safetensors").ends(0).out(), own);

    place.run("report whole -o page.html").ends(0);
    let page = place.read("page.html");
    assert!(page.contains("Accuracy by class") && !page.contains("Confusion matrix"));
}

#[test]
fn replicas_and_stages_change_no_bit() {
    let place = place();
    let run = |name: &str, more: &str| {
        place.run(&format!("{FLAGS} --epochs 1 --virtual-replicas 2 {more} -o {name}")).ends(0);
        place.model(name)
    };
    let one = run("one", "--global-batch-size 32");
    assert!(one == run("two", "--global-batch-size 32 --replicas 2"));
    assert!(one == run("stages", "--global-batch-size 32 --pipeline-stages 2"));
    // The last batch is short.
    let one = run("uneven", "--global-batch-size 36");
    assert!(one == run("uneven_two", "--global-batch-size 36 --replicas 2"));
}

#[test]
fn options_that_need_one_label_are_refused() {
    let place = place();
    let train = |more: &str, says: &str| {
        place.refuses(&format!("{FLAGS} {more} --epochs 1 -o run"), says);
    };
    for option in ["--class-weight balanced", "--sampler balanced", "--mixup 0.2", "--cutmix 1"] {
        train(option, "since it needs one label a picture and these data have several");
    }
    train("--metrics mcc", "the metric `mcc` needs one label a sample; for several there are precision,");
}

/// Only a network for several labels has a threshold, and only data of its kind measure it.
#[test]
fn the_other_kind_of_network_is_refused() {
    let place = place();
    place.run(&format!("{TRAIN} -o single")).ends(0);
    image::GrayImage::new(32, 32).save(place.path().join("black.png")).unwrap();
    place
        .refuses("predict black.png --model single --threshold 0.3", "the network tells one class a picture");
    place.run(&format!("{FLAGS} --epochs 1 --image-size 32 --color-mode rgb -o several")).ends(0);
    place.refuses(
        "evaluate several --dataset synthetic",
        "of one label a picture, but must be of several labels",
    );
    place.refuses(
        "evaluate single --dataset squares.npz --color-mode rgb",
        "of several labels a picture, but must be of one",
    );
}
