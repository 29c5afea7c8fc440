//! MNIST and Fashion-MNIST: found, fetched, and refused.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use towers_cifar::{Cifar, Dataset, Error, Kind, Progress, Source, idx, read_dir};

use crate::samples::names_in;
use crate::server::{Reply, Server};

const NAMES: [&str; 4] = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
];

/// Images that tell their number by two pixels.
fn images(n: usize) -> Vec<u8> {
    let mut all = vec![0; n * 784];
    for (k, image) in all.chunks_mut(784).enumerate() {
        image[..2].copy_from_slice(&[(k % 251) as u8, (k / 251) as u8]);
    }
    all
}

fn labels(n: usize) -> Vec<u8> {
    (0..n).map(|k| (k % 10) as u8).collect()
}

fn idx_file(sizes: &[usize], bytes: &[u8]) -> Vec<u8> {
    let sizes = sizes.iter().flat_map(|&size| (size as u32).to_be_bytes());
    [0, 0, 8, sizes.clone().count() as u8 / 4].into_iter().chain(sizes).chain(bytes.iter().copied()).collect()
}

/// The four files, in the order of their names.
fn files() -> &'static [Vec<u8>; 4] {
    static FILES: OnceLock<[Vec<u8>; 4]> = OnceLock::new();
    FILES.get_or_init(|| {
        let of = |n| [idx_file(&[n, 28, 28], &images(n)), idx_file(&[n], &labels(n))];
        let [[a, b], [c, d]] = [of(60_000), of(10_000)];
        [a, b, c, d]
    })
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

/// The files compressed, by their names with `.gz`.
fn packed() -> &'static HashMap<String, Vec<u8>> {
    static PACKED: OnceLock<HashMap<String, Vec<u8>>> = OnceLock::new();
    let named = |(name, bytes): (&&str, &Vec<u8>)| (format!("{name}.gz"), gzip(bytes));
    PACKED.get_or_init(|| NAMES.iter().zip(files()).map(named).collect())
}

fn write_packed(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    packed().iter().for_each(|(name, bytes)| fs::write(dir.join(name), bytes).unwrap());
}

fn write_plain(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    NAMES.iter().zip(files()).for_each(|(name, bytes)| fs::write(dir.join(name), bytes).unwrap());
}

/// The data set in `dir` and nowhere else.
fn of<'a>(kind: Kind, dir: &Path) -> Cifar<'a> {
    Cifar::new(kind).data_dir(dir).also_look_in(Vec::<PathBuf>::new())
}

/// The file that a request is for.
fn asked(path: &str) -> &'static [u8] {
    &packed()[path.strip_prefix("/mnist/").unwrap()]
}

fn assert_whole(data: &Dataset) {
    assert_eq!((data.train.images.dim(), data.test.images.dim()), ((60_000, 28, 28, 1), (10_000, 28, 28, 1)));
    let (place, k) = ([59_999, 0, 1, 0], 59_999);
    assert_eq!((data.train.images[place], data.train.labels[k]), ((k / 251) as u8, (k % 10) as u16));
    assert_eq!((data.test.images[[300, 0, 0, 0]], data.test.labels[13]), (49, 3));
    assert_eq!(data.classes.len(), 10);
}

