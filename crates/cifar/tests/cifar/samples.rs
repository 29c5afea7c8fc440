//! Batch files and archives of the real sizes with made-up contents.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use flate2::Compression;
use flate2::write::GzEncoder;
use md5::{Digest, Md5};
use towers_cifar::{Cifar, Kind, Source};

pub const CIFAR10_BINARY: [&str; 6] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
    "test_batch.bin",
];

pub const CIFAR10_PYTHON: [&str; 6] =
    ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"];

/// The made-up pixel: image, byte of the image in plane order.
pub fn pixel(image: usize, byte: usize) -> u8 {
    match byte {
        0 => (image % 251) as u8,
        1024 => (image / 251) as u8,
        2049 => 7,
        _ => 0,
    }
}

pub fn planes(image: usize) -> Vec<u8> {
    let mut planes = vec![0; 3072];
    [0, 1024, 2049].into_iter().for_each(|byte| planes[byte] = pixel(image, byte));
    planes
}

/// `images` records with the labels `k % classes`; CIFAR-100's with the coarse labels `k % 20` before them.
pub fn binary_batch(kind: Kind, images: usize) -> Vec<u8> {
    let mut records = Vec::with_capacity(images * 3074);
    for k in 0..images {
        if kind == Kind::Cifar100 {
            records.push((k % 20) as u8);
        }
        records.push((k % kind.classes()) as u8);
        records.extend(planes(k));
    }
    records
}

/// A batch as Python 2's cPickle writes it under protocol 2.
pub fn python_batch(kind: Kind, images: usize) -> Vec<u8> {
    let short = |text: &str| [&[b'U', text.len() as u8], text.as_bytes()].concat();
    let labels = |name: &str, classes: usize| {
        let items = (0..images).flat_map(|k| [b'K', (k % classes) as u8]).collect::<Vec<u8>>();
        [&short(name)[..], b"](", &items, b"e"].concat()
    };
    let whole = |n: usize| [&b"J"[..], &(n as u32).to_le_bytes()].concat();
    let mut pickle = b"\x80\x02}q\x01(".to_vec();
    pickle.extend([short("batch_label"), short("made up")].concat());
    pickle.extend(match kind {
        Kind::Cifar100 => [labels("fine_labels", 100), labels("coarse_labels", 20)].concat(),
        _ => labels("labels", 10),
    });
    pickle.extend(short("data"));
    pickle.extend(
        b"cnumpy.core.multiarray\n_reconstruct\nq\x06cnumpy\nndarray\nq\x07K\x00\x85U\x01b\x87Rq\x08",
    );
    pickle.extend([b"(K\x01", &whole(images)[..], b"M\x00\x0c\x86"].concat());
    pickle.extend(
        b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T",
    );
    pickle.extend(((images * 3072) as u32).to_le_bytes());
    (0..images).for_each(|k| pickle.extend(planes(k)));
    pickle.extend(b"tbu.");
    pickle
}

/// Writes CIFAR-10's binary layout into `dir`.
pub fn write_binary(dir: &Path) -> PathBuf {
    let folder = dir.join("cifar-10-batches-bin");
    fs::create_dir_all(&folder).unwrap();
    let batch = binary_batch(Kind::Cifar10, 10_000);
    CIFAR10_BINARY.iter().for_each(|name| fs::write(folder.join(name), &batch).unwrap());
    folder
}

/// A `.tar.gz` archive of (name, contents).
pub fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, contents) in files {
        tar.append(&entry(name, tar::EntryType::Regular, contents.len()), *contents).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

/// A header with any name, also one that `tar` would refuse to write.
pub fn entry(name: &str, kind: tar::EntryType, size: usize) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(size as u64);
    header.set_cksum();
    header
}

/// CIFAR-10's binary archive, with an unexpected readme.
pub fn binary_archive() -> &'static [u8] {
    static ARCHIVE: OnceLock<Vec<u8>> = OnceLock::new();
    ARCHIVE.get_or_init(|| {
        let batch = binary_batch(Kind::Cifar10, 10_000);
        let names = CIFAR10_BINARY.map(|name| format!("cifar-10-batches-bin/{name}"));
        let mut files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &batch[..])).collect();
        files.push(("cifar-10-batches-bin/readme.html", b"<html>"));
        files.push(("cifar-10-batches-bin/batches.meta.txt", b"airplane\n"));
        archive(&files)
    })
}

pub fn source(url: String, archive: &[u8]) -> Source {
    let md5: String = Md5::digest(archive).iter().map(|byte| format!("{byte:02x}")).collect();
    Source::new(url).md5(md5).size(archive.len() as u64)
}

/// CIFAR-10 in `dir` and nowhere else.
pub fn cifar10<'a>(dir: &Path) -> Cifar<'a> {
    Cifar::new(Kind::Cifar10).data_dir(dir).also_look_in(Vec::<PathBuf>::new())
}

/// The names in a folder, sorted, but for the lock.
pub fn names_in(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| !name.ends_with(".lock")).collect();
    names.sort();
    names
}
