//! Saving, listing, replacing, pruning, refusing.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;
use towers_checkpoint::{Error, Policy, Store, TensorRef, Tensors, epoch_name};

fn filled(value: f32) -> Tensors {
    crate::filled([3, 2], value)
}

fn names(store: &Store) -> Vec<String> {
    store.list().unwrap().entries.into_iter().map(|entry| entry.name).collect()
}

fn hidden(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    entries.map(|name| name.to_string_lossy().into_owned()).filter(|name| name.starts_with('.')).collect()
}

#[test]
fn the_newest_is_the_one_saved_last_whatever_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("run/checkpoints")).unwrap();
    assert!(!store.path().exists(), "opening creates nothing");
    assert!(store.newest_valid::<u64>().unwrap().found.is_none());
    for (k, name) in ["epoch-0009", "step-00000001", "epoch-0010", "epoch-0002"].iter().enumerate() {
        let path = store.save(name, &filled(k as f32), &k).unwrap();
        assert_eq!(path, store.path().join(name));
        let search = store.newest_valid::<usize>().unwrap();
        assert!(search.skipped.is_empty());
        let newest = search.found.unwrap();
        assert_eq!((newest.name.as_str(), newest.state, newest.path), (*name, k, path));
        assert_eq!(newest.tensors, filled(k as f32));
    }
    assert_eq!(names(&store), ["epoch-0009", "step-00000001", "epoch-0010", "epoch-0002"]);
    assert_eq!(store.load::<usize>("epoch-0010").unwrap().state, 2);
    assert!(matches!(store.load::<usize>("epoch-0011"), Err(Error::NotFound { .. })));
    assert_eq!(hidden(store.path()), [".lock"]);
}

/// A copy of a store may be in a folder that can't be written, or in somebody else's.
#[test]
fn reading_a_store_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    store.save("a", &filled(1.0), &1).unwrap();
    fs::remove_file(folder.path().join(".lock")).unwrap();
    let copy = Store::open(folder.path()).unwrap();
    assert_eq!(copy.load::<i32>("a").unwrap().state, 1);
    assert_eq!(copy.newest_valid::<i32>().unwrap().found.unwrap().state, 1);
    assert!(hidden(folder.path()).is_empty());
}

#[test]
fn names_that_some_systems_take_for_one_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    store.save("Best", &filled(1.0), &1).unwrap();
    let error = store.save("best", &filled(2.0), &2).unwrap_err().to_string();
    assert!(error.contains("differs only in capitals"), "{error}");
    store.save("Best", &filled(3.0), &3).unwrap();
    assert_eq!(names(&store), ["Best"]);
}

#[test]
fn the_same_name_again_replaces_and_is_the_newest() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    store.save("a", &filled(1.0), &1).unwrap();
    store.save("b", &filled(2.0), &2).unwrap();
    store.save("a", &filled(3.0), &3).unwrap();
    assert_eq!(names(&store), ["b", "a"]);
    let newest = store.newest_valid::<i32>().unwrap().found.unwrap();
    assert_eq!((newest.state, newest.tensors), (3, filled(3.0)));
    assert_eq!(hidden(folder.path()), [".lock"]);
}

#[test]
fn pruning_keeps_the_last_the_best_and_what_is_not_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let policy = Policy { keep_last: Some(2), ..Policy::default() };
    assert!(store.prune(&policy, None).unwrap().is_empty());
    for epoch in 1..=5 {
        store.save(&epoch_name(epoch), &filled(epoch as f32), &epoch).unwrap();
    }
    fs::create_dir(folder.path().join("notes")).unwrap();
    // Copies, which are checkpoints too.
    for copy in ["epoch-0003.bak", "my-good-one", "epoch-3", "step-0003"] {
        fs::create_dir(folder.path().join(copy)).unwrap();
        for file in fs::read_dir(folder.path().join("epoch-0003")).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), folder.path().join(copy).join(file.file_name())).unwrap();
        }
    }
    fs::write(folder.path().join("README"), "mine").unwrap();
    assert!(store.prune(&Policy { keep_last: None, ..Policy::default() }, None).unwrap().is_empty());
    assert_eq!(store.prune(&policy, Some("epoch-0002")).unwrap(), ["epoch-0001", "epoch-0003"]);
    let copies = ["epoch-0003.bak", "epoch-3", "my-good-one", "step-0003"];
    assert_eq!(names(&store), [&["epoch-0002"], &copies[..], &["epoch-0004", "epoch-0005"]].concat());
    assert!(folder.path().join("notes").is_dir() && folder.path().join("README").is_file());
    assert_eq!(hidden(folder.path()), [".lock"]);
}

