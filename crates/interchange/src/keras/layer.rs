//! One layer of a configuration.

use super::place::Place;
use crate::text::shortened;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use towers_models::{LayerSpec, initializer_of, options_of};

/// A layer as a configuration has it.
#[derive(Clone, Copy)]
pub(super) struct Layer<'a> {
    pub(super) value: &'a Value,
    pub(super) class: &'a str,
    pub(super) name: &'a str,
}

/// Options that don't change what a layer computes.
const NEUTRAL: [&str; 9] = [
    "name",
    "dtype",
    "batch_shape",
    "batch_input_shape",
    "seed",
    "fused",
    "renorm_momentum",
    "interpolation",
    "input_dtype",
];

/// Layers that files have weights of.
const WITH_WEIGHTS: [&str; 9] = [
    "BatchNormalization",
    "Conv2D",
    "Dense",
    "DepthwiseConv2D",
    "GroupNormalization",
    "LayerNormalization",
    "LayerScale",
    "PReLU",
    "SeparableConv2D",
];

/// Functions of Keras that a functional model holds like layers, and the activations that do the same.
const FUNCTIONS: [(&str, &str); 7] = [
    ("Gelu", "gelu"),
    ("HardSigmoid", "hard_sigmoid"),
    ("Relu", "relu"),
    ("Relu6", "relu6"),
    ("Sigmoid", "sigmoid"),
    ("Silu", "silu"),
    ("Tanh", "tanh"),
];

/// The functions of TensorFlow that a model of Keras 2 holds like layers, and their names in Keras 3.
const OPERATORS: [(&str, &str); 11] = [
    ("__operators__.add", "Add"),
    ("math.add", "Add"),
    ("math.subtract", "Subtract"),
    ("math.multiply", "Multiply"),
    ("math.truediv", "TrueDivide"),
    ("math.sigmoid", "Sigmoid"),
    ("math.tanh", "Tanh"),
    ("nn.gelu", "Gelu"),
    ("nn.relu", "Relu"),
    ("nn.relu6", "Relu6"),
    ("nn.silu", "Silu"),
];

/// Layers that change nothing but a training, besides those that draw: [`Layer::passes_on`].
const FOR_TRAINING: [&str; 4] =
    ["ActivityRegularization", "AlphaDropout", "GaussianDropout", "GaussianNoise"];

impl<'a> Layer<'a> {
    pub(super) fn of(value: &'a Value) -> Self {
        let mut class = value["class_name"].as_str().unwrap_or_default();
        if class == "TFOpLambda" {
            let known = OPERATORS.into_iter().find(|(own, _)| value["config"]["function"] == *own);
            class = known.map_or(class, |(_, class)| class);
        }
        let name = value["config"]["name"].as_str().or(value["name"].as_str()).unwrap_or_default();
        Layer { value, class, name }
    }

    pub(super) fn is_model(&self) -> bool {
        ["Sequential", "Functional", "Model"].contains(&self.class)
    }

