//! Tables with the classes of pictures.

use super::Place;
use super::folders::draw;
use serde_json::{Value, json};
use std::fs;

const TRAIN: &str = "train --recipe quick --batch-size 8 --schedule constant --no-progress";

/// Pictures of two colours in one folder, and a table of their names without endings.
fn berries(place: &Place) {
    draw(place, "berries/train", [20, 40, 220], 0..24);
    draw(place, "berries/red", [220, 40, 20], 24..48);
    for k in 24..48 {
        let [from, to] =
            ["red", "train"].map(|folder| place.path().join(format!("berries/{folder}/{k:03}.png")));
        fs::rename(from, to).unwrap();
    }
    let class = |k: &usize| if *k < 24 { "blue" } else { "red" };
    let lines = (0..48).map(|k| format!("{k:03},{}\n", class(&k)));
    place.write("berries/labels.csv", format!("id,colour\n{}", lines.collect::<String>()));
}

fn object(place: &Place, args: &str) -> Value {
    place.run(args).ends(0).json()
}

/// From the table to a measured and resumed run; the folder of the pictures is that of the table or another one.
#[test]
fn a_table_trains_a_network() {
    let place = Place::new();
    berries(&place);
    draw(&place, "berries/test", [0; 3], 50..53);
    let ran = place.run(&format!("{TRAIN} --labels berries/labels.csv --epochs 1 --output run")).ends(0);
    ran.complains("berries/labels.csv: assumed that `id` names the pictures, and `colour` their classes\n")
        .complains("left out 3 pictures that the table does not list, as test/050.png\n")
        .complains("small_cnn on labels.csv (40 training images, 8 validation images held back from training), into run\n")
        .complains("2 classes: 20 images each of blue, red\n");
    place.prints("evaluate run", "run on the 8 validation images of labels.csv");
    place.run("report run").ends(0);
    place.run("evaluate run --predictions out.csv").ends(0);
    assert!(place.read("out.csv").contains("berries/train/005.png,blue,"), "{}", place.read("out.csv"));
    let resume = "train --resume run --epochs 2 --no-progress";
    place.run(resume).ends(0);
    let straight =
        "--labels berries/labels.csv --dataset berries/train --label-columns id,colour --stream always";
    place.run(&format!("{TRAIN} {straight} --epochs 2 --output straight")).ends(0);
    assert!(place.model("run") == place.model("straight"));
    let preview = "preview --recipe quick --samples 2 --columns 2 --labels berries/labels.csv";
    place.run(preview).ends(0);

    let at = |name: &str| place.path().join(name);
    fs::rename(at("berries"), at("moved")).unwrap();
    let gone = "berries/labels.csv, where the run's config.json expects its pictures; give --labels if they have moved";
    for args in [resume, "evaluate run"] {
        place.refuses(args, gone);
    }
    place.run("train --resume run --epochs 3 --labels moved/labels.csv --no-progress").ends(0);
    let other = place.read("moved/labels.csv").replace("000,blue", "000,red").replace("024,red", "024,blue");
    place.write("moved/labels.csv", other);
    let differ = "the pixels or the labels of their training samples differ; give those by --dataset";
    place.refuses("train --resume run --epochs 4 --no-progress", differ);
    // Another table is measured as a whole, and so is a folder.
    place.write("moved/some.csv", "path,label\n001.png,blue\n030.png,red\n");
    let some = object(&place, "evaluate run --labels moved/some.csv --dataset moved/train --json");
    assert_eq!((&some["samples"], &some["dataset"]), (&json!(2), &json!("some.csv")));
    draw(&place, "folders/red", [220, 40, 20], 0..3);
    assert_eq!(object(&place, "evaluate run --dataset folders --json")["samples"], 3);
    place.write("own.toml", "like = 'quick'\nbatch_size = 8\n[data]\nlabels = 'moved/labels.csv'\n");
    place.run("train --recipe own.toml --epochs 1 --output own --no-progress").ends(0);
}

#[test]
fn tables_and_flags_that_do_not_fit_are_refused() {
    let place = Place::new();
    berries(&place);
    place.write("berries/wide.csv", "image,height,kind\n001,3,blue\n");
    let wide = "wide.csv: no column is known to name the classes, and not all others have 0 and 1; its columns are `image`, \
                `height`, `kind`; name those of the pictures and classes by --label-columns";
    place.fails(&format!("{TRAIN} --labels berries/wide.csv"), wide);
    place.write("berries/missing.csv", "image,label\n001,blue\n099,red\n");
    place.fails(&format!("{TRAIN} --labels berries/missing.csv"), "1 picture of 2 is not in ");
    place.write("berries/lists.csv", "image,label\n001,a b\n002,a c\n003,b c\n025,a c\n004,b\n");
    let lists = "many labels look like lists, as `a b`; the label separator ` ` takes them apart: --label-separator ' '\n";
    place.run("preview --recipe quick --labels berries/lists.csv --samples 1").complains(lists);
    for (flags, says) in [
        ("--labels none.csv", "none.csv, but must be the path of a CSV file"),
        ("--dataset berries/labels.csv", "give a table of labels by --labels"),
        ("--label-columns a,b", "--label-columns is a,b, but must be left out without --labels"),
        ("--label-separator x", "--label-separator is `x`, but must be left out without --labels"),
        (
            "--labels berries/labels.csv --label-columns a",
            "--label-columns is a, but must be the column of the pictures and",
        ),
        (
            "--labels berries/labels.csv --dataset cifar10",
            "--dataset is `cifar10`, but must be left out with --labels",
        ),
    ] {
        place.refuses(&format!("{TRAIN} {flags}"), says);
    }
}
