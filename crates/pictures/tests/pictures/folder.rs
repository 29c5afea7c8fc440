//! Folders of class folders.

use std::fs;
use std::path::Path;

use image::{ImageFormat, Rgb, RgbImage};
use towers_pictures::{Decoder, Error, Resize, ValidationFrom};

/// A picture of one colour in `dir/name`.
pub(crate) fn picture(dir: &Path, name: &str, (width, height): (u32, u32), colour: [u8; 3]) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let format = ImageFormat::from_path(&path).unwrap();
    RgbImage::from_pixel(width, height, Rgb(colour)).save_with_format(path, format).unwrap();
}

#[test]
fn train_and_test_folders_of_pictures_of_any_size() {
    for test_name in ["test", "val", "valid", "validation"] {
        let dir = tempfile::tempdir().unwrap();
        picture(dir.path(), "train/dog/b.PNG", (32, 32), [1, 2, 3]);
        picture(dir.path(), "train/dog/a.png", (100, 7), [9, 8, 7]);
        picture(dir.path(), "train/cat/x.jpeg", (1, 1), [128, 128, 128]);
        picture(dir.path(), &format!("{test_name}/dog/c.jpg"), (640, 480), [255, 255, 255]);
        fs::write(dir.path().join("train/dog/notes.txt"), "not a picture").unwrap();
        fs::write(dir.path().join("train/dog/._b.png"), "a Mac was here").unwrap();
        let data = towers_pictures::read(dir.path()).unwrap();
        assert_eq!(data.classes, ["cat", "dog"]);
        assert_eq!(data.train.labels.to_vec(), [0, 1, 1]);
        assert_eq!(data.test.labels.to_vec(), [1]);
        assert_eq!(data.train.images.dim(), (3, 32, 32, 3));
        let pixel = |image: usize| [0, 1, 2].map(|channel| data.train.images[[image, 20, 11, channel]]);
        assert_eq!((pixel(0), pixel(1), pixel(2)), ([128; 3], [9, 8, 7], [1, 2, 3]));
        assert!(data.test.images.iter().all(|&level| level == 255));
    }
}

/// Rows and columns are not taken for each other: the left half of every picture is dark.
#[test]
fn pictures_are_scaled_to_the_size_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let halves = |width, height| {
        RgbImage::from_fn(width, height, |x, _| Rgb([if x < width / 2 { 10 } else { 200 }; 3]))
    };
    for (name, width, height) in
        [("train/a/0", 80, 96), ("train/b/0", 40, 48), ("val/a/1", 8, 8), ("test/b/1", 400, 2)]
    {
        let path = dir.path().join(name).with_extension("png");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        halves(width, height).save(path).unwrap();
    }
    let data = towers_pictures::Pictures::class_folders(dir.path()).image_size(48, 40).read().unwrap();
    for split in [&data.train, data.validation.as_ref().unwrap(), &data.test] {
        assert_eq!(split.shape(), [48, 40, 3]);
        let pixel = |x: usize| split.images[[0, 47, x, 2]];
        assert_eq!((pixel(0), pixel(15), pixel(24), pixel(39)), (10, 10, 200, 200));
    }
    let one = towers_pictures::picture(dir.path().join("train/b/0.png"), [48, 40, 3]).unwrap();
    assert_eq!(one, halves(40, 48).into_raw(), "one of the same size is left as it is");
    assert!(data.train.images.outer_iter().nth(1).unwrap().iter().eq(&one));
}

