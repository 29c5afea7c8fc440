//! From a model's configuration to an architecture.

use super::layer::{self, Layer};
use crate::Imported;
use models::{Architecture, IMAGES, LayerSpec};
use serde_json::Value;
use std::collections::HashMap;

/// The most layers of a configuration, with its inputs and the layers of models in it.
const MOST_LAYERS: usize = 4000;

/// The most models inside of each other.
const MOST_DEPTH: usize = 8;

/// A network and the places of its weights.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) network: Imported,
    /// Of each layer with weights: its name in the network, and its place in the file.
    pub(super) places: Vec<Place>,
}

/// The place of a layer's weights in a file.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The layer's name in the network.
    pub(super) layer: String,
    /// Keras 3: the classes of the models around it, and its own with a number: `sequential/conv2d_1`.
    pub(super) numbered: String,
    /// `.h5`: the names of the models around it, and its own.
    pub(super) named: String,
}

/// Reads the configuration of a Sequential or functional model.
pub(super) fn read(config: &Value) -> Result<Read, String> {
    let mut reader = Reader::default();
    let images = vec![IMAGES.to_owned()];
    let output = reader.model(config, &Around::default(), &images)?;
    let mut architecture = Architecture { layers: reader.layers };
    put_last(&mut architecture, &output)?;
    let classes = architecture.take_classes();
    let name = config["config"]["name"].as_str().unwrap_or("model").to_owned();
    let network =
        Imported { name, architecture, classes, image: reader.image, notes: layer::notes(reader.left_out) };
    Ok(Read { network, places: reader.places })
}

/// Checks that the model's output is its last layer, or moves it there.
fn put_last(architecture: &mut Architecture, output: &str) -> Result<(), String> {
    let place = architecture.layers.iter().position(|layer| layer.name == output);
    let place = place.ok_or("its output is none of its layers")?;
    let last = architecture.layers.remove(place);
    architecture.layers.push(last);
    Ok(())
}

/// The models around a layer.
#[derive(Default)]
struct Around {
    /// Before the layer's name in the network.
    prefix: String,
    numbered: String,
    named: String,
    depth: usize,
}

#[derive(Default)]
struct Reader {
    layers: Vec<LayerSpec>,
    places: Vec<Place>,
    image: Option<[usize; 2]>,
    /// Layers and options of theirs that only matter for training.
    left_out: layer::LeftOut,
    count: usize,
}

/// The outputs of layers: by the name of a layer and the number of its call.
type Outputs = HashMap<(String, usize), String>;

/// A call of a layer: its number, and the outputs that it reads.
type Call<'a> = (Layer<'a>, usize, Vec<(String, usize)>);

