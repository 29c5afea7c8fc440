//! Configurations as Keras writes them for the networks here, and with something changed.

use super::config::{act_of, compare};
use layers::{
    AveragePooling2D, BatchNormalization, Conv2D, Dense, Flatten, Graph, Padding, Step, Value as Of,
};
use models::Model;
use program::{Activation, Op, Pad, ops};
use serde_json::{Value, json};
use std::collections::HashMap;

/// The layers of a functional model of Keras 3, each with its inputs.
#[derive(Default)]
struct Functional(Vec<Value>);

impl Functional {
    fn add(&mut self, class: &str, name: &str, mut options: Value, reads: &[String]) -> String {
        let tensors: Vec<Value> =
            reads.iter().map(|read| json!({"config": {"keras_history": [read, 0, 0]}})).collect();
        let args = match &tensors[..] {
            [] => json!([]),
            [one] => json!([{"args": [one], "kwargs": {}}]),
            several => json!([{"args": [several], "kwargs": {}}]),
        };
        options["name"] = json!(name);
        self.0.push(json!({"class_name": class, "config": options, "inbound_nodes": args}));
        name.to_owned()
    }

    fn act(&mut self, step: &Step, act: Activation, read: String) -> String {
        match act.name() {
            "linear" => read,
            act => self.add("Activation", &format!("{}_act", step.name), json!({"activation": act}), &[read]),
        }
    }
}

/// Keras' configuration of a network, with a `ZeroPadding2D` before layers that are padded otherwise.
fn written(model: &Model) -> Vec<Value> {
    let mut all = Functional::default();
    let input = all.add("InputLayer", "input", json!({}), &[]);
    let mut names: HashMap<Of, String> = HashMap::new();
    for step in model.steps() {
        let mut reads: Vec<String> =
            step.inputs.iter().map(|of| names.get(of).unwrap_or(&input).clone()).collect();
        let mut padding = |all: &mut Functional, pad: Pad, kernel, stride| {
            if pad == Pad::VALID {
                return "valid";
            }
            if pad == Pad::same(step.x.h, step.x.w, kernel, stride) {
                return "same";
            }
            let zeros = json!({"padding": [[pad.top, pad.bottom], [pad.left, pad.right]]});
            reads = vec![all.add("ZeroPadding2D", &format!("{}_zeros", step.name), zeros, &reads)];
            "valid"
        };
        let op = step.op.unwrap();
        let options = match op {
            Op::Conv2dForward(forward) => {
                let conv = forward.conv;
                let padding = padding(&mut all, conv.pad, conv.kernel, conv.stride);
                json!({"filters": conv.outputs, "kernel_size": conv.kernel, "strides": conv.stride,
                    "padding": padding, "dilation_rate": [1, 1], "groups": 1})
            }
            Op::MaxPool(ops::MaxPool { pool }) | Op::AveragePool(ops::AveragePool { pool }) if !step.flat => {
                let padding = padding(&mut all, pool.pad, pool.kernel, pool.stride);
                json!({"pool_size": pool.kernel, "strides": pool.stride, "padding": padding})
            }
            Op::BatchNormTrain(norm) => json!({"epsilon": norm.bn.epsilon}),
            Op::GroupNorm(norm) => json!({"epsilon": norm.epsilon, "groups": norm.groups}),
            Op::Scale(scale) => json!({"scale": scale.factor, "offset": 0.0}),
            _ => json!({}),
        };
        let named = match op {
            Op::Activate(_) => reads[0].clone(),
            // Without `+ReLU`, which is another layer there.
            _ => all.add(step.kind.split('+').next().unwrap(), &step.name, options, &reads),
        };
        names.insert(step.output, all.act(&step, act_of(op), named));
    }
    all.0
}

fn told(layers: &[Value], model: &Model) -> String {
    let steps = model.steps();
    let convolutions: Vec<&Step> =
        steps.iter().filter(|step| matches!(step.op, Some(Op::Conv2dForward(_)))).collect();
    let config = json!({"class_name": "Functional", "config": {"layers": layers}});
    compare(&config, &steps, &convolutions).err().unwrap_or_default()
}