    /// The policy of a layer that computes in another format than its weights have, as `mixed_float16`.
    pub(super) fn policy(&self) -> Option<&'a str> {
        let dtype = &self.value["config"]["dtype"];
        let name = dtype.as_str().or(dtype["config"]["name"].as_str())?;
        name.starts_with("mixed_").then_some(name)
    }

    /// Whether files have weights of it.
    pub(super) fn has_weights(&self) -> bool {
        WITH_WEIGHTS.contains(&self.class)
    }

    /// Whether it has weights itself or, as a model, in a layer.
    pub(super) fn has_any_weights(&self) -> bool {
        self.has_weights() || self.is_adapted() || self.inner().any(|layer| layer.has_any_weights())
    }

    /// The layers of a model.
    pub(super) fn inner(&self) -> impl Iterator<Item = Layer<'a>> + use<'a> {
        let config = &self.value["config"];
        let layers = config["layers"].as_array().or(config.as_array()).filter(|_| self.is_model());
        layers.map(Vec::as_slice).unwrap_or_default().iter().map(Layer::of)
    }

    /// Whether it works in another way in training.
    pub(super) fn differs_in_training(&self) -> bool {
        ["BatchNormalization", "Dropout", "SpatialDropout2D", "StochasticDepth"].contains(&self.class)
            || self.passes_on("", &mut Vec::new()) && self.class != "Identity"
            || self.inner().any(|layer| layer.differs_in_training())
    }

    /// Whether a call says that the layer works as in training, whatever the model does: `[["name", 0, 0, {"training": false}]]` in
    /// Keras 2. Keras 3 writes such a word too, but goes by the model.
    pub(super) fn mode(&self, call: usize) -> Option<bool> {
        let node = &self.value["inbound_nodes"][call];
        let first = if node[0][0].is_string() { &node[0] } else { node };
        first[3]["training"].as_bool()
    }

    /// Whether a network that is used gives on what this layer gets. If that is not so in training, it is added to `left_out`,
    /// with its name in the network.
    pub(super) fn passes_on(&self, name: &str, left_out: &mut LeftOut) -> bool {
        let remedy = match self.class {
            "Identity" => return true,
            // At the end, a crop is the middle of the image.
            class if class.starts_with("Random") && class != "RandomCrop" => {
                "give options of augmentation, such as horizontal_flip"
            }
            class if FOR_TRAINING.contains(&class) => "it only matters in training, and is left out",
            _ => return false,
        };
        left_out.push((name.to_owned(), self.class.to_owned(), remedy.to_owned()));
        true
    }

    /// Whether it subtracts a mean and divides by a deviation that it has measured, which are among the weights.
    pub(super) fn is_adapted(&self) -> bool {
        self.class == "Normalization" && self.value["config"]["mean"].is_null()
    }

    /// A sum or product with a number, or a normalization by fixed numbers, as a `Rescaling`. `measured` has the mean and the variance
    /// of one that [is adapted](Layer::is_adapted).
    pub(super) fn rescaling(
        &self,
        place: &Place,
        measured: Option<[Vec<f32>; 2]>,
    ) -> Result<Option<LayerSpec>, String> {
        let options = match self.class {
            "Normalization" => Some(self.normalization(measured).ok_or_else(|| no_channels(place))?),
            _ => self.with_number().map(|[scale, offset]| json!({"scale": scale, "offset": offset})),
        };
        let options = options.map(|options| options.as_object().cloned().unwrap_or_default());
        let class = || "Rescaling".to_owned();
        Ok(options.map(|options| LayerSpec { class: class(), options, ..LayerSpec::default() }))
    }

    /// Scale and offset of a normalization, for all channels or for each.
    fn normalization(&self, measured: Option<[Vec<f32>; 2]>) -> Option<Value> {
        let config = &self.value["config"];
        let given = || ["mean", "variance"].map(|key| numbers(&config[key]));
        let [means, variances] = measured.unwrap_or_else(given);
        // Without an axis one number is for all channels.
        let has_no_axis = config["axis"].as_array().map_or(config["axis"].is_null(), Vec::is_empty);
        let is_for_all = has_no_axis && means.len() == 1;
        let is_of_channels = is_for_all || self.is_last(&config["axis"]);
        if config["invert"] == true || !is_of_channels || means.len() != variances.len() {
            return None;
        }
        let scales: Vec<f64> =
            variances.iter().map(|&variance| 1.0 / f64::from(variance).sqrt().max(1e-7)).collect();
        let offsets = means.iter().zip(&scales).map(|(&mean, scale)| -f64::from(mean) * scale);
        let offsets: Vec<f64> = offsets.collect();
        Some(match (&scales[..], &offsets[..]) {
            ([scale], [offset]) => json!({"scale": scale, "offset": offset}),
            _ => json!({"scale": scales, "offset": offsets}),
        })
    }

    /// Scale and offset of a sum or product with a number.
    fn with_number(&self) -> Option<[f64; 2]> {
        let (number, is_first) = self.number()?;
        match self.class {
            "Add" => Some([1.0, number]),
            "Subtract" if is_first => Some([-1.0, number]),
            "Subtract" => Some([1.0, -number]),
            "Multiply" => Some([number, 0.0]),
            "TrueDivide" if !is_first && (1.0 / number).is_finite() => Some([1.0 / number, 0.0]),
            _ => None,
        }
    }

    /// The number that a function reads beside a tensor, and whether it comes first: `{"args": [tensor, 2.0]}` in Keras 3, and
    /// `["name", 0, 0, {"y": 2.0}]` or `["_CONSTANT_VALUE", -1, 2.0, {"y": tensor}]` in Keras 2.
    fn number(&self) -> Option<(f64, bool)> {
        let node = &self.value["inbound_nodes"][0];
        let first = node["args"][0].as_f64().or(node[2].as_f64().filter(|_| node[1] == -1));
        let second = node["args"][1].as_f64().or(node[3]["y"].as_f64());
        first.map(|number| (number, true)).or(second.map(|number| (number, false)))
    }

    /// The layers that each call reads, with the number of their call.
    pub(super) fn calls(&self) -> Vec<Vec<(String, usize)>> {
        let nodes = self.value["inbound_nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
        nodes
            .iter()
            .map(|node| {
                let mut tensors = Vec::new();
                tensors_in(node, &mut tensors);
                tensors
            })
            .collect()
    }

    /// Height and width, and the channels of the images, in the configuration of an input layer, or of the first layer in Keras 2.
    /// `name` is the layer's name for people.
    pub(super) fn image_shape(&self, name: &str) -> Result<(Option<[usize; 2]>, Option<usize>), String> {
        let side =
            |side: &Value| side.as_u64().filter(|&side| side > 0).and_then(|side| side.try_into().ok());
        let shapes = ["batch_shape", "batch_input_shape"].map(|key| self.value["config"][key].as_array());
        let Some(shape) = shapes.into_iter().flatten().next() else { return Ok((None, None)) };
        match shape.as_slice() {
            [_, h, w, channels] if *channels == 1 || *channels == 3 || channels.is_null() => {
                Ok((side(h).zip(side(w)).map(|(h, w)| [h, w]), side(channels)))
            }
            _ => Err(format!(
                "its input `{name}` has the shape {}, but must have rows, columns and 1 or 3 channels",
                shortened(&Value::from(shape.clone()).to_string())
            )),
        }
    }

    /// The class and its options. `of_vectors` tells whether it reads vectors. Options for training alone that are left out are
    /// added to `left_out`.
    pub(super) fn spec(
        &self,
        place: &Place,
        of_vectors: bool,
        left_out: &mut LeftOut,
    ) -> Result<LayerSpec, String> {
        let function = FUNCTIONS.into_iter().find(|(own, _)| *own == self.class);
        let class = function.map_or(self.class, |_| "Activation");
        let known = options_of(class).ok_or_else(|| {
            let names = towers_models::CLASSES.join(", ");
            format!(
                "its layer `{}` is a {}, which is not supported; supported are {names}",
                place.own_name(),
                shortened(self.class)
            )
        })?;
        self.check_arguments(place)?;
        let mut options = Map::new();
        options.extend(function.map(|(_, activation)| ("activation".to_owned(), activation.into())));
        for (key, value) in self.value["config"].as_object().into_iter().flatten() {
            let unknown_initializer =
                || key.ends_with("_initializer") && initializer_of(&plain(value)).is_none();
            if value.is_null() {
                continue;
            }
            if known.contains(&key.as_str()) && !unknown_initializer() {
                options.insert(key.clone(), plain(value));
            } else if !self.is_neutral(key, value, of_vectors) {
                if key == "data_format" {
                    return Err(format!(
                        "its layer `{}` has data_format=\"channels_first\", and towers reads \"channels_last\" alone; build the \
                         model with that, set its weights, and save it anew",
                        place.own_name()
                    ));
                }
                if !is_for_training(key) {
                    return Err(format!(
                        "its layer `{}` has {}={}, which is not supported",
                        place.own_name(),
                        shortened(key),
                        shortened(&plain(value).to_string())
                    ));
                }
                left_out.push((place.layer.clone(), key.clone(), remedy(key, value)));
            }
        }
        Ok(LayerSpec { class: class.to_owned(), options, ..LayerSpec::default() })
    }

    /// Refuses arguments of a function of TensorFlow, such as `approximate`.
    fn check_arguments(&self, place: &Place) -> Result<(), String> {
        let arguments = self.value["inbound_nodes"][0][3].as_object();
        let says_more = |(key, value): &(&String, &Value)| {
            !["name", "y"].contains(&key.as_str()) && !value.is_null() && **value != false
        };
        match arguments
            .filter(|_| self.value["class_name"] == "TFOpLambda")
            .into_iter()
            .flatten()
            .find(says_more)
        {
            None => Ok(()),
            Some((key, value)) => Err(format!(
                "its layer `{}` has {}={}, which is not supported",
                place.own_name(),
                shortened(key),
                shortened(&value.to_string())
            )),
        }
    }

    /// Whether an option has the value that changes nothing. `of_vectors` is as for [`spec`](Layer::spec).
    fn is_neutral(&self, key: &str, value: &Value, of_vectors: bool) -> bool {
        let ones = |value: &Value| match value {
            Value::Array(values) => values.iter().all(|value| *value == 1),
            value => *value == 1,
        };
        let initializer =
            || value["class_name"].as_str().or(value.as_str()).unwrap_or_default().to_lowercase();
        match key {
            "trainable" => *value != false || !self.has_weights(),
            _ if *value == false || NEUTRAL.contains(&key) => true,
            "function" => self.value["class_name"] == "TFOpLambda",
            "data_format" => value == "channels_last",
            "groups" => ones(value),
            "dilation_rate" => ones(value),
            "axis" => self.is_last(value) || of_vectors && [json!(1), json!([1])].contains(value),
            "bias_initializer" | "beta_initializer" | "moving_mean_initializer" => initializer() == "zeros",
            "gamma_initializer" | "moving_variance_initializer" => initializer() == "ones",
            _ => false,
        }
    }

    /// Whether an axis is that of the channels: the last one.
    fn is_last(&self, axis: &Value) -> bool {
        let axis = match axis {
            Value::Array(axes) if axes.len() == 1 => axes[0].as_i64(),
            axis => axis.as_i64(),
        };
        let shape = self.value["build_config"]["input_shape"].as_array();
        let rank = shape.map(|shape| shape.first().and_then(Value::as_array).unwrap_or(shape).len());
        match axis {
            Some(-1 | 3) => true,
            Some(axis) => rank.is_some_and(|rank| axis.checked_add(1) == i64::try_from(rank).ok()),
            None => false,
        }
    }
}