#[test]
fn a_folder_to_validate_on_is_not_that_to_test_on() {
    for name in ["val", "valid", "validation"] {
        let dir = tempfile::tempdir().unwrap();
        let read = || towers_pictures::read(dir.path()).unwrap();
        for class in ["cat", "dog"] {
            (0..6).for_each(|k| picture(dir.path(), &format!("train/{class}/{k}.png"), (2, 2), [1, 0, 0]));
        }
        assert_eq!(read().validation_from, Some(ValidationFrom::HeldBack));
        picture(dir.path(), "test/dog/c.png", (2, 2), [3, 0, 0]);
        assert_eq!(
            (read().validation, read().validation_from),
            (None, Some(ValidationFrom::Test("test/".into())))
        );
        picture(dir.path(), &format!("{name}/cat/c.png"), (2, 2), [2, 0, 0]);
        let (data, from) = (read(), ValidationFrom::Validation(format!("{name}/")));
        let first = |split: &towers_pictures::Split| (split.labels.to_vec(), split.images[[0, 0, 0, 0]]);
        assert_eq!((first(&data.test), data.validation_from), ((vec![1], 3), Some(from.clone())));
        assert_eq!((data.validation.as_ref().map(first), data.train.len()), (Some((vec![0], 2)), 12));
        fs::remove_dir_all(dir.path().join("test")).unwrap();
        let data = read();
        assert_eq!(
            (first(&data.test), data.validation, data.validation_from),
            ((vec![0], 2), None, Some(from))
        );
    }
}

#[test]
fn without_a_test_folder_every_sixth_picture_is_for_testing() {
    let dir = tempfile::tempdir().unwrap();
    for k in 0..13 {
        picture(dir.path(), &format!("many/{k:02}.png"), (2, 2), [k, 0, 0]);
    }
    for k in 0..3 {
        picture(dir.path(), &format!("few/{k}.png"), (2, 2), [100 + k, 0, 0]);
    }
    picture(dir.path(), "single/0.png", (2, 2), [200, 0, 0]);
    let data = towers_pictures::read(dir.path()).unwrap();
    assert_eq!(data.classes, ["few", "many", "single"]);
    let reds = |split: &towers_pictures::Split| {
        split.images.outer_iter().map(|image| image[[0, 0, 0]]).collect::<Vec<_>>()
    };
    assert_eq!(reds(&data.test), [102, 5, 11]);
    assert_eq!(reds(&data.train), [100, 101, 0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 200]);
}

#[test]
fn a_class_may_be_called_train() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["bus/0.png", "bus/1.png", "train/0.png", "train/1.png"] {
        picture(dir.path(), name, (2, 2), [0; 3]);
    }
    assert_eq!(towers_pictures::read(dir.path()).unwrap().classes, ["bus", "train"]);
}

#[test]
fn all_bad_pictures_are_named() {
    let dir = tempfile::tempdir().unwrap();
    for k in 0..40 {
        picture(dir.path(), &format!("a/{k:02}.png"), (8, 8), [0; 3]);
        picture(dir.path(), &format!("b/{k:02}.png"), (8, 8), [0; 3]);
    }
    fs::write(dir.path().join("b/07.png"), "<html>").unwrap();
    fs::write(dir.path().join("b/30.png"), "").unwrap();
    let whole = fs::read(dir.path().join("a/03.png")).unwrap();
    fs::write(dir.path().join("a/03.png"), &whole[..whole.len() / 2]).unwrap();
    let error = towers_pictures::read(dir.path()).unwrap_err();
    let Error::Pictures(bad) = &error else { panic!("{error}") };
    assert!(matches!(&bad[0], Error::Image { path, .. } if path.ends_with("a/03.png")), "{error}");
    let told = error.to_string();
    assert!(told.starts_with("3 pictures can't be decoded: "), "{told}");
    let listed = [
        "a/03.png: it is cut off; ",
        "b/07.png: it is no picture, ",
        "b/30.png: it is empty; get them again",
    ];
    assert!(listed.iter().all(|one| told.contains(one)), "{told}");
    (0..12).for_each(|k| fs::write(dir.path().join(format!("a/{k:02}.png")), "").unwrap());
    let told = towers_pictures::read(dir.path()).unwrap_err().to_string();
    assert!(
        told.starts_with("14 pictures") && told.contains("a/10.png: it is empty; and 4 more; get"),
        "{told}"
    );
}