impl Reader {
    /// Adds the layers of a model that reads `inputs`, and returns the name of its output.
    fn model(&mut self, model: &Value, around: &Around, inputs: &[String]) -> Result<String, String> {
        let class = model["class_name"].as_str().unwrap_or_default();
        // Keras 2.0 wrote a Sequential model as its list of layers.
        let layers = model["config"]["layers"].as_array().or(model["config"].as_array());
        let (true, Some(layers)) = (["Sequential", "Functional", "Model"].contains(&class), layers) else {
            return Err(format!(
                "it is a model of the class `{}`, but only Sequential and functional models have their layers in the file",
                layer::shortened(class)
            ));
        };
        if around.depth > MOST_DEPTH {
            return Err(format!("it has more than {MOST_DEPTH} models inside of each other"));
        }
        let mut counts = HashMap::new();
        let [input] = inputs else {
            return Err(format!("a model in it reads {} tensors, but must read one", inputs.len()));
        };
        if class == "Sequential" {
            let mut last = input.clone();
            for value in layers {
                if let Some(output) =
                    self.layer(&Layer::of(value), around, &mut counts, &[last.clone()], 0)?
                {
                    last = output;
                }
            }
            return Ok(last);
        }
        let (mut outputs, mut waiting) = (Outputs::new(), Vec::<Call<'_>>::new());
        let config = &model["config"];
        let (input_layer, output_layer) =
            (only(&config["input_layers"], "input")?, only(&config["output_layers"], "output")?);
        for value in layers {
            let layer = Layer::of(value);
            let calls = layer.calls();
            if calls.is_empty() || layer.class == "InputLayer" {
                if layer.name != input_layer.0 {
                    return Err(format!(
                        "its layer `{}` is a second input, but a network has one",
                        layer.name
                    ));
                }
                self.layer(&layer, around, &mut counts, &[], 0)?;
                outputs.insert((layer.name.to_owned(), 0), input.clone());
                continue;
            }
            if calls.len() > 1 && (layer.has_weights() || layer.is_model()) {
                return Err(format!(
                    "its layer `{}` is used {} times, but its weights can only be used once",
                    layer.name,
                    calls.len()
                ));
            }
            waiting.extend(calls.into_iter().enumerate().map(|(number, reads)| (layer, number, reads)));
            // A layer that is used again may read layers after its own place in the list.
            let all_read = |(_, _, reads): &Call<'_>, outputs: &Outputs| {
                reads.iter().all(|key| outputs.contains_key(key))
            };
            while let Some(next) = waiting.iter().position(|call| all_read(call, &outputs)) {
                let (layer, number, reads) = waiting.remove(next);
                let reads: Vec<String> = reads.iter().map(|key| outputs[key].clone()).collect();
                if let Some(output) = self.layer(&layer, around, &mut counts, &reads, number)? {
                    outputs.insert((layer.name.to_owned(), number), output);
                }
            }
            if waiting.len() > MOST_LAYERS {
                return Err(format!("it has more than {MOST_LAYERS} layers"));
            }
        }
        if let Some((layer, ..)) = waiting.first() {
            return Err(format!("its layer `{}` reads a layer that is not there", layer.name));
        }
        outputs.get(&output_layer).cloned().ok_or_else(|| "its output is none of its layers".to_owned())
    }

    /// Adds one call of a layer, and returns the name of its output. `None` for an input layer.
    fn layer(
        &mut self,
        layer: &Layer<'_>,
        around: &Around,
        counts: &mut HashMap<String, usize>,
        inputs: &[String],
        call: usize,
    ) -> Result<Option<String>, String> {
        self.count += 1;
        if self.count > MOST_LAYERS {
            return Err(format!("it has more than {MOST_LAYERS} layers"));
        }
        if self.image.is_none() {
            self.image = layer.image_size()?;
        }
        let snake = layers::keras_name(layer.class);
        let count = counts.entry(snake.clone()).or_insert(0);
        let numbered = if *count == 0 { snake } else { format!("{snake}_{count}") };
        *count += usize::from(call == 0);
        if layer.class == "InputLayer" {
            return Ok(None);
        }
        let place = Place {
            layer: format!("{}{}", around.prefix, layer.name),
            numbered: format!("{}{numbered}", around.numbered),
            named: format!("{}{}", around.named, layer.name),
        };
        if layer.is_model() {
            let inside = Around {
                prefix: format!("{}_", place.layer),
                numbered: format!("{}/", place.numbered),
                named: format!("{}/", place.named),
                depth: around.depth + 1,
            };
            return self.model(layer.value, &inside, inputs).map(Some);
        }
        let mut spec = layer.spec(&place.layer, &mut self.left_out)?;
        spec.name = if call == 0 { place.layer.clone() } else { format!("{}_call{call}", place.layer) };
        spec.inputs = inputs.to_vec();
        let name = spec.name.clone();
        if layer.has_weights() {
            self.places.push(place);
        }
        self.layers.push(spec);
        Ok(Some(name))
    }
}

/// The only input or output of a functional model: `["name", 0, 0]`, or a list of one such.
fn only(listed: &Value, what: &str) -> Result<(String, usize), String> {
    let all = listed.as_array().map(Vec::as_slice).unwrap_or_default();
    let one = match all {
        [Value::String(_), ..] => Some(all),
        [Value::Array(one)] => Some(one.as_slice()),
        _ => None,
    };
    match one {
        Some([Value::String(name), number, ..]) => {
            Ok((name.clone(), number.as_u64().unwrap_or_default() as usize))
        }
        _ => Err(format!("it has {} {what}s, but a network has one", all.len())),
    }
}
