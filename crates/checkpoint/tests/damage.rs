//! Whatever happens to the newest checkpoint on the disk, the one before it is found, and the reason named.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use towers_checkpoint::{Error, Search, Store, Tensors};

const FILES: [&str; 3] = ["tensors.safetensors", "state.json", "complete.json"];

fn filled(value: f32) -> Tensors {
    crate::filled([5, 5], value)
}

/// A store with the checkpoints `old` and `new`; the folder of `new`.
fn store(root: &Path) -> (Store, PathBuf) {
    let store = Store::open(root).unwrap();
    store.save("old", &filled(1.0), &1).unwrap();
    let new = store.save("new", &filled(2.0), &2).unwrap();
    (store, new)
}

/// Asserts that `old` is found and `new` is skipped for a reason that contains `why`.
fn falls_back(store: &Store, new: &Path, why: &str) {
    let Search { found, skipped, .. } = store.newest_valid::<i32>().unwrap();
    let found = found.unwrap();
    assert_eq!((found.name.as_str(), found.state, found.tensors), ("old", 1, filled(1.0)));
    assert_eq!(skipped.len(), 1);
    assert_eq!(skipped[0].path, new);
    let message = skipped[0].why.to_string();
    assert!(message.contains(why), "expected {why:?}: {message}");
    assert!(store.load::<i32>("new").is_err());
}

#[test]
fn every_truncation_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let (store, new) = store(folder.path());
    for file in FILES {
        let path = new.join(file);
        let whole = fs::read(&path).unwrap();
        for len in (0..whole.len()).step_by(7).chain([whole.len() - 1]) {
            fs::write(&path, &whole[..len]).unwrap();
            falls_back(&store, &new, file);
        }
        fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
        falls_back(&store, &new, file);
        fs::remove_file(&path).unwrap();
        falls_back(&store, &new, file);
        fs::write(&path, &whole).unwrap();
        assert_eq!(store.newest_valid::<i32>().unwrap().found.unwrap().name, "new");
    }
}

/// In the files that the mark speaks of, each single flipped bit is found by its checksum. The mark itself
/// has white space and key order, so there the claim is weaker: the content is never wrong.
#[test]
fn every_flipped_byte_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let (store, new) = store(folder.path());
    for file in FILES {
        let path = new.join(file);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(&path, &bytes).unwrap();
            if file == "complete.json" {
                let found = store.newest_valid::<i32>().unwrap().found.unwrap();
                assert_eq!(found.tensors, filled(found.state as f32), "byte {at} of {file}");
            } else {
                falls_back(&store, &new, "SHA-256");
            }
        }
        fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn a_missing_mark_is_an_incomplete_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let (store, new) = store(folder.path());
    fs::remove_file(new.join("complete.json")).unwrap();
    falls_back(&store, &new, "never completed");
    let listing = store.list().unwrap();
    assert_eq!(listing.entries.len(), 1);
    assert!(matches!(listing.skipped[0].why, Error::Damaged { .. }));
    // Saving under its name repairs it.
    store.save("new", &filled(3.0), &3).unwrap();
    assert_eq!(store.newest_valid::<i32>().unwrap().found.unwrap().state, 3);
}

#[test]
fn hostile_marks_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (store, new) = store(folder.path());
    let path = new.join("complete.json");
    let whole = fs::read_to_string(&path).unwrap();
    for (mark, why) in [
        ("[".repeat(50_000), "not readable"),
        (" ".repeat(70_000), "70000 bytes"),
        (r#"{"layout":1,"sequence":9,"files":{}}"#.to_owned(), "says nothing"),
        (whole.replace("\"layout\": 1", "\"layout\": 2"), "layout 2"),
        (whole.replace("state.json", "../old/state.json"), "says nothing"),
        (whole.replace("\"bytes\": 1,", "\"bytes\": 18446744073709551615,"), "bytes where"),
        (whole.replace("\"sequence\": 2", "\"sequence\": -2"), "not readable"),
    ] {
        assert_ne!(mark, whole, "{why}: the test changes nothing");
        fs::write(&path, mark).unwrap();
        falls_back(&store, &new, why);
    }
    fs::write(&path, [0xff, 0xfe, 0x00]).unwrap();
    falls_back(&store, &new, "not readable");
    // The greatest number there is doesn't break the counting.
    fs::write(&path, whole.replace("\"sequence\": 2", &format!("\"sequence\": {}", u64::MAX))).unwrap();
    store.save("newer", &filled(4.0), &4).unwrap();
    assert!(store.newest_valid::<i32>().unwrap().found.is_some());
}

#[test]
fn everything_damaged_is_reported_and_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let (store, new) = store(folder.path());
    fs::write(new.join("state.json"), "").unwrap();
    fs::remove_dir_all(folder.path().join("old")).unwrap();
    fs::create_dir(folder.path().join("old")).unwrap();
    fs::create_dir(folder.path().join("not a name")).unwrap();
    let search = store.newest_valid::<i32>().unwrap();
    assert!(search.found.is_none());
    assert_eq!(search.skipped.len(), 3);
}

