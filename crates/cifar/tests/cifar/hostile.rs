//! Archives that mean harm.

use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::EntryType;
use towers_cifar::{Error, Kind};

use crate::samples::{
    CIFAR10_BINARY, CIFAR10_PYTHON, archive, binary_archive, binary_batch, cifar10, entry, names_in,
};
use crate::server::{Reply, Server};

/// Serves `archive` and tells why it was refused, having made sure that nothing is left of it.
fn refusal(archive: Vec<u8>) -> String {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = Server::new(move |_, start| Reply::range(&archive, start));
    let error = cifar10(&data).urls([server.url()]).load().unwrap_err();
    assert!(names_in(&data).is_empty(), "left behind: {:?}", names_in(&data));
    assert_eq!(names_in(dir.path()), ["data"], "something was written elsewhere");
    match error {
        Error::NoSource { failures, .. } => failures.join("; "),
        other => panic!("{other}"),
    }
}

/// An archive of one entry.
fn one(name: &str, kind: EntryType, link: Option<&str>, contents: &[u8]) -> Vec<u8> {
    let mut header = entry(name, kind, contents.len());
    if let Some(link) = link {
        header.set_link_name_literal(link).unwrap();
        header.set_cksum();
    }
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    tar.append(&header, contents).unwrap();
    tar.into_inner().unwrap().finish().unwrap()
}

fn assert_refused(archive: Vec<u8>, reason: &str) {
    let refusal = refusal(archive);
    assert!(refusal.contains(reason), "expected `{reason}` in: {refusal}");
}

#[test]
fn names_that_lead_elsewhere() {
    for name in ["../data_batch_1.bin", "/data_batch_1.bin", "a/../../data_batch_1.bin", "../../x"] {
        assert_refused(one(name, EntryType::Regular, None, b"x"), "leads out of the folder");
    }
    // A name too long for the header comes in a separate record.
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let long = format!("../{}", "x".repeat(200));
    tar.append(&entry("././@LongLink", EntryType::GNULongName, long.len()), long.as_bytes()).unwrap();
    tar.append(&entry("harmless", EntryType::Regular, 1), &b"x"[..]).unwrap();
    assert_refused(tar.into_inner().unwrap().finish().unwrap(), "leads out of the folder");
}

#[test]
fn links_and_devices() {
    for kind in [EntryType::Symlink, EntryType::Link] {
        for link in ["/etc/passwd", "../secret", "data_batch_2.bin"] {
            assert_refused(one("data_batch_1.bin", kind, Some(link), b""), "neither a file nor a folder");
        }
    }
    for kind in [EntryType::Char, EntryType::Block, EntryType::Fifo] {
        assert_refused(one("data_batch_1.bin", kind, None, b""), "neither a file nor a folder");
    }
}

#[test]
fn bombs() {
    // 400 MB of nothing in a file that would be passed over, and in a record of tar itself.
    let nothing = vec![0; 400 << 20];
    assert_refused(one("readme.html", EntryType::Regular, None, &nothing), "unpacks to more than");
    assert_refused(one("name", EntryType::GNULongName, None, &nothing), "unpacks to more than");
    let names: Vec<String> = (0..200).map(|k| format!("file-{k}")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"x"[..])).collect();
    assert_refused(archive(&files), "more than 100 files");
}

#[test]
fn damaged_archives() {
    let whole = binary_archive();
    for length in [2, 11, whole.len() / 2, whole.len() - 1] {
        refusal(whole[..length].to_vec());
    }
    let mut flipped = whole.to_vec();
    flipped[whole.len() / 2] ^= 0x10;
    refusal(flipped);
    let mut checksum = whole.to_vec();
    checksum[whole.len() - 8] ^= 1;
    refusal(checksum);
    refusal(b"\x1f\x8b\x08 this is no gzip stream".to_vec());
}

/// CIFAR-10's archive with the contents of one file replaced.
fn with(name: &str, contents: &[u8]) -> Vec<u8> {
    let batch = binary_batch(Kind::Cifar10, 10_000);
    archive(&CIFAR10_BINARY.map(|file| (file, if file == name { contents } else { &batch[..] })))
}

#[test]
fn archives_of_something_else() {
    assert_refused(archive(&[]), "no CIFAR-10 in it");
    assert_refused(archive(&[("readme", b"hello")]), "no CIFAR-10 in it");
    assert_refused(archive(&[("train.bin", b"hello")]), "no CIFAR-10 in it");
    assert_refused(archive(&[("data_batch_1.bin", b"hello")]), "has 5 bytes, expected 30730000");
    assert_refused(archive(&[("data_batch_1", &vec![0; 40 << 20])]), "expected 35840000");
    assert_refused(archive(&[("data_batch_1", b"."), ("batches.meta.txt", b"")]), "mixes");
    assert_refused(archive(&[("batches.meta.txt", b""), ("x/batches.meta.txt", b"")]), "two files");
    assert_refused(archive(&[("batches.meta.txt", b"")]), "lacks `data_batch_1.bin`");
}

#[test]
fn batches_with_wrong_contents() {
    let mut batch = binary_batch(Kind::Cifar10, 10_000);
    batch[3073] = 200;
    assert_refused(with("data_batch_4.bin", &batch), "record 1 has label 200");
    assert_refused(with("test_batch.bin", &vec![0; 30_730_000]), "no image of class `automobile`");
    let system = b"cos\nsystem\n(S'touch pwned'\ntR.";
    assert_refused(archive(&CIFAR10_PYTHON.map(|name| (name, &system[..]))), "not a CIFAR batch");
    assert!(!Path::new("pwned").exists());
}

#[test]
fn a_download_larger_than_announced_or_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::new(|_, _| {
        let mut reply = Reply::ok("");
        reply.headers = vec![("Content-Length", (1_u64 << 40).to_string())];
        reply
    });
    let error = cifar10(dir.path()).urls([server.url()]).load().unwrap_err();
    assert!(error.to_string().contains("has 1099511627776 bytes"), "{error}");
    assert!(names_in(dir.path()).is_empty());
}
