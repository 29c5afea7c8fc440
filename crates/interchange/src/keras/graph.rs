//! The layers of a model's configuration, and the inputs of each.

use super::layer::{activation, name, two};
use program::Activation;
use serde_json::Value;

/// The most layers between two with weights: a damaged file may lead in circles.
const MAX_WALK: usize = 64;

/// Layers that keep zeros, because they change each element by itself or none.
const KEEP_ZERO: [&str; 4] = ["Dropout", "SpatialDropout2D", "InputLayer", "ReLU"];

/// A layer, or one use of it.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) layer: &'a Value,
    /// Those of its model.
    all: &'a [Value],
    k: usize,
    /// Which of its uses.
    node: usize,
    sequential: bool,
    /// Whether its model is a layer of another.
    nested: bool,
}

/// The layers of a model, those of models inside of it too.
pub(super) fn places(model: &Value) -> Vec<Place<'_>> {
    let mut places = Vec::new();
    collect(model, false, &mut places);
    places
}

fn collect<'a>(model: &'a Value, nested: bool, places: &mut Vec<Place<'a>>) {
    let all = model["config"]["layers"].as_array().map_or(&[][..], Vec::as_slice);
    let sequential = model["class_name"] == "Sequential";
    for (k, layer) in all.iter().enumerate() {
        places.push(Place { layer, all, k, node: 0, sequential, nested });
        collect(layer, true, places);
    }
}

impl<'a> Place<'a> {
    pub(super) fn class(&self) -> &'a str {
        self.layer["class_name"].as_str().unwrap_or_default()
    }

    /// Another use of the same layer.
    pub(super) fn at(self, node: usize) -> Self {
        Place { node, ..self }
    }

    /// The one layer that it reads, `Some(None)` if that is the model's input, and `None` if the file doesn't say.
    fn before(self) -> Option<Option<Self>> {
        let outside = (!self.nested).then_some(None);
        if self.sequential {
            return match self.k.checked_sub(1) {
                Some(k) => Some(Some(Place { layer: &self.all[k], k, node: 0, ..self })),
                None => outside,
            };
        }
        let nodes = self.layer["inbound_nodes"].as_array()?;
        if nodes.is_empty() {
            return outside.filter(|_| self.class() == "InputLayer");
        }
        // Of Keras 3 and of Keras 2.
        let node = nodes.get(self.node)?;
        let history = match &node["args"] {
            Value::Array(args) => &args.first()?["config"]["keras_history"],
            _ => node.as_array().filter(|read| read.len() == 1)?.first()?,
        };
        let (read, node) = (history[0].as_str()?, history[1].as_u64()?.try_into().ok()?);
        let k = self.all.iter().position(|layer| name(layer) == read)?;
        Some(Some(Place { layer: &self.all[k], k, node, ..self }))
    }

    /// The zeros that layers before this one put around its input: above, below, left, right. `None` if the file
    /// doesn't say.
    pub(super) fn zeros(self) -> Option<[usize; 4]> {
        let (mut zeros, mut place) = ([0_usize; 4], self);
        for _ in 0..MAX_WALK {
            let Some(before) = place.before()? else { return Some(zeros) };
            place = before;
            match place.class() {
                "ZeroPadding2D" => {
                    let more = zero_padding(&place.layer["config"]["padding"])?;
                    for (zeros, more) in zeros.iter_mut().zip(more) {
                        *zeros = zeros.checked_add(more)?;
                    }
                }
                "Add" | "Concatenate" => return (!place.reads_zeros()).then_some(zeros),
                "Conv2D" | "BatchNormalization" | "MaxPooling2D" | "AveragePooling2D" => return Some(zeros),
                "Activation"
                    if activation(place.layer)
                        .is_none_or(|name| Activation::ALL.iter().any(|act| act.name() == name)) => {}
                class if KEEP_ZERO.contains(&class) => {}
                _ => return None,
            }
        }
        None
    }

    /// Whether one of several layers that it reads puts zeros around.
    fn reads_zeros(&self) -> bool {
        let read = self.layer["inbound_nodes"].to_string();
        let zeros = self.all.iter().filter(|layer| layer["class_name"] == "ZeroPadding2D");
        zeros.into_iter().any(|layer| read.contains(&layer["config"]["name"].to_string()))
    }

    /// The activations between this layer and the one with weights, or the sum or joint, before it. `None` if the file
    /// doesn't say.
    pub(super) fn activations(self) -> Option<Vec<String>> {
        let (mut found, mut place) = (Vec::new(), self);
        for _ in 0..MAX_WALK {
            let Some(before) = place.before()? else { return Some(found) };
            place = before;
            match place.class() {
                "Add" | "Concatenate" => return Some(found),
                "Conv2D" | "Dense" | "BatchNormalization" => {
                    found.extend(activation(place.layer));
                    return Some(found);
                }
                "Activation" | "ReLU" | "LeakyReLU" | "PReLU" | "ELU" | "ThresholdedReLU" | "Softmax" => {
                    found.extend(activation(place.layer));
                }
                "ZeroPadding2D"
                | "Flatten"
                | "Dropout"
                | "SpatialDropout2D"
                | "InputLayer"
                | "Rescaling"
                | "MaxPooling2D"
                | "AveragePooling2D"
                | "GlobalMaxPooling2D"
                | "GlobalAveragePooling2D" => {}
                _ => return None,
            }
        }
        None
    }
}

/// `1`, `[rows, columns]` or `[[above, below], [left, right]]`.
fn zero_padding(padding: &Value) -> Option<[usize; 4]> {
    let along = |axis: usize| two(if padding.is_number() { padding } else { &padding[axis] });
    let ([top, bottom], [left, right]) = (along(0)?, along(1)?);
    Some([top, bottom, left, right])
}
