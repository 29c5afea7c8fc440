//! Exported networks in other programs: the scripts of docs/weights.md, unchanged, in real PyTorch, ONNX
//! Runtime and Keras.
//!
//! `TOWERS_PYTHON` names the interpreter; the default is `python3`. Tests with missing modules are skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use towers_checkpoint::{Tensors, save_tensors};
use towers_config::open_model;
use towers_layers::Mode;
use towers_trained::{Assumed, Classifier, Trained, export};

fn python() -> String {
    std::env::var("TOWERS_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// Whether Python imports all of these modules; prints the missing ones.
fn imports(test: &str, modules: &str) -> bool {
    let command = &mut Command::new(python());
    let ran = command.args(["-c", &format!("import {modules}")]).env("KERAS_BACKEND", "torch").output();
    let there = ran.is_ok_and(|ran| ran.status.success());
    if !there {
        println!("SKIPPED: {test}: {} has no {modules}; TOWERS_PYTHON names another Python", python());
    }
    there
}

/// Runs a script in a folder, and returns its output.
fn run(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(python());
    command
        .args(arguments)
        .current_dir(folder)
        .env("KERAS_BACKEND", "torch")
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

/// Copies a script from the page into a folder, and runs it there.
fn run_script(folder: &Path, name: &str) -> String {
    let page = fs::read_to_string(root().join("docs/weights.md")).unwrap();
    let begin = format!("```python\n# {name}\n");
    let script = page.split_once(&begin).unwrap_or_else(|| panic!("the page has no {name}")).1;
    fs::write(folder.join(name), script.split_once("\n```").unwrap().0).unwrap();
    run(folder, &[name])
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The numbers that a script printed after a class.
fn printed(out: &str) -> Vec<f32> {
    let list = out.trim().split_once('[').unwrap_or_else(|| panic!("{out}")).1.trim_end_matches(']');
    list.split(", ").map(|number| number.parse().unwrap()).collect()
}

/// Logits near 0 would be near each other whatever they are.
fn assert_close(what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    towers_tests::assert_close(what, found, expected, tolerance);
    assert!(expected.iter().any(|x| x.abs() > 0.1), "{what}: {expected:?}");
}

/// A network of this name, with initialized weights, changed running averages, and the preprocessing of its
/// tutorial.
fn model_file(folder: &Path, name: &str) -> Trained {
    model_file_for(folder, name, [32, 32, 3])
}

/// The same for images of this size; a file for 32x32 need not have the size.
fn model_file_for(folder: &Path, name: &str, image: [usize; 3]) -> Trained {
    let model = towers_models::by_name_for(name, image, 10).unwrap().unwrap();
    let device = towers_tensor_cpu::device(1);
    let mut network = model.build(&device, 1, Mode::Inference).unwrap();
    network.init(5).unwrap();
    let mut tensors = Tensors::new();
    for slot in network.arena().slots() {
        let mut values =
            network.arena().storage(slot).to_vec(&device, slot.span.offset, slot.span.len).unwrap();
        // Makes the logits depend on the pictures.
        let gain = if matches!(name, "resnet18" | "airbench94" | "airbench94_muon") { 2.4 } else { 1.5 };
        for (k, value) in values.iter_mut().enumerate() {
            match slot.shape.len() {
                1 => *value += ((k * 7919 % 101) as f32 / 101.0 - 0.5) * 0.4,
                _ => *value *= gain,
            }
        }
        tensors.insert(&slot.name, slot.shape.clone(), values).unwrap();
    }
    let preprocessing = match name {
        "minigooglenet" => "subtract-pixel-mean",
        "resnet18" => "standardize",
        _ => "divide-by-255",
    };
    match preprocessing {
        "subtract-pixel-mean" => {
            let len: usize = image.iter().product();
            let mean = (0..len).map(|k| 100.0 + (k % 50) as f32 / 3.0).collect();
            tensors.insert("input/mean", image, mean).unwrap();
        }
        "standardize" => {
            tensors.insert("input/mean", [3], vec![125.3, 123.0, 113.9]).unwrap();
            tensors.insert("input/std", [1], vec![63.0]).unwrap();
        }
        _ => {}
    }
    let classes = serde_json::Value::from(towers_cifar::class_names(towers_cifar::Kind::Cifar10)).to_string();
    for (key, value) in [
        ("towers.model", name),
        ("towers.classes", &classes),
        ("towers.dataset", "cifar10"),
        ("towers.preprocessing", preprocessing),
    ] {
        tensors.metadata_mut().insert(key.to_owned(), value.to_owned());
    }
    if image != [32, 32, 3] {
        let size = format!("{}x{}", image[0], image[1]);
        tensors.metadata_mut().insert("towers.image_size".to_owned(), size);
    }
    let file = folder.join("model.safetensors");
    save_tensors(&file, &tensors, tensors.metadata()).unwrap();
    Trained::read(&file).unwrap()
}

/// A picture, also as cat.png in the folder, and the network's output for it.
fn picture(folder: &Path, trained: &Trained) -> Vec<f32> {
    let data = towers_cifar::synthetic(2, 1, 1);
    let bytes = data.test.images.as_slice().unwrap();
    image::save_buffer(folder.join("cat.png"), bytes, 32, 32, image::ColorType::Rgb8).unwrap();
    logits(trained, bytes)
}

fn logits(trained: &Trained, pictures: &[u8]) -> Vec<f32> {
    Classifier::new(trained, &towers_tensor_cpu::device(1), 4).unwrap().logits(pictures).unwrap()
}

#[test]
fn pytorch_computes_the_same() {
    if !imports("pytorch_computes_the_same", "torch, safetensors, PIL, numpy") {
        return;
    }
    for name in towers_models::NAMES {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let trained = model_file(at, name);
        let expected = picture(at, &trained);
        let files = export(&trained, &at.join("net.py")).unwrap();
        assert_eq!(files, [at.join("net.py"), at.join("net.safetensors")]);
        assert_close(&format!("{name} in PyTorch"), &printed(&run_script(at, "pytorch.py")), &expected, 1e-5);
        // The way back.
        run_script(at, "back.py");
        let back = from_pytorch(&at.join("back.safetensors"), name);
        assert_close(&format!("{name}, back"), &picture(at, &back), &expected, 1e-5);
    }
}

/// Rows and columns are not swapped, in either program.
#[test]
fn networks_for_another_size_compute_the_same() {
    let torch = imports("networks_for_another_size_compute_the_same", "torch, safetensors, numpy");
    let onnx = imports("networks_for_another_size_compute_the_same", "onnxruntime, numpy");
    let picture: Vec<u8> = (0..48 * 40 * 3).map(|k| ((k * 37 + k / 7) % 256) as u8).collect();
    let image = "import numpy as np\nk = np.arange(48 * 40 * 3)\n\
                 x = ((k * 37 + k // 7) % 256).astype('float32').reshape(1, 48, 40, 3).transpose(0, 3, 1, 2)\n";
    let in_torch = format!(
        "{image}import torch\nfrom net import Network\nfrom safetensors.torch import load_file\n\
         network = Network().eval()\nnetwork.load_state_dict(load_file('net.safetensors'))\n\
         print(network(torch.from_numpy(x.copy())).detach().ravel().tolist())"
    );
    let in_onnx = format!(
        "{image}import onnxruntime\nnet = onnxruntime.InferenceSession('net.onnx')\n\
         print(net.run(['logits'], {{'images': x}})[0].ravel().tolist())"
    );
    for name in towers_models::NAMES {
        let folder = tempfile::tempdir().unwrap();
        let trained = model_file_for(folder.path(), name, [48, 40, 3]);
        let expected = logits(&trained, &picture);
        for (there, file, script) in [(torch, "net.py", &in_torch), (onnx, "net.onnx", &in_onnx)] {
            export(&trained, &folder.path().join(file)).unwrap();
            if there {
                let found = printed(&run(folder.path(), &["-c", script]));
                assert_close(&format!("{name}, {file}"), &found, &expected, 1e-5);
            }
        }
        let back = from_pytorch(&folder.path().join("net.safetensors"), name);
        assert_close(&format!("{name}, back"), &logits(&back, &picture), &expected, 1e-5);
    }
}

/// The scripts scale pictures of other sizes with the same filter as towers.
#[test]
fn pictures_are_scaled_as_in_the_scripts() {
    if !imports("pictures_are_scaled_as_in_the_scripts", "PIL, numpy") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Sharp edges: other filters differ by far more than rounding.
    let level = |x: u32, y: u32, c: u32| if (x / 5 + y / 7 + c).is_multiple_of(2) { 250 } else { 10 };
    let page = fs::read_to_string(root().join("docs/weights.md")).unwrap();
    let lines: Vec<&str> = page.lines().filter(|line| line.starts_with("picture = ")).collect();
    assert_eq!(lines.len(), 2);
    for (width, height) in [(96, 61), (20, 200)] {
        let drawn =
            image::RgbImage::from_fn(width, height, |x, y| image::Rgb([0, 1, 2].map(|c| level(x, y, c))));
        drawn.save(folder.path().join("cat.png")).unwrap();
        let expected = towers_pictures::picture(folder.path().join("cat.png"), [32, 32, 3]).unwrap();
        for line in &lines {
            let script = format!(
                "import numpy as np\nfrom PIL import Image\n{line}\nprint(picture.reshape(-1).tolist())"
            );
            let scaled = printed(&run(folder.path(), &["-c", &script]));
            let worst =
                scaled.iter().zip(&expected).map(|(a, &b)| (a - f32::from(b)).abs()).fold(0.0, f32::max);
            assert!(scaled.len() == expected.len() && worst <= 1.0, "{width}x{height}: {line}: {worst}");
        }
    }
}

/// All networks do so above, for another size.
#[test]
fn what_goes_out_to_pytorch_comes_back() {
    for name in ["small_cnn", "minigooglenet"] {
        let folder = tempfile::tempdir().unwrap();
        let trained = model_file(folder.path(), name);
        export(&trained, &folder.path().join("net.py")).unwrap();
        let back = from_pytorch(&folder.path().join("net.safetensors"), name);
        assert_eq!((&back.network, &back.classes), (&trained.network, &trained.classes));
        assert_eq!((&*back.dataset, back.named), ("cifar10", true));
        let expected = picture(folder.path(), &trained);
        assert_close(name, &picture(folder.path(), &back), &expected, 1e-5);
        let refused = Trained::read(&folder.path().join("net.safetensors")).unwrap_err().to_string();
        assert!(refused.contains("as in PyTorch"), "{refused}");
    }
}

/// A state dict of PyTorch with the preprocessing.
/// The file is of a network of this name. It says so by its shapes, unless two networks share them.
fn from_pytorch(path: &Path, name: &str) -> Trained {
    let network = (name == "airbench94_muon").then(|| name.to_owned());
    open_model(path, &Assumed { network, ..Assumed::default() }, |_| unreachable!("nothing is measured"))
        .unwrap()
}

#[test]
fn onnx_runtime_computes_the_same() {
    if !imports("onnx_runtime_computes_the_same", "onnxruntime, PIL, numpy") {
        return;
    }
    let checks = imports("the check of the ONNX graphs", "onnx");
    for name in towers_models::NAMES {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let trained = model_file(at, name);
        let expected = picture(at, &trained);
        export(&trained, &at.join("net.onnx")).unwrap();
        assert_close(
            &format!("{name} in ONNX Runtime"),
            &printed(&run_script(at, "onnx_run.py")),
            &expected,
            1e-5,
        );
        // A batch of another length. Its pictures are not of one colour: where nothing varies, ONNX Runtime's normalization over
        // groups is off by 1e-5, ours is not.
        let script = "import numpy, onnxruntime; s = onnxruntime.InferenceSession('net.onnx'); \
                      x = (numpy.arange(1024) * 37 % 256).astype('float32').reshape(32, 32); \
                      print(s.run(None, {'images': numpy.broadcast_to(x, (3, 3, 32, 32))})[0].ravel().tolist())";
        let grey: Vec<u8> = (0..3 * 1024).flat_map(|k| [(k % 1024 * 37 % 256) as u8; 3]).collect();
        let expected = logits(&trained, &grey);
        assert_close(&format!("{name}, a batch"), &printed(&run(at, &["-c", script])), &expected, 1e-5);
        if checks {
            run(at, &["-c", "import onnx; onnx.checker.check_model('net.onnx', full_check=True)"]);
        }
    }
}

#[test]
fn keras_and_towers_exchange_weights() {
    if !imports("keras_and_towers_exchange_weights", "keras, h5py, torch, safetensors") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let script = root().join("tests/golden/keras_weights.py");
    run(at, &[&script.to_string_lossy(), "."]);
    let pictures: Vec<u8> = (0..3 * 3072).map(|k| ((k * 37 + k / 7) % 256) as u8).collect();
    for name in ["minigooglenet", "keras_cnn", "resnet18"] {
        let rows: Vec<Vec<f32>> =
            serde_json::from_str(&fs::read_to_string(at.join(format!("{name}.json"))).unwrap()).unwrap();
        let assumed =
            Assumed { preprocessing: Some(towers_trained::Preprocessing::DivideBy255), ..Assumed::default() };
        for ending in ["weights.h5", "keras", "h5"] {
            let path = at.join(format!("{name}.{ending}"));
            let trained = open_model(&path, &assumed, |_| unreachable!("nothing is measured")).unwrap();
            // The others have layers of their own, under their own names.
            assert_eq!(trained.network == name, ending == "weights.h5");
            assert_close(&format!("{name}.{ending}"), &logits(&trained, &pictures), &rows.concat(), 1e-5);
        }
    }
    let trained = model_file(at, "keras_cnn");
    let module = "import sys; sys.path.insert(0, {}); import keras_weights; \
                  model = keras_weights.keras_cnn()\n";
    let golden = serde_json::Value::from(root().join("tests/golden").to_string_lossy()).to_string();
    fs::write(at.join("network.py"), module.replace("{}", &golden)).unwrap();
    run_script(at, "to_keras.py");
    let back =
        open_model(&at.join("model.keras"), &Assumed::default(), |_| unreachable!("nothing is measured"));
    assert_eq!(logits(&back.unwrap(), &pictures), logits(&trained, &pictures));
}
