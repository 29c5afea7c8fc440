//! Folders of class folders: evaluation on them, resumes, and pictures of another size than 32x32.

use super::Place;
use image::{Rgb, RgbImage};
use serde_json::{Value, json};
use std::fs;
use std::ops::Range;
use std::path::Path;

const TRAIN: &str = "train --recipe quick --batch-size 8 --output run --no-progress";

/// Pictures of about one colour, one file for each of these numbers.
pub fn draw(place: &Place, folder: &str, colour: [u8; 3], numbers: Range<u32>) {
    draw_sized(place, folder, colour, numbers, (32, 32));
}

fn draw_sized(
    place: &Place,
    folder: &str,
    colour: [u8; 3],
    numbers: Range<u32>,
    (width, height): (u32, u32),
) {
    place.make_folder(folder);
    for k in numbers {
        let shade = |x: u32, y: u32| colour.map(|c| c.wrapping_add(((x * 7 + y * 3 + k * 11) % 23) as u8));
        let picture = RgbImage::from_fn(width, height, |x, y| Rgb(shade(x, y)));
        picture.save(place.path().join(folder).join(format!("{k:03}.png"))).unwrap();
    }
}

const BLUE: [u8; 3] = [20, 40, 220];
const GREEN: [u8; 3] = [20, 200, 40];
const RED: [u8; 3] = [220, 40, 20];

/// A set of training and test pictures of three classes.
fn pictures(place: &Place) {
    for (class, colour) in [("blue", BLUE), ("green", GREEN), ("red", RED)] {
        draw(place, &format!("pictures/train/{class}"), colour, 0..24);
        draw(place, &format!("pictures/test/{class}"), colour, 24..30);
    }
}

fn object(place: &Place, args: &str) -> Value {
    place.run(args).ends(0).json()
}

/// The first pictures in the order of the folders are all of one class. Files that are none are told of once.
#[test]
fn limits_take_pictures_of_every_class() {
    let place = Place::new();
    pictures(&place);
    for k in 0..180 {
        place.write(&format!("pictures/train/blue/{k:03}.tiff"), "II*");
    }
    let flags = "--dataset pictures --epochs 1 --limit-train 16 --limit-test 9";
    let says = "passed over 180 files that are no pictures by their names, as train/blue/000.tiff\n";
    let ran = place.run(&format!("{TRAIN} {flags}")).ends(0).complains(says);
    assert_eq!(ran.err().matches("passed over").count(), 1, "{}", ran.err());
    let measured = object(&place, "evaluate run --json");
    for class in 0..3 {
        let row = measured["confusion"][class].as_array().unwrap();
        assert_eq!(row.iter().filter_map(Value::as_u64).sum::<u64>(), 3, "{measured}");
    }
}

/// A part of the pictures by a percentage, a trial without a trace, and a network that must learn two batches by heart.
#[test]
fn short_runs() {
    let place = Place::new();
    pictures(&place);
    let train = "train --recipe quick --batch-size 8 --epochs 2 --dataset pictures --no-progress";
    let half = place.run(&format!("{train} --limit-train 50% --limit-test 50% --output half")).ends(0);
    half.complains("(36 training images, 9 validation images");
    place.run(&format!("{train} --limit-train 150%")).ends(2).complains("a percentage, as in 10%");

    place.make_folder("tmp");
    let tmp = place.path().join("tmp").display().to_string();
    let trial =
        place.run_with(&format!("{train} --fast-dev-run --csv-log log.csv"), &[("TMPDIR", &tmp)]).ends(0);
    trial.says("the trial run went well; nothing of it is kept").complains("8 validation images");
    assert!(!place.exists("runs") && !place.exists("log.csv"));
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0);
    place.run(&format!("{train} --fast-dev-run=2 --output kept")).ends(2).complains("--output");
    place.run(&format!("{train} --fast-dev-run --max-steps 5")).ends(2).complains("--max-steps");
    place
        .run("evaluate half --predictions no/such/table.csv")
        .ends(2)
        .complains("--predictions is no/such/table.csv");

    place.run("evaluate half --predictions table.csv").ends(0);
    let table = place.read("table.csv");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!((lines[0], lines.len()), ("image,label,prediction,blue,green,red", 10));
    assert!(lines[1].contains("pictures/test/blue/024.png,blue,"), "{}", lines[1]);

    let learned = place
        .run(&format!("{} --overfit-batches 2 --output learned", train.replace("--no-progress", "")))
        .ends(0);
    learned.says("it trains and validates on the same 16 images, for --overfit-batches");
    place
        .run(&format!("{train} --max-steps 3 --output three"))
        .ends(0)
        .says("stopped early: the 3 steps of the run are done, at step 3");
    place.run("train --resume three --max-steps 12 --no-progress").ends(0).says("the 12 steps");
}

