//! The model inside of one that `multi_gpu_model` made.
//!
//! Keras 2.0.9 to 2.3 wrapped a model for several GPUs: a `Lambda` layer cuts a slice of the batch for each GPU, one inner model is
//! called on every slice, and a `Concatenate` puts the outputs together again. Such a model computes what its inner model does. The
//! code in its `Lambda` layers is never run: a slice is known by its arguments, and by its place.

use super::calls::first_numbers;
use super::layer::{Layer, ends};
use super::shortened;
use serde_json::Value;
use std::collections::HashMap;

/// The arguments of the functions that cut slices, which GPU's and of how many: in Keras, in `to_multi_gpu` of a tutorial, and in
/// `make_parallel`, from which both come.
const ARGUMENTS: [[&str; 2]; 3] = [["i", "parts"], ["part", "n_gpus"], ["idx", "parts"]];

/// The inner model of one for several GPUs.
pub(super) struct Inner<'a> {
    /// Its entry in the list of layers.
    pub(super) layer: Layer<'a>,
    /// The number of slices.
    pub(super) replicas: usize,
    /// The layer with the pictures.
    pub(super) input: Layer<'a>,
}

impl Inner<'_> {
    /// A sentence about it for people.
    pub(super) fn note(&self) -> String {
        let (name, n) = (shortened(self.layer.name), self.replicas);
        let each = if n == 1 { "one GPU".to_owned() } else { format!("{n} GPUs") };
        format!("it is a model for {each}, as multi_gpu_model makes it: its inner model `{name}` is taken")
    }
}

/// A sentence about a file whose weights are of a model around the one that its layers are of.
pub(super) fn of_weights(name: &str) -> String {
    let name = shortened(name);
    format!("its weights are those of `{name}` inside of another model, as multi_gpu_model saves them")
}

/// The inner model, if the model's output is put together on the batch axis from slices of the batch.
///
/// # Errors
/// A sentence, if other parts of it are not as in such a model.
pub(super) fn inner<'a>(model: &'a Value) -> Result<Option<Inner<'a>>, String> {
    let config = &model["config"];
    let is_functional = ["Functional", "Model"].contains(&model["class_name"].as_str().unwrap_or_default());
    let Some(layers) = config["layers"].as_array().filter(|_| is_functional) else { return Ok(None) };
    let layers: Vec<Layer<'a>> = layers.iter().map(Layer::of).collect();
    let Ok(output) = ends(&config["output_layers"], "output", 1) else { return Ok(None) };
    let whole = layers.iter().find(|layer| layer.name == output[0].0).copied();
    let is_joint = |layer: &Layer<'_>| layer.class == "Concatenate" && layer.value["config"]["axis"] == 0;
    let Some(whole) = whole.filter(is_joint) else { return Ok(None) };
    let refuse = |why: String| {
        let name = shortened(whole.name);
        Err(format!(
            "its layer `{name}` puts batches together, as multi_gpu_model does, but {why}; save the model that was given to \
             multi_gpu_model"
        ))
    };
    let mut models = layers.iter().filter(|layer| layer.is_model()).copied();
    let (Some(inner), None) = (models.next(), models.next()) else {
        return refuse("it has not one inner model".to_owned());
    };
    let mut inputs = layers.iter().filter(|layer| layer.class == "InputLayer").copied();
    let (Some(input), None) = (inputs.next(), inputs.next()) else {
        return refuse("it has not one input".to_owned());
    };
    let first = first_numbers(layers.iter(), &output[0]).get(inner.name).copied().unwrap_or(0);
    let slices: HashMap<&str, Layer<'a>> = layers.iter().map(|layer| (layer.name, *layer)).collect();
    let (calls, parts) = (inner.calls(), whole.calls().concat());
    if parts.len() != calls.len() || layers.len() != calls.len() + 3 {
        return refuse("some of its layers are no part of that".to_owned());
    }
    for (k, (name, number)) in parts.iter().enumerate() {
        let call = number.checked_sub(first).and_then(|call| calls.get(call)).filter(|_| name == inner.name);
        let slice = match call.map(Vec::as_slice) {
            Some([(slice, 0)]) => slices.get(slice.as_str()),
            _ => None,
        };
        let Some(slice) = slice else {
            return refuse(format!("part {k} is no output of `{}`", shortened(inner.name)));
        };
        let reads = slice.calls();
        let of_input = matches!(&reads[..], [read] if matches!(&read[..], [(name, 0)] if name == input.name));
        if !of_input || part(slice) != Some([k, calls.len()]) {
            return refuse(format!(
                "its layer `{}` is not known to cut slice {k} of {} from the batch",
                shortened(slice.name),
                calls.len()
            ));
        }
    }
    Ok(Some(Inner { layer: inner, replicas: calls.len(), input }))
}

/// Which slice a layer cuts, and of how many.
fn part(layer: &Layer<'_>) -> Option<[usize; 2]> {
    let config = &layer.value["config"];
    let arguments = match layer.class {
        "Lambda" => config["arguments"].as_object()?,
        "Slice" => config.as_object()?,
        _ => return None,
    };
    // Code has no name, but a function by its name must be one that cuts slices.
    let function = config["function"].as_str().or(config["function"]["config"].as_str());
    if function.is_some_and(|name| !name.contains("slice")) || layer.class == "Lambda" && arguments.len() != 2
    {
        return None;
    }
    let number = |key: &str| arguments.get(key)?.as_u64()?.try_into().ok();
    ARGUMENTS.iter().find_map(|[part, parts]| Some([number(part)?, number(parts)?]))
}
