//! What goes in comes out, bit for bit, and other readers of the format agree.

use proptest::prelude::*;
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::fs;
use towers_checkpoint::{Error, Store, TensorRef, Tensors, load_tensors, save_tensors};

/// Any bits as f32: NaN payloads, infinities, subnormal numbers, -0.0.
fn tensors() -> impl Strategy<Value = Tensors> {
    let shape = prop::collection::vec(0usize..5, 0..4);
    let tensor = shape.prop_flat_map(|shape| {
        let count = shape.iter().product::<usize>();
        let odd = prop_oneof![any::<u32>(), Just(0x8000_0000), Just(0x7fa0_1234), Just(0xffc0_0001)];
        (Just(shape), prop::collection::vec(odd.prop_map(f32::from_bits), count))
    });
    let named = prop::collection::btree_map("[a-z\"/é\n]{1,12}", tensor, 0..6);
    let metadata = prop::collection::btree_map(".{0,8}", ".{0,8}", 0..4);
    (named.prop_map(Vec::from_iter).prop_shuffle(), metadata).prop_map(|(named, metadata)| {
        let mut tensors = Tensors::new();
        for (name, (shape, data)) in named {
            tensors.insert(name, shape, data).unwrap();
        }
        *tensors.metadata_mut() = metadata;
        tensors
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn files_keep_every_bit(tensors in tensors()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        save_tensors(&path, &tensors, tensors.metadata()).unwrap();
        prop_assert_eq!(&load_tensors(&path).unwrap(), &tensors);

        let bytes = fs::read(&path).unwrap();
        let theirs = SafeTensors::deserialize(&bytes).unwrap();
        prop_assert_eq!(theirs.len(), tensors.len());
        for ours in &tensors {
            let view = theirs.tensor(ours.name).unwrap();
            let data: Vec<u8> = ours.data.iter().flat_map(|value| value.to_le_bytes()).collect();
            prop_assert_eq!((view.dtype(), view.shape(), view.data()), (Dtype::F32, ours.shape, &data[..]));
        }
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        prop_assert_eq!(header % 8, 0);

        save_tensors(&path, &tensors, tensors.metadata()).unwrap();
        prop_assert_eq!(fs::read(&path).unwrap(), bytes, "the same input gives the same bytes");
        prop_assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no leftovers");
    }

    #[test]
    fn stores_keep_every_bit(tensors in tensors(), number in any::<f64>().prop_filter("finite", |x| x.is_finite())) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("checkpoints")).unwrap();
        store.save("epoch-0001", &tensors, &number).unwrap();
        let found = store.newest_valid::<f64>().unwrap().found.unwrap();
        prop_assert_eq!(found.state.to_bits(), number.to_bits());
        prop_assert!(found.tensors.iter().map(|t| t.name).eq(tensors.iter().map(|t| t.name)));
        for ours in &tensors {
            prop_assert_eq!(found.tensors.get(ours.name).unwrap(), tensors.get(ours.name).unwrap());
        }
    }

    /// No bytes whatever make the reader panic.
    #[test]
    fn a_damaged_file_is_an_error_or_another_file(at in 0usize..400, byte in any::<u8>(), cut in 0usize..400) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let data = [1.5; 40];
        let parts = [("a", 0..20), ("b", 20..40)];
        let tensors = parts.iter().map(|(name, part)| {
            TensorRef { name, shape: &[4, 5], data: &data[part.clone()] }
        });
        save_tensors(&path, tensors, &BTreeMap::new()).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let place = at % bytes.len();
        bytes[place] = byte;
        bytes.truncate(bytes.len() - cut % bytes.len());
        fs::write(&path, &bytes).unwrap();
        match load_tensors(&path) {
            Ok(loaded) => prop_assert!(loaded.len() <= 2),
            Err(error) => {
                prop_assert!(matches!(error, Error::Format { .. } | Error::TensorName { .. }), "{}", error)
            }
        }
    }
}

/// A file as Python's `safetensors` writes it: sorted by name, with metadata.
#[test]
fn foreign_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("theirs.safetensors");
    let data: Vec<u8> = [1.0f32, -2.0, 3.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    let view = |shape, data| safetensors::tensor::TensorView::new(Dtype::F32, shape, data).unwrap();
    let tensors = [("z", view(vec![1, 2], &data[..8])), ("a", view(vec![], &data[8..]))];
    let metadata = [("format".to_owned(), "pt".to_owned())].into();
    fs::write(&path, safetensors::serialize(tensors, Some(metadata)).unwrap()).unwrap();
    let loaded = load_tensors(&path).unwrap();
    assert_eq!(loaded.get("z").unwrap().data(), [1.0, -2.0]);
    assert_eq!(loaded.get("a").unwrap().data(), [3.0]);
    assert!(loaded.get("a").unwrap().shape().is_empty());
    assert_eq!(loaded.metadata()["format"], "pt");
}

#[test]
fn unsound_tensors_are_refused_and_the_old_file_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let tensor = |name, shape, data| TensorRef { name, shape, data };
    let save = |tensors: &[TensorRef<'_>]| save_tensors(&path, tensors.iter().copied(), &BTreeMap::new());
    save(&[tensor("good", &[2], &[1.0, 2.0])]).unwrap();
    let long = "x".repeat(2000);
    for bad in [
        tensor("", &[1], &[0.0]),
        tensor("__metadata__", &[1], &[0.0]),
        tensor(&long, &[1], &[0.0]),
        tensor("good", &[1], &[0.0]),
        tensor("short", &[3], &[0.0]),
        tensor("overflow", &[usize::MAX, 2], &[0.0]),
        tensor("deep", &[1; 33], &[0.0]),
    ] {
        let error = save(&[tensor("good", &[1], &[9.0]), bad]).unwrap_err();
        assert!(matches!(error, Error::TensorName { .. } | Error::Shape { .. }), "{error}");
    }
    assert_eq!(load_tensors(&path).unwrap().get("good").unwrap().data(), [1.0, 2.0]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(matches!(load_tensors(folder.path().join("none")), Err(Error::File(_))));
    assert!(matches!(load_tensors(folder.path()), Err(Error::File(_))));
}
