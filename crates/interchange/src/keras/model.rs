//! From a model's configuration to an architecture.

use super::compile;
use super::layer::{self, Layer};
use super::place::Place;
use super::unit::Unit;
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
    /// Layers of the file whose numbers are in the network: normalizations that were adapted to data.
    pub(super) adapted: Vec<usize>,
}

/// Reads the configuration of a Sequential or functional model. `weights` are the layers of its file, and whether they have names.
pub(super) fn read(config: &Value, weights: (&[Unit], bool)) -> Result<Read, String> {
    let mut reader = Reader { weights, ..Reader::default() };
    let images = vec![IMAGES.to_owned()];
    let output = reader.model(config, &Around::default(), &images)?;
    let mut architecture = Architecture { layers: reader.layers };
    put_last(&mut architecture, &output)?;
    let classes = architecture.take_classes();
    let name = config["config"]["name"].as_str().unwrap_or("model").to_owned();
    let (image, notes) = (reader.image, layer::notes(reader.left_out));
    let compiled = compile::read(&config["compile_config"]);
    let network = Imported { name, architecture, classes, image, notes, compiled };
    Ok(Read { network, places: reader.places, adapted: reader.adapted })
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
struct Reader<'a> {
    weights: (&'a [Unit], bool),
    adapted: Vec<usize>,
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

impl Reader<'_> {
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
        if class == "Sequential" {
            let [input] = inputs else {
                return Err(format!(
                    "a Sequential model in it reads {} tensors, but must read one",
                    inputs.len()
                ));
            };
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
        let input_layers = ends(&config["input_layers"], "input", inputs.len())?;
        let output_layer = ends(&config["output_layers"], "output", 1)?.remove(0);
        for value in layers {
            let layer = Layer::of(value);
            let calls = layer.calls();
            if calls.is_empty() || layer.class == "InputLayer" {
                let place = input_layers.iter().position(|(name, _)| *name == layer.name);
                let input = place.and_then(|place| inputs.get(place));
                let input = input.ok_or_else(|| {
                    format!("its layer `{}` is one input more, but a network has one", layer.name)
                })?;
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
        if layer.passes_on(&place.layer, &mut self.left_out) {
            return Ok(inputs.first().cloned());
        }
        let measured = match layer.is_adapted() {
            true => Some(self.measured(&place)?),
            false => None,
        };
        let mut spec = match layer.rescaling(measured)? {
            Some(spec) => spec,
            None => layer.spec(&place.layer, &mut self.left_out)?,
        };
        spec.name = if call == 0 { place.layer.clone() } else { format!("{}_call{call}", place.layer) };
        spec.inputs = inputs.to_vec();
        let name = spec.name.clone();
        if layer.has_weights() {
            self.places.push(place);
        }
        self.layers.push(spec);
        Ok(Some(name))
    }

    /// The mean and the variance of a normalization that was adapted to data.
    fn measured(&mut self, place: &Place) -> Result<[Vec<f32>; 2], String> {
        let (units, named) = self.weights;
        let unit = place.find(units, named)?;
        let vectors: Vec<_> = units[unit].arrays.iter().filter(|array| array.shape.len() == 1).collect();
        let [mean, variance] = vectors[..] else {
            return Err(layer::no_channels(&place.layer));
        };
        self.adapted.push(unit);
        Ok([mean.read()?, variance.read()?])
    }
}

/// The inputs or outputs of a functional model: a list of `["name", 0, 0]`, or one such. There must be `count` of them.
fn ends(listed: &Value, what: &str, count: usize) -> Result<Vec<(String, usize)>, String> {
    let all = match listed.as_array().map(Vec::as_slice).unwrap_or_default() {
        [Value::String(_), ..] => std::slice::from_ref(listed),
        all => all,
    };
    let end = |end: &Value| Some((end[0].as_str()?.to_owned(), end[1].as_u64().unwrap_or_default() as usize));
    match all.iter().map(end).collect::<Option<Vec<_>>>() {
        Some(ends) if ends.len() == count => Ok(ends),
        _ if count == 1 => Err(format!("it has {} {what}s, but a network has one", all.len())),
        _ => Err(format!("a model in it has {} {what}s, but reads {count} tensors", all.len())),
    }
}
