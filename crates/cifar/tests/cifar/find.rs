//! Data that is already there, good and bad.

use std::fs;

use towers_cifar::{Cifar, Error, Kind, read_dir};

use crate::samples::{binary_batch, cifar10, pixel, python_batch, write_binary};

#[test]
fn binary_batches_are_read_from_their_folder_its_parent_and_a_sibling() {
    let dir = tempfile::tempdir().unwrap();
    let folder = write_binary(dir.path());
    let data = cifar10(dir.path()).offline(true).load().unwrap();
    assert_eq!(data.train.images.dim(), (50_000, 32, 32, 3));
    assert_eq!((data.test.len(), data.classes.len(), &data.classes[9][..]), (10_000, 10, "truck"));
    // The planes of the file have become channels: image 10_300 is the 300th of the second batch.
    for (y, x, channel) in [(0, 0, 0), (0, 0, 1), (0, 1, 2), (31, 31, 2)] {
        assert_eq!(data.train.images[[10_300, y, x, channel]], pixel(300, channel * 1024 + y * 32 + x));
    }
    assert_eq!(data.train.labels[10_303], 3);
    assert_eq!(data.train.class_counts(10), [5000; 10]);

    assert_eq!(cifar10(&folder).offline(true).fetch().unwrap(), folder);
    // The name of a folder that isn't there, beside one that is.
    assert_eq!(cifar10(&dir.path().join("cifar-10-batches-py")).offline(true).fetch().unwrap(), folder);
}

#[test]
fn python_batches_of_keras_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("datasets/cifar-100-python-target/cifar-100-python");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("train"), python_batch(Kind::Cifar100, 50_000)).unwrap();
    fs::write(folder.join("test"), python_batch(Kind::Cifar100, 10_000)).unwrap();
    let cifar = Cifar::new(Kind::Cifar100).data_dir(dir.path().join("none"));
    let data = cifar.also_look_in([dir.path().join("datasets")]).offline(true).load().unwrap();
    assert_eq!((data.train.len(), data.test.len()), (50_000, 10_000));
    assert_eq!(data.train.images[[300, 0, 0, 1]], pixel(300, 1024));
    assert_eq!((data.test.labels[142], data.test.coarse.as_ref().unwrap()[142]), (42, 2));
    assert_eq!((data.classes.len(), data.coarse_classes.len()), (100, 20));
    assert!(!dir.path().join("none").exists(), "looking creates nothing");
}

#[test]
fn cifar100_binary_batches_have_two_labels() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("train.bin"), binary_batch(Kind::Cifar100, 50_000)).unwrap();
    fs::write(dir.path().join("test.bin"), binary_batch(Kind::Cifar100, 10_000)).unwrap();
    let test = read_dir(Kind::Cifar100, dir.path()).unwrap().test;
    assert_eq!((test.labels[199], test.coarse.as_ref().unwrap()[199]), (99, 19));
    assert_eq!(test.images[[300, 0, 0, 0]], pixel(300, 0));
    assert_eq!(test.take(7).coarse.unwrap().len(), 7);
}

#[test]
fn a_damaged_folder_is_not_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let folder = write_binary(dir.path());
    let batch = folder.join("data_batch_3.bin");
    let good = fs::read(&batch).unwrap();
    let error = || read_dir(Kind::Cifar10, dir.path()).unwrap_err();

    fs::write(&batch, &good[1..]).unwrap();
    assert!(matches!(error(), Error::FileSize { expected: 30_730_000, found: 30_729_999, .. }));

    let mut bad = good.clone();
    bad[3073 * 5] = 10;
    fs::write(&batch, &bad).unwrap();
    assert!(matches!(error(), Error::Label { record: 5, label: 10, classes: 10, .. }));

    fs::remove_file(&batch).unwrap();
    assert!(matches!(error(), Error::File(_)));
    fs::create_dir(&batch).unwrap();
    assert!(matches!(error(), Error::File(_)), "a folder in place of a file");

    fs::remove_dir(&batch).unwrap();
    fs::write(&batch, &good).unwrap();
    fs::write(folder.join("test_batch.bin"), vec![0; 30_730_000]).unwrap();
    assert!(matches!(error(), Error::MissingClass { split: "test", ref class, .. } if class == "automobile"));
}

#[test]
fn without_data_or_network_the_error_says_where_it_looked_and_what_helps() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("cifar-10-batches-py");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("data_batch_1"), "no pickle").unwrap();
    fs::write(dir.path().join("cifar-10-binary.tar.gz"), "no archive").unwrap();
    let error = cifar10(dir.path()).also_look_in(["some/other"]).offline(true).load().unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }));
    let text = error.to_string();
    let dir = dir.path().display().to_string();
    for part in [&dir[..], "some/other", "not a CIFAR batch", "MD5", "allow fetching", "official .tar.gz"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}
