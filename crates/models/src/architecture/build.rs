//! From a list of layers to a graph.

use super::classes::{self, CLASSES, Class};
use super::options::{Options, shortened};
use super::site::Site;
use super::zeros::Tensor;
use super::{Architecture, IMAGES, LayerSpec};
use crate::{Model, too_small};
use std::collections::{HashMap, HashSet};
use towers_layers::{Error, Graph, Result};
use towers_program::Activation;

/// No network has more layers.
const MOST_LAYERS: usize = 2000;

/// The longest name of a layer, in bytes.
const LONGEST_NAME: usize = 200;

/// The most parameters of a network, and the most numbers of a layer's output for one image.
const MOST_NUMBERS: usize = 1 << 31;

/// The largest side that is tried, to name the smallest images that a network takes.
const LARGEST_TRIED: usize = 256;

/// A layer with its name, its class and its inputs as places in the list; `None` stands for the images.
struct Node<'a> {
    spec: &'a LayerSpec,
    name: String,
    class: &'static Class,
    inputs: Vec<Option<usize>>,
}

impl Architecture {
    /// The network, under this name, for images of `[height, width, channels]` and this number of classes.
    ///
    /// The last dense layer has as many units as there are classes, unless it has `units` of its own. A softmax
    /// at the end is left out, since the loss computes it, and so is a sigmoid: of one output it is for two classes, of several
    /// for [any number of classes](Model::multi_label) an image.
    ///
    /// # Errors
    /// An error that names the layer, the option and the accepted values. [`Error::Images`] for images that are
    /// too small.
    pub fn build(&self, name: &str, image: [usize; 3], classes: usize) -> Result<Model> {
        self.build_once(name, image, classes).map_err(|error| {
            let takes = |side| self.build_once(name, [side, side, image[2]], classes).is_ok();
            too_small(name, takes, LARGEST_TRIED, image).unwrap_or(error)
        })
    }

    fn build_once(&self, name: &str, image: [usize; 3], classes: usize) -> Result<Model> {
        let mut graph = Graph::new(name, image);
        let nodes = self.resolved(&mut graph)?;
        let Some(last) = nodes.last() else {
            return Err(Error::Graph { layer: name.to_owned(), what: "it has no layers".into() });
        };
        let mut building =
            Building { graph, nodes: &nodes, classes, tensors: Vec::new(), fused: HashSet::new() };
        for k in 0..nodes.len() {
            building.add(k)?;
        }
        let Building { graph, tensors, .. } = building;
        let options = Options { name: &last.name, spec: last.spec };
        let logits = tensors[nodes.len() - 1].without_zeros(&options)?;
        let shape = graph.shape(logits);
        if shape != shape.flatten() {
            return Err(options.refuse(format!(
                "it is the last layer, so its output must be one number a class, but is {}x{}x{}",
                shape.h, shape.w, shape.c
            )));
        }
        let multi_label = self.ends_in_sigmoid() && shape.c != 1;
        if self.ends_in_sigmoid() && !multi_label && classes != 2 {
            return Err(options.refuse(format!(
                "its one sigmoid output tells 2 classes apart, but there are {classes}; a Dense layer with `units` {classes} and \
                 softmax has an output for each"
            )));
        }
        if !self.ends_in_sigmoid() && shape.c == 1 && classes == 2 {
            return Err(options.refuse(
                "its single output has no sigmoid, so nothing says that it tells 2 classes apart; a sigmoid behind it says so",
            ));
        }
        let model = Model::new(graph, logits);
        check_parameters(name, &model)?;
        Ok(if multi_label { model.multi_label() } else { model })
    }

