//! What a configuration says of one layer.

use serde_json::Value;

pub(super) fn name(layer: &Value) -> &str {
    layer["config"]["name"].as_str().unwrap_or_default()
}

/// How often a layer is used: one of `Activation` may stand at many places.
pub(super) fn uses(layer: &Value) -> usize {
    layer["inbound_nodes"].as_array().map_or(1, |nodes| nodes.len().max(1))
}

/// What a layer does to each element by itself, as Keras calls it.
pub(super) fn activation(layer: &Value) -> Option<String> {
    let (class, options) = (layer["class_name"].as_str()?, &layer["config"]);
    let zero = |option: &str| options[option].as_f64().unwrap_or(0.0) == 0.0;
    let plain = options["max_value"].is_null() && zero("negative_slope") && zero("threshold");
    match class {
        "ReLU" if plain => Some("relu".to_owned()),
        "Softmax" => Some("softmax".to_owned()),
        "ReLU" | "LeakyReLU" | "PReLU" | "ELU" | "ThresholdedReLU" => Some(class.to_owned()),
        _ => {
            let named = &options["activation"];
            let name = named.as_str().or(named["config"].as_str()).or(named["class_name"].as_str())?;
            Some(name.to_owned()).filter(|name| name != "linear")
        }
    }
}

/// Rows and columns: of `[h, w]`, or of one number for both.
pub(super) fn two(value: &Value) -> Option<[usize; 2]> {
    let number = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
    match number(value) {
        Some(n) => Some([n; 2]),
        None => Some([number(&value[0])?, number(&value[1])?]),
    }
}
