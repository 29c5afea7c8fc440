use super::Place;
use serde_json::Value;
use std::path::Path;

/// An exported module has the names of its classes, and its standardization of each channel.
#[test]
fn a_state_dict_brings_names_and_standardization() {
    let place = Place::new();
    let line = "train --quick --dataset synthetic --limit-train 300 --limit-test 60 --epochs 1 --no-progress \
                --featurewise-std-normalization --output run";
    place.run(line).ends(0);
    place.run("export run --output net.py").ends(0);
    let module = place.read("net.py");
    let metadata = r#"METADATA = {"format": "pt", "towers.image_size": "32x32", "towers.classes": json.dumps(CLASSES), "towers.dataset": "synthetic"}"#;
    assert!(module.contains(metadata), "{module}");
    place.run("export net.safetensors --output back.safetensors").ends(0);
    let measure = |model: &str| -> Value {
        let ran = place.run(&format!("evaluate {model} --limit-test 60 --json")).ends(0);
        serde_json::from_str(&ran.out()).unwrap()
    };
    let expected = measure("run");
    assert!(
        expected["classes"].as_array().is_some_and(|names| names.contains(&"triangle".into())),
        "{expected}"
    );
    for model in ["net.safetensors", "back.safetensors"] {
        let back = measure(model);
        for key in ["dataset", "samples", "acc", "classes", "confusion"] {
            assert_eq!(back[key], expected[key], "{model}: {key}");
        }
        let loss = |measured: &Value| measured["loss"].as_f64().unwrap();
        assert!((loss(&back) - loss(&expected)).abs() < 1e-5, "{model}: {back} {expected}");
    }
    place.refuses(
        "predict a.png --model net.safetensors --dataset cifar10",
        "must be left out with net.safetensors: its metadata have the names of its classes",
    );
}

/// A trained network is exported in every format. A checkpoint and an exported model of towers measure the
/// same.
#[test]
fn networks_go_out_and_come_in() {
    let place = Place::new();
    let flags = "--dataset synthetic --limit-train 300 --limit-test 60 --epochs 1 --no-progress";
    place.run(&format!("train --quick {flags}")).ends(0);
    let measure = |model: &str| -> Value {
        let measured = place.run(&format!("evaluate {model} --json")).ends(0).json();
        [&measured["samples"], &measured["loss"], &measured["acc"]].into_iter().cloned().collect()
    };
    let expected = measure("runs/quick-1");
    assert_eq!(expected[0], 60);
    for checkpoint in ["runs/quick-1/checkpoints/epoch-0001", "runs/quick-1/checkpoints"] {
        assert_eq!(measure(checkpoint), expected, "{checkpoint}");
    }
    for (flags, says) in [
        (
            "evaluate runs/quick-1 --network resnet18",
            "--network is `resnet18`, but must be left out with run",
        ),
        (
            "evaluate --preprocessing standardize",
            "--preprocessing is `standardize`, but must be left out with",
        ),
        (
            "predict a.png --dataset nonsense",
            "--dataset is nonsense, but must be left out with runs/quick-1: a",
        ),
        (
            "export --output a.onnx --data-url http://a/b",
            "--data-url is http://a/b, but must be left out with",
        ),
        ("evaluate --gpus 0,1 --device cpu", "--gpus"),
    ] {
        place.refuses(flags, says);
    }
    place.make_folder("net");
    place.refuses("export --output my-net.py", "a name that Python can import, such as my_net.py");
    place.prints("export --output net/net.py", "wrote net/net.py\nwrote net/net.safetensors");
    assert!(place.read("net/net.py").contains("class Network(nn.Module):"));
    place.prints("export runs/quick-1 --output net/net.onnx", "wrote net/net.onnx");
    place.run("export runs/quick-1/checkpoints --output again.safetensors").ends(0);
    let data = "--dataset synthetic --limit-test 60";
    assert_eq!(measure(&format!("again.safetensors {data}")), expected);
    place.refuses("export --output runs/quick-1/model.py", "are not the model itself");
    let of_another = "export again.safetensors --output runs/quick-1/model.py";
    place.refuses(of_another, "nor that of another run");
    assert_eq!(measure(&format!("again.safetensors {data}")), expected);
    assert_eq!(measure(&format!("net/net.safetensors {data}")), expected, "a state dict of PyTorch");
    let wrong = "evaluate net/net.safetensors --network resnet18";
    place.fails(wrong, "its `conv2d.weight` has the shape [16, 3, 3, 3]");
    place.refuses("export --output net.h5", "--output is net.h5, but must be a file that ends in");
}

