//! From a model's configuration to an architecture.

use super::calls::{Calls, first_numbers};
use super::compile;
use super::config::VERSION;
use super::layer::{self, Layer, ends};
use super::parallel;
use super::place::Place;
use super::root::Root;
use super::unit::Unit;
use crate::Imported;
use crate::text::shortened;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap, HashSet};
use towers_models::{Architecture, IMAGES, LayerSpec};

/// The most layers of a configuration, with its inputs and the layers of models in it.
const MOST_LAYERS: usize = 4000;

/// The most models inside of each other.
const MOST_DEPTH: usize = 8;

/// The most inputs of all layers together.
const MOST_READS: usize = 1 << 20;

/// A network and the places of its weights.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) network: Imported,
    /// What its model is a part of, a sentence each.
    pub(super) told: Vec<String>,
    /// Of each layer with weights: its name in the network, and its place in the file.
    pub(super) places: Vec<Place>,
    /// Layers of the file whose numbers are in the network: normalizations that were adapted to data.
    pub(super) adapted: Vec<usize>,
}

/// Reads the configuration of a Sequential or functional model. `weights` are the layers of its file, and whether they have names.
pub(super) fn read(config: &Value, weights: (&[Unit], bool)) -> Result<Read, String> {
    let parallel = parallel::inner(config)?;
    let (model, wrapper) = match &parallel {
        None => (config, None),
        Some(inner) => (inner.layer.value, Some(inner.layer)),
    };
    let own = Layer::of(model).inner().collect::<Vec<_>>();
    let Root { names, numbered } = Root::of(weights.0, weights.1, wrapper.as_ref(), &own);
    let mut told: Vec<String> = parallel.iter().map(parallel::Inner::note).collect();
    if let (None, Some(name)) = (&parallel, names.first()) {
        told.push(parallel::of_weights(name));
    }
    let around = Around { names, numbered, ..Around::default() };
    let before_3 = config[VERSION]
        .as_str()
        .is_some_and(|version| ["1.", "2."].iter().any(|old| version.starts_with(old)));
    let mut reader = Reader { weights, before_3, ..Reader::default() };
    let images = vec![IMAGES.to_owned()];
    let output = reader.model(model, &around, &images)?;
    if let (None, Some(inner)) = (reader.image, &parallel) {
        (reader.image, reader.channels) = inner.input.image_shape(inner.input.name)?;
    }
    for policy in &reader.policies {
        told.push(format!(
            "its layers compute by the policy {policy} there; here the precision of the run decides"
        ));
    }
    let mut architecture = Architecture { layers: reader.layers };
    put_last(&mut architecture, &output)?;
    let classes = architecture.take_classes();
    let name = model["config"]["name"].as_str().unwrap_or("model").to_owned();
    let (image, channels, parts) = (reader.image, reader.channels, reader.parts);
    let notes = [told.clone(), layer::notes(reader.left_out)].concat();
    let compiled = compile::read(&config["compile_config"]);
    let network = Imported { name, architecture, classes, image, channels, parts, notes, compiled };
    Ok(Read { network, told, places: reader.places, adapted: reader.adapted })
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
    names: Vec<String>,
}

impl Around {
    /// The layers with their places. Keras numbers those of a class in the order of the list.
    fn placed<'a>(&self, layers: &'a [Value]) -> Vec<(Layer<'a>, Place)> {
        let mut counts: HashMap<String, usize> = HashMap::new();
        let place = |layer: Layer<'a>| {
            let class = towers_layers::keras_name(layer.class);
            let count = counts.entry(class.clone()).or_default();
            let own = if *count == 0 { class } else { format!("{class}_{count}") };
            *count += 1;
            let place = Place {
                layer: format!("{}{}", self.prefix, layer.name),
                numbered: format!("{}{own}", self.numbered),
                names: [&self.names[..], &[layer.name.to_owned()]].concat(),
            };
            (layer, place)
        };
        layers.iter().map(Layer::of).map(place).collect()
    }
}

