//! What a model's configuration says beyond its weights.

use super::graph::{self, Place};
use super::layer::{activation, name, uses};
use super::{convolution, pooling};
use crate::{Error, Result};
use layers::Step;
use program::{Activation, Op};
use serde_json::Value;
use std::fmt::Display;
use std::path::Path;

/// The longest configuration that is read, in bytes of JSON: as numbers in memory it may take 16 times as much.
pub(super) const MAX_CONFIG: u64 = 16 << 20;

pub(super) fn too_large(path: &Path) -> Error {
    let most = MAX_CONFIG >> 20;
    Error::file(path, format!("its model's configuration is longer than {most} MiB, the most that is read"))
}

pub(super) fn unreadable(path: &Path, why: &dyn Display) -> Error {
    let hint = "save the model again, or its weights alone by model.save_weights";
    Error::file(path, format!("its model's configuration can't be read: {why}; {hint}"))
}

/// The configuration in a JSON text: that of any model names its class.
pub(super) fn parse(path: &Path, text: &[u8]) -> Result<Value> {
    let config: Value = serde_json::from_slice(text).map_err(|error| unreadable(path, &error))?;
    match config["class_name"].is_string() {
        true => Ok(config),
        false => Err(unreadable(path, &"it names no class of a model")),
    }
}

/// Epsilons are written as decimal numbers.
const CLOSE: f64 = 1e-6;

/// The layers of a model, those of models inside of it too.
fn layers(model: &Value) -> impl Iterator<Item = &Value> {
    graph::places(model).into_iter().map(|place| place.layer)
}

/// Refuses images with the channels first, whose number would be read as their height.
pub(super) fn check_axes(model: &Value) -> Result<(), String> {
    match layers(model).find(|layer| layer["config"]["data_format"] == "channels_first") {
        Some(layer) => Err(format!(
            "its layer `{}` has data_format=\"channels_first\", and towers reads \"channels_last\" alone; build the model \
             with that, set its weights, and save it anew",
            name(layer)
        )),
        None => Ok(()),
    }
}

/// The rows and columns of the first images in a model, as Keras 3 (`batch_shape`) and Keras 2 (`batch_input_shape`) write them.
pub(super) fn image_size(model: &Value) -> Option<[usize; 2]> {
    let side = |side: &Value| side.as_u64().filter(|&side| side > 0).and_then(|side| side.try_into().ok());
    layers(model).find_map(|layer| {
        let shape = ["batch_shape", "batch_input_shape"].map(|key| layer["config"][key].as_array());
        match shape.into_iter().flatten().next()?.as_slice() {
            [_, h, w, _] => Some([side(h)?, side(w)?]),
            _ => None,
        }
    })
}

/// The activation that an op computes, or that is fused into it.
pub(super) fn act_of(op: Op) -> Activation {
    match op {
        Op::Conv2dForward(conv) => conv.act,
        Op::LinearForward(linear) => linear.act,
        Op::BatchNormTrain(norm) => norm.bn.act,
        Op::GroupNorm(norm) => norm.act,
        Op::Activate(activate) => activate.act,
        Op::Add(add) => add.act,
        _ => Activation::None,
    }
}

/// The class of an op with weights.
fn class_of(op: Op) -> Option<&'static str> {
    match op {
        Op::Conv2dForward(_) => Some("Conv2D"),
        Op::LinearForward(_) => Some("Dense"),
        Op::BatchNormTrain(_) => Some("BatchNormalization"),
        Op::GroupNorm(_) => Some("GroupNormalization"),
        _ => None,
    }
}

