//! Forms of every operator, beside what ONNX Runtime computes of them: tests/golden/onnx_forms.py made them.
//! What is not understood is refused by the node's name; what is read computes the same.

use crate::keras_models::{self, numbers};
use half::{bf16, f16};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use towers_interchange::onnx::OnnxNetwork;

const BATCH: usize = 2;

/// A field of a protobuf message with bytes.
pub(crate) fn bytes(field: u64, content: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

/// A field with a number.
pub(crate) fn number(field: u64, value: i64) -> Vec<u8> {
    [varint(field << 3), varint(value as u64)].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn float(field: u64, value: f32) -> Vec<u8> {
    [varint(field << 3 | 5), value.to_le_bytes().to_vec()].concat()
}

fn all<'v>(value: &'v Value, each: impl Fn(&'v Value) -> Vec<u8>) -> Vec<u8> {
    value.as_array().unwrap().iter().flat_map(each).collect()
}

/// An `AttributeProto`.
fn attribute(key: &str, value: &Value) -> Vec<u8> {
    let (kind, value) = match value {
        Value::String(word) => (3, bytes(4, word.as_bytes())),
        Value::Array(numbers) if numbers.first().is_some_and(Value::is_f64) => {
            (6, all(value, |x| float(7, x.as_f64().unwrap() as f32)))
        }
        Value::Array(_) => (7, all(value, |x| number(8, x.as_i64().unwrap()))),
        value if value.is_f64() => (1, float(2, value.as_f64().unwrap() as f32)),
        value => (2, number(3, value.as_i64().unwrap())),
    };
    [bytes(1, key.as_bytes()), value, number(20, kind)].concat()
}

/// A `NodeProto`, which is called as its output, or `n` if that is `y`.
pub(crate) fn node(of: &Value) -> Vec<u8> {
    let text = |k: usize| of[k].as_str().unwrap_or_default();
    let names = |field: u64, all: &str| {
        all.split(' ')
            .filter(|_| !all.is_empty())
            .flat_map(|one| bytes(field, one.as_bytes()))
            .collect::<Vec<_>>()
    };
    let first = text(2).split(' ').next().unwrap();
    let default = if first == "y" { "n" } else { first };
    let attributes = of[3].as_object().into_iter().flatten();
    let attributes = attributes.flat_map(|(key, value)| bytes(5, &attribute(key, value)));
    [
        names(1, text(1)),
        names(2, text(2)),
        bytes(3, of[5].as_str().unwrap_or(default).as_bytes()),
        bytes(4, text(0).as_bytes()),
        attributes.collect(),
        bytes(7, text(4).as_bytes()),
    ]
    .concat()
}

/// A `TensorProto`: of numbers that are given, or of those that its name gives.
fn tensor(key: &str, about: &Value) -> Vec<u8> {
    let dims = if about.is_array() { about } else { &about["dims"] };
    let len = dims.as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap() as usize).product();
    let given = |key: &str| about[key].as_array().filter(|_| about.is_object());
    let float = |x: &Value| x.as_f64().unwrap() as f32;
    let (kind, values): (i64, Vec<u8>) = if let Some(ints) = given("ints") {
        (7, ints.iter().flat_map(|x| x.as_i64().unwrap().to_le_bytes()).collect())
    } else if let Some(floats) = given("floats") {
        (1, floats.iter().flat_map(|x| float(x).to_le_bytes()).collect())
    } else if let Some(halves) = given("halves") {
        (10, halves.iter().flat_map(|x| f16::from_f32(float(x)).to_le_bytes()).collect())
    } else if let Some(brains) = given("brains") {
        (16, brains.iter().flat_map(|x| bf16::from_f32(float(x)).to_le_bytes()).collect())
    } else if let Some(doubles) = given("doubles") {
        (11, doubles.iter().flat_map(|x| f64::from(float(x)).to_le_bytes()).collect())
    } else {
        (1, numbers(key, len).into_iter().flat_map(f32::to_le_bytes).collect())
    };
    let dims = all(dims, |dim| number(1, dim.as_i64().unwrap()));
    [dims, number(2, kind), bytes(8, key.as_bytes()), bytes(9, &values)].concat()
}

/// A `ValueInfoProto` of floats; an extent of 0 is the batch.
pub(crate) fn value(key: &str, shape: &[i64]) -> Vec<u8> {
    let extent = |&extent: &i64| bytes(1, &if extent == 0 { bytes(2, b"batch") } else { number(1, extent) });
    let shape: Vec<u8> = shape.iter().flat_map(extent).collect();
    let kind = bytes(1, &[number(1, 1), bytes(2, &shape)].concat());
    [bytes(1, key.as_bytes()), bytes(2, &kind)].concat()
}

/// The file of a form, with a dense layer behind it if it has the length of that.
fn file(form: &Value) -> Vec<u8> {
    let mut constants = form["constants"].as_object().unwrap().clone();
    let mut nodes = form["nodes"].as_array().unwrap().clone();
    let output = if form["head"].is_u64() { "logits" } else { "y" };
    if output == "logits" {
        constants.insert("head".to_owned(), json!([form["head"], 3]));
        nodes.extend([json!(["Flatten", "y", "flat"]), json!(["MatMul", "flat head", "logits"])]);
    }
    let batch = if form["fixed"] == true { BATCH as i64 } else { 0 };
    let images = if form["channels_last"] == true { [batch, 4, 4, 3] } else { [batch, 3, 4, 4] };
    let graph = [
        nodes.iter().flat_map(|of| bytes(1, &node(of))).collect(),
        constants.iter().flat_map(|(key, about)| bytes(5, &tensor(key, about))).collect(),
        bytes(11, &value("images", &images)),
        match form["inputs"] == true {
            true => constants.keys().flat_map(|key| bytes(11, &value(key, &[]))).collect(),
            false => Vec::new(),
        },
        bytes(12, &value(output, &[0, 3])),
    ];
    let opset = number(2, form["opset"].as_i64().unwrap());
    [number(1, 10), bytes(7, &graph.concat()), bytes(8, &opset)].concat()
}

/// The class scores of a graph for the images.
fn scores(path: &Path, [h, w]: [usize; 2], images: &[f32]) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    let read = OnnxNetwork::read(path)?;
    let network = read.network();
    let model = network.architecture.build(&network.name, [h, w, 3], network.classes.unwrap_or(1))?;
    let tensors = read.assign(&model.steps())?;
    let logits = keras_models::logits(&model, &tensors, images, &towers_tensor_cpu::reference());
    Ok(logits.into_iter().map(f64::from).collect())
}