    /// The layers with names, classes and inputs.
    fn resolved(&self, graph: &mut Graph) -> Result<Vec<Node<'_>>> {
        if self.layers.len() > MOST_LAYERS {
            let what = format!("it has {} layers, but must have at most {MOST_LAYERS}", self.layers.len());
            return Err(Error::Graph { layer: graph.name().to_owned(), what });
        }
        let given: HashSet<&str> = self.layers.iter().map(|spec| spec.name.as_str()).collect();
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut nodes = Vec::new();
        for (k, spec) in self.layers.iter().enumerate() {
            let mut name = spec.name.clone();
            while name.is_empty() || (spec.name.is_empty() && given.contains(name.as_str())) {
                name = graph.next_name(&shortened(spec.class.clone()));
            }
            let options = Options { name: &shortened(name.clone()), spec };
            let sound = name.len() <= LONGEST_NAME && !name.contains(char::is_control) && name != IMAGES;
            if !sound {
                return Err(options.refuse(format!(
                    "the name must have at most {LONGEST_NAME} bytes and no control characters, and not be `{IMAGES}`"
                )));
            }
            let class = classes::find(&spec.class).ok_or_else(|| {
                let class = shortened(spec.class.clone());
                options.refuse(format!("there is no layer `{class}` here; there are {}", CLASSES.join(", ")))
            })?;
            if let Some(key) = spec.options.keys().find(|key| !class.options.contains(&key.as_str())) {
                let (key, known) = (shortened(key.clone()), class.options.join(", "));
                let known = if known.is_empty() { "none".to_owned() } else { known };
                return Err(options.refuse(format!("{} has no option `{key}`; it has {known}", class.name)));
            }
            let inputs = inputs(&options, k, &places)?;
            let accepted = match (class.joins, inputs.len()) {
                (true, 0..2) => "several inputs",
                (false, n) if n != 1 => "one input",
                _ => "",
            };
            if !accepted.is_empty() {
                return Err(
                    options.refuse(format!("it reads {} tensors, but takes {accepted}", inputs.len()))
                );
            }
            if places.insert(name.clone(), k).is_some() {
                return Err(options.refuse("another layer has this name"));
            }
            nodes.push(Node { spec, name, class, inputs });
        }
        Ok(nodes)
    }
}

/// A graph in the making.
struct Building<'a> {
    graph: Graph,
    nodes: &'a [Node<'a>],
    classes: usize,
    /// The output of each layer so far.
    tensors: Vec<Tensor>,
    /// Activation layers that the layer before them computes.
    fused: HashSet<usize>,
}

impl Building<'_> {
    /// Adds layer `k` to the graph, with its activation in the same op where that is possible.
    fn add(&mut self, k: usize) -> Result<()> {
        let node = &self.nodes[k];
        let is_last = k + 1 == self.nodes.len();
        let options = Options { name: &node.name, spec: node.spec };
        if !is_last && !self.nodes.iter().any(|reader| reader.inputs.contains(&Some(k))) {
            return Err(options.refuse("its output leads nowhere"));
        }
        let images = Tensor::of(self.graph.input());
        let inputs: Vec<Tensor> =
            node.inputs.iter().map(|at| at.map_or(images, |at| self.tensors[at])).collect();
        if self.fused.contains(&k) {
            self.tensors.push(inputs[0]);
            return Ok(());
        }
        let (act, after) = self.activations(k)?;
        let stays = node.class.keeps_sign && inputs.iter().all(|x| x.is_never_negative);
        let is_last_dense = self.nodes.iter().rposition(|node| node.class.name == "Dense") == Some(k);
        let classes = is_last_dense.then_some(self.classes);
        let mut padded = images;
        padded.is_never_negative = stays;
        let readers_pad = self.readers_pad(k, &padded);
        let graph = &mut self.graph;
        let mut y = (node.class.build)(&mut Site { graph, options, inputs, act, classes, readers_pad })?;
        if after != Activation::None {
            y.value = self.graph.add_named(&format!("{}_{}", node.name, after.name()), after, y.value)?;
        }
        y.is_never_negative |= stays || [act, after].into_iter().any(is_never_negative);
        let shape = self.graph.shape(y.value);
        if shape.per_sample() > MOST_NUMBERS {
            let what = format!("its output has {shape} numbers an image, but must have at most 2^31");
            return Err(Error::Graph { layer: node.name.clone(), what });
        }
        self.tensors.push(y);
        Ok(())
    }

    /// Whether all layers that read layer `k`, a `ZeroPadding2D`, can add its zeros to their own padding; `x` tells what
    /// of. There is one, at least.
    fn readers_pad(&self, k: usize, x: &Tensor) -> bool {
        if self.nodes[k].class.name != "ZeroPadding2D" {
            return false;
        }
        let mut readers = (k + 1..self.nodes.len())
            .filter(|&reader| self.nodes[reader].inputs.contains(&Some(k)))
            .peekable();
        let takes = |reader: usize| {
            let Node { spec, name, class, .. } = &self.nodes[reader];
            (class.pads)(&Options { name, spec }, x) || self.readers_pad(reader, x)
        };
        readers.peek().is_some() && readers.all(takes)
    }

    /// The activation in the op of layer `k`, and the one in an op behind it.
    fn activations(&mut self, k: usize) -> Result<(Activation, Activation)> {
        let node = &self.nodes[k];
        let own = activation(node, k + 1 == self.nodes.len())?;
        if is_activation(node.class) {
            return Ok((own, Activation::None));
        }
        match behind(self.nodes, k)? {
            Some((place, act)) if own == Activation::None && (node.class.fuses)(act) => {
                self.fused.insert(place);
                Ok((act, Activation::None))
            }
            _ if (node.class.fuses)(own) => Ok((own, Activation::None)),
            _ => Ok((Activation::None, own)),
        }
    }
}