#[test]
fn weights_of_keras_are_taken_as_they_are() {
    let place = Place::new();
    let keras = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/keras/small_cnn.keras");
    let keras = keras.to_str().unwrap();
    let data = "--dataset synthetic --limit-test 30";
    let direct = place.run(&format!("evaluate {keras} {data} --json")).ends(0).json();
    place.prints(&format!("export {keras} --output model.safetensors"), "wrote model.safetensors");
    let exported = place.run(&format!("evaluate model.safetensors {data} --json")).ends(0).json();
    assert_eq!(direct["loss"], exported["loss"]);
    place.run("preview --dataset synthetic --recipe quick --samples 1 --columns 1 --output cat.png").ends(0);
    place.prints(&format!("predict cat.png --model {keras}"), "cat.png: ");
    place.refuses(&format!("evaluate {keras} --preprocessing nothing"), "divide-by-255");
}

/// The layers of a model of Keras in one file, and its weights in another.
#[test]
fn layers_and_weights_of_keras_come_in_two_files() {
    let place = Place::new();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    let models: Value =
        serde_json::from_slice(&std::fs::read(golden.join("keras2_models.json")).unwrap()).unwrap();
    let transfer = models.as_array().unwrap().iter().find(|entry| entry["model"] == "transfer").unwrap();
    place.write("model.json", transfer["config"].to_string());
    for file in ["transfer.keras2.h5", "transfer.keras2.weights.h5"] {
        place.write(file, std::fs::read(golden.join("keras").join(file)).unwrap());
    }
    place.run("preview --dataset synthetic --samples 1 --columns 1 --output a.png").ends(0);
    let data = "--preprocessing divide-by-255";
    let whole = place.run(&format!("predict a.png --model transfer.keras2.h5 --json {data}")).ends(0).json();
    let both = "model.json --weights transfer.keras2.weights.h5";
    assert_eq!(place.run(&format!("predict a.png --model {both} --json {data}")).ends(0).json(), whole);
    place.prints(&format!("export {both} --output a.safetensors {data}"), "wrote a.safetensors");
    assert_eq!(place.run("predict a.png --model a.safetensors --json").ends(0).json(), whole);
    place.fails("evaluate model.json", "it has the layers of a model and no weights; name it as the model");
    let wrong = "evaluate transfer.keras2.h5 --weights transfer.keras2.weights.h5";
    place.refuses(
        wrong,
        "left out with transfer.keras2.h5: only a model.json of Keras has its weights in another file",
    );
    // A training tells the layers apart by their names.
    let train = "train --quick --dataset synthetic --limit-train 64 --limit-test 20 --epochs 1 --no-progress --image-size 32";
    let line = format!("{train} --model {both} --new-head");
    place.prints(&line, "transfer.keras2.weights.h5, except for head, which begins anew");
    place.write("old.pth", b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20");
    place.fails("evaluate old.pth", "export the network to ONNX where it is defined, by torch.onnx.export(");
    place.make_folder("saved");
    place.write("saved/saved_model.pb", "");
    place.fails("evaluate saved", "it is a SavedModel of TensorFlow; save the model by model.save");
}

/// A network that no Rust knows: from a file of Keras, and from tables in a recipe.
#[test]
fn layers_of_ones_own_are_trained() {
    let place = Place::new();
    let keras = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/keras/tiny.keras");
    let train = "train --quick --dataset synthetic --limit-train 64 --limit-test 20 --no-progress";
    let line = format!("{train} --epochs 1 --image-size 32 --model {} --output a", keras.display());
    place.run(&line).ends(0).complains("functional on synthetic");
    place.run(&format!("{train} --resume a --epochs 2")).ends(0);
    place.write(
        "mine.toml",
        "like = 'quick'\n[[layer]]\nclass = 'Rescaling'\nscale = 0.5\noffset = -0.25\n\
         [[layer]]\nclass = 'Conv2D'\nfilters = 4\nkernel_size = [3, 1]\nstrides = 2\nactivation = 'gelu'\n\
         [[layer]]\nclass = 'GlobalMaxPooling2D'\n[[layer]]\nclass = 'Dense'\n",
    );
    let line = train.replace("--quick", "--recipe mine.toml");
    place.run(&format!("{line} --epochs 1 --output b")).ends(0).complains("mine on synthetic");
    // Nothing beside the run is needed any more.
    place.remove("mine.toml");
    place
        .prints("summary b --batch 8", "re")
        .says("rescaling (Rescaling)")
        .says("FLOPs of an image")
        .says("batches of 8");
    for run in ["a", "b"] {
        let measured = place.run(&format!("evaluate {run} --json")).ends(0).json();
        place.prints(&format!("export {run} -o {run}.safetensors"), "wrote");
        place.prints(&format!("export {run} --output {run}.onnx"), "wrote");
        let again =
            place.run(&format!("evaluate {run}.safetensors --json --dataset synthetic --limit-test 20"));
        assert_eq!(again.ends(0).json()["loss"], measured["loss"], "{run}");
        let graph = place
            .run(&format!("evaluate {run}.onnx --json --dataset synthetic --limit-test 20"))
            .ends(0)
            .json();
        let loss = |measured: &Value| measured["loss"].as_f64().unwrap();
        assert!((loss(&graph) - loss(&measured)).abs() < 1e-5, "{graph} {measured}");
    }
    place.run("train --recipe b --epochs 1 --no-progress --output c").ends(0);
    assert_eq!(place.model("b"), place.model("c"));
    place.prints(&format!("summary {}", keras.display()), "Model: \"functional\"").says("(None, 3)");
    place.prints("summary b.onnx --classes 7 --image-size 48x40", "(None, 23, 20, 4)").says("(None, 7)");
    place.prints("summary b --classes 7 --image-size 48x40", "(None, 23, 20, 4)").says("(None, 7)");
    place.prints("summary b/checkpoints", "rescaling (Rescaling)").says("(None, 10)");
    let bench = place.run("bench --model b.onnx --batch 2 --seconds 0 --repeats 1 --json").ends(0).json();
    assert_eq!((&bench["model"], &bench["image"][0]), (&"mine".into(), &32.into()));
    place.prints("program --model b --image-size 48x40 --mode infer", "(23, 20, 4) = conv2d 3x1, stride 2");
    place.refuses("bench --model resnet81", "--model is `resnet81`, but must be one of airbench94");
    place.fails("train --model nothing.keras", "can't read nothing.keras");
    place.refuses("train --model resnet81", "--model is `resnet81`, but must be one of airbench94");
    place.write("x.json", r#"{"class_name": "Sequential", "config": {"layers": [{"class_name": "LSTM", "config": {"name": "a"}}]}}"#);
    place.fails(
        "train --model x.json",
        "x.json: its layer `a` is a LSTM, which is not supported; supported are Activation, Add",
    );
}

/// The numbers of a network's first layers tell which values it takes, and each command says so. A single
/// sigmoid output tells two classes apart.
#[test]
fn networks_from_elsewhere_say_what_they_take() {
    let place = Place::new();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/torch_models");
    let [unit, single] = ["unit", "single"].map(|name| golden.join(format!("{name}_script.onnx")));
    let [unit, single] = [unit, single].map(|path| path.display().to_string());
    let train = "train --quick --limit-train 30 --limit-test 10 --epochs 1 --no-progress";
    place.run("preview --dataset synthetic --samples 1 --columns 1 --output photo.png").ends(0);
    for class in ["cat", "dog"] {
        for split in ["train", "test"] {
            place.make_folder(&format!("pets/{split}/{class}"));
            (0..4).for_each(|k| {
                place.write(&format!("pets/{split}/{class}/{k}.png"), place.read_bytes("photo.png"));
            });
        }
    }
    let of_unit = "the network normalizes pixels by itself, with a mean of 0.49 and a deviation of 0.247, as for values from 0 to 1";
    let assumes =
        format!("preprocessing is assumed to be divide-by-255: {of_unit}; --preprocessing names another one");
    place.run(&format!("predict photo.png --model {unit}")).ends(0).complains(&assumes);
    place.run(&format!("export {unit} --output unit.safetensors")).ends(0).complains(&assumes);
    place.run(&format!("evaluate {unit} --dataset pets")).ends(0).complains(&assumes);
    let probabilities = |args: &str| {
        let told = place.run(&format!("predict photo.png --json --top 2 --model {args}")).ends(0);
        (told.json()["classes"].clone(), told.err())
    };
    // The exported file has the assumed preprocessing. A flag names another one.
    let (told, said) = probabilities("unit.safetensors");
    assert_eq!((&told, said.as_str()), (&probabilities(&unit).0, ""));
    let (named, said) = probabilities(&format!("{unit} --preprocessing none"));
    assert!(named != told && said.is_empty(), "{said}");

    let run = place.run(&format!("{train} --dataset pets --model {unit} --output run")).ends(0);
    run.complains(&format!("{of_unit}, so --preprocessing is divide-by-255"));
    let preprocessing = |run: &str| {
        let config: Value = serde_json::from_str(&place.read(&format!("{run}/config.json"))).unwrap();
        config["preprocessing"].clone()
    };
    assert_eq!(preprocessing("run"), "divide-by-255");
    // A recipe's own word holds.
    let recipe = format!("like = 'quick'\nmodel = '{unit}'\npreprocessing = 'none'\n");
    place.write("own.toml", recipe);
    let flags = "--limit-train 30 --limit-test 10 --epochs 1 --no-progress --dataset pets";
    place.run(&format!("train --recipe own.toml {flags} --output own")).ends(0);
    assert_eq!(preprocessing("own"), "none");

    let told = place.run(&format!("predict photo.png --json --model {single}")).ends(0).json();
    let probability = |class: usize| told["classes"][class]["probability"].as_f64().unwrap();
    assert!(
        told["classes"].as_array().unwrap().len() == 2
            && (probability(0) + probability(1) - 1.0).abs() < 1e-6
    );
    let begun = format!("{train} --dataset pets --model {single} --weights {single}");
    place.run(&begun).ends(0);
    place.run(&format!("{begun} --new-head")).ends(0);
    let one_output = "its one sigmoid output tells two classes apart, by binary cross-entropy";
    let trained = format!("{train} --dataset pets --model {single} --output one");
    place.run(&trained).ends(0).complains(one_output);
    // The export carries the sigmoid, and so the same network comes back.
    place.run("export one --output one.onnx").ends(0);
    let of = |model: &str| {
        let told = place.run(&format!("predict photo.png --json --top 2 --model {model}")).ends(0).json();
        let classes = told["classes"].as_array().unwrap().clone();
        classes
            .iter()
            .map(|class| (class["class"].clone(), class["probability"].as_f64().unwrap()))
            .collect::<Vec<_>>()
    };
    for ((class, own), (back, other)) in of("one").iter().zip(of("one.onnx")) {
        assert!(*class == back && (own - other).abs() < 1e-5, "{class} {own}, {back} {other}");
    }
    place.run("export one --output one.py").ends(0);
    assert!(place.read("one.py").contains("return torch.sigmoid("));
    let measured = place.run("evaluate one --dataset pets --json").ends(0).json();
    assert_eq!(measured["confusion"].as_array().unwrap().len(), 2);
    place.make_folder("pets/train/fox");
    place.make_folder("pets/test/fox");
    for split in ["train", "test"] {
        place.write(&format!("pets/{split}/fox/0.png"), place.read_bytes("photo.png"));
    }
    place.fails(
        &format!("{train} --dataset pets --model {single} --output of-three"),
        "its one sigmoid output tells 2 classes apart, but there are 3; a Dense layer with `units` 3",
    );
    place.remove("pets/train/fox");
    place.remove("pets/test/fox");
    // Keras' layers are read the same way.
    let keras = r#"{"class_name": "Sequential", "config": {"layers": [
        {"class_name": "InputLayer", "config": {"batch_shape": [null, 8, 8, 3]}},
        {"class_name": "Normalization", "config": {"name": "n", "axis": [-1], "mean": 0.49, "variance": 0.06}},
        {"class_name": "Flatten", "config": {"name": "f"}},
        {"class_name": "Dense", "config": {"name": "d", "units": 1, "activation": "sigmoid"}}]}}"#;
    place.write("x.json", keras);
    let run = place.run(&format!("{train} --dataset pets --model x.json")).ends(0);
    run.complains("a mean of 0.49 and a deviation of 0.245, as for values from 0 to 1, so --preprocessing is divide-by-255")
        .complains(one_output);
}