#[test]
fn why_a_picture_is_bad_is_told() {
    let dir = tempfile::tempdir().unwrap();
    picture(dir.path(), "whole.png", (8, 8), [0; 3]);
    picture(dir.path(), "whole.jpg", (64, 64), [90, 160, 20]);
    let [whole, jpeg] = ["whole.png", "whole.jpg"].map(|name| fs::read(dir.path().join(name)).unwrap());
    let mut damaged = whole.clone();
    damaged[45] ^= 0xff;
    let get = "get it again, or leave it out";
    let formats = format!(", whatever its name says, not PNG, JPEG, WebP, BMP or GIF; convert it, or {get}");
    for (content, says) in [
        (&whole[..whole.len() / 2], format!("it is cut off; {get}")),
        (&jpeg[..jpeg.len() - 9], format!("it is cut off; {get}")),
        (&damaged, format!("; {get}")),
        (b"<html>", format!("it is no picture{formats}")),
        (b"II*\0", format!("it is Tiff{formats}")),
        (b"", "it is empty".to_owned()),
    ] {
        fs::write(dir.path().join("bad.png"), content).unwrap();
        let told = towers_pictures::picture(dir.path().join("bad.png"), [8, 8, 3]).unwrap_err().to_string();
        assert!(told.starts_with("can't decode the picture ") && told.contains("bad.png: "), "{told}");
        assert!(told.ends_with(&says), "{told}");
    }
}

/// The chunk of a PNG file.
fn chunk(name: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let mut crc = flate2::Crc::new();
    crc.update(name);
    crc.update(data);
    [&(data.len() as u32).to_be_bytes()[..], name, data, &crc.sum().to_be_bytes()].concat()
}

/// The decoder panics on it.
#[test]
fn a_palette_that_ends_within_a_colour_is_an_error_of_that_picture() {
    let dir = tempfile::tempdir().unwrap();
    for class in ["a", "b"] {
        (0..8).for_each(|k| picture(dir.path(), &format!("{class}/{k}.png"), (1, 1), [0; 3]));
    }
    let path = dir.path().join("b/5.png");
    let png = fs::read(&path).unwrap();
    // Of the header, only the type of colours differs: an index into the palette. The end stays.
    let header = [&png[16..25], &[3], &png[26..29]].concat();
    let mut pixels = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::none());
    std::io::Write::write_all(&mut pixels, &[0, 0]).unwrap();
    let (palette, pixels) = (chunk(b"PLTE", &[1, 2, 3, 4]), chunk(b"IDAT", &pixels.finish().unwrap()));
    fs::write(
        &path,
        [&png[..8], &chunk(b"IHDR", &header), &palette, &pixels, &png[png.len() - 12..]].concat(),
    )
    .unwrap();
    for error in [
        towers_pictures::read(dir.path()).unwrap_err(),
        towers_pictures::picture(&path, [1, 1, 3]).unwrap_err(),
    ] {
        assert!(
            error.to_string().contains("b/5.png: Format error decoding Png: the decoder panicked"),
            "{error}"
        );
    }
}

