//! Reads the nodes of a graph as layers: the values of the graph, and the layers so far.

use super::constants::{self, Constant};
use super::extent::Extent;
use super::node::Node;
use super::proto::{Dimension, FLOAT, GraphProto, TensorProto, ValueInfoProto};
use crate::keras::shortened;
use crate::source::Pixels;
use crate::{Imported, layout};
use models::{Architecture, IMAGES, LayerSpec};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// A graph as it was read.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) network: Imported,
    /// By layer and parameter: `conv2d/kernel`.
    pub(super) weights: HashMap<String, Constant>,
    /// What happens to pixels first, where an export has it.
    pub(super) pixels: Option<Pixels>,
    /// Layers that flatten their input with its channels first, and how many numbers an image must have then,
    /// if the graph says it.
    pub(super) flattened: HashMap<String, Option<usize>>,
}

/// A value of the graph so far.
#[derive(Clone, Debug)]
pub(super) enum Of {
    /// The output of a layer, or the images.
    Layer(String),
    /// A step of several nodes that are one layer, on that layer's input.
    Part(Part, String),
    /// With the channels last.
    Transposed(String),
    /// The mean or the largest number over rows and columns, as a 1x1 image: the class that computes it.
    Pooled(&'static str, String),
    /// It depends on no image.
    Constant(Constant),
}

#[derive(Clone, Debug)]
pub(super) enum Part {
    /// GELU: `(1 + erf) / 2`, which may come last, or `x / sqrt(2)`, `erf`, `1 + erf`, `x (1 + erf)`.
    Half,
    Scaled,
    Erf,
    Sum,
    Twice,
    /// Half of SiLU, or an activation by itself.
    Sigmoid,
    /// Group normalization as PyTorch writes it: the groups as channels, then normalized with this epsilon, as an image again, and
    /// times gamma.
    Grouped(i64),
    Normalized(i64, f32),
    Ungrouped(i64, f32),
    Multiplied(i64, f32, Constant),
    /// An image of one column, without the axis of its columns.
    Squeezed,
}

/// The architecture in the making.
pub(super) struct Reader<'g> {
    pub(super) values: HashMap<&'g str, Of>,
    /// How many operands of nodes a value is.
    reads: HashMap<&'g str, usize>,
    pub(super) layers: Vec<LayerSpec>,
    /// The shapes of the layers' outputs, and of the images.
    shapes: HashMap<String, Vec<Extent>>,
    /// How many sizes are open so far.
    open: u32,
    /// How often a name was wanted.
    names: HashMap<String, usize>,
    pub(super) weights: HashMap<String, Constant>,
    /// The kernels that layers have.
    pub(super) kernels: HashSet<String>,
    pub(super) scale: Option<Constant>,
    pub(super) shift: Option<Constant>,
    /// Whether the first steps are the preprocessing, by the names of their constants.
    pub(super) names_pixels: bool,
    pub(super) flattened: HashMap<String, Option<usize>>,
    image: [usize; 3],
}