#[test]
fn unbalanced_classes_are_told_and_can_be_weighted() {
    let place = Place::new();
    draw(&place, "pictures/train/blue", BLUE, 0..24);
    draw(&place, "pictures/train/red", RED, 0..2);
    draw(&place, "pictures/test/blue", BLUE, 24..28);
    draw(&place, "pictures/test/red", RED, 24..28);
    let train = "train --recipe quick --batch-size 8 --dataset pictures --epochs 1 --output";
    place.run(&format!("{train} plain")).ends(0).complains(
        "the class blue has 24 training images and red has 2, so accuracy says little about red; --class-weight balanced or \
         --sampler balanced counts all classes alike",
    );
    let weighted = place.run(&format!("{train} a --class-weight balanced")).ends(0);
    let weighted = weighted.says("the training loss is weighted by class: blue 0.542, red 6.500");
    assert!(!weighted.err().contains("says little"), "{}", weighted.err());
    place.write("weights.csv", "class,weight\nred,3\n");
    place.run(&format!("{train} b --class-weight weights.csv")).ends(0).says("blue 1.000, red 3.000");
    let saved: Value = serde_json::from_str(&place.read("b/config.json")).unwrap();
    assert_eq!(saved["class_weight"], json!({"red": 3.0}));
    place
        .run(&format!("{train} c --class-weight rde=3"))
        .ends(2)
        .complains("`rde`")
        .complains("did you mean `red`?");
    place.run(&format!("{train} d --class-weight red")).ends(2).complains("must be balanced, CLASS=WEIGHT");
    let balanced = place.run(&format!("{train} e --sampler balanced")).ends(0);
    assert!(!balanced.err().contains("says little"), "{}", balanced.err());
    place.run(&format!("{train} f --sampler balanced --shuffle false")).ends(2).complains("--sampler");
}

/// The pictures that choose the best epoch are not those of the reported result.
#[test]
fn runs_validate_on_val_and_are_evaluated_on_test() {
    let place = Place::new();
    pictures(&place);
    let small = format!("{TRAIN} --dataset pictures --epochs 1");
    let ran = place.run(&small).ends(0);
    ran.complains(
        "quick: small_cnn on pictures (72 training images, 18 validation images from test/), into run",
    );
    place.remove("run");
    // Pictures of the wrong colour: validation on them has an accuracy of 0.
    for (class, colour) in [("blue", RED), ("green", BLUE), ("red", GREEN)] {
        draw(&place, &format!("pictures/val/{class}"), colour, 0..4);
    }
    let ran = place.run(&small.replace("--epochs 1", "--epochs 3")).ends(0);
    ran.complains("(72 training images, 12 validation images from val/)");
    let last = place.last_epoch("run");
    assert_eq!(last["val_acc"], 0.0, "{last}");
    let measured = object(&place, "evaluate run --json");
    assert_eq!((&measured["samples"], &measured["acc"]), (&18.into(), &1.0.into()), "{measured}");
    place.remove("run");
    let ran = place.run(&format!("{small} --validation-split 0.25")).ends(0);
    ran.complains("(72 training images, a share of 0.25 of them for validation)");
}