/// Compares the activations by their kinds and numbers: branches may come in any order. A softmax at the end is none.
fn compare_activations(all: &[&Value], steps: &[Step]) -> Result<(), String> {
    let own = steps.iter().filter_map(|step| step.op);
    let own: Vec<&str> = own.map(|op| act_of(op).name()).filter(|name| *name != "linear").collect();
    let end =
        all.iter().rposition(|layer| ["Conv2D", "Dense"].map(Value::from).contains(&layer["class_name"]));
    let at_the_end = |k: usize, act: &str| act == "softmax" && end.is_none_or(|end| k >= end);
    let mut theirs: Vec<(String, usize)> = Vec::new();
    for (k, layer) in all.iter().enumerate() {
        let Some(act) = activation(layer).filter(|act| !at_the_end(k, act)) else { continue };
        if !own.contains(&act.as_str()) {
            let mut kinds = own.clone();
            kinds.sort_unstable();
            kinds.dedup();
            let kinds = if kinds.is_empty() { "no activation".to_owned() } else { kinds.join(" and ") };
            return Err(format!("its layer `{}` computes {act}, but the network has {kinds}", name(layer)));
        }
        theirs.push((act, uses(layer)));
    }
    for act in &own {
        let theirs: usize = theirs.iter().filter(|(other, _)| other == act).map(|(_, uses)| uses).sum();
        let own = own.iter().filter(|other| *other == act).count();
        if theirs != own {
            let plural = if theirs == 1 { "" } else { "s" };
            return Err(format!("it computes {act} at {theirs} place{plural}, but the network at {own}"));
        }
    }
    Ok(())
}

/// Compares what activations stand before each layer with weights: sorted, since branches may come in any order. What can't be
/// followed is not compared.
fn compare_order(places: &[Place], steps: &[Step]) -> Result<(), String> {
    let own: Option<Vec<_>> = steps
        .iter()
        .filter_map(|step| {
            step.op.and_then(class_of).map(|class| Some((class, sorted(before(step, steps)?))))
        })
        .collect();
    let weighted: Vec<_> = places
        .iter()
        .filter(|place| {
            ["Conv2D", "Dense", "BatchNormalization", "GroupNormalization"].contains(&place.class())
        })
        .collect();
    let Some(mut left) = own.filter(|own| own.len() == weighted.len()) else { return Ok(()) };
    let theirs: Option<Vec<_>> =
        weighted.iter().map(|place| Some((place, sorted(place.activations()?)))).collect();
    for (place, acts) in theirs.into_iter().flatten() {
        let class = place.class();
        let Some(k) = left.iter().position(|(kind, own)| *kind == class && *own == acts) else {
            let acts = if acts.is_empty() { "no activation".to_owned() } else { acts.join(" and ") };
            return Err(format!(
                "its layer `{}` comes behind {acts}, but no {class} of the network is left that does",
                name(place.layer)
            ));
        };
        left.remove(k);
    }
    Ok(())
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names
}

/// The activations between a step and the one with weights, or the sum or joint, before it.
fn before(step: &Step, steps: &[Step]) -> Option<Vec<String>> {
    let (mut found, mut step) = (Vec::new(), step);
    while let Some(before) = steps.iter().find(|before| before.output == step.inputs[0]) {
        step = before;
        let op = step.op?;
        found.extend(Some(act_of(op).name().to_owned()).filter(|name| name != "linear"));
        if class_of(op).is_some() || matches!(op, Op::Add(_) | Op::Concat(_)) {
            break;
        }
    }
    Some(found)
}

/// Refuses preprocessing inside of the model: here it comes before the network, by `--preprocessing`.
fn compare_preprocessing(all: &[&Value], steps: &[Step]) -> Result<(), String> {
    let scales = |layer: &Value| {
        let scale = layer["config"]["scale"].as_f64();
        let own = |step: &Step| match step.op {
            Some(Op::Scale(own)) => scale.is_some_and(|scale| (scale - f64::from(own.factor)).abs() < CLOSE),
            _ => false,
        };
        layer["config"]["offset"].as_f64().unwrap_or(0.0) == 0.0 && steps.iter().any(own)
    };
    let refused = all.iter().find(|layer| match layer["class_name"].as_str() {
        Some("Rescaling") => !scales(layer),
        Some("Normalization") => true,
        _ => false,
    });
    match refused {
        Some(layer) => Err(format!(
            "its layer `{}` changes pixels inside of the model, which here happens before the network; save it without \
             that layer, and name what it does by --preprocessing",
            name(layer)
        )),
        None => Ok(()),
    }
}