impl<'g> Reader<'g> {
    /// A reader of a graph with these initializers, whose values may be in files in `folder`. `written` tells
    /// whether it is an export from here.
    pub(super) fn new(
        graph: &'g GraphProto,
        initializers: Vec<TensorProto>,
        folder: &Path,
        written: bool,
    ) -> Result<Self, String> {
        let mut left = crate::file::MAX_FILE;
        let mut tensors = HashMap::new();
        for tensor in initializers {
            let constant = Constant::read(tensor, folder, &mut left)?;
            if let Some(twice) = tensors.insert(constant.name.clone(), constant) {
                return Err(format!("it has two tensors `{}`", shortened(&twice.name)));
            }
        }
        let mut inputs = graph.input.iter().filter(|input| !tensors.contains_key(&input.name));
        let (Some(input), None) = (inputs.next(), inputs.next()) else {
            return Err("it must have one input, of images".to_owned());
        };
        let (batch, image) = images(input)?;
        // Only those that a node reads: each name has the lifetime of the graph.
        let mut reads = HashMap::new();
        let operands = graph.node.iter().flat_map(|node| &node.input).map(String::as_str);
        for name in operands.chain(graph.output.iter().map(|output| output.name.as_str())) {
            *reads.entry(name).or_insert(0) += 1;
        }
        let given = |&name: &&'g str| Some((name, Of::Constant(tensors.get(name)?.clone())));
        let mut values: HashMap<&str, Of> = reads.keys().filter_map(given).collect();
        values.insert(&input.name, Of::Layer(IMAGES.to_owned()));
        let names_pixels = written || !is_of_unit(tensors.get(layout::SCALE), tensors.get(layout::SHIFT));
        let mut reader = Reader {
            values,
            reads,
            layers: Vec::new(),
            shapes: HashMap::new(),
            open: 0,
            names: HashMap::from([(IMAGES.to_owned(), 1)]),
            weights: HashMap::new(),
            kernels: HashSet::new(),
            scale: None,
            shift: None,
            names_pixels,
            flattened: HashMap::new(),
            image,
        };
        let sides = image.map(|side| if side == 0 { reader.new_size() } else { Extent::number(side as i64) });
        let [h, w, channels] = sides;
        let batch = if batch == 0 { Extent::batch() } else { Extent::number(batch as i64) };
        reader.shapes.insert(IMAGES.to_owned(), vec![batch, channels, h, w]);
        Ok(reader)
    }

    /// A size that is open.
    pub(super) fn new_size(&mut self) -> Extent {
        self.open += 1;
        Extent::open(self.open)
    }

    /// The value of a node's operand; `None` if it is left out.
    pub(super) fn value(&self, node: &Node<'g>, k: usize) -> Result<Option<&Of>, String> {
        let Some(name) = node.operand(k) else { return Ok(None) };
        let value = self.values.get(name);
        let missing = || node.refuse(format!("reads `{}`, which nothing before it gives", shortened(name)));
        value.map(Some).ok_or_else(missing)
    }

    /// An operand that depends on no image; `None` if it is left out.
    pub(super) fn constant(&self, node: &Node<'g>, k: usize) -> Result<Option<&Constant>, String> {
        match self.value(node, k)? {
            None => Ok(None),
            Some(Of::Constant(constant)) => Ok(Some(constant)),
            Some(_) => {
                let name = shortened(node.operand(k).unwrap_or_default());
                Err(node.form(format!("whose operand `{name}` is computed")))
            }
        }
    }

    /// A single float as an operand; `None` if it is left out.
    pub(super) fn number(&self, node: &Node<'g>, k: usize) -> Result<Option<f32>, String> {
        let Some(constant) = self.constant(node, k)? else { return Ok(None) };
        let number = constant.few_floats(1).map(|floats| Some(floats[0]));
        number.ok_or_else(|| node.refuse(format!("must have one float32 as its operand number {}", k + 1)))
    }

    /// The axes of a node, if it has them: an attribute, or the second operand since this version of the
    /// operators.
    pub(super) fn axes(&self, node: &Node<'_>, since: i64) -> Result<Option<Vec<i64>>, String> {
        if !node.since(since) {
            return Ok(node.ints("axes")?.map(<[i64]>::to_vec));
        }
        let Some(name) = node.operand(1) else { return Ok(None) };
        match self.values.get(name) {
            Some(Of::Constant(axes)) if axes.shape.len() < 2 && axes.known_numbers().is_some() => {
                Ok(axes.known_numbers())
            }
            _ => Err(node.form("without whole numbers as its axes")),
        }
    }

    /// The shape of a layer's output.
    pub(super) fn shape(&self, layer: &str) -> Vec<Extent> {
        self.shapes.get(layer).cloned().unwrap_or_default()
    }

