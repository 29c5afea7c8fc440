//! Weights of ONNX graphs in files beside them.

use crate::onnx_forms::{bytes, node, number, value};
use serde_json::json;
use std::fs;
use std::path::Path;
use towers_interchange::onnx::OnnxNetwork;

/// A graph of one dense layer, whose matrix of 48 x 2 is where these entries say.
fn graph(entries: &[(&str, &str)]) -> Vec<u8> {
    let entries = entries
        .iter()
        .flat_map(|(key, entry)| bytes(13, &[bytes(1, key.as_bytes()), bytes(2, entry.as_bytes())].concat()));
    let tensor =
        [number(1, 48), number(1, 2), number(2, 1), bytes(8, b"w"), entries.collect(), number(14, 1)]
            .concat();
    let graph = [
        bytes(1, &node(&json!(["Flatten", "images", "flat"]))),
        bytes(1, &node(&json!(["MatMul", "flat w", "y"]))),
        bytes(5, &tensor),
        bytes(11, &value("images", &[0, 3, 4, 4])),
        bytes(12, &value("y", &[0, 2])),
    ];
    [number(1, 10), bytes(7, &graph.concat()), bytes(8, &number(2, 20))].concat()
}

#[test]
fn weights_lie_in_the_folder_of_the_graph() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    fs::create_dir_all(model.join("parts")).unwrap();
    let values: Vec<u8> = (0..100).flat_map(|k| (k as f32).to_le_bytes()).collect();
    for file in ["w.bin", "parts/w.bin", "../w.bin"] {
        fs::write(model.join(file), &values).unwrap();
    }
    let file = model.join("net.onnx");
    let read = |entries: &[(&str, &str)]| {
        fs::write(&file, graph(entries)).unwrap();
        let read = OnnxNetwork::read(&file).map_err(|error| error.to_string())?;
        let network = read.network();
        let model = network.architecture.build("net", [4, 4, 3], 2).map_err(|error| error.to_string())?;
        let tensors = read.assign(&model.steps()).map_err(|error| error.to_string())?;
        Ok::<_, String>(tensors.get("y/kernel").unwrap().data().to_vec())
    };
    // Of the first pixel the numbers of its three channels, which are 16 rows apart there.
    assert_eq!(read(&[("location", "w.bin")]).unwrap()[..6], [0.0, 1.0, 32.0, 33.0, 64.0, 65.0]);
    let at = [("location", "parts/w.bin"), ("offset", "16"), ("length", "384")];
    assert_eq!(read(&at).unwrap()[..2], [4.0, 5.0]);
    let absolute = fs::canonicalize(model.join("w.bin")).unwrap().display().to_string();
    let outside = "its weights must be in a file beside it or in a folder there";
    for (entries, told) in [
        (&[("location", "../w.bin")][..], outside),
        (&[("location", "parts/../../w.bin")], outside),
        (&[("location", &absolute)], outside),
        (&[("offset", "0")], outside),
        (&[("location", "w.bin"), ("offset", "20")], "it is too short"),
        (&[("location", "w.bin"), ("offset", "18446744073709551612")], "it is too short"),
        (&[("location", "w.bin"), ("offset", "-4")], "have no sound place"),
        (&[("location", "w.bin"), ("length", "380")], "its tensor `w` takes 384 bytes, but has 380"),
        (&[("location", "parts")], "it is no regular file"),
        (&[("location", "none.bin")], "its weights are in `none.bin` beside it, which can't be read"),
    ] {
        let error = read(entries).unwrap_err();
        assert!(error.contains(told), "{entries:?}: {error}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(Path::new("../w.bin"), model.join("link.bin")).unwrap();
        assert!(read(&[("location", "link.bin")]).unwrap_err().contains("it lies in another folder"));
    }
}