/// The layers with an option of one of them changed.
fn with(model: &Model, layer: &str, option: &str, value: Value) -> String {
    let mut layers = written(model);
    let changed = layers.iter_mut().find(|own| own["config"]["name"] == layer);
    changed.unwrap()["config"][option] = value;
    told(&layers, model)
}

#[test]
fn what_keras_writes_for_the_networks_fits() {
    for name in models::NAMES {
        for image in [[32, 32, 3], [45, 64, 3]] {
            let model = models::by_name_for(name, image, 10).unwrap().unwrap();
            assert_eq!(told(&written(&model), &model), "", "{name} {image:?}");
        }
    }
    // Of zeros below and to the right that no window reaches, there may be any number.
    let resnet18 = models::resnet18(10).unwrap();
    let strided = written(&resnet18).into_iter().find(|layer| layer["config"]["strides"] == json!([2, 2]));
    assert_eq!(strided.unwrap()["config"]["padding"], "valid");
    let zeros: Vec<Value> =
        written(&resnet18).into_iter().filter(|layer| layer["class_name"] == "ZeroPadding2D").collect();
    assert_eq!(zeros.len(), 3);
    let zeros = zeros[0]["config"]["name"].as_str().unwrap();
    for same in [json!(1), json!([1, 1]), json!([[1, 0], [1, 0]])] {
        assert_eq!(with(&resnet18, zeros, "padding", same), "");
    }
}

#[test]
fn other_paddings_are_refused() {
    let resnet18 = models::resnet18(10).unwrap();
    let strided =
        written(&resnet18).into_iter().find(|layer| layer["class_name"] == "ZeroPadding2D").unwrap();
    let zeros = strided["config"]["name"].as_str().unwrap();
    let conv = zeros.strip_suffix("_zeros").unwrap();
    let both = format!(
        "its layer `{conv}` has padding=\"valid\" behind a ZeroPadding2D, which pads by ((0, 1), (0, 1)), but the network's \
         `{conv}` by ((1, 1), (1, 1))"
    );
    assert_eq!(with(&resnet18, zeros, "padding", json!([[0, 1], [0, 1]])), both);
    // "same" of Keras puts its zeros elsewhere than PyTorch does.
    let mut layers = written(&resnet18);
    let reads = strided["inbound_nodes"].clone();
    layers.retain(|layer| layer["config"]["name"] != zeros);
    let own = layers.iter_mut().find(|layer| layer["config"]["name"] == conv).unwrap();
    own["config"]["padding"] = json!("same");
    own["inbound_nodes"] = reads;
    let same = told(&layers, &resnet18);
    assert!(same.contains("has padding=\"same\", which pads by ((0, 1), (0, 1)), but the"), "{same}");
    let small = models::small_cnn(10).unwrap();
    assert_eq!(
        with(&small, "conv2d_1", "padding", json!("valid")),
        "its layer `conv2d_1` has padding=\"valid\", which pads by ((0, 0), (0, 0)), but the network's `conv2d_1` by ((1, 1), \
         (1, 1))"
    );
    // A model that doesn't name a layer's inputs is not refused.
    let mut layers = written(&small);
    layers.iter_mut().for_each(|layer| layer["inbound_nodes"] = Value::Null);
    assert_eq!(told(&layers, &small), "");
    // Keras 2 says it in other words.
    let mut layers = written(&small);
    for layer in &mut layers {
        if let Some(read) = layer["inbound_nodes"][0]["args"][0]["config"]["keras_history"][0].as_str() {
            layer["inbound_nodes"] = json!([[[read, 0, 0, {}]]]);
        }
    }
    assert_eq!(told(&layers, &small), "");
    let own = layers.iter_mut().find(|layer| layer["config"]["name"] == "conv2d").unwrap();
    own["config"]["padding"] = json!("valid");
    assert!(told(&layers, &small).contains("has padding=\"valid\", which pads by ((0, 0), (0, 0))"));
}