/// Where torchvision and Keras leave them, plain and compressed.
#[test]
fn files_of_other_programs_are_found() {
    for (kind, folder, packed) in [
        (Kind::Mnist, "MNIST/raw", false),
        (Kind::FashionMnist, "FashionMNIST/raw", true),
        (Kind::FashionMnist, "fashion-mnist", true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join(folder);
        if packed {
            write_packed(&place)
        } else {
            write_plain(&place)
        }
        let found =
            Cifar::new(kind).data_dir(dir.path().join("none")).also_look_in([dir.path()]).offline(true);
        assert_eq!(found.fetch().unwrap(), place);
        // Named as the parent, and as the folder itself.
        for named in [dir.path(), &place] {
            let data = of(kind, named).offline(true).load().unwrap();
            assert_eq!(data.name, kind.name());
            assert_whole(&data);
        }
        assert!(idx::is_in(&place) && !idx::is_in(dir.path()));
    }
}

#[test]
fn the_archive_of_keras_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mnist.npz");
    for (deflated, labels) in [(false, "|u1"), (true, "<i8")] {
        fs::write(&path, npz(deflated, labels, |_, _| {})).unwrap();
        assert_whole(&read_dir(Kind::Mnist, dir.path()).unwrap());
    }
    type Change = fn(&str, &mut Vec<u8>);
    let changes: [(Change, &str); 8] = [
        (|_, array| array[0] = 0, "x_train.npy: it is no array of NumPy"),
        (|_, array| array[8] = 0xff, "x_train.npy: it is cut off"),
        (|_, array| array.truncate(1000), "x_train.npy: it is cut off"),
        (|_, array| array.push(7), "x_train.npy: it goes on after its values"),
        (
            |name, array| replace(array, "False", if name == "y_test.npy" { "True " } else { "False" }),
            "y_test.npy: it has the shape [10000], columns first, expected [10000]",
        ),
        (|_, array| replace(array, "28, 28", "28, 27"), "x_train.npy: it has the shape [60000, 28, 27]"),
        (
            |_, array| replace(array, "|u1", "<f8"),
            "x_train.npy: its values are `<f8`, expected whole numbers",
        ),
        (|_, array| replace(array, "'shape'", "'shaqe'"), "x_train.npy: it can't be understood: {'descr'"),
    ];
    for (change, says) in changes {
        fs::write(&path, npz(true, "|u1", change)).unwrap();
        let told = read_dir(Kind::Mnist, dir.path()).unwrap_err().to_string();
        assert!(told.contains(says), "{told}, not {says}");
    }
    let whole = npz(true, "|u1", |_, _| {});
    let at = |what: &[u8]| whole.windows(what.len()).position(|bytes| bytes == what).unwrap();
    let damaged = |place: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[place] = byte;
        fs::write(&path, bytes).unwrap();
        read_dir(Kind::Mnist, dir.path()).unwrap_err().to_string()
    };
    let central = at(b"PK\x01\x02");
    for (place, byte, says) in [
        (0, 0, "x_train.npy: the ZIP archive is damaged"),
        (whole.len() - 22, 0, "it is no ZIP archive"),
        (central, 0, "there is no x_train.npy in it"),
        (central + 10, 12, "it is compressed by method 12"),
        (central + 16, 1, "x_train.npy: its checksum is wrong"),
        (central + 22, 0, "x_train.npy: it is damaged: incomplete deflate stream"),
        (whole.len() - 3, 0xff, "the ZIP archive is cut off"),
        (whole.len() - 7, 0xff, "but at most 65536 are read"),
    ] {
        let told = damaged(place, byte);
        assert!(told.contains(says), "byte {place}: {told}, not {says}");
    }
    for len in [0, 10, whole.len() / 2, whole.len() - 4] {
        fs::write(&path, &whole[..len]).unwrap();
        assert!(matches!(read_dir(Kind::Mnist, dir.path()), Err(Error::Array { .. })), "{len} bytes");
    }
}

fn replace(array: &mut [u8], from: &str, to: &str) {
    if let Some(at) = array[..128].windows(from.len()).position(|bytes| bytes == from.as_bytes()) {
        array[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
}

/// An archive as `numpy.savez` and `savez_compressed` write it, of changed arrays.
fn npz(deflated: bool, of_labels: &str, change: impl Fn(&str, &mut Vec<u8>)) -> Vec<u8> {
    let array = |kind: &str, shape: &str, data: &[u8]| {
        let text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
        let head = format!("{text:117}\n");
        [&b"\x93NUMPY\x01\x00"[..], &(head.len() as u16).to_le_bytes(), head.as_bytes(), data].concat()
    };
    let numbers = |n| -> Vec<u8> {
        let wide = of_labels == "<i8";
        labels(n)
            .iter()
            .flat_map(|&label| u64::from(label).to_le_bytes()[..if wide { 8 } else { 1 }].to_vec())
            .collect()
    };
    let arrays = [
        ("x_train.npy", array("|u1", "60000, 28, 28", &images(60_000))),
        ("y_train.npy", array(of_labels, "60000,", &numbers(60_000))),
        ("x_test.npy", array("|u1", "10000, 28, 28", &images(10_000))),
        ("y_test.npy", array(of_labels, "10000,", &numbers(10_000))),
    ];
    let (mut zip, mut directory) = (Vec::new(), Vec::new());
    for (name, mut array) in arrays {
        change(name, &mut array);
        let mut crc = flate2::Crc::new();
        crc.update(&array);
        let mut packed = DeflateEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&array).unwrap();
        let packed = if deflated { packed.finish().unwrap() } else { array.clone() };
        let sizes = [crc.sum(), packed.len() as u32, array.len() as u32].map(u32::to_le_bytes).concat();
        let method = [if deflated { 8 } else { 0 }, 0];
        let start = (zip.len() as u32).to_le_bytes();
        let lengths = |extra: u16| [name.len() as u16, extra].map(u16::to_le_bytes).concat();
        // As with `force_zip64`, the local header has an extra field.
        zip.extend(
            [
                &b"PK\x03\x04\x2d\0\0\0"[..],
                &method,
                &[0; 4],
                &sizes,
                &lengths(4),
                name.as_bytes(),
                &[1, 0, 0, 0],
                &packed,
            ]
            .concat(),
        );
        directory.extend(
            [
                &b"PK\x01\x02\x2d\x03\x2d\0\0\0"[..],
                &method,
                &[0; 4],
                &sizes,
                &lengths(0),
                &[0; 10],
                &start,
                name.as_bytes(),
            ]
            .concat(),
        );
    }
    let end = [directory.len() as u32, zip.len() as u32].map(u32::to_le_bytes).concat();
    [&zip[..], &directory, b"PK\x05\x06\0\0\0\0\x04\0\x04\0", &end, &[0, 0]].concat()
}

#[test]
fn the_files_are_fetched_once_and_found_ever_after() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::with_paths(|_, path, _| Reply::ok(asked(path)));
    let mut unverified = false;
    let listener = |step: Progress<'_>| unverified |= matches!(step, Progress::NoChecksum { .. });
    let data = of(Kind::Mnist, dir.path()).urls([server.folder()]).progress(listener).load().unwrap();
    assert_whole(&data);
    assert!(unverified);
    assert_eq!(
        (names_in(dir.path()), names_in(&dir.path().join("MNIST"))),
        (vec!["MNIST".to_owned()], vec!["raw".into()])
    );
    // As torchvision has them.
    assert_eq!(names_in(&dir.path().join("MNIST/raw")).len(), 4);
    let again = of(Kind::Mnist, dir.path()).urls([server.folder()]);
    assert_eq!(again.fetch().unwrap(), dir.path().join("MNIST/raw"));
    assert_eq!(server.starts().len(), 4);
}