#[cfg(unix)]
#[test]
fn links_are_refused_and_never_followed() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let (store, new) = store(folder.path());
    for file in FILES {
        let (path, elsewhere) = (new.join(file), folder.path().join(file));
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        falls_back(&store, &new, "not a regular file");
        fs::remove_file(&path).unwrap();
        fs::rename(&elsewhere, &path).unwrap();
    }
    // A whole checkpoint that is a link is one, too; and cleaning up removes neither links nor their targets.
    let outside = tempfile::tempdir().unwrap();
    fs::rename(&new, outside.path().join("new")).unwrap();
    symlink(outside.path().join("new"), &new).unwrap();
    symlink(outside.path(), folder.path().join(".tmp-1-2-new")).unwrap();
    let store = Store::open(folder.path()).unwrap();
    assert_eq!(store.newest_valid::<i32>().unwrap().found.unwrap().name, "old");
    assert!(outside.path().join("new/state.json").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn names_that_are_not_utf8_are_reported() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = store(folder.path());
    fs::create_dir(folder.path().join(std::ffi::OsStr::from_bytes(b"epoch-\xff"))).unwrap();
    let search = store.newest_valid::<i32>().unwrap();
    assert_eq!(search.found.unwrap().name, "new");
    assert!(search.skipped.is_empty() || search.skipped[0].why.to_string().contains("UTF-8"));
    assert!(store.list().unwrap().skipped[0].why.to_string().contains("UTF-8"));
}

/// The moments of a replacement at which a machine can stop, made by hand.
#[test]
fn an_interrupted_replacement_is_finished_or_undone() {
    let folder = tempfile::tempdir().unwrap();
    let (store, new) = store(folder.path());
    let at = |name: &str| folder.path().join(name);

    // The old one is set aside, and the next one has not taken its place: it still counts, and comes back.
    fs::rename(&new, at(".old-1-0-new")).unwrap();
    fs::create_dir(at(".tmp-1-1-new")).unwrap();
    fs::write(at(".tmp-1-1-new/state.json"), "{").unwrap();
    let found = store.newest_valid::<i32>().unwrap().found.unwrap();
    assert_eq!((found.name.as_str(), found.state), ("new", 2));
    let store = Store::open(folder.path()).unwrap();
    assert!(new.is_dir() && !at(".old-1-0-new").exists() && !at(".tmp-1-1-new").exists());
    assert_eq!(store.load::<i32>("new").unwrap().state, 2);

    // The next one is there, and the old one is not deleted yet; folders of others stay.
    fs::create_dir(at(".old-1-0-new")).unwrap();
    fs::create_dir(at(".tmp-mine")).unwrap();
    store.save("other", &filled(3.0), &3).unwrap();
    assert!(!at(".old-1-0-new").exists() && at(".tmp-mine").exists());
    assert_eq!(store.list().unwrap().entries.len(), 3);
}

/// A single file has no completion mark; a digest among its metadata takes its place.
#[test]
fn a_flipped_bit_in_a_single_file_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let about = [("format".to_owned(), "pt".to_owned())].into();
    towers_checkpoint::save_tensors(&path, &filled(3.0), &about).unwrap();
    let loaded = towers_checkpoint::load_tensors(&path).unwrap();
    assert_eq!(loaded.get("kernel").unwrap().data(), [3.0; 25]);
    assert_eq!(*loaded.metadata(), about, "the digest is nobody else's business");
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = towers_checkpoint::load_tensors(&path).unwrap_err();
    assert!(matches!(&error, Error::Format { .. }) && error.to_string().contains("damaged"), "{error}");
}

/// Another program may keep its digest under a key that towers used once.
#[test]
fn digests_of_others_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let metadata = |entries: &[(&str, &str)]| -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let about = metadata(&[("format", "pt"), ("sha256", "of another program")]);
    let write = |about: &BTreeMap<String, String>| {
        let data = [0; 8];
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![2], &data).unwrap();
        let about = Some(about.clone().into_iter().collect());
        fs::write(&path, safetensors::serialize([("kernel", view)], about).unwrap()).unwrap();
    };
    write(&about);
    let loaded = towers_checkpoint::load_tensors(&path).unwrap();
    assert_eq!(*loaded.metadata(), about);
    towers_checkpoint::save_tensors(&path, &loaded, loaded.metadata()).unwrap();
    assert_eq!(*towers_checkpoint::load_tensors(&path).unwrap().metadata(), about);
    // The digest that an earlier version wrote into a model of towers.
    let digest = "21dcddf91bd4012458f82fc7aab07bbc718d093324b8f010b35294a7b90b416c";
    write(&metadata(&[("towers.model", "quick"), ("sha256", digest)]));
    let loaded = towers_checkpoint::load_tensors(&path).unwrap();
    assert_eq!(*loaded.metadata(), metadata(&[("towers.model", "quick")]));
    write(&metadata(&[("towers.model", "quick"), ("sha256", "of other tensors")]));
    assert!(towers_checkpoint::load_tensors(&path).unwrap_err().to_string().contains("damaged"));
}