#[test]
fn other_convolutions_are_refused() {
    let model = models::keras_cnn(10).unwrap();
    let says = |option: &str, value: Value| with(&model, "conv2d", option, value);
    assert_eq!(
        says("dilation_rate", json!([2, 2])),
        "its layer `conv2d` has dilation_rate=[2,2], but the network's convolutions 1"
    );
    assert_eq!(says("groups", json!(3)), "its layer `conv2d` has groups=3, but the network's convolutions 1");
    assert_eq!(
        says("strides", json!([1, 2])),
        "its layer `conv2d` has strides=[1,2], but the network's `conv2d` [1, 1]"
    );
    // A kernel of one pixel has no gaps.
    let net = models::minigooglenet(10).unwrap();
    assert_eq!(with(&net, "conv2d_1", "dilation_rate", json!([2, 2])), "");
    let mut layers = written(&model);
    layers[1]["class_name"] = json!("Conv2DTranspose");
    let layers = told(&layers, &model);
    assert!(layers.contains("its layer `conv2d` is a Conv2DTranspose, but the network has"), "{layers}");
}

#[test]
fn other_poolings_are_refused() {
    let model = models::small_cnn(10).unwrap();
    for (option, value, says) in [
        (
            "pool_size",
            json!([2, 3]),
            "is MaxPooling2D([2, 3], strides=2), but the poolings of the network are",
        ),
        ("strides", json!([2, 1]), "is MaxPooling2D(2, strides=[2, 1]), but the poolings of the network are"),
        ("strides", json!([0, 0]), "is MaxPooling2D(2, strides=0), but the poolings of the network are"),
    ] {
        let told = with(&model, "max_pooling2d", option, value);
        assert!(told.contains(says), "{told}");
    }
    // Of even sides there is nothing to pad.
    assert_eq!(with(&model, "max_pooling2d", "padding", json!("same")), "");
    let net = models::minigooglenet(10).unwrap();
    assert_eq!(with(&net, "average_pooling2d", "strides", json!([1, 1])), "");
    let odd = models::by_name_for("small_cnn", [47, 47, 3], 10).unwrap().unwrap();
    let told = with(&odd, "max_pooling2d", "padding", json!("same"));
    assert!(told.contains("is MaxPooling2D(2, strides=2, padding=\"same\"), but the poolings"), "{told}");
    let mut graph = Graph::new("padded", [9, 9, 3]);
    let pool = AveragePooling2D::new(3).strides(2).padding(Padding::Same);
    let x = graph.add(pool, graph.input()).unwrap();
    let x = graph.add(Flatten, x).unwrap();
    let x = graph.add(Dense::new(3), x).unwrap();
    let padded = Model::new(graph, x);
    let told = with(&padded, "average_pooling2d", "padding", json!("valid"));
    assert!(
        told.ends_with("of the network are: AveragePooling2D(3, strides=2, padding=((1, 1), (1, 1)))"),
        "{told}"
    );
}

#[test]
fn an_activation_at_another_place_is_refused() {
    let net = |name: &str, of_conv: Activation, of_norm: Activation| {
        let mut graph = Graph::new(name, [8, 8, 3]);
        let mut x = graph.input();
        for _ in 0..2 {
            x = graph.add(Conv2D::new(3, 3).same().activation(of_conv), x).unwrap();
            x = graph.add(BatchNormalization::new().activation(of_norm), x).unwrap();
        }
        x = graph.add(Flatten, x).unwrap();
        x = graph.add(Dense::new(3), x).unwrap();
        Model::new(graph, x)
    };
    let last = net("norm last", Activation::Relu, Activation::None);
    let first = net("norm first", Activation::None, Activation::Relu);
    assert_eq!([told(&written(&last), &last), told(&written(&first), &first)], ["", ""]);
    assert_eq!(
        told(&written(&last), &first),
        "its layer `batch_normalization` comes behind relu, but no BatchNormalization of the network is left that does"
    );
    let told = told(&written(&first), &last);
    assert!(told.contains("`batch_normalization` comes behind no activation, but"), "{told}");
}
