//! Reads the nodes of a graph as layers: the values of the graph, and the layers so far.

use super::arithmetic::MOST_FOLDED;
use super::constants::Constant;
use super::ends::{Images, images, is_of_unit};
use super::extent::{Extent, shown};
use super::external::Files;
use super::fold::{folded, given, is_arithmetic};
use super::folded_norms;
use super::node::{Node, without};
use super::proto::{GraphProto, TensorProto};
use super::tensor::Tensor;
use super::term::Term;
use crate::source::Pixels;
use crate::text::shortened;
use crate::{Imported, layout};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use towers_models::{Architecture, CLASSES, IMAGES, LayerSpec};

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
    /// The output of a layer, or the images, with the axes of that layer.
    Layer(String),
    /// A function of a layer's output, or a layer's output with other axes.
    Seen(Box<Tensor>),
    /// It depends on no image.
    Constant(Constant),
}

/// The architecture in the making.
pub(super) struct Reader<'g> {
    pub(super) values: HashMap<&'g str, Of>,
    /// How many operands of nodes a value is.
    reads: HashMap<&'g str, usize>,
    pub(super) layers: Vec<LayerSpec>,
    /// The shapes of the layers' outputs, and of the images.
    shapes: HashMap<String, Vec<Extent>>,
    /// The layers of terms: of a layer's output, and of a term by its address, which stays as long as the term is here.
    pub(super) lowered: HashMap<(String, usize, bool), (Arc<Term>, String)>,
    /// The error of the first layer that is not there.
    pub(super) missing: Option<String>,
    /// The shapes that an `Expand` gives values: what reads these spreads them itself.
    pub(super) spread: HashMap<&'g str, Vec<Extent>>,
    /// How many layers have equal numbers for all features, and don't train them.
    pub(super) constant_scales: usize,
    /// The values that were computed of constants, and whether arithmetic made them: the others are parts of one, or other
    /// shapes.
    folded: HashMap<&'g str, bool>,
    /// How many numbers may be made of constants.
    left: usize,
    /// Whether there are 16-bit floats in it.
    pub(super) is_half: bool,
    /// How many sizes are open so far.
    open: u32,
    /// How often a name was wanted.
    names: HashMap<String, usize>,
    pub(super) weights: HashMap<String, Constant>,
    /// The outputs of the node at hand but the first.
    pub(super) parts: Vec<(&'g str, Of)>,
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
        let mut files = Files::of(folder);
        let mut tensors = HashMap::new();
        for tensor in initializers {
            let constant = Constant::read(tensor, &mut files)?;
            if let Some(twice) = tensors.insert(constant.name.clone(), constant) {
                return Err(format!("it has two tensors `{}`", shortened(&twice.name)));
            }
        }
        let mut inputs = graph.input.iter().filter(|input| !tensors.contains_key(&input.name));
        let (Some(input), None) = (inputs.next(), inputs.next()) else {
            return Err("it must have one input, of images".to_owned());
        };
        let Images { batch, image, channels_last, is_half } = images(input)?;
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
            lowered: HashMap::new(),
            missing: None,
            spread: HashMap::new(),
            constant_scales: 0,
            folded: HashMap::new(),
            left: MOST_FOLDED,
            is_half,
            open: 0,
            names: HashMap::from([(IMAGES.to_owned(), 1)]),
            weights: HashMap::new(),
            parts: Vec::new(),
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
        let shape = vec![batch, channels, h, w];
        reader.shapes.insert(IMAGES.to_owned(), shape.clone());
        if channels_last {
            let images = Tensor::of(IMAGES.to_owned(), shape);
            let axes = images.axes.permuted(&[0, 2, 3, 1]).unwrap_or(images.axes.clone());
            reader.values.insert(&input.name, Tensor { axes, ..images }.into());
        }
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
        let number = constant.float().map(Some);
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
        let tensor = self.tensor(node, k)?;
        if let Some(Of::Layer(name)) = self.value(node, k)? {
            return Ok(name.clone());
        }
        let operand = node.operand(k).unwrap_or_default();
        let name = self.plain_layer(tensor, operand, Some(node))?;
        // Who reads it next reads this layer.
        self.values.insert(operand, Of::Layer(name.clone()));
        Ok(name)
    }

    /// A layer's output as the operand number `k` that is an image, with channels, rows and columns.
    pub(super) fn image(&mut self, node: &Node<'g>, k: usize) -> Result<(String, [Extent; 3]), String> {
        let axes = self.tensor(node, k)?.axes.len();
        if axes != 4 {
            return Err(node.form(format!("of {axes} axes")));
        }
        let x = self.layer(node, k)?;
        let mut shape = self.shape(&x);
        shape.resize(4, Extent::number(1));
        match <[Extent; 4]>::try_from(shape) {
            Ok([_, channels, rows, columns]) => Ok((x, [channels, rows, columns])),
            Err(shape) => Err(node.form(format!("of {} axes", shape.len()))),
        }
    }

    pub(super) fn node(&mut self, node: &Node<'g>) -> Result<(), String> {
        let mut constants = Vec::new();
        for name in node.names() {
            match self.values.get(name) {
                Some(Of::Constant(constant)) => constants.push(constant),
                _ => break,
            }
        }
        // Operands that are left out have no names.
        let is_folded = !constants.is_empty() && node.names().skip(constants.len()).all(str::is_empty);
        let made = if is_folded { folded(node, &constants, &mut self.left)? } else { None };
        let is_made = made.is_some();
        let value = match made {
            _ if node.op() == "Constant" => Of::Constant(given(node)?),
            Some(constant) => Of::Constant(constant),
            None => self.operator(node)?,
        };
        node.done()?;
        if let Some(error) = self.missing.take() {
            return Err(error);
        }
        // The same value under another name: who reads one of them reads the other one.
        if let Some(input) = node.operand(0)
            && self.alias(input).is_some_and(|layer| self.alias_of(&value) == Some(layer))
        {
            let of = |name: &str| self.reads.get(name).copied().unwrap_or_default();
            let reads = (of(input) + of(node.output())).saturating_sub(1);
            self.reads.insert(node.output(), reads);
        }
        if let Some(twice) =
            node.outputs().find(|output| self.values.contains_key(output) || self.folded.contains_key(output))
        {
            return Err(node.refuse(format!("gives `{}`, which is there before it", shortened(twice))));
        }
        if let Some(shape) = node.names().find_map(|name| self.spread.get(name)) {
            let seen = match &value {
                Of::Layer(layer) => self.shape(layer),
                Of::Seen(tensor) => tensor.seen(),
                Of::Constant(_) => Vec::new(),
            };
            if !["Add", "Mul"].contains(&node.op()) || seen != *shape {
                return Err(node.form(format!("of a tensor that an Expand spreads to {}", shown(shape))));
            }
        }
        if is_made {
            self.note_folded(node);
        }
        self.values.insert(node.output(), value);
        let parts = core::mem::take(&mut self.parts);
        self.values.extend(parts);
        Ok(())
    }

    /// Notes that a node was computed, and drops the operands that no other node reads.
    fn note_folded(&mut self, node: &Node<'g>) {
        let is_made = |name: &'g str| self.folded.get(name) == Some(&true);
        let by_arithmetic = is_arithmetic(node.op()) || node.names().any(is_made);
        for name in node.names() {
            if self.reads.get(name) == Some(&1)
                && self.folded.contains_key(name)
                && let Some(Of::Constant(gone)) = self.values.remove(name)
            {
                self.left += gone.floats_len();
            }
        }
        self.folded.insert(node.output(), by_arithmetic);
    }

    /// The layer whose output a value is, with whatever axes.
    fn alias(&self, name: &str) -> Option<&str> {
        self.values.get(name).and_then(|value| self.alias_of(value))
    }

    fn alias_of<'v>(&self, value: &'v Of) -> Option<&'v str> {
        match value {
            Of::Layer(layer) => Some(layer),
            Of::Seen(tensor) if tensor.term.is_leaf() => Some(&tensor.layer),
            _ => None,
        }
    }

    /// A name from that of a weight, a node or its output that no layer has: with this ending, and a number,
    /// as often as it takes.
    pub(super) fn new_name(&mut self, of: &str, ending: &str) -> String {
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
        if !CLASSES.contains(&class) {
            self.missing.get_or_insert_with(|| node.refuse(format!("is a {} {}", node.op(), without(class))));
        }
        self.push(class, name, options, inputs, shape)
    }

    /// An activation without options, by Keras' name.
    pub(super) fn activation(&mut self, node: &Node<'g>, activation: &str) -> Result<Of, String> {
        let x = self.tensor(node, 0)?;
        let term = Term::function(activation, Arc::clone(&x.term), node);
        Ok(x.with_term(term).into())
    }

    /// A layer that computes something of each number of its input by itself, or of each channel, whatever its axes
    /// are. The weights are called by their parameters.
    pub(super) fn pointwise(
        &mut self,
        node: &Node<'g>,
        class: &str,
        options: Value,
        weights: Vec<(&'static str, Constant)>,
    ) -> Result<Of, String> {
        let x = self.tensor(node, 0)?;
        let x = self.base(x)?;
        let shape = x.shape.clone();
        let y = match weights.is_empty() {
            true => self.plain(node, class, options, vec![x.layer.clone()], shape.clone()),
            false => self.weighted(node, class, options, x.layer.clone(), shape.clone(), weights),
        };
        match y {
            Of::Layer(layer) => Ok(x.beside(layer, shape).into()),
            other => Ok(other),
        }
    }

    pub(super) fn push(
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
        if !CLASSES.contains(&class) {
            self.missing.get_or_insert_with(|| node.refuse(format!("is a {} {}", node.op(), without(class))));
        }
        let weights = weights.into_iter();
        self.weights.extend(weights.map(|(parameter, constant)| (format!("{name}/{parameter}"), constant)));
        self.push(class, name, options, vec![input], shape)
    }

    pub(super) fn finish(mut self, graph: &'g GraphProto) -> Result<Graph, String> {
        let [output] = &graph.output[..] else {
            return Err(format!("it must have one output, but has {}", graph.output.len()));
        };
        let scores = match self.values.get(output.name.as_str()).cloned() {
            Some(_) if self.spread.contains_key(output.name.as_str()) => None,
            Some(Of::Seen(tensor)) => Some(self.plain_layer(*tensor, &output.name, None)?),
            Some(Of::Layer(name)) => Some(name),
            Some(Of::Constant(_)) => None,
            None => return Err(format!("nothing gives its output `{}`", shortened(&output.name))),
        };
        if let Some(error) = self.missing.take() {
            return Err(error);
        }
        let last = self.layers.last().map(|last| last.name.as_str());
        if scores.is_none() || scores.as_deref() != last {
            return Err("its last node must be its only output".to_owned());
        }
        let pixels = self.pixels()?;
        let [h, w, _] = self.image;
        let mut architecture = Architecture { layers: self.layers };
        let classes = architecture.take_classes();
        let name = if graph.name.is_empty() { "model".to_owned() } else { graph.name.clone() };
        let image = (h > 0 && w > 0).then_some([h, w]);
        let mut notes: Vec<String> = folded_norms::note(&self.weights).into_iter().collect();
        let is_computed = |own: &&Constant| self.folded.get(own.name.as_str()) == Some(&true);
        let computed = self.weights.values().filter(is_computed).count();
        if computed > 0 {
            notes.push(format!(
                "it computes {computed} of its weights from others before each use, as weight standardization does; here they are computed \
                 once, and a training goes on without it"
            ));
        }
        if self.constant_scales > 0 {
            notes.push(format!(
                "{} of its scales and offsets have equal numbers for all features: here they are constants, which are not trained",
                self.constant_scales
            ));
        }
        if self.is_half {
            notes.push("it computes with 16-bit floats, but here its weights become float32".to_owned());
        }
        let channels = Some(self.image[2]);
        let network = Imported { name, architecture, classes, image, channels, notes, ..Imported::default() };
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

#[cfg(test)]
mod tests {
    use super::super::proto::{
        AttributeProto, AttributeType, Dimension, DimensionProto, EXTERNAL, FLOAT, NodeProto,
        TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
    };
    use super::*;

    /// A graph of small images.
    fn of_images() -> GraphProto {
        let length = |n| DimensionProto { value: Some(Dimension::Length(n)) };
        let shape = TensorShapeProto { dim: [1, 3, 8, 8].map(length).to_vec() };
        let tensor_type = Some(TensorTypeProto { elem_type: FLOAT, shape: Some(shape) });
        let input = ValueInfoProto { name: "x".into(), r#type: Some(TypeProto { tensor_type }) };
        GraphProto { input: vec![input], ..GraphProto::default() }
    }

    /// A file beside the graph is read for initializers alone.
    #[test]
    fn attributes_hold_their_values() {
        let constant = |data_location: i32| NodeProto {
            op_type: "Constant".to_owned(),
            name: "n".to_owned(),
            output: vec!["y".to_owned()],
            attribute: vec![AttributeProto {
                name: "value".to_owned(),
                r#type: AttributeType::Tensor.into(),
                t: Some(TensorProto {
                    data_type: FLOAT,
                    float_data: vec![0.5],
                    data_location,
                    ..TensorProto::default()
                }),
                ..AttributeProto::default()
            }],
            ..NodeProto::default()
        };
        let read = |location| given(&Node::new(&constant(location), 1, 13).unwrap());
        assert_eq!(read(0).unwrap().float(), Some(0.5));
        let error = read(EXTERNAL).unwrap_err();
        assert!(error.contains("of a value in another file"), "{error}");
    }

    /// Networks with normalized weights make many numbers in passing.
    #[test]
    fn constants_that_nobody_reads_any_more_are_given_back() {
        let nodes =
            [("Neg", "w", "a"), ("Exp", "a", "b"), ("Neg", "b", "c"), ("Exp", "b", "d"), ("Exp", "k", "e")];
        let node = |(op, input, output): (&str, &str, &str)| NodeProto {
            input: vec![input.to_owned()],
            output: vec![output.to_owned()],
            op_type: op.to_owned(),
            ..NodeProto::default()
        };
        let graph = GraphProto { node: nodes.into_iter().map(node).collect(), ..of_images() };
        let tensor = |name: &str, len: usize| TensorProto {
            dims: vec![len as i64],
            data_type: FLOAT,
            float_data: vec![0.5; len],
            name: name.to_owned(),
            ..TensorProto::default()
        };
        let weights = vec![tensor("w", 1000), tensor("k", 10)];
        let mut reader = Reader::new(&graph, weights, Path::new(""), false).unwrap();
        // The numbers kept after each node: `a` is dropped once `b` is made, which two nodes read.
        for (k, made) in [1000, 1000, 2000, 3000, 3010].into_iter().enumerate() {
            reader.node(&Node::new(&graph.node[k], k, 13).unwrap()).unwrap();
            assert_eq!(MOST_FOLDED - reader.left, made, "after node {k}");
        }
        assert!(!reader.values.contains_key("a") && reader.values.contains_key("b"));
        let twice = NodeProto { output: vec!["a".to_owned()], ..graph.node[4].clone() };
        let error = reader.node(&Node::new(&twice, 9, 13).unwrap()).unwrap_err();
        assert!(error.contains("gives `a`, which is there before it"), "{error}");
    }

    /// A hostile graph may want one name for each of its nodes.
    #[test]
    fn names_that_are_taken_get_numbers() {
        let graph = of_images();
        let mut reader = Reader::new(&graph, Vec::new(), Path::new(""), false).unwrap();
        let names: Vec<String> = (0..5000).map(|_| reader.new_name("/a/b", "_again")).collect();
        assert_eq!(names[..4], ["a.b", "a.b_again", "a.b_again_2", "a.b_again_3"]);
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 5000);
        assert_eq!(names.iter().map(String::len).max(), Some("a.b_again_4999".len()));
        assert_eq!(["", "", IMAGES].map(|of| reader.new_name(of, "_act")), ["_act", "_act_2", "input_act"]);
    }
}