/// Phones write the pixels as the sensor lies, and how the phone was held.
#[test]
fn a_picture_is_turned_as_its_exif_orientation_says() {
    let dir = tempfile::tempdir().unwrap();
    let lying = RgbImage::from_fn(32, 16, |x, _| Rgb(if x < 16 { [250, 0, 0] } else { [0, 0, 250] }));
    let exif = |orientation| {
        let entry = [0x12, 1, 3, 0, 1, 0, 0, 0, orientation, 0, 0, 0];
        [&b"II*\0\x08\0\0\0\x01\0"[..], &entry, &[0; 4]].concat()
    };
    let in_png = |file: &[u8], exif: &[u8]| [&file[..33], &chunk(b"eXIf", exif), &file[33..]].concat();
    let in_jpeg = |file: &[u8], exif: &[u8]| {
        let len = (exif.len() as u16 + 8).to_be_bytes();
        [&file[..2], &[0xff, 0xe1], &len, b"Exif\0\0", exif, &file[2..]].concat()
    };
    for (name, put) in [("a.png", &in_png as &dyn Fn(&[u8], &[u8]) -> Vec<u8>), ("a.jpg", &in_jpeg)] {
        let path = dir.path().join(name);
        lying.save(&path).unwrap();
        let file = fs::read(&path).unwrap();
        // Whether the corners above on the left and right, and below on the left, are red.
        let corners = |exif: &[u8]| {
            fs::write(&path, put(&file, exif)).unwrap();
            let pixels = towers_pictures::picture(&path, [16, 16, 3]).unwrap();
            [0, 15, 15 * 16].map(|pixel| pixels[3 * pixel] > 125)
        };
        assert_eq!(corners(&exif(1)), [true, false, true], "{name}");
        assert_eq!(corners(&exif(3)), [false, true, false], "{name}: upside down");
        assert_eq!(corners(&exif(6)), [true, true, false], "{name}: turned to the right");
        assert_eq!(corners(&exif(8)), [false, false, true], "{name}: turned to the left");
        assert_eq!(corners(b"II*\0damaged"), [true, false, true], "{name}");
    }
}

/// The pixels of torchvision's `Resize` and `CenterCrop`: tests/golden/pictures_cropped.py.
#[test]
fn the_middle_of_a_picture_is_that_of_torchvision() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let cases: serde_json::Value =
        serde_json::from_slice(&fs::read(golden.join("pictures_cropped.json")).unwrap()).unwrap();
    let cases = cases.as_array().unwrap();
    assert!(cases.len() >= 24);
    for case in cases {
        let number = |value: &serde_json::Value| value.as_u64().unwrap() as usize;
        let path = golden.join("pictures").join(case["name"].as_str().unwrap());
        let (crop, side) = ([0, 1].map(|k| number(&case["crop"][k])), number(&case["side"]));
        let expected: Vec<u8> = case["pixels"]
            .as_str()
            .unwrap()
            .as_bytes()
            .chunks(2)
            .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap())
            .collect();
        let of = |resize| Decoder::new([crop[0], crop[1], 3]).unwrap().resize(resize).decode(&path).unwrap();
        assert_eq!(of(Resize::ShorterSide(Some(side))), expected, "{path:?} by {side} to {crop:?}");
        if case["default"] == true {
            assert_eq!(of(Resize::ShorterSide(None)), expected, "{path:?} to {crop:?}");
        }
    }
    // A picture of any shape takes no more memory than its own pixels and the result.
    let dir = tempfile::tempdir().unwrap();
    let long = dir.path().join("long.png");
    RgbImage::from_pixel(10_000, 1, Rgb([1, 2, 3])).save(&long).unwrap();
    let middle =
        Decoder::new([224, 224, 3]).unwrap().resize(Resize::ShorterSide(None)).decode(&long).unwrap();
    assert!(middle.chunks(3).all(|pixel| pixel == [1, 2, 3]));
    for resize in [Resize::Stretch, Resize::ShorterSide(None), Resize::ShorterSide(Some(7))] {
        assert_eq!(resize.to_string().parse(), Ok(resize));
    }
    for text in
        ["", "crop", "shorter-side:", "shorter-side:0", "shorter-side:x", "shorter-side:5000", "stretch:3"]
    {
        assert_eq!(text.parse::<Resize>(), Err(Resize::ACCEPTED), "{text}");
    }
}