/// Why a normalization can't be taken over.
pub(super) fn no_channels(place: &Place) -> String {
    format!("its layer `{}` must normalize each channel by one mean and one variance", place.own_name())
}

/// The numbers in a list of lists of numbers, or a number alone. The parser bounds how deep a value may be.
fn numbers(value: &Value) -> Vec<f32> {
    match value {
        Value::Array(values) => values.iter().flat_map(numbers).collect(),
        value => value.as_f64().map(|x| x as f32).into_iter().collect(),
    }
}

/// Adds the tensors that a call reads: `{"config": {"keras_history": ["name", 0, 0]}}` in Keras 3, and
/// `["name", 0, 0, {}]` in Keras 2. The parser bounds how deep a value may be.
pub(super) fn tensors_in(value: &Value, found: &mut Vec<(String, usize)>) {
    let history = &value["config"]["keras_history"];
    let tensor = |listed: &Value| Some((listed[0].as_str()?.to_owned(), listed[1].as_u64()? as usize));
    if let Some(one) = tensor(history) {
        found.push(one);
        return;
    }
    found.extend(tensor(value));
    // Behind the first tensor of a function may be others, by the names of its arguments.
    match value {
        Value::Array(values) => values.iter().for_each(|value| tensors_in(value, found)),
        Value::Object(values) => values.values().for_each(|value| tensors_in(value, found)),
        _ => (),
    }
}

