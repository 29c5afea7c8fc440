//! Which folders are splits, and pictures that are left out.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use towers_pictures::{Dataset, Error, Pictures, ValidationFrom};

use crate::folder::picture;

/// A folder with these pictures.
fn folder_of(names: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    names.iter().for_each(|name| picture(dir.path(), name, (2, 2), [1, 2, 3]));
    dir
}

/// The classes, and the pictures to train, validate and test on.
fn counts(data: &Dataset) -> (Vec<&str>, usize, Option<usize>, usize) {
    let classes = data.classes.iter().map(String::as_str).collect();
    (classes, data.train.len(), data.validation.as_ref().map(towers_pictures::Split::len), data.test.len())
}

#[test]
fn splits_may_have_any_of_their_usual_names() {
    for (train, test, tests) in [
        ("training_set", "test_set", true),
        ("Train", "Test", true),
        ("training", "testing", true),
        ("train", "dev", false),
        ("TRAIN", "Validation", false),
        ("train_data", "eval", false),
        ("seg_train/seg_train", "seg_test/seg_test", true),
        ("pets/train", "pets/val", false),
        ("archive/training_set/training_set", "archive/test_set/test_set", true),
    ] {
        let name = |split: &str, file: &str| format!("{split}/{file}");
        let names = [
            name(train, "cat/1.png"),
            name(train, "dog/1.png"),
            name(train, "dog/2.png"),
            name(test, "dog/3.png"),
        ];
        let dir = folder_of(&names.each_ref().map(String::as_str));
        let data = towers_pictures::read(dir.path()).unwrap_or_else(|error| panic!("{train}: {error}"));
        assert_eq!(counts(&data), (vec!["cat", "dog"], 3, None, 1), "{train}");
        assert_eq!(data.tests_on_validation(), !tests, "{test}");
    }
}

#[test]
fn what_looks_like_splits_and_is_none_is_refused() {
    let flat = "`test`, `train` are named as splits, but have no class folders";
    for (names, says) in [
        (&["train/1.png", "test/2.png"][..], flat),
        (&["train/1.png", "test/2.png", "extra/3.png"], flat),
        (
            &["train/cat/1.png", "train/dog/1.png", "test/2.png"],
            "`test` is named as a split, but has no class folders",
        ),
        (
            &["train/old/1.png", "train/new/1.png", "bus/1.png"],
            "If all of them are classes, move them into a folder `train`",
        ),
        (
            &["train/cat/1.png", "train/dog/1.png", "holdout/cat/1.png"],
            "`holdout` stands beside folders that are named as splits",
        ),
        (&["training/cat/1.png", "train/dog/1.png"], "`train` and `training` are named as the same split"),
        (&["set_train_a/cat/1.png", "set_val_a/cat/1.png"], "look like splits. If they are, call them"),
        (&["test/cat/1.png", "test/dog/1.png"], "it has no folder to train on; call it `train`"),
    ] {
        let dir = folder_of(names);
        match towers_pictures::read(dir.path()) {
            Err(Error::Splits { path, reason }) => {
                assert!(path == dir.path() && reason.contains(says), "{names:?}: {reason}");
            }
            other => panic!("{names:?}: {other:?}"),
        }
    }
}

/// Beside splits there may be tables, pictures without classes, and what macOS adds to archives.
#[test]
fn what_belongs_to_no_split_is_left_out_and_told() {
    let dir = folder_of(&[
        "train/cat/1.png",
        "train/dog/1.png",
        "train/0.png",
        "val/cat/1.png",
        "seg_pred/seg_pred/7.png",
    ]);
    for other in ["annotations/boxes.xml", "__MACOSX/train/._1.png", "labels.csv"] {
        fs::create_dir_all(dir.path().join(other).parent().unwrap()).unwrap();
        fs::write(dir.path().join(other), "").unwrap();
    }
    let mut told = Vec::new();
    let folders =
        Pictures::class_folders(dir.path()).progress(|step| told.push(step.to_string().replace('\\', "/")));
    let data = folders.read().unwrap();
    assert_eq!(counts(&data), (vec!["cat", "dog"], 2, None, 1));
    drop(data);
    assert_eq!(told, ["left out 2 pictures that lie in no class folder, as seg_pred/seg_pred/7.png"]);
}

#[test]
fn classes_that_are_named_like_splits_are_read_in_a_folder_train() {
    let dir = folder_of(&["train/bus/1.png", "train/train/1.png", "train/test/1.png", "val/test/2.png"]);
    assert_eq!(
        counts(&towers_pictures::read(dir.path()).unwrap()),
        (vec!["bus", "test", "train"], 3, None, 1)
    );
    let dir = folder_of(&["valid/1.png", "valid/2.png", "invalid/1.png"]);
    assert_eq!(towers_pictures::read(dir.path()).unwrap().classes, ["invalid", "valid"]);
}