/// A run belongs to the pictures and labels that it was trained on.
#[test]
fn other_pictures_are_another_run() {
    let place = Place::new();
    pictures(&place);
    place.run(&format!("{TRAIN} --dataset pictures --epochs 1")).ends(0);
    let resume = "train --resume run --epochs 2 --no-progress";
    let other = "error: these are not the data that the run was trained on: ";
    draw(&place, "pictures/train/red", RED, 50..51);
    place.refuses(resume, &format!("{other}they have 73 training samples, not 72; give those by --dataset"));
    place.run("evaluate run/checkpoints").ends(0);
    place.remove("pictures/train/red/050.png");
    // Other test pictures change the results, not the training.
    draw(&place, "pictures/test/red", RED, 50..52);
    place.run(resume).ends(0);
}

/// A folder for each split, wherever it is, trains the network of one folder that holds them.
#[test]
fn each_split_may_have_its_own_folder() {
    let place = Place::new();
    pictures(&place);
    place.run(&format!("{TRAIN} --dataset pictures --epochs 1")).ends(0);
    let at = |name: &str| place.path().join(name);
    fs::rename(at("pictures/train"), at("learn")).unwrap();
    fs::rename(at("pictures/test"), at("exam")).unwrap();
    let train = |run: &str, flags: &str| format!("{} {flags}", TRAIN.replace("run", run));
    let ran = place.run(&train("own", "--train-dir learn --test-dir exam --epochs 1")).ends(0);
    ran.complains("small_cnn on learn (72 training images, 18 validation images from exam/), into own\n");
    let losses = |run: &str| ["loss", "val_loss"].map(|name| place.last_epoch(run)[name].clone());
    assert_eq!(losses("run"), losses("own"));
    place.prints("evaluate own", "own on the 18 test images of learn");
    draw(&place, "other/red", RED, 0..4);
    assert_eq!(object(&place, "evaluate own --test-dir other --json")["samples"], 4);
    place.run("train --resume run --train-dir learn --test-dir exam --epochs 2 --no-progress").ends(0);
    fs::rename(at("exam"), at("gone")).unwrap();
    let says = "exam, where the run's config.json expects its pictures; give --test-dir if they have moved";
    place.refuses("evaluate own", says);
    place.run("evaluate own --test-dir gone").ends(0);
    place.write("own.toml", "like = 'quick'\nbatch_size = 8\n[data]\ntrain_dir = 'learn'\n");
    let held = place.run("train --recipe own.toml --epochs 1 --no-progress --output held").ends(0);
    held.complains("(60 training images, 12 validation images held back from training)");
    for (flags, says) in [
        ("--val-dir learn", "learn, but must be left out without --train-dir"),
        ("--train-dir learn --dataset pictures", "pictures`, but must be left out with --train-dir"),
        ("--train-dir learn --labels a.csv", "a.csv, but must be left out with --train-dir"),
        ("--train-dir nowhere", "nowhere, but must be a folder"),
    ] {
        place.refuses(&train("x", flags), says);
    }
}

/// The path of pictures does not matter.
#[test]
fn a_run_goes_on_with_a_folder_that_has_moved() {
    let place = Place::new();
    pictures(&place);
    place.run(&format!("{TRAIN} --dataset pictures --epochs 1")).ends(0);
    let before = object(&place, "evaluate run --json");
    let at = |name: &str| place.path().join(name);
    fs::rename(at("pictures"), at("moved")).unwrap();
    let gone =
        "/pictures, where the run's config.json expects its pictures; give --dataset if they have moved";
    for args in ["train --resume run --epochs 2", "evaluate run", "evaluate run/checkpoints"] {
        let ran = place.refuses(args, "error: there is no folder ").complains(gone);
        assert_eq!(ran.err().lines().count(), 1, "{}", ran.err());
    }
    place.run("report run").ends(0).complains(gone);
    place.refuses(
        "train --resume run --epochs 2 --dataset nowhere",
        "--dataset is `nowhere`, which does not exist, but must be auto",
    );
    let config = place.read("run/config.json");
    draw(&place, "other/blue", BLUE, 0..6);
    draw(&place, "other/red", RED, 0..6);
    let other = "these are not the data that the run was trained on: they lack the class green";
    place.refuses("train --resume run --epochs 2 --dataset other", other);
    assert_eq!(place.read("run/config.json"), config, "what was refused changes nothing");
    for model in ["run", "run/checkpoints"] {
        let after = object(&place, &format!("evaluate {model} --dataset moved --json"));
        assert_eq!(after["confusion"], before["confusion"], "{model}");
    }
    place.run("train --resume run --epochs 2 --dataset moved --no-progress").ends(0);
    // The run stores the new path.
    place.run("train --resume run --epochs 3 --no-progress").ends(0);
    place.run("evaluate run").ends(0);
    fs::remove_file(at("run/config.json")).unwrap();
    fs::rename(at("moved"), at("again")).unwrap();
    let gone = "there is no folder moved, where the model's file expects its pictures";
    place.refuses("evaluate run", gone);
}