/// The inputs or outputs of a functional model, of which there must be `count`.
pub(super) fn ends(listed: &Value, what: &str, count: usize) -> Result<Vec<(String, usize)>, String> {
    let mut ends = Vec::new();
    tensors_in(listed, &mut ends);
    if count > 1 && listed.is_object() {
        return Err(format!(
            "a model in it has {what}s by name; build it with a list of them, and save it anew"
        ));
    }
    match ends.len() {
        found if found == count => Ok(ends),
        found if count == 1 => Err(format!("it has {found} {what}s, but a network has one")),
        found => Err(format!("a model in it has {found} {what}s, but reads {count} tensors")),
    }
}

/// A layer, an option of its training that is left out, and what to do about it.
pub(super) type LeftOut = Vec<(String, String, String)>;

/// Options of training that an architecture has no words for: they are named, and left out.
fn is_for_training(key: &str) -> bool {
    ["_initializer", "_regularizer", "_constraint"].iter().any(|ending| key.ends_with(ending))
        || ["trainable", "synchronized"].contains(&key)
}

fn remedy(option: &str, value: &Value) -> String {
    // Keras adds the sum of the squares to the loss, whose gradient is twice the weight.
    let l2 = value["config"]["l2"].as_f64().map(|l2| 2.0 * l2);
    match (option, l2) {
        ("trainable", _) => "freeze the layer in the training instead".to_owned(),
        ("synchronized", _) => "synchronize batch normalization in the training instead".to_owned(),
        ("kernel_regularizer", Some(l2)) => {
            format!(
                "give the training a parameter group, 'NAME/kernel:l2={l2}', or '*/kernel:l2={l2}' for all layers"
            )
        }
        _ if option.ends_with("_initializer") => {
            "the default takes its place in a training with new weights".to_owned()
        }
        _ => "it only matters in training, and is left out".to_owned(),
    }
}