/// What one mirror began, another one completes; a file that is complete is not fetched again.
#[test]
fn a_cut_download_is_resumed_by_the_next_source() {
    let dir = tempfile::tempdir().unwrap();
    let cut = |path: &str| path.ends_with("t10k-images-idx3-ubyte.gz");
    let broken = Server::with_paths(move |request, path, start| match request {
        0..=1 => Reply::range(asked(path), start),
        2 if cut(path) => Reply::range(asked(path), start).cut_after(1000),
        _ => Reply::new("503 Service Unavailable", ""),
    });
    let error = of(Kind::Mnist, dir.path()).urls([broken.folder()]).fetch().unwrap_err();
    assert!(matches!(&error, Error::NoSource { failures, .. } if failures[0].contains("503")), "{error}");
    assert!(names_in(dir.path()).iter().all(|name| name.starts_with(".mnist-") && name.ends_with(".part")));
    assert_eq!(broken.starts()[..3], [None; 3]);
    // The same address again: the parts of an address without checksums belong to it.
    let again = of(Kind::Mnist, dir.path()).urls([broken.folder()]).fetch();
    assert!(again.is_err());
    assert!(broken.starts().contains(&Some(1000)), "{:?}", broken.starts());
}

#[test]
fn other_bytes_than_the_official_ones_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::with_paths(|_, path, start| Reply::range(asked(path), start));
    let fetch = |source| {
        let fetched = of(Kind::Mnist, dir.path()).sources([source]).fetch();
        let Err(Error::NoSource { failures, .. }) = fetched else { panic!("{fetched:?}") };
        failures.join("; ")
    };
    let told = fetch(Source::mirror(Kind::Mnist, server.folder()));
    assert!(told.contains("train-images-idx3-ubyte.gz: the download has"), "{told}");
    assert!(told.contains("expected 9912422"), "{told}");
    let told = fetch(Source::new(server.folder()).md5("0".repeat(32)));
    assert!(told.contains("of a folder with several files"), "{told}");
    assert!(names_in(dir.path()).is_empty(), "{:?}", names_in(dir.path()));

    let page = Server::with_paths(|_, _, _| Reply::ok("<html>"));
    let told = fetch(Source::new(page.folder()));
    assert!(told.contains("not a .gz file; it begins with \"<html>\""), "{told}");
}

#[test]
fn every_public_source_has_sizes_and_checksums() {
    let addresses = |kind| Source::official(kind).iter().map(Source::to_string).collect::<Vec<_>>();
    for kind in Kind::ALL {
        let all = addresses(kind);
        assert!(all.len() >= 2 && all.iter().all(|url| Source::new(url).is_address()), "{all:?}");
        assert_eq!(Kind::named(kind.name()), Some(kind));
    }
    assert!(addresses(Kind::Mnist).iter().all(|url| url.ends_with("mnist/")));
}