/// Compares what can't be seen from shapes: activations, poolings, the normalizations' epsilon, and the convolutions' strides,
/// paddings, dilations and groups; `convolutions` are the steps in the order of the model's convolutions.
pub(super) fn compare(config: &Value, steps: &[Step], convolutions: &[&Step]) -> Result<(), String> {
    let places = graph::places(config);
    let all: Vec<&Value> = places.iter().map(|place| place.layer).collect();
    if !all.is_empty() {
        compare_preprocessing(&all, steps)?;
        compare_activations(&all, steps)?;
        compare_order(&places, steps)?;
        convolution::check(&places)?;
        pooling::compare(&places, steps)?;
    }
    for layer in &all {
        let is_alike = |op: &Op| class_of(*op).is_some_and(|class| layer["class_name"] == class);
        let (own, groups) = match steps.iter().filter_map(|step| step.op).find(is_alike) {
            Some(Op::BatchNormTrain(norm)) => (norm.bn.epsilon, None),
            Some(Op::GroupNorm(norm)) => (norm.epsilon, Some(norm.groups as u64)),
            _ => continue,
        };
        let (name, options, epsilon) = (name(layer), &layer["config"], f64::from(own));
        if let Some(theirs) = options["epsilon"].as_f64()
            && (theirs - epsilon).abs() > CLOSE * epsilon
        {
            let theirs = format!("its layer `{name}` has epsilon={theirs}");
            return Err(format!("{theirs}, but the network normalizes with {own}"));
        }
        if let (Some(theirs), Some(groups)) = (options["groups"].as_u64(), groups)
            && theirs != groups
        {
            return Err(format!("its layer `{name}` has groups={theirs}, but the network has {groups}"));
        }
    }
    let theirs: Vec<Place> = places.into_iter().filter(|place| place.class() == "Conv2D").collect();
    convolution::compare(&theirs, convolutions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The configuration of `small_cnn` as Keras writes it, without the entries that are never read.
    fn small_cnn() -> Vec<Value> {
        let block = json!([
            {"class_name": "Conv2D", "config": {"name": "c", "activation": "linear", "strides": [1, 1]}},
            {"class_name": "BatchNormalization", "config": {"name": "n", "epsilon": 1e-3}},
            {"class_name": "Activation", "config": {"name": "a", "activation": "relu"}},
            {"class_name": "MaxPooling2D", "config": {"name": "p", "pool_size": [2, 2], "strides": [2, 2]}},
        ]);
        let block = block.as_array().unwrap();
        let dense = json!({"class_name": "Dense", "config": {"name": "d", "activation": "softmax"}});
        [block.as_slice(), block, block, &[dense]].concat()
    }

    fn told(layers: &[Value], model: &models::Model) -> String {
        let config = json!({"config": {"layers": layers}});
        compare(&config, &model.steps(), &[]).err().unwrap_or_default()
    }

    #[test]
    fn images_have_the_size_of_the_first_layer() {
        let model = |layers: Value| json!({ "config": { "layers": layers } });
        let input = |key: &str, shape: Value| {
            model(json!([{ "class_name": "InputLayer", "config": { "name": "x", key: shape } }]))
        };
        assert_eq!(image_size(&input("batch_shape", json!([null, 48, 40, 3]))), Some([48, 40]));
        assert_eq!(image_size(&input("batch_input_shape", json!([null, 32, 64, 3]))), Some([32, 64]));
        for shape in [json!([null, null, null, 3]), json!([null, 9]), json!(3), json!([null, -4, 8, 3])] {
            assert_eq!(image_size(&input("batch_shape", shape)), None);
        }
        assert_eq!(image_size(&model(json!([{ "class_name": "Dense", "config": {} }]))), None);
    }

    #[test]
    fn what_has_no_weights_is_compared() {
        let (layers, model) = (small_cnn(), models::small_cnn(10).unwrap());
        assert_eq!(told(&layers, &model), "");
        let with = |k: usize, layer: Value| {
            let mut layers = small_cnn();
            layers[k] = layer;
            told(&layers, &model)
        };
        let relu =
            json!({"class_name": "ReLU", "config": {"name": "r", "max_value": null, "negative_slope": 0.0}});
        assert_eq!(with(2, relu), "");
        let gelu = json!({"class_name": "Activation", "config": {"name": "a", "activation": {"class_name": "function", "config": "gelu"}}});
        assert_eq!(with(6, gelu), "its layer `a` computes gelu, but the network has relu");
        let relu6 = json!({"class_name": "ReLU", "config": {"name": "r", "max_value": 6.0}});
        assert_eq!(with(2, relu6), "its layer `r` computes ReLU, but the network has relu");
        let none = json!({"class_name": "Activation", "config": {"name": "a", "activation": "linear"}});
        assert_eq!(with(2, none), "it computes relu at 2 places, but the network at 3");
        let softmax = json!({"class_name": "Softmax", "config": {"name": "s"}});
        assert_eq!(with(2, softmax), "its layer `s` computes softmax, but the network has relu");
        let average = json!({"class_name": "AveragePooling2D", "config": {"name": "m", "pool_size": [2, 2], "strides": [2, 2]}});
        assert!(
            with(3, average)
                .starts_with("its layer `m` is AveragePooling2D(2, strides=2), but the poolings of the")
        );
        let wide =
            json!({"class_name": "MaxPooling2D", "config": {"name": "m", "pool_size": 3, "strides": [2, 2]}});
        assert!(with(7, wide).starts_with("its layer `m` is MaxPooling2D(3, strides=2), but"));
        let flatten = json!({"class_name": "Flatten", "config": {"name": "f"}});
        assert_eq!(with(11, flatten), "it has no MaxPooling2D(2, strides=2) where the network has one");
        for class in ["Rescaling", "Normalization"] {
            let first = json!({"class_name": class, "config": {"name": "scaled", "scale": 1.0 / 255.0, "offset": 0.0}});
            let told = told(&[&[first], layers.as_slice()].concat(), &model);
            assert!(told.starts_with("its layer `scaled` changes pixels inside of the model"), "{told}");
        }
    }

    /// One layer of Keras at several places; a pooling of the whole image by either name; a scaling that the
    /// network has too.
    #[test]
    fn the_same_in_other_words_fits() {
        let shared = json!({"class_name": "ReLU", "config": {"name": "r"}, "inbound_nodes": [0, 1, 2]});
        let mut layers = small_cnn();
        layers.retain(|layer| layer["class_name"] != "Activation");
        layers.push(shared);
        assert_eq!(told(&layers, &models::small_cnn(10).unwrap()), "");
        let relus = json!({"class_name": "ReLU", "config": {"name": "r"}, "inbound_nodes": vec![0; 17]});
        let resnet18 = models::resnet18(10).unwrap();
        for pool in [
            json!({"class_name": "GlobalAveragePooling2D", "config": {"name": "p"}}),
            json!({"class_name": "AveragePooling2D", "config": {"name": "p", "pool_size": [4, 4], "strides": [4, 4]}}),
        ] {
            assert_eq!(told(&[relus.clone(), pool], &resnet18), "");
        }
        let scaled = |scale: f64| {
            let gelus = json!({"class_name": "Activation", "config": {"name": "g", "activation": "gelu"}, "inbound_nodes": vec![0; 7]});
            let pool = |size: u64| json!({"class_name": "MaxPooling2D", "config": {"name": "p", "pool_size": [size, size]}});
            let scale = json!({"class_name": "Rescaling", "config": {"name": "s", "scale": scale}});
            told(&[gelus, pool(2), pool(2), pool(2), pool(3), scale], &models::airbench94(10).unwrap())
        };
        assert_eq!(scaled(1.0 / 9.0), "");
        assert!(scaled(1.0 / 255.0).contains("changes pixels"));
    }
}