    /// Whether only this node reads its operand `k`, so that the layer of that operand may compute more.
    pub(super) fn is_alone(&self, node: &Node<'g>, k: usize) -> bool {
        node.operand(k).is_some_and(|name| self.reads.get(name) == Some(&1))
    }

    /// A layer's output, which a node reads as its operand number `k`.
    pub(super) fn layer(&mut self, node: &Node<'g>, k: usize) -> Result<String, String> {
        let (class, ending, about, x) = match self.value(node, k)?.cloned() {
            Some(Of::Layer(name)) => return Ok(name),
            // Read as the image that it is.
            Some(Of::Pooled(class, x)) => (class, "_pooled", json!({"keepdims": true}), x),
            // By itself, and not as a half of SiLU.
            Some(Of::Part(Part::Sigmoid, x)) => ("Activation", "_act", json!({"activation": "sigmoid"}), x),
            None => return Err(node.refuse(format!("lacks its operand number {}", k + 1))),
            _ => return Err(node.unknown()),
        };
        let operand = node.operand(k).unwrap_or_default();
        let name = self.new_name(operand, ending);
        let shape = self.after(class, &x);
        let layer = self.push(class, name.clone(), about, vec![x], shape);
        self.values.insert(operand, layer);
        Ok(name)
    }

    /// A layer's output as the operand number `k` that is an image, with channels, rows and columns.
    pub(super) fn image(&mut self, node: &Node<'g>, k: usize) -> Result<(String, [Extent; 3]), String> {
        let x = self.layer(node, k)?;
        match <[Extent; 4]>::try_from(self.shape(&x)) {
            Ok([_, channels, rows, columns]) => Ok((x, [channels, rows, columns])),
            Err(shape) => Err(node.form(format!("of {} axes", shape.len()))),
        }
    }

    /// The shape behind a pooling of all of an image, or behind an activation.
    fn after(&self, class: &str, x: &str) -> Vec<Extent> {
        let mut shape = self.shape(x);
        if class.starts_with("Global") {
            shape.iter_mut().skip(2).for_each(|side| *side = Extent::number(1));
        }
        shape
    }

    pub(super) fn node(&mut self, node: &Node<'g>) -> Result<(), String> {
        let constants: Option<Vec<Constant>> = node
            .names()
            .map(|name| match self.values.get(name) {
                Some(Of::Constant(constant)) => Some(constant.clone()),
                _ => None,
            })
            .collect();
        let folded = match constants.filter(|all| !all.is_empty()) {
            Some(all) => self.folded(node, &all)?,
            None => None,
        };
        let value = match folded {
            _ if node.op() == "Constant" => Of::Constant(constants::given(node)?),
            Some(constant) => Of::Constant(constant),
            None => self.operator(node)?,
        };
        node.done()?;
        // The same value under another name: who reads one of them reads the other one.
        if let (Some(input), Of::Layer(layer)) = (node.operand(0), &value)
            && matches!(self.values.get(input), Some(Of::Layer(before)) if before == layer)
        {
            let of = |name: &str| self.reads.get(name).copied().unwrap_or_default();
            let reads = (of(input) + of(node.output())).saturating_sub(1);
            self.reads.insert(node.output(), reads);
        }
        if let Some(twice) = node.outputs().find(|output| self.values.contains_key(output)) {
            return Err(node.refuse(format!("gives `{}`, which is there before it", shortened(twice))));
        }
        self.values.insert(node.output(), value);
        Ok(())
    }

    /// A name from that of a weight, a node or its output that no layer has: with this ending, and a number,
    /// as often as it takes.
    fn new_name(&mut self, of: &str, ending: &str) -> String {
        let wanted = of.trim_start_matches('/').trim_end_matches("_output_0").replace('/', ".");
        let mut name = wanted.clone();
        while name.is_empty() || self.names.contains_key(&name) {
            let tries = self.names.entry(wanted.clone()).or_insert(0);
            *tries += 1;
            name = match *tries {
                0..=2 => format!("{wanted}{ending}"),
                tries => format!("{wanted}{ending}_{}", tries - 1),
            };
        }
        self.names.insert(name.clone(), 1);
        name
    }