#[derive(Default)]
struct Reader<'a> {
    weights: (&'a [Unit], bool),
    /// Whether the model is of Keras 1 or 2.
    before_3: bool,
    adapted: Vec<usize>,
    layers: Vec<LayerSpec>,
    places: Vec<Place>,
    image: Option<[usize; 2]>,
    channels: Option<usize>,
    /// Policies of layers that compute in another format than their weights have.
    policies: BTreeSet<String>,
    /// The names of inner models.
    parts: Vec<String>,
    /// The layers that give vectors.
    vectors: HashSet<String>,
    /// Layers and options of theirs that only matter for training.
    left_out: layer::LeftOut,
    count: usize,
    reads: usize,
}

impl Reader<'_> {
    /// Adds the layers of a model that reads `inputs`, and returns the name of its output.
    fn model(&mut self, model: &Value, around: &Around, inputs: &[String]) -> Result<String, String> {
        let class = model["class_name"].as_str().unwrap_or_default();
        // Keras 2.0 wrote a Sequential model as its list of layers.
        let layers = model["config"]["layers"].as_array().or(model["config"].as_array());
        let (true, Some(layers)) = (["Sequential", "Functional", "Model"].contains(&class), layers) else {
            return Err(format!(
                "it is a model of the class `{}`, but only Sequential and functional models have their layers in the file",
                shortened(class)
            ));
        };
        if around.names.len() > MOST_DEPTH {
            return Err(format!("it has more than {MOST_DEPTH} models inside of each other"));
        }
        let layers = around.placed(layers);
        if class != "Sequential" {
            return self.functional(&model["config"], &layers, inputs);
        }
        let [input] = inputs else {
            return Err(format!(
                "a Sequential model in it reads {} tensors, but must read one",
                inputs.len()
            ));
        };
        let mut last = input.clone();
        for (layer, place) in &layers {
            let read = [last.clone()];
            last = self.layer(layer, place, &read, 0)?.unwrap_or(last);
        }
        Ok(last)
    }

    /// The same for a functional model, whose configuration this is.
    fn functional(
        &mut self,
        config: &Value,
        layers: &[(Layer<'_>, Place)],
        inputs: &[String],
    ) -> Result<String, String> {
        let input_layers = ends(&config["input_layers"], "input", inputs.len())?;
        let output_layer = ends(&config["output_layers"], "output", 1)?.remove(0);
        let first_numbers = first_numbers(layers.iter().map(|(layer, _)| layer), &output_layer);
        let mut calls = Calls::default();
        for (k, (layer, place)) in layers.iter().enumerate() {
            let all = layer.calls();
            if all.is_empty() || layer.class == "InputLayer" {
                let input = input_layers.iter().position(|(name, _)| *name == layer.name);
                let input = input.and_then(|place| inputs.get(place)).ok_or_else(|| {
                    format!("its layer `{}` is one input more, but a network has one", place.own_name())
                })?;
                self.layer(layer, place, std::slice::from_ref(input), 0)?;
                calls.made((layer.name.to_owned(), 0), input.clone());
                continue;
            }
            check_times(layer, place, all.len())?;
            all.into_iter().enumerate().for_each(|(number, reads)| calls.wait(k, number, reads));
            // A layer that is used again may read layers after its own place in the list.
            while let Some((k, number, reads)) = calls.next() {
                let (layer, place) = &layers[k];
                if let Some(output) = self.layer(layer, place, &reads, number)? {
                    let first = first_numbers.get(layer.name).copied().unwrap_or(0);
                    calls.made((layer.name.to_owned(), first + number), output);
                }
            }
        }
        if let Some(k) = calls.waiting() {
            let name = layers[k].1.own_name();
            return Err(format!("its layer `{name}` reads a layer that is not there"));
        }
        calls.output(&output_layer).ok_or_else(|| "its output is none of its layers".to_owned())
    }

    /// Counts a call and its inputs.
    fn count(&mut self, inputs: &[String]) -> Result<(), String> {
        self.count += 1;
        self.reads += inputs.len();
        match (self.count > MOST_LAYERS, self.reads > MOST_READS) {
            (true, _) => Err(format!("it has more than {MOST_LAYERS} layers")),
            (_, true) => Err(format!("its layers read more than {MOST_READS} tensors")),
            _ => Ok(()),
        }
    }

    /// Adds one call of a layer, and returns the name of its output. `None` for an input layer.
    fn layer(
        &mut self,
        layer: &Layer<'_>,
        place: &Place,
        inputs: &[String],
        call: usize,
    ) -> Result<Option<String>, String> {
        self.count(inputs)?;
        if self.image.is_none() && inputs == [IMAGES] {
            (self.image, self.channels) = layer.image_shape(&place.own_name())?;
        }
        self.policies.extend(layer.policy().map(shortened));
        if layer.class == "InputLayer" {
            return Ok(None);
        }
        if let Some(mode) = layer.mode(call) {
            self.fixed_mode(layer, place, mode)?;
        }
        if layer.is_model() {
            self.parts.push(layer.name.to_owned());
            let times = if call == 0 { String::new() } else { format!("call{call}_") };
            let inside = Around {
                prefix: format!("{}_{times}", place.layer),
                numbered: format!("{}/", place.numbered),
                names: place.names.clone(),
            };
            return self.model(layer.value, &inside, inputs).map(Some);
        }
        if layer.passes_on(&place.layer, &mut self.left_out) {
            return Ok(inputs.first().cloned());
        }
        let measured = match layer.is_adapted() {
            true => Some(self.measured(place)?),
            false => None,
        };
        let of_vectors = inputs.iter().all(|input| self.vectors.contains(input));
        let mut spec = match layer.rescaling(place, measured)? {
            Some(spec) => spec,
            None => layer.spec(place, of_vectors, &mut self.left_out)?,
        };
        // Its slope was 0.2, and is 1/6 in Keras 3.
        if self.before_3 && spec.options.get("activation") == Some(&"hard_sigmoid".into()) {
            spec.options.insert("activation".to_owned(), "hard_sigmoid(0.2)".into());
        }
        spec.name = if call == 0 { place.layer.clone() } else { format!("{}_call{call}", place.layer) };
        spec.inputs = inputs.to_vec();
        let name = spec.name.clone();
        let has_places = spec.options.get("keepdims") == Some(&true.into());
        let is_image = spec.class == "Reshape"
            && spec.options["target_shape"].as_array().is_some_and(|to| to.len() == 3);
        let is_flat = ["Flatten", "Reshape"].contains(&spec.class.as_str());
        if !is_image && (of_vectors || is_flat || spec.class.starts_with("Global") && !has_places) {
            self.vectors.insert(name.clone());
        }
        if layer.has_weights() {
            self.places.push(place.clone());
        }
        self.layers.push(spec);
        Ok(Some(name))
    }

    /// A layer that always works as in training, or never: `x = base(x, training=False)`.
    fn fixed_mode(&mut self, layer: &Layer<'_>, place: &Place, training: bool) -> Result<(), String> {
        if !layer.differs_in_training() {
            return Ok(());
        }
        if training {
            return Err(format!(
                "its layer `{}` is called with training=True, and would work as in training for ever; build the model \
                 without that, set its weights, and save it anew",
                place.own_name()
            ));
        }
        let remedy = "in a training, freezing the layer keeps the averages of its batch normalization";
        self.left_out.push((place.layer.clone(), "training=False".to_owned(), remedy.to_owned()));
        Ok(())
    }

    /// The mean and the variance of a normalization that was adapted to data.
    fn measured(&mut self, place: &Place) -> Result<[Vec<f32>; 2], String> {
        let (units, named) = self.weights;
        let found = place.find(units, named);
        // In `.h5` of Keras 2 its tensors have no layer before their names.
        let unscoped = |unit: &Unit| named && unit.group == place.names[0] && unit.path == unit.group;
        let unit = found.or_else(|told| units.iter().position(unscoped).ok_or(told))?;
        let vector = |name, k| units[unit].array(name, k).filter(|array| array.shape.len() == 1);
        let (Some(mean), Some(variance)) = (vector("mean", 0), vector("variance", 1)) else {
            return Err(layer::no_channels(place));
        };
        self.adapted.push(unit);
        Ok([mean.read()?, variance.read()?])
    }
}

/// Refuses a layer that is used several times, but has weights; and more uses than a network has layers.
fn check_times(layer: &Layer<'_>, place: &Place, times: usize) -> Result<(), String> {
    if times > MOST_LAYERS {
        return Err(format!("it has more than {MOST_LAYERS} layers"));
    }
    if times > 1 && layer.has_any_weights() {
        let name = place.own_name();
        return Err(format!(
            "its layer `{name}` is used {times} times, but its weights can only be used once"
        ));
    }
    Ok(())
}
