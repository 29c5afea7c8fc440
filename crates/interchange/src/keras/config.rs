//! What a model's configuration says beyond its weights.

use crate::Error;
use layers::{Operation, Step};
use serde_json::Value;
use std::path::Path;

/// The longest configuration that is read, in bytes of JSON: as numbers in memory it may take 16 times as much.
pub(super) const MAX_CONFIG: u64 = 16 << 20;

pub(super) fn too_large(path: &Path) -> Error {
    let most = MAX_CONFIG >> 20;
    Error::file(path, format!("its model's configuration is longer than {most} MiB, the most that is read"))
}

/// Epsilons are written as decimal numbers.
const CLOSE: f64 = 1e-6;

/// The layers of a model, those of models inside of it too.
fn layers(model: &Value) -> Vec<&Value> {
    let own = model["config"]["layers"].as_array();
    own.into_iter().flatten().flat_map(|layer| [vec![layer], layers(layer)].concat()).collect()
}

/// Compares what can't be seen from shapes: the order of an image's axes, the normalizations' epsilon and the convolutions'
/// strides; `convolutions` are the steps in the order of the model's convolutions.
pub(super) fn compare(config: &Value, steps: &[Step], convolutions: &[&Step]) -> Result<(), String> {
    let all = layers(config);
    let of = |class: &str| all.iter().filter(|layer| layer["class_name"] == class).collect::<Vec<_>>();
    let name = |layer: &Value| layer["config"]["name"].as_str().unwrap_or_default().to_owned();
    if let Some(layer) = all.iter().find(|layer| layer["config"]["data_format"] == "channels_first") {
        return Err(format!(
            "its layer `{}` has data_format=\"channels_first\", and towers reads \"channels_last\" alone",
            name(layer)
        ));
    }
    let epsilon = steps.iter().find_map(|step| match step.operation {
        Some(Operation::BatchNorm(norm)) => Some(f64::from(norm.epsilon)),
        _ => None,
    });
    for layer in of("BatchNormalization") {
        if let (Some(own), Some(epsilon)) = (layer["config"]["epsilon"].as_f64(), epsilon)
            && (own - epsilon).abs() > CLOSE * epsilon
        {
            let own = format!("its layer `{}` has epsilon={own}", name(layer));
            return Err(format!("{own}, but the network normalizes with {}", epsilon as f32));
        }
    }
    let theirs = of("Conv2D");
    for (layer, step) in theirs.iter().zip(convolutions).filter(|_| theirs.len() == convolutions.len()) {
        let (Some(Operation::Conv2d(conv, _)), Some(own)) =
            (step.operation, layer["config"]["strides"].as_array())
        else {
            continue;
        };
        if !own.iter().map(Value::as_u64).eq(conv.stride.map(|stride| Some(stride as u64))) {
            let (own, stride) = (&layer["config"]["strides"], conv.stride);
            return Err(format!(
                "its layer `{}` has strides={own}, but the network's `{}` {stride:?}",
                name(layer),
                step.name
            ));
        }
    }
    Ok(())
}