    /// A layer without weights, called as the node's output, unless the layer before an activation is.
    pub(super) fn plain(
        &mut self,
        node: &Node<'g>,
        class: &str,
        options: Value,
        inputs: Vec<String>,
        shape: Vec<Extent>,
    ) -> Of {
        let name = self.new_name(node.output(), "_act");
        self.push(class, name, options, inputs, shape)
    }

    pub(super) fn activation(&mut self, node: &Node<'g>, activation: &str) -> Result<Of, String> {
        let x = self.layer(node, 0)?;
        Ok(self.activate(node, activation, x))
    }

    pub(super) fn activate(&mut self, node: &Node<'g>, activation: &str, x: String) -> Of {
        let shape = self.shape(&x);
        self.plain(node, "Activation", json!({"activation": activation}), vec![x], shape)
    }

    fn push(
        &mut self,
        class: &str,
        name: String,
        options: Value,
        inputs: Vec<String>,
        shape: Vec<Extent>,
    ) -> Of {
        let options = options.as_object().cloned().unwrap_or_default();
        self.layers.push(LayerSpec { class: class.to_owned(), name: name.clone(), inputs, options });
        self.shapes.insert(name.clone(), shape);
        Of::Layer(name)
    }

    /// A layer with weights, called as they are, `conv2d.weight` is of `conv2d`, or as its node.
    pub(super) fn weighted<'n>(
        &mut self,
        node: &Node<'g>,
        class: &str,
        options: Value,
        input: String,
        shape: Vec<Extent>,
        weights: impl IntoIterator<Item = (&'n str, Constant)>,
    ) -> Of {
        let own = node.operand(1).and_then(|first| first.strip_suffix(".weight"));
        let name = self.new_name(own.unwrap_or_else(|| node.scope()), "_again");
        let weights = weights.into_iter();
        self.weights.extend(weights.map(|(parameter, constant)| (format!("{name}/{parameter}"), constant)));
        self.push(class, name, options, vec![input], shape)
    }

    pub(super) fn finish(mut self, graph: &'g GraphProto) -> Result<Graph, String> {
        let [output] = &graph.output[..] else {
            return Err(format!("it must have one output, but has {}", graph.output.len()));
        };
        let scores = match self.values.get(output.name.as_str()).cloned() {
            Some(Of::Part(Part::Sigmoid, x)) => {
                let (name, shape) = (self.new_name(&output.name, "_act"), self.shape(&x));
                self.push("Activation", name, json!({"activation": "sigmoid"}), vec![x], shape)
            }
            Some(Of::Pooled(class, x)) => {
                let (name, shape) = (self.new_name(&output.name, "_pooled"), self.after(class, &x));
                self.push(class, name, json!({}), vec![x], shape)
            }
            Some(value) => value,
            None => return Err(format!("nothing gives its output `{}`", shortened(&output.name))),
        };
        let last = self.layers.last().map(|last| last.name.as_str());
        if !matches!((&scores, last), (Of::Layer(scores), Some(last)) if scores == last) {
            return Err("its last node must be its only output".to_owned());
        }
        let pixels = self.pixels()?;
        let [h, w, _] = self.image;
        let mut architecture = Architecture { layers: self.layers };
        let classes = architecture.take_classes();
        let name = if graph.name.is_empty() { "model".to_owned() } else { graph.name.clone() };
        let image = (h > 0 && w > 0).then_some([h, w]);
        let channels = Some(self.image[2]);
        let network = Imported { name, architecture, classes, image, channels, ..Imported::default() };
        Ok(Graph { network, weights: self.weights, pixels, flattened: self.flattened })
    }

