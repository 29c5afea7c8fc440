//! Whatever bytes a reader meets, it ends with a result: no panic, no endless loop, no unbounded memory.

use std::fs;
use std::io::Write;
use std::path::Path;

use flate2::{Compression, write::GzEncoder};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::kinds::Kind;
use crate::records::Records;
use crate::{binary, pickle, python, unpack};

/// Bytes that a pickle is likely to hold.
fn pickle_like() -> impl Strategy<Value = Vec<u8>> {
    let opcodes = b"\x80\x95N\x88\x89KMJ\x8aGUCTBX\x8c\x8d\x8e\x96qrhj\x94(0)\x85\x86\x87t]ae}sucR\x81\x93b.\n\0\x01\x02";
    vec(prop_oneof![4 => select(&opcodes[..]), 1 => any::<u8>()], 0..200)
}

/// A good batch of two images, with a few bytes changed and the end cut off.
fn damaged_batch() -> impl Strategy<Value = Vec<u8>> {
    let good = include_bytes!("../../../tests/golden/cifar_pickle/protocol_5.pickle");
    let heads_and_tails = (0..400_usize, any::<u8>());
    (vec(heads_and_tails, 0..4), any::<Index>(), any::<bool>()).prop_map(move |(changes, end, cut)| {
        let mut bytes = good.to_vec();
        for (place, byte) in changes {
            let n = bytes.len();
            // The pixels between are of no interest to the reader.
            bytes[if place < 200 { place } else { n - 400 + place }] = byte;
        }
        bytes.truncate(if cut { end.index(bytes.len()) } else { bytes.len() });
        bytes
    })
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

fn try_unpack(archive: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let (path, into) = (dir.path().join("archive"), dir.path().join("into"));
    fs::write(&path, archive).unwrap();
    fs::create_dir(&into).unwrap();
    let _ = unpack::unpack(&path, "archive", Kind::Cifar10, &into);
    let left = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 2, "something was written beside the folder");
}

proptest! {
    #[test]
    fn pickles(bytes in prop_oneof![pickle_like(), vec(any::<u8>(), 0..400)]) {
        let _ = pickle::parse(&bytes);
    }

    #[test]
    fn python_batches(bytes in prop_oneof![damaged_batch(), pickle_like()]) {
        for kind in [Kind::Cifar10, Kind::Cifar100] {
            let _ = python::decode(Path::new("batch"), &bytes, 2, &mut Records::with_capacity(kind, 2));
        }
    }

    #[test]
    fn binary_batches(bytes in vec(any::<u8>(), 3073), cut in 0..2_usize) {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &bytes[cut..]).unwrap();
        let mut records = Records::with_capacity(Kind::Cifar10, 1);
        let good = binary::read(file.path(), 1, &mut records).is_ok();
        prop_assert_eq!(good, cut == 0 && bytes[0] < 10);
    }

    #[test]
    fn archives(bytes in vec(any::<u8>(), 0..2000)) {
        try_unpack(&bytes);
        try_unpack(&gzipped(&bytes));
    }

    #[test]
    fn archives_with_a_damaged_header(changes in vec((0..1536_usize, any::<u8>()), 1..6)) {
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(4);
        header.set_cksum();
        tar.append_data(&mut header, "data_batch_1", &b"abcd"[..]).unwrap();
        let mut bytes = tar.into_inner().unwrap();
        for (place, byte) in changes {
            bytes[place] = byte;
        }
        // The header's own checksum would catch most changes: make it right again.
        let sum: u32 = bytes[..512].iter().enumerate().map(|(k, &b)| if (148..156).contains(&k) { 32 } else { b.into() }).sum();
        bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        try_unpack(&gzipped(&bytes));
    }
}
