//! Networks as lists of layers.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use towers_layers::{Error, Mode};
use towers_models::{Architecture, Model};

fn build(layers: Value, image: [usize; 3]) -> towers_layers::Result<Model> {
    let architecture: Architecture = serde_json::from_value(layers).unwrap();
    architecture.build("mine", image, 10)
}

fn refusal(layers: Value) -> String {
    build(layers, [8, 8, 3]).unwrap_err().to_string()
}

/// The layers of `resnet18`'s first blocks in other words: the same steps, hence the same program.
#[test]
fn built_in_networks_have_the_same_program_as_their_layers() {
    let same = |name: &str, layers: Value| {
        let (own, built_in) =
            (build(layers, [32, 32, 3]).unwrap(), towers_models::by_name(name, 10).unwrap().unwrap());
        for mode in [Mode::Training, Mode::Inference] {
            let text = |model: &Model| model.graph().program(model.logits(), mode, true).unwrap().to_string();
            assert_eq!(text(&own), text(&built_in), "{name}");
        }
    };
    let conv = |filters: u32, padding: &str| json!({"class": "Conv2D", "filters": filters, "kernel_size": [3, 3], "padding": padding, "activation": "relu"});
    same(
        "keras_cnn",
        json!([
            conv(32, "same"), conv(32, "valid"), {"class": "MaxPooling2D"}, {"class": "Dropout", "rate": 0.25},
            conv(64, "same"), conv(64, "valid"), {"class": "MaxPooling2D"}, {"class": "Dropout", "rate": 0.25},
            {"class": "Flatten"}, {"class": "Dense", "units": 512, "activation": "relu"},
            {"class": "Dropout", "rate": 0.5}, {"class": "Dense", "activation": "softmax"},
        ]),
    );
    let conv =
        |filters: u32| json!({"class": "Conv2D", "filters": filters, "kernel_size": 3, "padding": "same"});
    let norm = json!({"class": "BatchNormalization", "momentum": 0.9});
    let (relu, pool) = (json!({"class": "ReLU"}), json!({"class": "MaxPooling2D"}));
    same(
        "small_cnn",
        json!([
            conv(16), norm, relu, pool, conv(32), norm, {"class": "Activation", "activation": "relu"}, pool,
            conv(64), norm, relu, pool, {"class": "Flatten"}, {"class": "Dropout", "rate": 0.25}, {"class": "Dense"},
            {"class": "Softmax"},
        ]),
    );
}

#[test]
fn branches_padding_and_separate_activations() {
    let model = build(
        json!([
            {"class": "Rescaling", "scale": 0.5, "offset": -1.0},
            {"class": "ZeroPadding2D", "padding": [[1, 0], [2, 1]]},
            {"class": "Conv2D", "name": "stem", "filters": 4, "kernel_size": [3, 2], "strides": [2, 1], "padding": "same",
             "activation": "gelu", "kernel_initializer": {"class_name": "HeNormal", "config": {"seed": null}}},
            {"class": "Conv2D", "name": "a", "filters": 4, "kernel_size": 1, "inputs": ["stem"]},
            {"class": "Add", "inputs": ["a", "stem", "stem"]},
            {"class": "ReLU"},
            {"class": "ZeroPadding2D"},
            {"class": "MaxPooling2D", "pool_size": 3, "strides": 2},
            {"class": "GroupNormalization", "groups": -1, "scale": false},
            {"class": "Concatenate", "inputs": ["group_normalization", "max_pooling2d"]},
            {"class": "GlobalMaxPooling2D"},
            {"class": "Dense", "use_bias": false},
        ]),
        [8, 8, 3],
    )
    .unwrap();
    let summary = model.summary().to_string();
    let line =
        |start: &str| summary.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
    // 9 rows and 11 columns with the zeros, of which "same" makes 5 and 11.
    assert!(line("stem (Conv2D)").contains("(None, 5, 11, 4)"), "{summary}");
    assert!(line("stem_gelu (GELU)").contains("(None, 5, 11, 4)"), "{summary}");
    assert!(line("add (Add+ReLU)").contains("(None, 5, 11, 4)"), "{summary}");
    assert!(line("max_pooling2d (").contains("(None, 3, 6, 4)"), "{summary}");
    assert!(line("dense (Dense)").contains("(None, 10)"), "{summary}");
    assert!(summary.contains("Non-trainable params: 10"), "{summary}");
}