    /// The preprocessing, which exports have under names of their own.
    fn pixels(&self) -> Result<Option<Pixels>, String> {
        let channels = self.image[2];
        let [scale, shift] =
            [&self.scale, &self.shift].map(|own| own.as_ref().map(Constant::floats).transpose());
        let (scale, shift) = (scale?, shift?);
        Ok((scale.is_some() || shift.is_some()).then(|| {
            let shift = shift.unwrap_or_else(|| vec![0.0; channels]);
            // From (channels, rows, columns) to (rows, columns, channels).
            let shift = layout::channels_first(&shift, channels, shift.len() / channels);
            Pixels { scale: scale.unwrap_or_else(|| vec![1.0; channels]), shift }
        }))
    }
}

/// Whether `x * scale + shift` is for values from 0 to 1: in somebody's own module these names need not be
/// ours.
fn is_of_unit(scale: Option<&Constant>, shift: Option<&Constant>) -> bool {
    let floats = |own: Option<&Constant>, default: f32| {
        let floats = own.and_then(|own| own.few_floats(usize::MAX)).map(<[f32]>::to_vec);
        floats.unwrap_or_else(|| vec![default])
    };
    let (scale, shift) = (floats(scale, 1.0), floats(shift, 0.0));
    let least = scale.iter().fold(f32::INFINITY, |least, x| least.min(x.abs()));
    let most = shift.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let is_identity = scale.iter().all(|&x| x == 1.0) && most == 0.0;
    !is_identity && 1.0 / least <= MOST_OF_UNIT && most / least <= MOST_OF_UNIT
}

/// A mean or a deviation above this is none of values from 0 to 1.
const MOST_OF_UNIT: f32 = 1.5;

/// The batch, and height, width and channels of the images that go in; 0 is a size that is left open.
fn images(input: &ValueInfoProto) -> Result<(usize, [usize; 3]), String> {
    let kind = input.r#type.as_ref().and_then(|kind| kind.tensor_type.as_ref());
    let sides: Option<Vec<usize>> = kind.and_then(|kind| kind.shape.as_ref()).map(|shape| {
        let side = |dim: &super::proto::DimensionProto| match dim.value {
            Some(Dimension::Length(n)) => usize::try_from(n).unwrap_or(0),
            _ => 0,
        };
        shape.dim.iter().map(side).collect()
    });
    let [batch, channels @ (1 | 3), h, w] = sides.unwrap_or_default()[..] else {
        return Err(
            "its input must be images of (batch, channels, rows, columns) with 1 or 3 channels".to_owned()
        );
    };
    match kind.is_some_and(|kind| kind.elem_type == FLOAT) {
        true => Ok((batch, [h, w, channels])),
        false => Err(format!("its input `{}` must be float32", shortened(&input.name))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::proto::{DimensionProto, TensorShapeProto, TensorTypeProto, TypeProto};
    use super::*;

    /// A hostile graph may want one name for each of its nodes.
    #[test]
    fn names_that_are_taken_get_numbers() {
        let length = |n| DimensionProto { value: Some(Dimension::Length(n)) };
        let shape = TensorShapeProto { dim: [1, 3, 8, 8].map(length).to_vec() };
        let tensor_type = Some(TensorTypeProto { elem_type: FLOAT, shape: Some(shape) });
        let input = ValueInfoProto { name: "x".into(), r#type: Some(TypeProto { tensor_type }) };
        let graph = GraphProto { input: vec![input], ..GraphProto::default() };
        let mut reader = Reader::new(&graph, Vec::new(), Path::new(""), false).unwrap();
        let names: Vec<String> = (0..5000).map(|_| reader.new_name("/a/b", "_again")).collect();
        assert_eq!(names[..4], ["a.b", "a.b_again", "a.b_again_2", "a.b_again_3"]);
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 5000);
        assert_eq!(names.iter().map(String::len).max(), Some("a.b_again_4999".len()));
        assert_eq!(["", "", IMAGES].map(|of| reader.new_name(of, "_act")), ["_act", "_act_2", "input_act"]);
    }
}
