//! Images of one channel: pictures, MNIST's files, and every command on them.

use super::Place;
use image::{GrayImage, Luma};
use std::fs;

const TRAIN: &str = "train --quick --limit-train 60 --limit-test 20 --epochs 1 --no-progress";

/// Dark and bright pictures, one file for each.
fn pictures(place: &Place) {
    for (class, shade) in [("dark", 40), ("bright", 200)] {
        for split in ["train", "test"] {
            place.make_folder(&format!("pets/{split}/{class}"));
            for k in 0..10_u8 {
                let picture =
                    GrayImage::from_fn(12, 12, |x, y| Luma([shade + ((x * 3 + y * 5) as u8 + k) % 29]));
                picture.save(place.path().join(format!("pets/{split}/{class}/{k}.png"))).unwrap();
            }
        }
    }
}

#[test]
fn grey_pictures_go_through_every_command() {
    let place = Place::new();
    pictures(&place);
    let flags = "--dataset pets --color-mode grayscale --image-size 12";
    let run = place.run(&format!("{TRAIN} {flags} --output run")).ends(0);
    run.complains("small_cnn on pets at 12x12 in grey");
    for (command, says) in [
        ("evaluate run", "test images of pets"),
        ("predict pets/test/dark/0.png --model run", "%"),
        ("predict pets/test/dark/0.png --model run --color-mode grayscale", "%"),
        ("report run --output page.html", ""),
        ("preview --dataset pets --color-mode grayscale --output sheet.png", "wrote"),
        ("export run --output net.onnx", ""),
        ("predict pets/test/dark/0.png --model net.onnx", "%"),
        ("summary net.onnx", "(None, 12, 12, 16)"),
    ] {
        place.prints(command, says);
    }
    place.prints("train --resume run --epochs 2 --no-progress", "Epoch 2/2");
    let begun = format!("{TRAIN} --dataset pets --image-size 12 --weights run --output other");
    place.fails(&begun, "its network takes images of 1 channel, but the run's have 3 channels; --color-mode grayscale makes them fit");
    let refused = "--color-mode is rgb, but must be grayscale, since the network";
    place.refuses("predict pets/test/dark/0.png --model run --color-mode rgb", refused);
    place.refuses("evaluate run --dataset pets --color-mode rgb", refused);
    // A network from a file brings its channels.
    let run = place.run(&format!("{TRAIN} --dataset pets --model net.onnx --output third")).ends(0);
    run.complains("the network is for images of 1 channel, so pictures are read in grey");
    place.refuses(
        &format!("{TRAIN} --dataset pets --color-mode rgb --model net.onnx --output no"),
        "--color-mode is rgb, but must be grayscale",
    );
}

/// Files of MNIST's format and of its sizes.
fn idx(place: &Place, folder: &str, [train, test]: [usize; 2]) {
    place.make_folder(folder);
    let sizes = |magic: u8, sizes: &[usize]| {
        let sizes = sizes.iter().flat_map(|&size| (size as u32).to_be_bytes());
        [0, 0, 8, magic].into_iter().chain(sizes).collect::<Vec<u8>>()
    };
    for (name, n) in [("train", train), ("t10k", test)] {
        let labels: Vec<u8> = (0..n).map(|k| (k % 10) as u8).collect();
        // A bar for each class.
        let pixel = |k: usize, at: usize| if at / 28 / 2 == k % 10 { 200 } else { 10 + (k * at % 7) as u8 };
        let pixels: Vec<u8> = (0..n * 784).map(|at| pixel(at / 784, at % 784)).collect();
        let path = |what: &str| place.path().join(folder).join(format!("{name}-{what}-ubyte"));
        fs::write(path("images-idx3"), [sizes(3, &[n, 28, 28]), pixels].concat()).unwrap();
        fs::write(path("labels-idx1"), [sizes(1, &[n]), labels].concat()).unwrap();
    }
}

#[test]
fn mnist_is_found_and_trained_on() {
    let place = Place::new();
    idx(&place, "data/MNIST/raw", [60_000, 10_000]);
    let small = "--limit-train 64 --limit-test 20 --epochs 1 --batch-size 16 --data-dir data --no-progress";
    let run = place.run(&format!("train --dataset mnist {small} --output run")).ends(0);
    run.complains("recipe mnist, for small grey images")
        .complains("mnist: keras_cnn on mnist at 28x28 in grey");
    place.prints("evaluate run --data-dir data --limit-test 20", "test images of mnist");
    place.refuses("train --dataset mnist --stream always", "must be auto or never with the data set `mnist`");
    // Three channels and another size, for a network that needs them.
    let wide =
        format!("train --quick --dataset mnist --color-mode rgb --image-size 32 {small} --output wide");
    place.run(&wide).ends(0).complains("small_cnn on mnist (");
    place.prints("evaluate wide --data-dir data --limit-test 20 --color-mode rgb", "test images of mnist");
    place.fails(
        "train --dataset fashion-mnist --offline --data-dir data",
        "no usable Fashion-MNIST was found",
    );

    // Such files of any number and size are a data set of their own.
    idx(&place, "letters", [40, 20]);
    let run = place.run("train --quick --dataset letters --epochs 1 --no-progress --output own").ends(0);
    run.complains("small_cnn on letters at 28x28 in grey (40 training, 20 test images");
    place.prints("evaluate own", "20 test images of letters");
}