/// The sentences about options that were left out.
pub(super) fn notes(left_out: LeftOut) -> Vec<String> {
    let mut by_option: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for (layer, option, remedy) in left_out {
        by_option.entry((option, remedy)).or_default().push(layer);
    }
    let note = |((option, remedy), layers): (_, Vec<String>)| {
        format!("{option} of {} is not taken over: {remedy}", shortened(&layers.join(", ")))
    };
    by_option.into_iter().map(note).collect()
}

/// A value without what Keras adds to say where it is from: an initializer keeps its name and its numbers, a
/// function its name.
fn plain(value: &Value) -> Value {
    let Value::Object(table) = value else { return value.clone() };
    let class = value["class_name"].as_str().unwrap_or_default();
    match (&value["config"], class) {
        // A function, such as an activation.
        (Value::String(name), _) => name.clone().into(),
        (Value::Object(options), _) => {
            // The seed of an initializer is not ours.
            let stays =
                |(key, value): &(&String, &Value)| *key != "seed" && (value.is_number() || value.is_string());
            let kept = options.iter().filter(stays).map(|(key, value)| (key.clone(), value.clone()));
            let numbers: Map<String, Value> = kept.collect();
            match numbers.is_empty() {
                true => class.into(),
                false => json!({"class_name": class, "config": numbers}),
            }
        }
        _ => table.clone().into(),
    }
}