/// The places of a layer's inputs.
fn inputs(options: &Options<'_>, k: usize, places: &HashMap<String, usize>) -> Result<Vec<Option<usize>>> {
    if options.spec.inputs.is_empty() {
        return Ok(vec![k.checked_sub(1)]);
    }
    let of = |name: &String| match places.get(name) {
        Some(&place) => Ok(Some(place)),
        None if name == IMAGES => Ok(None),
        None => {
            let name = shortened(name.clone());
            Err(options.refuse(format!("it reads `{name}`, which is no layer before it")))
        }
    };
    options.spec.inputs.iter().map(of).collect()
}

fn is_never_negative(act: Activation) -> bool {
    act.ceiling().is_some() || matches!(act, Activation::Sigmoid | Activation::HardSigmoid(_))
}

fn is_activation(class: &Class) -> bool {
    ["Activation", "ELU", "LeakyReLU", "ReLU", "Softmax"].contains(&class.name)
}

/// The activation that a layer computes by itself. A softmax or a sigmoid at the end is none: the loss has it.
fn activation(node: &Node<'_>, is_last: bool) -> Result<Activation> {
    let options = Options { name: &node.name, spec: node.spec };
    let own = match node.class.name {
        "ReLU" => {
            let (most, slope) = (options.given_number("max_value")?, options.number("negative_slope", 0.0)?);
            if options.number("threshold", 0.0)? != 0.0 {
                return Err(options.refuse("only a ReLU with a threshold of 0 is there"));
            }
            Some(match most {
                None if slope == 0.0 => Activation::Relu,
                None => Activation::LeakyRelu(slope),
                Some(most) if slope == 0.0 => Activation::BoundedRelu(most),
                Some(_) => return Err(options.refuse("a ReLU has a max_value or a negative_slope, not both")),
            })
        }
        // Keras 2 calls its slope alpha.
        "LeakyReLU" => {
            let alpha = options.given_number("alpha")?.unwrap_or(0.3);
            Some(Activation::LeakyRelu(options.given_number("negative_slope")?.unwrap_or(alpha)))
        }
        "ELU" if options.number("alpha", 1.0)? != 1.0 => {
            return Err(options.refuse("only an ELU with an alpha of 1 is there"));
        }
        "ELU" => Some(Activation::Elu),
        "Softmax" => None,
        _ => options.activation()?,
    };
    match own {
        // Its outputs are counted where the shape is known.
        Some(Activation::Sigmoid) if is_last => Ok(Activation::None),
        Some(act) => Ok(act),
        None if is_last => Ok(Activation::None),
        None => {
            Err(options.refuse("softmax is possible in the last layer alone, where the loss computes it"))
        }
    }
}

/// The activation layer that alone reads layer `k`, with its place.
fn behind(nodes: &[Node<'_>], k: usize) -> Result<Option<(usize, Activation)>> {
    let mut readers = (k + 1..nodes.len()).filter(|&reader| nodes[reader].inputs.contains(&Some(k)));
    let (Some(reader), None) = (readers.next(), readers.next()) else { return Ok(None) };
    let node = &nodes[reader];
    if !is_activation(node.class) {
        return Ok(None);
    }
    let act = activation(node, reader + 1 == nodes.len())?;
    Ok((act != Activation::None).then_some((reader, act)))
}

/// Refuses a network that fits into no memory.
fn check_parameters(name: &str, model: &Model) -> Result<()> {
    let steps = model.steps();
    let sizes = steps
        .iter()
        .flat_map(|step| &step.params)
        .map(|spec| spec.shape.iter().fold(1_usize, |size, &side| size.saturating_mul(side)));
    if sizes.fold(0_usize, usize::saturating_add) <= MOST_NUMBERS {
        return Ok(());
    }
    Err(Error::Graph { layer: name.to_owned(), what: "it has more than 2^31 parameters".into() })
}