/// Grey is that of Pillow's `convert("L")`, before the picture is scaled.
#[test]
fn pictures_of_one_channel_are_grey() {
    let dir = tempfile::tempdir().unwrap();
    let picture = RgbImage::from_fn(2, 1, |x, _| if x == 0 { Rgb([255, 0, 0]) } else { Rgb([0, 0, 255]) });
    let names =
        ["train/a/0.png", "train/b/0.png", "test/a/0.png", "test/b/0.png"].map(|name| dir.path().join(name));
    for path in &names {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        picture.save(path).unwrap();
    }
    assert_eq!(towers_pictures::picture(&names[0], [1, 2, 1]).unwrap(), [76, 29]);
    // The mean of both is 52.5, that of the colours 127.5.
    assert_eq!(towers_pictures::picture(&names[0], [1, 1, 1]).unwrap(), [53]);
    for on_demand in [0, u64::MAX] {
        let folders = towers_pictures::Pictures::class_folders(dir.path())
            .image_size(1, 2)
            .channels(1)
            .on_demand_above(on_demand);
        let data = folders.read().unwrap();
        assert_eq!(
            (data.train.shape(), data.train.pixels(0..1, &mut Vec::new()).unwrap()),
            ([1, 2, 1], &[76, 29][..])
        );
        let colours = data.reshaped([1, 2, 3]).unwrap().train;
        let expected: &[u8] =
            if on_demand == 0 { &[255, 0, 0, 0, 0, 255] } else { &[76, 76, 76, 29, 29, 29] };
        assert_eq!(colours.pixels(0..1, &mut Vec::new()).unwrap(), expected);
    }
    let error = towers_pictures::picture(&names[0], [1, 2, 4]).unwrap_err().to_string();
    assert!(error.starts_with("pictures can't have 4 channels"), "{error}");
}

/// Batches of pictures in memory and of those on demand are the same, and the last is shorter.
#[test]
fn batches_of_pictures() {
    let dir = tempfile::tempdir().unwrap();
    for k in 0..5 {
        picture(dir.path(), &format!("a/{k}.png"), (2, 2), [k, 0, 0]);
        picture(dir.path(), &format!("b/{k}.png"), (2, 2), [100 + k, 0, 0]);
    }
    let read = |on_demand| {
        let folders = towers_pictures::Pictures::class_folders(dir.path()).image_size(2, 2).whole(true);
        folders.on_demand_above(on_demand).read().unwrap().test
    };
    let (now, on_demand) = (read(u64::MAX), read(0));
    let batches = |split: &towers_pictures::Split| -> Vec<_> {
        let owned = |batch: towers_dataset::Result<_>| {
            let (images, labels): (ndarray::Array4<u8>, ndarray::ArrayView1<u16>) = batch.unwrap();
            (images, labels.to_vec())
        };
        split.batches(4).map(owned).collect()
    };
    assert_eq!(batches(&now), batches(&on_demand));
    assert_eq!(batches(&now).iter().map(|(images, _)| images.dim().0).collect::<Vec<_>>(), [4, 4, 2]);
    let one_by_one: Vec<(u8, u16)> = now.iter().map(|(image, label)| (image[[0, 0, 0]], label)).collect();
    let of_batches = batches(&on_demand).into_iter().flat_map(|(images, labels)| {
        let reds: Vec<u8> = images.outer_iter().map(|image| image[[0, 0, 0]]).collect();
        reds.into_iter().zip(labels)
    });
    assert_eq!(one_by_one, of_batches.collect::<Vec<_>>());
    assert_eq!((one_by_one[0], one_by_one[9]), ((0, 0), (104, 1)));
}

/// Written and read by Pillow: `tests/golden/pictures.py`.
#[test]
fn pictures_have_the_pixels_of_pillow() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let text = fs::read_to_string(golden.join("pictures.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (list, count) in [("pictures", 26), ("scaled", 6)] {
        let list = expected[list].as_array().unwrap();
        assert_eq!(list.len(), count);
        for picture in list {
            let name = picture["name"].as_str().unwrap();
            let size = [0, 1].map(|side| picture["size"][side].as_u64().unwrap() as usize);
            let hex = picture["pixels"].as_str().unwrap();
            let byte = |k| u8::from_str_radix(&hex[k..k + 2], 16).unwrap();
            let pixels: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
            let own =
                towers_pictures::picture(golden.join("pictures").join(name), [size[0], size[1], 3]).unwrap();
            let worst = own.iter().zip(&pixels).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
            // Decoders of lossy formats round differently.
            let most = if name.ends_with(".jpg") || name.starts_with("lossy") { 3 } else { 0 };
            assert!(own.len() == pixels.len() && worst <= most, "{name} of {size:?}: {worst}");
        }
    }
}