/// Zeros are the padding of the layers behind them where all of these compute the same with it, and else a layer.
#[test]
fn zeros_are_padding_or_a_layer() {
    let zeros = json!({"class": "ZeroPadding2D", "name": "zeros", "padding": 2});
    let conv = json!({"class": "Conv2D", "filters": 4, "kernel_size": 3});
    let (relu, pool) = (json!({"class": "ReLU"}), json!({"class": "MaxPooling2D", "pool_size": 3}));
    let average = json!({"class": "AveragePooling2D", "pool_size": 3, "strides": 2});
    let ceil = json!({"class": "MaxPooling2D", "pool_size": 3, "ceil_mode": true});
    let crop = json!({"class": "Cropping2D", "cropping": [[1, 0], [2, 3]]});
    let of_input = |class: &str, name: &str| json!({"class": class, "name": name, "filters": 4, "kernel_size": 3, "inputs": ["zeros"]});
    let mut pool_of_zeros = pool.clone();
    pool_of_zeros["inputs"] = json!(["zeros"]);
    let add = json!({"class": "Add", "inputs": ["a", "b"]});
    let join = json!({"class": "Concatenate", "inputs": ["a", "max_pooling2d"]});
    for (layers, is_layer) in [
        (vec![zeros.clone(), conv.clone()], false),
        (vec![zeros.clone(), json!({"class": "ZeroPadding2D"}), conv.clone()], false),
        (vec![zeros.clone(), pool.clone()], true),
        (vec![relu.clone(), zeros.clone(), pool], false),
        (vec![relu.clone(), zeros.clone(), ceil], true),
        (vec![relu, zeros.clone(), average], true),
        (vec![zeros.clone(), crop], true),
        (vec![zeros.clone()], true),
        (vec![zeros.clone(), of_input("Conv2D", "a"), of_input("Conv2D", "b"), add], false),
        (
            vec![
                zeros,
                json!({"class": "Conv2D", "name": "a", "filters": 4, "kernel_size": 3, "strides": 3}),
                pool_of_zeros,
                join,
            ],
            true,
        ),
    ] {
        let ends = vec![json!({"class": "Flatten"}), json!({"class": "Dense"})];
        let summary = build([layers.clone(), ends].concat().into(), [8, 8, 3]).unwrap().summary().to_string();
        assert_eq!(summary.contains("zeros (ZeroPadding2D)"), is_layer, "{layers:?}\n{summary}");
    }
}

