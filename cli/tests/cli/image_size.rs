//! Pictures at another size than 32x32, on the command line.

use super::Place;
use image::{Rgb, RgbImage};

/// Pictures of two colours, larger than the network's input.
fn draw(place: &Place) {
    for (class, colour) in [("blue", [20, 40, 220]), ("red", [220, 40, 20])] {
        let folder = place.path().join("pets").join(class);
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        for k in 0..12_u32 {
            let shade =
                |x: u32, y: u32| colour.map(|c: u8| c.wrapping_add(((x * 7 + y * 3 + k * 11) % 23) as u8));
            let picture = RgbImage::from_fn(60 + k, 70, |x, y| Rgb(shade(x, y)));
            picture.save(folder.join(format!("{k:02}.png"))).expect("the picture can be written");
        }
    }
}

const TRAIN: &str = "train --recipe quick --batch-size 4 --lr 0.003 --no-progress";

#[test]
fn a_run_keeps_the_size_of_its_pictures() {
    let place = Place::new();
    draw(&place);
    let ran =
        place.run(&format!("{TRAIN} --dataset pets --image-size 48x40 --epochs 3 --output run")).ends(0);
    ran.complains("small_cnn on pets at 48x40 (20 training images");
    assert!(place.read("run/config.json").contains("\"image_size\": \"48x40\""));
    place
        .run("predict pets/red/03.png pets/blue/04.png --model run --top 1")
        .ends(0)
        .says("03.png: red ")
        .says("04.png: blue ");
    place.run("evaluate run").ends(0).says("run on the 4 validation images of pets");
    place.run("report run").ends(0);
    assert!(place.read("run/report.html").contains("On the 4 validation images of pets: "));
    place.run("export run --output net.py").ends(0);
    assert!(place.read("net.py").contains("48"));
    place.run("predict pets/red/03.png --model net.safetensors").ends(0).says("03.png: ");
    let wrong = "predict pets/red/03.png --model net.safetensors --image-size 64";
    place.run(wrong).ends(2).complains("--image-size is 64x64, but must be 48x40 or left out");
    place
        .run("predict pets/red/03.png --model run --image-size 48x40")
        .ends(2)
        .complains("--image-size is 48x40, but must be left out with run");
    place.run("evaluate run --dataset synthetic --limit-test 4").ends(2).complains("must be of 48x40 images");

    place
        .run("train --resume run --epochs 4 --image-size 64 --no-progress")
        .ends(2)
        .complains("--image-size can't change");
    place.run("train --resume run --epochs 4 --no-progress").ends(0).says("done: run");
    place.run("evaluate run/checkpoints --dataset pets").ends(0);
    place
        .run("preview --recipe quick --dataset pets --image-size 48x40 --samples 2 --columns 3 --zoom 1")
        .ends(0);
    let preview = image::open(place.path().join("preview.png")).expect("a picture");
    assert!(
        preview.width() >= 3 * 40 && preview.width() < 3 * 48 && preview.height() >= 2 * 48,
        "{preview:?}"
    );
}

#[test]
fn a_recipe_may_have_a_size() {
    let place = Place::new();
    draw(&place);
    std::fs::write(place.path().join("mine.toml"), "like = 'quick'\n[data]\nimage_size = 40\n")
        .expect("the file can be written");
    let flags = "train --recipe mine.toml --batch-size 4 --epochs 1 --no-progress --dataset pets";
    place.run(&format!("{flags} --output run")).ends(0).complains("on pets at 40x40 (");
}

#[test]
fn sizes_that_cannot_be_are_refused_in_a_sentence() {
    let place = Place::new();
    draw(&place);
    for (flags, says) in [
        (
            "--dataset pets --image-size 7",
            "must be N or HxW (height x width) of 8 to 1024 pixels, as in 64 or 48x40",
        ),
        ("--dataset pets --image-size big", "must be N or HxW"),
        ("--dataset pets --image-size -3", "must be N or HxW"),
        (
            "--dataset synthetic --image-size 64",
            "--image-size is 64x64, but must be left out with the data set `synthetic`",
        ),
        ("--image-size 48x40", "it is for class folders (--dataset)"),
        (
            "--dataset pets --recipe airbench94 --image-size 16x40",
            "--image-size is 16x40, but must be at least 25x25 (height x width) with the network airbench94",
        ),
    ] {
        place.run(&format!("train --no-progress --output run {flags}")).ends(2).complains(says);
        assert!(!place.exists("run"), "{flags}");
    }
}