#[test]
fn splits_may_lie_in_unrelated_places() {
    let dirs = [
        folder_of(&["pets/cat/1.png", "pets/cat/2.png", "pets/dog/1.png", "pets/dog/2.png", "pets/0.png"]),
        folder_of(&["more/cat/3.png"]),
        folder_of(&["dog/4.png", "dog/5.png"]),
    ];
    let [train, validation, test] = dirs.each_ref().map(TempDir::path);
    let more = validation.join("more");
    let read = |validation: Option<&Path>, test: Option<&Path>| {
        Pictures::split_folders(train, validation, test).read().map_err(|error| error.to_string())
    };
    let (classes, from) = (vec!["cat", "dog"], |data: &Dataset| data.validation_from.clone());
    let data = read(Some(&more), Some(test)).unwrap();
    assert_eq!(counts(&data), (classes.clone(), 4, Some(1), 2));
    assert_eq!(from(&data), Some(ValidationFrom::Validation("more/".into())));
    let data = read(Some(&more), None).unwrap();
    assert_eq!((counts(&data), data.tests_on_validation()), ((classes.clone(), 4, None, 1), true));
    let data = read(None, Some(test)).unwrap();
    assert_eq!((counts(&data), data.tests_on_validation()), ((classes.clone(), 4, None, 2), false));
    let data = read(None, None).unwrap();
    assert_eq!((counts(&data), from(&data)), ((classes, 2, None, 2), Some(ValidationFrom::HeldBack)));
    let whole = Pictures::split_folders(train, None::<&Path>, Some(test)).whole(true).limit_train(0);
    assert_eq!(whole.read().unwrap().test.len(), 2);

    picture(test, "fox/1.png", (2, 2), [0; 3]);
    let error = read(None, Some(test)).unwrap_err();
    assert!(error.contains("fox: the training split has no class of this name"), "{error}");
    let error = read(Some(&train.join("pets")), None).unwrap_err();
    assert!(error.contains("pets: it is named for two splits, which must not share pictures"), "{error}");
    let splits = folder_of(&["train/cat/1.png", "train/dog/1.png", "val/dog/2.png"]);
    let error = Pictures::split_folders(splits.path(), None::<&Path>, None::<&Path>).read().unwrap_err();
    assert!(error.to_string().contains("it has folders for splits in it; name one of them"), "{error}");
}

#[test]
fn a_folder_to_measure_is_read_as_a_whole() {
    let whole = |names: &[&str]| {
        let dir = folder_of(names);
        Pictures::class_folders(dir.path()).whole(true).limit_train(0).read().unwrap()
    };
    let data = whole(&["cat/1.png", "dog/1.png", "dog/2.png"]);
    assert_eq!(counts(&data), (vec!["cat", "dog"], 0, None, 3));
    assert_eq!(
        (data.validation_from.clone(), data.tests_on_validation()),
        (Some(ValidationFrom::Whole), false)
    );
    assert_eq!(counts(&whole(&["cat/1.png"])), (vec!["cat"], 0, None, 1));
    assert_eq!(counts(&whole(&["train/cat/1.png", "train/dog/1.png"])), (vec!["cat", "dog"], 0, None, 2));
    let split = whole(&["train/cat/1.png", "train/dog/1.png", "test/dog/2.png"]);
    assert_eq!(counts(&split), (vec!["cat", "dog"], 0, None, 1), "what is to be tested on is known");
    assert_eq!(counts(&whole(&["test/cat/1.png", "test/dog/1.png"])), (vec!["cat", "dog"], 0, None, 2));
}

#[test]
fn bad_pictures_may_be_left_out() {
    let dir = folder_of(&[
        "train/a/0.png",
        "train/a/1.png",
        "train/a/2.png",
        "train/b/3.png",
        "test/a/0.png",
        "test/b/1.png",
    ]);
    picture(dir.path(), "train/b/3.png", (2, 2), [9, 9, 9]);
    for bad in ["train/a/1.png", "test/a/0.png"] {
        fs::write(dir.path().join(bad), "<html>").unwrap();
    }
    for in_memory in [u64::MAX, 0] {
        let mut told = Vec::new();
        let folders = Pictures::class_folders(dir.path()).image_size(2, 2).on_demand_above(in_memory);
        let data = folders.skip_unreadable(true).progress(|step| told.push(step.to_string())).read().unwrap();
        let is_left_out = |name: &str, (path, reason): &(PathBuf, String)| {
            path == &dir.path().join(name) && reason.starts_with("it is no picture")
        };
        assert!(
            is_left_out("train/a/1.png", &data.unreadable[0])
                && is_left_out("test/a/0.png", &data.unreadable[1])
        );
        assert_eq!(
            (counts(&data), data.train.labels.to_vec()),
            ((vec!["a", "b"], 3, None, 1), vec![0, 0, 1])
        );
        let last = told.last().unwrap();
        assert!(last.starts_with("left out 2 pictures that can't be decoded, as "), "{last}");
        assert_eq!(data.train.pixels(2..3, &mut Vec::new()).unwrap(), [9; 12]);
        assert!(data.train.path(1).unwrap().ends_with(Path::new("train/a/2.png")));
        assert!(data.train.select(&[2]).path(0).unwrap().ends_with(Path::new("train/b/3.png")));
    }
    fs::write(dir.path().join("train/b/3.png"), "").unwrap();
    let error = Pictures::class_folders(dir.path()).skip_unreadable(true).read().unwrap_err().to_string();
    assert!(error.contains("b: none of its pictures can be decoded"), "{error}");
}