#[test]
fn names_that_leave_the_store_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("checkpoints")).unwrap();
    let absolute = folder.path().join("x").to_string_lossy().into_owned();
    for name in ["../x", "", &absolute] {
        assert!(matches!(store.save(name, &filled(0.0), &0), Err(Error::Name { .. })), "{name:?}");
        assert!(matches!(store.load::<u8>(name), Err(Error::Name { .. })), "{name:?}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was written");
}

#[test]
fn what_cannot_be_stored_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    store.save("a", &filled(1.0), &1).unwrap();
    let wrong = [TensorRef { name: "wrong", shape: &[3], data: &[0.0] }];
    assert!(matches!(store.save("a", wrong, &1), Err(Error::Shape { .. })));
    let mut deep = serde_json::Value::Null;
    for _ in 0..200 {
        deep = serde_json::Value::Array(vec![deep]);
    }
    assert!(matches!(store.save("a", &filled(2.0), &deep), Err(Error::State { .. })));
    let no_json = std::collections::BTreeMap::from([([1u8, 2], 3)]);
    assert!(matches!(store.save("a", &filled(2.0), &no_json), Err(Error::State { .. })));
    assert_eq!(store.newest_valid::<i32>().unwrap().found.unwrap().tensors, filled(1.0));
    assert_eq!(hidden(folder.path()), [".lock"]);
}

#[test]
fn a_state_of_another_type_is_passed_over_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    store.save("a", &filled(1.0), &1).unwrap();
    store.save("b", &filled(2.0), "text").unwrap();
    let search = store.newest_valid::<i32>().unwrap();
    assert_eq!(search.found.unwrap().name, "a");
    assert!(matches!(&search.skipped[..], [skipped] if matches!(skipped.why, Error::State { .. })));
    assert!(matches!(store.load::<i32>("b"), Err(Error::State { .. })));
    assert_eq!(store.load::<String>("b").unwrap().state, "text");
}

#[test]
fn a_file_is_no_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "").unwrap();
    let error = Store::open(&path).unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");
}

/// A reader never sees a replacement half done, and every save of every writer counts.
#[test]
fn threads_share_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let large = |value: i32| crate::filled([100, 1000], value as f32);
    thread::scope(|scope| {
        let writer = |writer: i32| {
            let store = &store;
            move || {
                for k in 0..20 {
                    store.save("shared", &large(k), &k).unwrap();
                    store.save(&format!("own-{writer}"), &large(k), &k).unwrap();
                }
            }
        };
        let writers = [scope.spawn(writer(0)), scope.spawn(writer(1))];
        while !writers.iter().all(|writer| writer.is_finished()) {
            let search = store.newest_valid::<i32>().unwrap();
            assert!(search.skipped.is_empty(), "{:?}", search.skipped);
            assert!(search.found.is_none_or(|found| found.tensors == large(found.state)));
            // Gives the writers, who ask for the lock now and then, their turn.
            thread::sleep(Duration::from_millis(1));
        }
    });
    let entries = store.list().unwrap().entries;
    assert_eq!(entries.len(), 3);
    assert_eq!(entries[2].sequence, 80, "two writers, twenty rounds, two saves each");
}