/// The same script writes them. The decoder reads other colours from them than Pillow.
#[test]
fn pictures_that_would_have_other_colours_are_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/pictures_refused");
    for (name, says) in [
        ("fine_colours", "its colours are sampled more finely than its brightness"),
        ("one_fine_colour", "its colours are sampled more finely than its brightness"),
        ("called_rgb", "its components are called R, G and B, but its head says YCbCr"),
    ] {
        let error = towers_pictures::picture(folder.join(name).with_extension("jpg"), [9, 12, 3])
            .unwrap_err()
            .to_string();
        assert!(error.contains(&format!("{says}; save it anew")), "{error}");
    }
}

#[test]
#[should_panic(expected = "the pixels of a picture of 4x3 are wanted")]
fn a_buffer_of_another_length_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    ["a/0.png", "b/0.png", "a/1.png", "b/1.png"]
        .iter()
        .for_each(|name| picture(dir.path(), name, (6, 6), [5; 3]));
    let data = towers_pictures::Pictures::class_folders(dir.path())
        .image_size(4, 3)
        .on_demand_above(0)
        .read()
        .unwrap();
    let _ = data.train.files.unwrap().read(0, &mut [0; 10]);
}

/// Pillow makes them white from 255 on; TensorFlow reads the upper 8 bits.
#[test]
fn grey_pictures_of_sixteen_bits_have_their_upper_eight() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep.png");
    image::ImageBuffer::from_pixel(2, 2, image::Luma([0x12ff_u16])).save(&path).unwrap();
    assert_eq!(towers_pictures::picture(&path, [2, 2, 3]).unwrap(), [0x12; 12]);
}

/// No format paints what is missing.
#[test]
fn a_picture_that_is_cut_off_is_an_error() {
    let pictures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/pictures");
    let dir = tempfile::tempdir().unwrap();
    for name in ["rgb.png", "photo.jpg", "lossless.webp", "lossy.webp", "rgb.bmp", "palette.gif"] {
        let whole = fs::read(pictures.join(name)).unwrap();
        let path = dir.path().join(name);
        for len in [whole.len() / 4, whole.len() / 2, whole.len() - 20] {
            fs::write(&path, &whole[..len]).unwrap();
            let read = towers_pictures::picture(&path, [9, 12, 3]);
            assert!(read.is_err(), "{name} of {len} bytes, not {}", whole.len());
        }
    }
}

#[test]
fn a_picture_that_claims_to_be_huge_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    picture(dir.path(), "a/0.png", (2, 2), [0; 3]);
    picture(dir.path(), "a/1.png", (2, 2), [0; 3]);
    picture(dir.path(), "b/0.png", (2, 2), [0; 3]);
    picture(dir.path(), "b/1.png", (2, 2), [0; 3]);
    let mut png = fs::read(dir.path().join("b/0.png")).unwrap();
    png[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
    fs::write(dir.path().join("b/0.png"), png).unwrap();
    assert!(matches!(towers_pictures::read(dir.path()), Err(Error::Image { .. })));
}