/// An archive of `tests/golden/numpy_npz.py`: 5, 1 and 2 images of four classes.
#[test]
fn arrays_of_numpy_are_a_data_set() {
    let place = Place::new();
    place.make_folder("data");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/numpy_npz");
    let file = place.path().join("data/scans.npz");
    fs::copy(golden.join("channel.npz"), &file).unwrap();
    place.write("data/names.txt", "a\nb\nc\nd\n");
    let train = "train --quick --batch-size 2 --image-size 8 --no-progress --epochs 1 --output run";
    let ran = place.run(&format!("{train} --dataset data/scans.npz --class-names data/names.txt")).ends(0);
    ran.complains("small_cnn on scans at 8x8 in grey (5 training, 1 validation, 2 test images)");
    let measured = object(&place, "evaluate run --json");
    assert_eq!((&measured["samples"], &measured["classes"]), (&json!(2), &json!(["a", "b", "c", "d"])));
    // A resume from elsewhere finds it.
    let mut resume = place.command("train --resume ../run --epochs 2 --no-progress");
    assert!(resume.current_dir(place.path().join("data")).status().unwrap().success());
    // A recipe has it beside it.
    place.write("data/scans.toml", "like = 'quick'\n[data]\ndataset = 'scans.npz'\n");
    place.run(&format!("{train}s --recipe data/scans.toml")).ends(0);
    for (name, says) in [
        (
            "floats",
            "x_test.npy: its values are `<f8`, expected whole numbers from 0 to 255; save it as uint8",
        ),
        ("no_test_labels", "there is no y_test.npy in it"),
    ] {
        fs::copy(golden.join(format!("{name}.npz")), &file).unwrap();
        place.fails(&format!("{train}-{name} --dataset data/scans.npz"), says);
    }
    fs::remove_file(&file).unwrap();
    place.refuses("train --resume run --epochs 3", "data/scans.npz, where the run's config.json expects its");
    let says = "--dataset is `data/scans.npz`, which does not exist, but must be auto";
    place.refuses(&format!("{train}x --dataset data/scans.npz"), says);
}

/// Labels are numbers of a data set's classes; only the names have a meaning.
#[test]
fn classes_are_the_same_if_their_names_are() {
    let place = Place::new();
    pictures(&place);
    place.run(&format!("{TRAIN} --dataset pictures --epochs 3")).ends(0);
    let all = object(&place, "evaluate run --json");
    for (class, colour) in [("green", GREEN), ("red", RED)] {
        draw(&place, &format!("some/train/{class}"), colour, 0..1);
        draw(&place, &format!("some/test/{class}"), colour, 24..30);
    }
    for model in ["run", "run/checkpoints"] {
        let some = object(&place, &format!("evaluate {model} --dataset some --json"));
        assert_eq!(some["samples"], 12, "{model}");
        assert_eq!(some["confusion"][0], serde_json::json!([0, 0, 0]), "{model}: nothing is blue");
        for class in [1, 2] {
            assert_eq!(some["confusion"][class], all["confusion"][class], "{model}");
        }
    }
    for class in ["train/green", "test/green"].map(|folder| place.path().join("some").join(folder)) {
        fs::rename(&class, class.with_file_name("mint")).unwrap();
    }
    let says = "--dataset is some with the unknown class mint, but must be data with the model's classes or some of them: \
                blue, green, red";
    place.refuses("evaluate run --dataset some", says);
    place.refuses("evaluate run --dataset synthetic --limit-test 9", "with the unknown classes ");
    place.run("report run --dataset some").ends(0).complains(says);
}