/// Whether the scores are those of the other program, where a softmax at the end is left out.
fn agree(ours: &[f64], theirs: &[f64], end: &str, half: bool) -> bool {
    let ours: Vec<f64> = ours
        .chunks(ours.len() / BATCH)
        .flat_map(|row| {
            let sum: f64 = row.iter().map(|x| x.exp()).sum();
            row.iter().map(move |x| match end {
                "Softmax" => x.exp() / sum,
                "LogSoftmax" => x - sum.ln(),
                _ => *x,
            })
        })
        .collect();
    let tolerance = if half { 2e-2 } else { 1e-5 };
    let largest = theirs.iter().fold(1.0_f64, |largest, x| largest.max(x.abs()));
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() <= tolerance * largest)
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn forms() -> Vec<Value> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/onnx_forms.json");
    serde_json::from_slice(&fs::read(golden).unwrap()).unwrap()
}

#[test]
fn each_form_of_an_operator_is_computed_or_refused() {
    let forms = forms();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("form.onnx");
    let images = numbers("images", BATCH * 4 * 4 * 3);
    let mut wrong = Vec::new();
    for form in &forms {
        fs::write(&path, file(form)).unwrap();
        let (called, says) = (form["name"].as_str().unwrap(), form["says"].as_str().unwrap_or_default());
        let ends = form["nodes"].as_array().unwrap().iter().rev().map(|node| node[0].as_str().unwrap());
        let end = ends.into_iter().find(|end| !["Flatten", "Reshape"].contains(end)).unwrap_or_default();
        let got = scores(&path, [4, 4], &images).map_err(|error| error.to_string());
        let right = match &got {
            Ok(ours) => says.is_empty() && agree(ours, &floats(&form["logits"]), end, form["half"] == true),
            Err(told) => !says.is_empty() && told.contains(says),
        };
        if !right {
            wrong.push(format!("{called}: {got:?}, but `{says}` {}", form["logits"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(forms.len() > 250);
}

/// A note counts weights that arithmetic makes of others, since a training starts from its result. Another shape is no arithmetic.
#[test]
fn weights_that_the_graph_computes_are_told_of() {
    let forms = forms();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("form.onnx");
    let is_told = |form: &&Value| {
        fs::write(&path, file(form)).unwrap();
        let read = OnnxNetwork::read(&path);
        let notes = |read: OnnxNetwork| read.network().notes.join(" ");
        read.map(notes)
            .unwrap_or_default()
            .contains("it computes 1 of its weights from others before each use")
    };
    let name = |form: &Value| form["name"].as_str().unwrap().to_owned();
    let told: Vec<String> =
        forms.iter().filter(|form| name(form).starts_with("Fold")).filter(is_told).map(name).collect();
    assert_eq!(told, ["Fold_sum", "Fold_standardized", "Fold_pow", "Fold_where"]);
}

/// A number for each channel is trained, even where all begin equal, as layer scales do; a single number is not.
#[test]
fn numbers_of_channels_are_trained() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("form.onnx");
    let classes = |dims: Value, before: &[Value], head: usize| {
        let equal = vec![0.5; dims[0].as_u64().unwrap_or(1) as usize];
        let (first, last) = (json!(["Conv", "images w", "r"]), json!(["Mul", "c k", "y"]));
        let nodes = [&[first], before, &[last]].concat();
        let form = json!({
            "opset": 20,
            "nodes": nodes,
            "constants": {"w": [6, 3, 1, 1], "k": {"dims": dims, "floats": equal}},
            "head": head,
        });
        fs::write(&path, file(&form)).unwrap();
        let read = OnnxNetwork::read(&path).unwrap();
        let network = read.network();
        let classes = network.architecture.layers.iter().map(|layer| layer.class.clone()).collect::<Vec<_>>();
        (classes.join(" "), network.notes.len())
    };
    let images = [json!(["Identity", "r", "c"])];
    let flat = [json!(["GlobalAveragePool", "r", "p"]), json!(["Flatten", "p", "c"])];
    let of = |classes: &str, notes: usize| (classes.to_owned(), notes);
    let trained = of("Conv2D DepthwiseConv2D Flatten Dense", 0);
    assert_eq!(classes(json!([6, 1, 1]), &images, 96), trained);
    assert_eq!(classes(json!([]), &images, 96), of("Conv2D Rescaling Flatten Dense", 0));
    // No layer trains those of features yet, so it is told.
    let told = of("Conv2D GlobalAveragePooling2D Rescaling Dense", 1);
    assert_eq!(classes(json!([6]), &flat, 6), told);
}

/// Graphs that a script changed at random: `tests/golden/onnx_mutations.py FOLDER` makes them, and
/// `TOWERS_ONNX_MUTATIONS` is that folder.
#[test]
fn what_is_accepted_of_changed_graphs_computes_what_onnx_runtime_computes() {
    let Some(folder) = std::env::var_os("TOWERS_ONNX_MUTATIONS") else { return };
    let folder = Path::new(&folder);
    let entries: Vec<Value> = serde_json::from_slice(&fs::read(folder.join("all.json")).unwrap()).unwrap();
    let (mut wrong, mut lenient, mut accepted) = (Vec::new(), Vec::new(), 0);
    for entry in &entries {
        let text = |key: &str| entry[key].as_str().unwrap();
        let image = [0, 1].map(|k| entry["image"][k].as_u64().unwrap() as usize);
        let images = numbers("images", BATCH * image[0] * image[1] * 3);
        let ours = match scores(&folder.join(text("file")), image, &images) {
            Ok(ours) => ours,
            Err(error) if text("change").ends_with(": nothing") => {
                println!("{} is refused: {error}", text("change"));
                continue;
            }
            Err(_) => continue,
        };
        accepted += 1;
        match &entry["logits"] {
            Value::Null => lenient.push(format!("{}: {}: {}", text("file"), text("change"), text("error"))),
            theirs if agree(&ours, &floats(theirs), text("end"), entry["half"] == true) => {}
            theirs => wrong.push(format!("{}: {}: {ours:?} {theirs}", text("file"), text("change"))),
        }
    }
    println!(
        "{accepted} of {} are accepted; ONNX Runtime refuses {} of these:",
        entries.len(),
        lenient.len()
    );
    println!("{}", lenient.join("\n"));
    assert!(wrong.is_empty(), "{} of {accepted} differ:\n{}", wrong.len(), wrong.join("\n"));
}