/// Runs begin with weights of a run, of Keras and of PyTorch; other classes need a new last layer.
#[test]
fn a_run_begins_with_weights_of_any_kind() {
    let place = Place::new();
    let small = "train --quick --limit-train 60 --limit-test 20 --epochs 1 --no-progress";
    let synthetic = format!("{small} --dataset synthetic");
    place.run(&format!("{synthetic} --output run")).ends(0);
    place.run("export run --output net.py").ends(0);
    let keras = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/keras/small_cnn.keras");
    let keras = keras.to_str().unwrap();
    for (weights, pixels) in [
        ("run", "pixels are preprocessed as for them: divide-by-255"),
        ("run/checkpoints", "pixels are preprocessed as for them: divide-by-255"),
        ("net.safetensors", "pixels are preprocessed as for them: divide-by-255"),
        (keras, "the file does not tell how pixels were preprocessed; here by divide-by-255"),
    ] {
        place.prints(&format!("{synthetic} --weights {weights} --lr 0.001"), pixels);
        // The network is theirs where no flag names one; that of a run is trained from new weights too.
        let own = synthetic.replace("--quick", "--batch-size 32");
        let title = format!("adam: {} on", if weights == keras { "functional_1" } else { "small_cnn" });
        place.run(&format!("{own} --weights {weights}")).ends(0).complains(&title);
        let run = place.run(&format!("{own} --model {weights}")).ends(0).complains(&title);
        assert!(!run.out().contains("beginning with the weights"));
    }
    place.fails(
        &format!("{synthetic} --recipe minigooglenet --weights run").replace("--quick", ""),
        "but the run trains minigooglenet",
    );
    // Frozen as a whole, but for the head: the features are those of the file.
    place.run("preview --dataset synthetic --samples 1 --columns 1 --output photo.png").ends(0);
    for (class, split) in [("cat", "train"), ("dog", "train"), ("cat", "test"), ("dog", "test")] {
        place.make_folder(&format!("pets/{split}/{class}"));
        (0..30).for_each(|k| {
            place.write(&format!("pets/{split}/{class}/{k}.png"), place.read_bytes("photo.png"))
        });
    }
    let tuned = format!("{small} --dataset pets --weights run --freeze conv* --freeze batch* --output tuned");
    place.fails(
        &tuned,
        "run/model.safetensors: its network tells 10 classes apart, but the data have 2; --new-head begins",
    );
    assert!(!place.exists("tuned"), "a refused run leaves nothing");
    place.prints(&format!("{tuned} --new-head"), "except for dense, which begins anew");
    let config: Value = serde_json::from_str(&place.read("tuned/config.json")).unwrap();
    assert_eq!(config["freeze"], serde_json::json!(["conv*", "batch*"]));
    assert_eq!(config["weights_sha256"].as_str().map(str::len), Some(64));
    place.refuses(
        &format!("{tuned} --new-head --freeze dens"),
        "--freeze is `dens`, but must be the name of a layer",
    );
    place.refuses("train --quick --new-head", "--new-head is given, but must be left out without --weights");

    // The run is repeated with the file, and resumed without it.
    place.run("train --recipe tuned --output again --no-progress").ends(0);
    assert!(place.model("tuned") == place.model("again"), "other weights");
    place.run(&format!("{synthetic} --seed 3 --output other")).ends(0);
    std::fs::copy(place.path().join("other/model.safetensors"), place.path().join("run/model.safetensors"))
        .unwrap();
    let says = "is not the file that the repeated run began with: its SHA-256 is another";
    place.run("train --recipe tuned --output third --no-progress").ends(0).complains(says);
    place.remove("run");
    place.fails("train --recipe tuned --output fourth --no-progress", "run: there is no model here");
    place.run("train --resume tuned --epochs 2 --no-progress").ends(0);
    let says =
        "--freeze can't change when a run is resumed: the run has [conv*,batch*], this command line [conv*]";
    place.refuses("train --resume tuned --epochs 2 --freeze conv*", says);
}

