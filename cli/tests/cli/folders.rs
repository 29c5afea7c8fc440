//! Folders of class folders: evaluation on them, and resumes.

use super::Place;
use image::{Rgb, RgbImage};
use serde_json::Value;
use std::fs;
use std::ops::Range;

const TRAIN: &str = "train --recipe quick --batch-size 8 --output run --no-progress";

/// Pictures of about one colour, one file for each of these numbers.
fn draw(place: &Place, folder: &str, colour: [u8; 3], numbers: Range<u32>) {
    let folder = place.path().join(folder);
    fs::create_dir_all(&folder).expect("the folder can be made");
    for k in numbers {
        let shade = |x: u32, y: u32| colour.map(|c| c.wrapping_add(((x * 7 + y * 3 + k * 11) % 23) as u8));
        let picture = RgbImage::from_fn(32, 32, |x, y| Rgb(shade(x, y)));
        picture.save(folder.join(format!("{k:03}.png"))).expect("the picture can be written");
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
    serde_json::from_str(&place.run(args).ends(0).out()).expect("one object")
}

/// The first pictures in the order of the folders are all of one class.
#[test]
fn limits_take_pictures_of_every_class() {
    let place = Place::new();
    pictures(&place);
    place.run(&format!("{TRAIN} --dataset pictures --epochs 1 --limit-train 16 --limit-test 9")).ends(0);
    let measured = object(&place, "evaluate run --json");
    for class in 0..3 {
        let row = measured["confusion"][class].as_array().expect("a row");
        assert_eq!(row.iter().filter_map(Value::as_u64).sum::<u64>(), 3, "{measured}");
    }
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
    fs::remove_dir_all(place.path().join("run")).expect("the run can be removed");
    // Pictures of the wrong colour: validation on them has an accuracy of 0.
    for (class, colour) in [("blue", RED), ("green", BLUE), ("red", GREEN)] {
        draw(&place, &format!("pictures/val/{class}"), colour, 0..4);
    }
    let ran = place.run(&small.replace("--epochs 1", "--epochs 3")).ends(0);
    ran.complains("(72 training images, 12 validation images from val/)");
    let last: Value = serde_json::from_str(place.read("run/history.jsonl").lines().last().expect("an epoch"))
        .expect("one object");
    assert_eq!(last["val_acc"], 0.0, "{last}");
    let measured = object(&place, "evaluate run --json");
    assert_eq!((&measured["samples"], &measured["acc"]), (&18.into(), &1.0.into()), "{measured}");
    fs::remove_dir_all(place.path().join("run")).expect("the run can be removed");
    let ran = place.run(&format!("{small} --validation-split 0.25")).ends(0);
    ran.complains("(72 training images, a share of 0.25 of them for validation)");
}

/// A run belongs to the pictures and labels that it was trained on.
#[test]
fn other_pictures_are_another_run() {
    let place = Place::new();
    pictures(&place);
    place.run(&format!("{TRAIN} --dataset pictures --epochs 1")).ends(0);
    let resumed = |epochs| place.run(&format!("train --resume run --epochs {epochs} --no-progress"));
    let other = "error: these are not the data that the run was trained on: ";
    draw(&place, "pictures/train/red", RED, 50..52);
    resumed(2)
        .ends(2)
        .complains(&format!("{other}they have 74 training samples, not 72; give those by --dataset"));
    place.run("evaluate run/checkpoints").ends(2).complains(other);
    let at = |name: &str| place.path().join("pictures/train").join(name);
    fs::remove_file(at("red/050.png")).expect("the picture can be removed");
    fs::remove_file(at("red/051.png")).expect("the picture can be removed");
    draw(&place, "pictures/train/red", BLUE, 7..8);
    resumed(2).ends(2).complains("the pixels or the labels of their training samples differ");
    draw(&place, "pictures/train/red", RED, 7..8);
    draw(&place, "pictures/train/white", [230; 3], 0..24);
    resumed(2).ends(2).complains("they have one more class, white");
    fs::remove_dir_all(at("white")).expect("the folder can be removed");
    for part in ["train", "test"].map(|part| place.path().join("pictures").join(part)) {
        fs::rename(part.join("blue"), part.join("violet")).expect("the folder can be renamed");
    }
    resumed(2).ends(2).complains("they have the class violet instead of blue");
    for part in ["train", "test"].map(|part| place.path().join("pictures").join(part)) {
        fs::rename(part.join("violet"), part.join("blue")).expect("the folder can be renamed");
    }
    // Other test pictures change the results, not the training.
    draw(&place, "pictures/test/red", RED, 50..52);
    resumed(2).ends(0);
}

/// The path of pictures does not matter.
#[test]
fn a_run_goes_on_with_a_folder_that_has_moved() {
    let place = Place::new();
    pictures(&place);
    place.run(&format!("{TRAIN} --dataset pictures --epochs 1")).ends(0);
    let before = object(&place, "evaluate run --json");
    let at = |name: &str| place.path().join(name);
    fs::rename(at("pictures"), at("moved")).expect("the folder can be renamed");
    let gone =
        "/pictures, where the run's config.json expects its pictures; give --dataset if they have moved";
    for args in ["train --resume run --epochs 2", "evaluate run", "evaluate run/checkpoints"] {
        let ran = place.run(args).ends(2).complains("error: there is no folder ").complains(gone);
        assert_eq!(ran.err().lines().count(), 1, "{}", ran.err());
    }
    place.run("report run").ends(0).complains(gone);
    place
        .run("train --resume run --epochs 2 --dataset nowhere")
        .ends(2)
        .complains("--dataset is `nowhere`, which does not exist, but must be auto");
    let config = place.read("run/config.json");
    draw(&place, "other/blue", BLUE, 0..6);
    draw(&place, "other/red", RED, 0..6);
    let other = "these are not the data that the run was trained on: they lack the class green";
    place.run("train --resume run --epochs 2 --dataset other").ends(2).complains(other);
    place.run("evaluate run/checkpoints --dataset other").ends(2).complains(other);
    assert_eq!(place.read("run/config.json"), config, "what was refused changes nothing");
    for model in ["run", "run/checkpoints"] {
        let after = object(&place, &format!("evaluate {model} --dataset moved --json"));
        assert_eq!(after["confusion"], before["confusion"], "{model}");
    }
    place.run("train --resume run --epochs 2 --dataset moved --no-progress").ends(0);
    // The run stores the new path.
    place.run("train --resume run --epochs 3 --no-progress").ends(0);
    place.run("evaluate run").ends(0);
    fs::remove_file(at("run/config.json")).expect("the file can be removed");
    fs::rename(at("moved"), at("again")).expect("the folder can be renamed");
    let gone = "there is no folder moved, where the model's file expects its pictures";
    place.run("evaluate run").ends(2).complains(gone);
}

#[test]
fn files_that_are_no_pictures_are_told_of() {
    let place = Place::new();
    pictures(&place);
    for k in 0..180 {
        let file = place.path().join(format!("pictures/train/blue/{k:03}.webp"));
        fs::write(file, "RIFF").expect("the file can be written");
    }
    let says = "passed over 180 files that are no PNG or JPEG, as train/blue/000.webp\n";
    let ran = place.run(&format!("{TRAIN} --dataset pictures --epochs 1")).ends(0).complains(says);
    assert_eq!(ran.err().matches("passed over").count(), 1, "{}", ran.err());
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
        fs::rename(&class, class.with_file_name("mint")).expect("the folder can be renamed");
    }
    let says = "--dataset is some with the unknown class mint, but must be data with the model's classes or some of them: \
                blue, green, red";
    place.run("evaluate run --dataset some").ends(2).complains(says);
    place
        .run("evaluate run --dataset synthetic --limit-test 9")
        .ends(2)
        .complains("with the unknown classes ");
    place.run("report run --dataset some").ends(0).complains(says);
}