/// Larger than the network's input.
#[test]
fn a_run_keeps_the_size_of_its_pictures() {
    let place = Place::new();
    for (class, colour) in [("blue", BLUE), ("red", RED)] {
        draw_sized(&place, &format!("pets/{class}"), colour, 0..12, (60, 70));
    }
    let flags = "--dataset pets --image-size 48x40 --epochs 3 --output run";
    let ran =
        place.run(&format!("train --recipe quick --batch-size 4 --lr 0.003 --no-progress {flags}")).ends(0);
    ran.complains("small_cnn on pets at 48x40 (20 training images");
    assert!(place.read("run/config.json").contains("\"image_size\": \"48x40\""));
    place
        .prints("predict pets/red/003.png pets/blue/004.png --model run --top 1", "003.png: red ")
        .says("004.png: blue ");
    place.prints("evaluate run", "run on the 4 validation images of pets");
    place.run("report run").ends(0);
    assert!(place.read("run/report.html").contains("On the 4 validation images of pets: "));
    place.run("export run --output net.py").ends(0);
    assert!(place.read("net.py").contains("48"));
    place.prints("predict pets/red/003.png --model net.safetensors", "003.png: ");
    let wrong = "predict pets/red/003.png --model net.safetensors --image-size 64";
    place.refuses(wrong, "--image-size is 64x64, but must be 48x40 or left out");
    place.refuses(
        "predict pets/red/003.png --model run --image-size 48x40",
        "--image-size is 48x40, but must be left out with run",
    );
    place.refuses("evaluate run --dataset synthetic --limit-test 4", "must be of 48x40 images");

    place.refuses("train --resume run --epochs 4 --image-size 64 --no-progress", "--image-size can't change");
    place.prints("train --resume run --epochs 4 --no-progress", "done: run");
    place.run("evaluate run/checkpoints --dataset pets").ends(0);
    place
        .run("preview --recipe quick --dataset pets --image-size 48x40 --samples 2 --columns 3 --zoom 2")
        .ends(0);
    let size = image::image_dimensions(place.path().join("preview.png")).unwrap();
    assert_eq!(size, ((3 * 42 + 2) * 2, (2 * 50 + 2) * 2));
}

/// A set larger than memory is no other set: whatever is measured on it, drawn from it or held back has the
/// same bits.
#[test]
fn pictures_decoded_while_training_train_the_same_network() {
    let place = Place::new();
    pictures(&place);
    let recipe = place.run("recipes quick").ends(0).out();
    assert!(recipe.contains("preprocessing = "), "{recipe}");
    let own = |line: &str| match line.starts_with("preprocessing") {
        true => "preprocessing = \"subtract-pixel-mean\"\n".to_owned(),
        false => format!("{line}\n"),
    };
    place.write("own.toml", recipe.lines().map(own).collect::<String>());
    let train = |stream: &str, rest: &str| {
        let data = format!("--dataset pictures --image-size 24 --stream {stream} --no-progress");
        let drawn = "--mixup 0.2 --validation-split 0.25 --featurewise-std-normalization --schedule constant";
        place.run(&format!("train --recipe own.toml --batch-size 8 --replicas 2 {data} {drawn} {rest}"))
    };
    train("never", "--epochs 2 --output memory").ends(0);
    let says = "90 pictures would take 0.0 GB of memory, and are decoded as they are needed";
    train("always", "--epochs 1 --output files").ends(0).complains(says);
    place.run("train --resume files --epochs 2 --stream always --no-progress").ends(0).complains(says);
    assert!(place.model("memory") == place.model("files"));
    let losses = |run: &str| place.last_epoch(run)["val_loss"].clone();
    assert_eq!(losses("memory"), losses("files"));
    let measured = object(&place, "evaluate memory --batch-size 5 --json");
    let on_both = "evaluate memory --batch-size 5 --json --stream always --replicas 2";
    assert_eq!(object(&place, on_both), measured);
    place.run("preview --recipe own.toml --dataset pictures --stream always").ends(0);
    // It is found before the training.
    place.write("pictures/train/red/007.png", "no picture");
    let streamed = format!("{TRAIN} --stream always --dataset");
    place.fails(&format!("{streamed} pictures"), "red/007.png: it is no picture");
    assert!(!place.exists("run"));
    let says = "--stream is always, but must be auto or never with the data set `synthetic`";
    place.refuses(&format!("{streamed} synthetic"), says);
}