/// A model that the real `multi_gpu_model` made for three GPUs trains on three replicas, with the bits of its inner model.
#[test]
fn a_model_for_several_gpus_is_trained_as_its_inner_model() {
    let place = Place::new();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/keras");
    let names = [
        "multi_gpu.keras2.h5",
        "multi_gpu_inner.keras2.h5",
        "multi_gpu.keras2.json",
        "to_multi_gpu.keras2.h5",
    ];
    for name in names {
        place.write(name, std::fs::read(golden.join(name)).unwrap());
    }
    let train = "train --quick --dataset synthetic --limit-train 96 --limit-test 20 --epochs 1 --batch-size 8 --replicas 3 --no-progress";
    let told = "it is a model for 3 GPUs, as multi_gpu_model makes it: its inner model `model_1` is taken";
    for (file, run) in [("multi_gpu.keras2.h5", "whole"), ("multi_gpu_inner.keras2.h5", "inner")] {
        let line = format!("{train} --model {file} --weights {file} --output {run}");
        let is_told = place.run(&line).ends(0).err().contains(told);
        assert_eq!(is_told, run == "whole", "{file}");
    }
    assert_eq!(place.model("whole"), place.model("inner"));
    let layers = format!("{train} --model multi_gpu.keras2.json --output layers");
    place.run(&layers).ends(0).complains(told);
    place.run("preview --dataset synthetic --samples 1 --columns 1 --output a.png").ends(0);
    let data = "--dataset synthetic --limit-test 20 --preprocessing divide-by-255";
    for command in
        ["evaluate FILE --json --dataset synthetic --limit-test 20", "predict a.png --json --model FILE"]
    {
        let ran = |file: &str| place.run(&command.replace("FILE", file)).ends(0);
        let (whole, inner) = (ran("multi_gpu.keras2.h5"), ran("multi_gpu_inner.keras2.h5"));
        assert!(whole.err().contains(told) && !inner.err().contains("GPU"), "{}", whole.err());
        assert_eq!(whole.json()["classes"], inner.json()["classes"], "{command}");
        assert_eq!(whole.json()["loss"], inner.json()["loss"], "{command}");
    }
    let both = "multi_gpu.keras2.json --weights multi_gpu_inner.keras2.h5";
    place.run(&format!("evaluate {both} {data}")).ends(0).complains(told);
    place
        .run(&format!("evaluate to_multi_gpu.keras2.h5 {data}"))
        .ends(0)
        .complains("its inner model `sequential_1` is taken");
}