#[test]
fn folders_that_are_no_data_set() {
    let dir = tempfile::tempdir().unwrap();
    let reason = |dir: &Path| match towers_pictures::read(dir) {
        Err(Error::ClassFolders { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert!(reason(dir.path()).contains("0 class folders"));
    picture(dir.path(), "a/0.png", (2, 2), [0; 3]);
    assert!(reason(dir.path()).contains("1 class folders"));
    fs::create_dir(dir.path().join("b")).unwrap();
    assert!(reason(dir.path()).contains("no picture: .bmp, .gif,"));
    picture(dir.path(), "b/0.png", (2, 2), [0; 3]);
    assert!(reason(dir.path()).contains("no picture for the test split"));
    assert!(matches!(towers_pictures::read(dir.path().join("none")), Err(Error::File(_))));

    let split = tempfile::tempdir().unwrap();
    for name in ["train/a/0.png", "train/b/0.png", "test/c/0.png"] {
        picture(split.path(), name, (2, 2), [0; 3]);
    }
    assert!(reason(split.path()).contains("no class of this name"));
}

/// The others are not even decoded.
#[test]
fn a_limit_takes_as_many_of_each_class() {
    let dir = tempfile::tempdir().unwrap();
    for (class, pictures) in [("a", 12), ("b", 12), ("c", 2)] {
        for k in 0..pictures {
            picture(dir.path(), &format!("{class}/{k:02}.png"), (2, 2), [k, 0, 0]);
        }
    }
    for beyond in ["a/10.png", "b/11.png"] {
        fs::write(dir.path().join(beyond), "no picture").unwrap();
    }
    let limited = |train, test| {
        towers_pictures::Pictures::class_folders(dir.path())
            .limit_train(train)
            .limit_test(test)
            .read()
            .unwrap()
    };
    let data = limited(8, 2);
    assert_eq!(data.train.labels.to_vec(), [0, 0, 0, 0, 1, 1, 1, 2]);
    let reds: Vec<u8> = data.train.images.outer_iter().map(|image| image[[0, 0, 0]]).collect();
    assert_eq!(reds, [0, 1, 2, 3, 0, 1, 2, 0]);
    assert_eq!(data.test.labels.to_vec(), [0, 1]);
    assert_eq!(limited(2, 0).train.labels.to_vec(), [0, 1]);
    assert!(towers_pictures::read(dir.path()).is_err());
}

#[test]
fn files_that_are_passed_over_are_told() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["train/cat/0.png", "train/dog/0.png", "test/cat/1.png"] {
        picture(dir.path(), name, (2, 2), [0; 3]);
    }
    let told = || {
        let mut told = Vec::new();
        let folders = towers_pictures::Pictures::class_folders(dir.path());
        folders.progress(|step| told.push(step.to_string().replace('\\', "/"))).read().unwrap();
        told
    };
    for hidden in ["train/cat/._0.png", "train/dog/.DS_Store"] {
        fs::write(dir.path().join(hidden), "a Mac was here").unwrap();
    }
    picture(dir.path(), "train/dog/deeper/than/1.png", (2, 2), [0; 3]);
    assert!(told().is_empty());
    assert_eq!(
        towers_pictures::read(dir.path()).unwrap().train.labels.to_vec(),
        [0, 1, 1],
        "a picture of a dog"
    );
    fs::write(dir.path().join("test/cat/z.tiff"), "II*").unwrap();
    assert_eq!(told(), ["passed over 1 file that is no picture by its name, test/cat/z.tiff"]);
    for name in ["train/cat/a.txt", "train/dog/deeper/notes.txt"] {
        fs::write(dir.path().join(name), "text").unwrap();
    }
    assert_eq!(told(), ["passed over 3 files that are no pictures by their names, as train/cat/a.txt"]);
}

/// A link to a folder may form a cycle.
#[cfg(unix)]
#[test]
fn links_to_folders_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    picture(dir.path(), "cat/0.png", (2, 2), [0; 3]);
    std::os::unix::fs::symlink("..", dir.path().join("cat/above")).unwrap();
    std::os::unix::fs::symlink("0.png", dir.path().join("cat/1.png")).unwrap();
    let found = towers_pictures::Found::below(dir.path());
    assert_eq!(found.pictures, ["cat/0.png", "cat/1.png"].map(|name| dir.path().join(name)));
    assert_eq!(found.others, [dir.path().join("cat/above")]);
}