#[test]
fn files_are_hostile_until_checked() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |name: &str, bytes: &[u8]| {
        write_plain(dir.path());
        let plain = dir.path().join(name.trim_end_matches(".gz"));
        fs::remove_file(plain).unwrap();
        fs::write(dir.path().join(name), bytes).unwrap();
        let told = read_dir(Kind::Mnist, dir.path()).unwrap_err().to_string();
        fs::remove_file(dir.path().join(name)).unwrap();
        assert!(told.contains(name), "{told}");
        told
    };
    let [images, labels] = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"];
    let whole = &files()[0];
    let head = |sizes: &[usize]| idx_file(sizes, &[]);
    let images_gz = format!("{images}.gz");
    for (name, bytes, says) in [
        (images, &b"\x1f\x8b\x08"[..], "it ends within its sizes"),
        (images, &files()[1], "an idx file of images begins with [0, 0, 8, 3]"),
        (labels, whole, "an idx file of labels begins with [0, 0, 8, 1]"),
        (images, &whole[..whole.len() - 1], "it has 47040015 bytes, expected 47040016"),
        (images, &[&whole[..], &[0]].concat(), "it has 47040017 bytes"),
        (images, &head(&[0xffff_ffff; 3]), "which are more than 47040000 bytes"),
        (
            images,
            &idx_file(&[59_999, 28, 28], &whole[16 + 784..]),
            "it has 59999 images, but there are 60000 labels",
        ),
        (images, &idx_file(&[60_000, 14, 56], &whole[16..]), "its images are of 14x56, expected 28x28"),
        (labels, &idx_file(&[10], &[0; 10]), "it has 10 labels, expected 60000"),
        (labels, &idx_file(&[60_000], &[10; 60_000]), "record 0 has label 10, expected one below 10"),
        (&images_gz, b"no gzip", "it ends within its sizes"),
        (&images_gz, &gzip(&whole[..1000]), "it ends after 984 of 47040000 bytes"),
        (&images_gz, &gzip(&[&whole[..], &[0; 9]].concat()), "it goes on after its 47040000 bytes"),
        (
            &images_gz,
            &{
                let mut gz = gzip(whole);
                let end = gz.len() - 6;
                gz[end] ^= 1;
                gz
            },
            "it is damaged",
        ),
    ] {
        let told = refused(name, bytes);
        assert!(told.contains(says), "{told}, not {says}");
    }
    let same = idx_file(&[60_000], &[3; 60_000]);
    write_plain(dir.path());
    fs::write(dir.path().join(labels), same).unwrap();
    let told = read_dir(Kind::Mnist, dir.path()).unwrap_err().to_string();
    assert!(told.contains("no image of class `0`; these are not the official files"), "{told}");
}

/// The files of both data sets have the same names.
#[test]
fn one_is_not_taken_for_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let first =
        [(Kind::Mnist, [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]), (Kind::FashionMnist, [9, 0, 0, 3, 0, 2, 7, 2, 5, 5])];
    for (kind, first) in first {
        write_plain(dir.path());
        let labels = [&first[..], &labels(60_000)[10..]].concat();
        fs::write(dir.path().join(NAMES[1]), idx_file(&[60_000], &labels)).unwrap();
        assert!(read_dir(kind, dir.path()).is_ok());
        let other = if kind == Kind::Mnist { Kind::FashionMnist } else { Kind::Mnist };
        let told = read_dir(other, dir.path()).unwrap_err().to_string();
        assert!(told.ends_with(&format!("are those of {kind}, not of {other}")), "{told}");
    }
}

/// Files of another size and number of classes.
#[test]
fn any_idx_files_make_a_data_set() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("letters");
    let write = |test: &[u8]| {
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join(NAMES[0]), idx_file(&[3, 4, 5], &[7; 60])).unwrap();
        fs::write(place.join(NAMES[1]), idx_file(&[3], &[0, 2, 1])).unwrap();
        fs::write(place.join(format!("{}.gz", NAMES[2])), gzip(test)).unwrap();
        fs::write(place.join(NAMES[3]), idx_file(&[1], &[25])).unwrap();
    };
    write(&idx_file(&[1, 4, 5], &[9; 20]));
    let data = idx::read_dir(&place).unwrap();
    assert_eq!((data.name.as_str(), data.classes.len(), data.train.shape()), ("letters", 26, [4, 5, 1]));
    assert_eq!((data.test.labels.to_vec(), data.test.images[[0, 3, 4, 0]]), (vec![25], 9));
    let refused = |test: &[u8]| {
        write(test);
        idx::read_dir(&place).unwrap_err().to_string()
    };
    assert!(
        refused(&idx_file(&[1, 5, 4], &[9; 20]))
            .ends_with("its images have another size than those to train on")
    );
    assert!(refused(&idx_file(&[2, 4, 5], &[9; 40])).ends_with("it has 2 images, but there are 1 labels"));
    assert!(refused(&idx_file(&[1, 0, 4], &[])).contains("expected sides of 1 to 1024 pixels"));
    assert!(refused(&idx_file(&[1 << 16, 1 << 16], &[])).contains("begins with [0, 0, 8, 2]"));
    assert!(refused(&idx_file(&[1 << 16, 1 << 16, 1], &[])).contains("which are more than 2147483648 bytes"));
}