#[test]
fn dropout_of_elements_channels_or_samples() {
    let program = |layer: Value| {
        let flat = json!({"class": "Flatten"});
        let model = build(json!([layer, flat, {"class": "Dense"}]), [8, 8, 3]).unwrap();
        model.graph().program(model.logits(), Mode::Training, true).unwrap().to_string()
    };
    let shaped = |noise: Value| program(json!({"class": "Dropout", "rate": 0.5, "noise_shape": noise}));
    for (text, says) in [
        (shaped(Value::Null), "dropout rate 0.5 %"),
        (shaped(json!([null, 8, null, 3])), "dropout rate 0.5 %"),
        (shaped(json!([null, 1, 1, null])), "dropout rate 0.5 of channels %"),
        (shaped(json!([null, 1, 1, 1])), "dropout rate 0.5 of samples %"),
        (program(json!({"class": "SpatialDropout2D", "rate": 0.25})), "dropout rate 0.25 of channels %"),
        (
            program(json!({"class": "StochasticDepth", "drop_path_rate": 0.1})),
            "dropout rate 0.1 of samples %",
        ),
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
}

#[test]
fn what_is_wrong_is_one_sentence() {
    let dense = json!({"class": "Dense"});
    for (layers, says) in [
        (json!([]), "layer mine: it has no layers"),
        (
            json!([{"class": "LSTM"}]),
            "layer lstm: there is no layer `LSTM` here; there are Activation, Add, Average",
        ),
        (
            json!([{"class": "Flatten", "unit": 3}]),
            "layer flatten: Flatten has no option `unit`; it has none",
        ),
        (
            json!([{"class": "Dropout", "dropout": 3}]),
            "layer dropout: Dropout has no option `dropout`; it has rate, noise_shape",
        ),
        (json!([{"class": "Dropout"}, dense]), "layer dropout: `rate` is missing"),
        (
            json!([{"class": "Conv2D", "filters": 0, "kernel_size": 3}]),
            "layer conv2d: `filters` is 0, but must be a whole number from 1 to 65536",
        ),
        (
            json!([{"class": "Conv2D", "filters": 3, "kernel_size": [3, 3, 3]}]),
            "layer conv2d: `kernel_size` is [3,3,3], but must be a number from 1 to 65536, or two for rows and columns",
        ),
        (
            json!([{"class": "Conv2D", "filters": 3, "kernel_size": 3, "padding": "causal"}]),
            "layer conv2d: `padding` is \"causal\", but must be \"valid\", \"same\", or numbers of pixels",
        ),
        (
            json!([{"class": "Activation", "activation": "selu"}, dense]),
            "layer activation: `activation` is \"selu\", but must be one of linear, relu, relu6, leaky_relu, hard_sigmoid, hard_silu, gelu, silu, elu, sigmoid, tanh, softplus, mish, or softmax at the end",
        ),
        (
            json!([{"class": "Flatten"}, {"class": "Dense", "units": 1, "activation": "sigmoid"}]),
            "layer dense: its one sigmoid output tells 2 classes apart, but there are 10; a Dense layer with `units` 10",
        ),
        (
            json!([{"class": "ELU", "alpha": 0.5}, dense]),
            "layer elu: only an ELU with an alpha of 1 is there",
        ),
        (
            json!([{"class": "Flatten"}, {"class": "Softmax"}, dense]),
            "layer softmax: softmax is possible in the last",
        ),
        (
            json!([{"class": "ReLU", "threshold": 1.0}, {"class": "Flatten"}, dense]),
            "layer re_lu: only a ReLU with a threshold of 0 is there",
        ),
        (
            json!([{"class": "Flatten", "inputs": ["images"]}]),
            "layer flatten: it reads `images`, which is no layer before it",
        ),
        (json!([{"class": "Add"}]), "layer add: it reads 1 tensors, but takes several inputs"),
        (
            json!([{"class": "Flatten", "name": "a"}, {"class": "Dense", "name": "a"}]),
            "layer a: another layer has",
        ),
        (json!([{"class": "Flatten", "name": "input"}]), "layer input: the name must have at most 200 bytes"),
        (
            json!([{"class": "Flatten"}, dense, dense]),
            "layer dense: `units` is missing; only the last Dense may leave it out",
        ),
        (
            json!([{"class": "Cropping2D", "cropping": 4}, {"class": "Flatten"}, dense]),
            "mine can't take images of 8x8 (height x width): it needs at least 9x9",
        ),
        (
            json!([{"class": "UpSampling2D", "interpolation": "bicubic"}, {"class": "Flatten"}, dense]),
            "layer up_sampling2d: `interpolation` is \"bicubic\", but must be one of nearest, bilinear",
        ),
        (
            json!([{"class": "Dropout", "rate": 0.5, "noise_shape": [1, 1, 1, 1]}, {"class": "Flatten"}, dense]),
            "layer dropout: `noise_shape` is [1,1,1,1], but must be [null, 1, 1, 1] for samples, or [null, 1, 1, null]",
        ),
        (
            json!([{"class": "Conv2D", "filters": 4, "kernel_size": 1, "groups": 2}, {"class": "Flatten"}, dense]),
            "layer conv2d: conv2d: the number of groups is 2, but must be a divisor of",
        ),
        (
            json!([{"class": "MaxPooling2D"}]),
            "layer max_pooling2d: it is the last layer, so its output must be one number a class, but is 4x4x3",
        ),
        (
            json!([{"class": "Conv2D", "filters": 65536, "kernel_size": 1}, {"class": "Conv2D", "filters": 65536,
                   "kernel_size": 3}, {"class": "GlobalAveragePooling2D"}, dense]),
            "layer mine: it has more than 2^31 parameters",
        ),
        (
            json!([{"class": "Flatten"}, {"class": "Flatten", "inputs": ["input"]}, dense]),
            "layer flatten: its output",
        ),
    ] {
        let told = refusal(layers);
        assert!(told.starts_with(says), "{told}");
    }
    let single =
        json!([{"class": "Conv2D", "filters": 1, "kernel_size": 1}, {"class": "GlobalAveragePooling2D"}]);
    let single: Architecture = serde_json::from_value(single).unwrap();
    let told = single.build("mine", [8, 8, 3], 2).unwrap_err().to_string();
    assert!(told.contains("its single output has no sigmoid"), "{told}");
    let many = vec![json!({"class": "ReLU"}); 2001];
    assert_eq!(refusal(many.into()), "layer mine: it has 2001 layers, but must have at most 2000");
    let zeros = [
        json!({"class": "ZeroPadding2D", "padding": 30000}),
        json!({"class": "Conv2D", "filters": 9, "kernel_size": 1}),
    ];
    assert!(refusal(json!(zeros)).contains("numbers an image, but must have at most 2^31"));
    // Ten poolings halve 1024 pixels to one.
    let pools = vec![json!({"class": "MaxPooling2D"}); 6];
    let all = [pools, vec![json!({"class": "Flatten"}), json!({"class": "Dense"})]].concat();
    let error = build(all.clone().into(), [32, 32, 3]).unwrap_err();
    assert!(
        matches!(&error, Error::Images { .. }) && error.to_string().ends_with("at least 64x64"),
        "{error}"
    );
    assert!(build(all.into(), [64, 64, 3]).is_ok());
}