/// Keras' three, in training, evaluation, prediction, and in what is exported.
#[test]
fn pixels_are_prepared_as_keras_does() {
    let place = Place::new();
    place.run("preview --dataset synthetic --samples 1 --columns 1 --output a.png").ends(0);
    let probabilities = |model: &str| -> Vec<f64> {
        let told = place.run(&format!("predict a.png --json --top 10 --model {model}")).ends(0).json();
        let mut all: Vec<(String, f64)> = told["classes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|class| (class["class"].to_string(), class["probability"].as_f64().unwrap()))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all.into_iter().map(|(_, p)| p).collect()
    };
    let train = "train --quick --dataset synthetic --limit-train 64 --limit-test 20 --epochs 1 --no-progress";
    for name in ["caffe", "tf", "torch"] {
        place.run(&format!("{train} --preprocessing {name} --output {name}")).ends(0);
        let expected = probabilities(name);
        let measured = place.run(&format!("evaluate {name} --json")).ends(0).json();
        for file in ["net.onnx", "net.py", "net.safetensors"] {
            let output = format!("{name}_{file}");
            place.run(&format!("export {name} --output {output}")).ends(0);
            let model = output.replace(".py", ".safetensors");
            if file == "net.py" {
                // The module's weights lie where the model of towers will.
                assert!(place.exists(&model));
            }
            let got = probabilities(&model);
            let worst = got.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(got.len() == 10 && worst < 1e-5, "{output}: {worst}");
            place.remove(&model);
        }
        place.run(&format!("train --resume {name} --epochs 2 --no-progress")).ends(0);
        assert_eq!(measured["samples"], 20);
    }
    // Each is another network than the next one.
    assert!(probabilities("caffe") != probabilities("tf") && probabilities("tf") != probabilities("torch"));
    let begun = format!("{train} --weights caffe");
    place.prints(&begun, "pixels are preprocessed as for them: caffe");
    place.refuses(&format!("{begun} --preprocessing tf"), "--preprocessing is tf, but must be left out: ");
}

/// The names of ImageNet's classes, and pictures cut as torchvision does.
#[test]
fn classes_have_names_and_pictures_keep_their_shape() {
    let place = Place::new();
    place.run("preview --dataset synthetic --samples 1 --columns 3 --output wide.png").ends(0);
    for id in ["n01440764", "n01443537"] {
        for split in ["train", "test"] {
            place.make_folder(&format!("fish/{split}/{id}"));
            (0..4).for_each(|k| {
                place.write(&format!("fish/{split}/{id}/{k}.png"), place.read_bytes("wide.png"));
            });
        }
    }
    place.write(
        "index.json",
        r#"{"0": ["n01440764", "tench"], "1": ["n01443537", "goldfish"], "2": ["n01484850", "shark"]}"#,
    );
    place.write("names.txt", "tench\ngoldfish\n");
    let train = "train --quick --dataset fish --epochs 1 --no-progress --batch-size 4";
    let named = format!("{train} --class-names index.json --resize shorter-side --crop 32 --output cut");
    place.run(&named).ends(0);
    place.run(&format!("{train} --output stretched")).ends(0);
    let metadata = |run: &str| String::from_utf8_lossy(&place.model(run)[..2000]).into_owned();
    assert!(metadata("cut").contains("shorter-side") && metadata("cut").contains("goldfish"));
    assert!(!metadata("stretched").contains("shorter-side") && metadata("stretched").contains("n01443537"));
    let of_file = |flags: &str| place.run(&format!("predict wide.png --json --model {flags}")).ends(0).json();
    // The model knows how; a flag says something else.
    let own = of_file("cut/model.safetensors");
    assert_eq!(own, of_file("cut --resize shorter-side"));
    assert_ne!(own, of_file("cut --resize stretch"));
    let classes = |measured: &Value| measured["classes"].clone();
    let measured = place.run("evaluate cut --json").ends(0).json();
    assert_eq!(classes(&measured), serde_json::json!(["tench", "goldfish"]));
    let named = place.run("evaluate stretched --class-names names.txt --json").ends(0).json();
    assert_eq!(classes(&named), classes(&measured));
    let wrong = "predict wide.png --model stretched --class-names index.json";
    place.refuses(
        wrong,
        "--class-names is index.json with 3 names, but must be a file with the 2 classes of stretched",
    );
    let small = format!("{train} --resize shorter-side:16");
    place.refuses(&small, "--resize is shorter-side:16, but must be shorter-side:N with at least 32 pixels");
    let set = "train --quick --dataset synthetic --resize shorter-side";
    place.refuses(set, "--resize is shorter-side, but must be left out with the data set `synthetic`");
    place.refuses(
        &format!("{train} --resize longer-side"),
        "--resize is `longer-side`, but must be stretch, shorter-side",
    );
}