/// Folders that were taken for classes by mistake are seen at once.
#[test]
fn the_first_lines_name_the_classes_and_their_images() {
    let place = Place::new();
    for (class, colour, count) in [("blue", BLUE, 5), ("green", GREEN, 4), ("red", RED, 3)] {
        draw(&place, &format!("pets/Training_Set/{class}"), colour, 0..count);
        draw(&place, &format!("pets/Test_Set/{class}"), colour, 0..2);
    }
    let ran = place.run(&format!("{TRAIN} --dataset pets --epochs 1")).ends(0);
    ran.complains("small_cnn on pets (12 training images, 6 validation images from Test_Set/), into run\n")
        .complains("3 classes: blue 5, green 4, red 3\n")
        .complains("test: 2 images each of blue, green, red\n");
    place.prints("evaluate run", "run on the 6 test images of pets");
    draw(&place, "flat/train", BLUE, 0..4);
    draw(&place, "flat/test", BLUE, 0..4);
    let says = "`test`, `train` are named as splits, but have no class folders";
    place.fails("train --recipe quick --dataset flat --epochs 1 --output other", says);
}

/// Every picture counts.
#[test]
fn another_folder_than_the_runs_is_measured_as_a_whole() {
    let place = Place::new();
    pictures(&place);
    place.run(&format!("{TRAIN} --dataset pictures --epochs 1")).ends(0);
    assert_eq!(object(&place, "evaluate run --dataset pictures/test --json")["samples"], 18);
    let says = "run on all 18 images of test, other data than those of the training";
    place.prints("evaluate run --dataset pictures/test", says);
    draw(&place, "one/red", RED, 0..1);
    assert_eq!(object(&place, "evaluate run --dataset one --json")["samples"], 1);
    place.run("report run --dataset one").ends(0);
    place.prints("evaluate run --dataset ./pictures", "run on the 18 test images of pictures");
    place.remove("run");
    // The run's own folder is as the run had it.
    place.run(&format!("{TRAIN} --dataset pictures/train --epochs 1")).ends(0);
    assert_eq!(object(&place, "evaluate run --json")["samples"], 12);
    assert_eq!(object(&place, "evaluate run --dataset pictures/../pictures/train --json")["samples"], 12);
}

#[test]
fn damaged_pictures_are_left_out_where_that_is_asked_for() {
    let place = Place::new();
    pictures(&place);
    place.write("pictures/train/blue/007.png", "<html>");
    place.write("pictures/test/red/030.png", "");
    let train = format!("{TRAIN} --dataset pictures --epochs 1");
    place.fails(&train, "2 pictures can't be decoded: ");
    for stream in ["auto", "always"] {
        let ran = place.run(&format!("{train} --skip-unreadable --stream {stream}")).ends(0);
        ran.complains("left out 2 pictures that can't be decoded, as train/blue/007.png: it is no picture")
            .complains("3 classes: blue 23, green 24, red 24\n");
        let list = place.read("run/unreadable.txt");
        assert!(
            list.contains("007.png: it is no picture") && list.contains("030.png: it is empty\n"),
            "{list}"
        );
        assert_eq!(list.lines().count(), 2, "{list}");
        assert_eq!(object(&place, "evaluate run --json")["samples"], 18);
        place.run("train --resume run --epochs 2 --no-progress").ends(0);
        place.remove("run");
    }
}

#[test]
fn a_report_names_the_files_of_mistakes() {
    let place = Place::new();
    pictures(&place);
    draw(&place, "wrong/blue", RED, 3..4);
    draw(&place, "wrong/red", RED, 0..1);
    place.run(&format!("{TRAIN} --dataset pictures --epochs 3")).ends(0);
    place.run("report run --dataset wrong").ends(0);
    let page = place.read("run/report.html");
    assert!(page.contains("<code>blue/003.png</code>"), "{page}");
}
