//! From the nodes of a graph to layers.

use super::attributes::{find, float, int, ints, is_dilated, padding, strides, word};
use super::constants::{self, Constant};
use super::proto::{Dimension, GraphProto, NodeProto, TensorProto};
use crate::keras::shortened;
use crate::source::Pixels;
use crate::{Imported, layout};
use models::{Architecture, IMAGES, LayerSpec};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// The operators that are read.
const OPERATORS: &str = "Add, AveragePool, BatchNormalization, Cast, Clip, Concat, Constant, Conv, Div, \
                         Dropout, Elu, Erf, Flatten, Gather, Gelu, Gemm, GlobalAveragePool, \
                         GlobalMaxPool, GroupNormalization, Identity, InstanceNormalization, LogSoftmax, \
                         MatMul, Max, MaxPool, Mul, Pad, ReduceMax, ReduceMean, Relu, Reshape, Shape, \
                         Sigmoid, Softmax, Squeeze, Sub, Swish, Tanh, Transpose, Unsqueeze";

/// A graph as it was read.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) network: Imported,
    /// By layer and parameter: `conv2d/kernel`.
    pub(super) weights: HashMap<String, Constant>,
    /// What happens to pixels first, where an export has it.
    pub(super) pixels: Option<Pixels>,
    /// Layers that flatten their input with its channels first.
    pub(super) flattened: HashSet<String>,
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
}

/// The architecture in the making.
pub(super) struct Reader<'g> {
    pub(super) values: HashMap<&'g str, Of>,
    /// How many operands of nodes a value is.
    pub(super) reads: HashMap<&'g str, usize>,
    pub(super) layers: Vec<LayerSpec>,
    names: HashSet<String>,
    pub(super) weights: HashMap<String, Constant>,
    /// The kernels that layers have.
    kernels: HashSet<String>,
    pub(super) scale: Option<Constant>,
    pub(super) shift: Option<Constant>,
    flattened: HashSet<String>,
    image: [usize; 3],
}

impl<'g> Reader<'g> {
    /// A reader of a graph with these initializers, whose values may be in files in `folder`.
    pub(super) fn new(
        graph: &'g GraphProto,
        initializers: Vec<TensorProto>,
        folder: &Path,
    ) -> Result<Self, String> {
        let mut left = crate::file::MAX_FILE;
        let mut tensors = HashMap::new();
        for tensor in initializers {
            let constant = Constant::read(tensor, folder, &mut left)?;
            tensors.insert(constant.name.clone(), constant);
        }
        let mut inputs = graph.input.iter().filter(|input| !tensors.contains_key(&input.name));
        let (Some(input), None) = (inputs.next(), inputs.next()) else {
            return Err("it must have one input, of images".to_owned());
        };
        let shape = input.r#type.as_ref().and_then(|kind| kind.tensor_type.as_ref()?.shape.as_ref());
        let sides: Option<Vec<usize>> = shape.map(|shape| {
            let side = |dim: &super::proto::DimensionProto| match dim.value {
                Some(Dimension::Length(n)) => usize::try_from(n).unwrap_or(0),
                _ => 0,
            };
            shape.dim.iter().map(side).collect()
        });
        let [_, channels @ 3, h, w] = sides.unwrap_or_default()[..] else {
            return Err("its input must be images of (batch, 3, rows, columns)".to_owned());
        };
        // Only those that a node reads: each name has the lifetime of the graph.
        let mut reads = HashMap::new();
        for name in graph.node.iter().flat_map(|node| &node.input) {
            *reads.entry(name.as_str()).or_insert(0) += 1;
        }
        let given = |&name: &&'g str| Some((name, Of::Constant(tensors.get(name)?.clone())));
        let mut values: HashMap<&str, Of> = reads.keys().filter_map(given).collect();
        values.insert(&input.name, Of::Layer(IMAGES.to_owned()));
        Ok(Reader {
            values,
            reads,
            layers: Vec::new(),
            names: HashSet::from([IMAGES.to_owned()]),
            weights: HashMap::new(),
            kernels: HashSet::new(),
            scale: None,
            shift: None,
            flattened: HashSet::new(),
            image: [h, w, channels],
        })
    }

    pub(super) fn value(&self, node: &NodeProto, k: usize) -> Option<&Of> {
        self.values.get(node.input.get(k)?.as_str())
    }

    fn constant(&self, node: &NodeProto, k: usize) -> Option<&Constant> {
        match self.value(node, k)? {
            Of::Constant(constant) => Some(constant),
            _ => None,
        }
    }

    /// A layer's output, which a node reads as its operand number `k`.
    pub(super) fn layer(&mut self, node: &'g NodeProto, k: usize) -> Result<String, String> {
        let (class, ending, about, x) = match self.value(node, k).cloned() {
            Some(Of::Layer(name)) => return Ok(name),
            // Read as the image that it is.
            Some(Of::Pooled(class, x)) => (class, "_pooled", json!({"keepdims": true}), x),
            // By itself, and not as a half of SiLU.
            Some(Of::Part(Part::Sigmoid, x)) => ("Activation", "_act", json!({"activation": "sigmoid"}), x),
            _ => return Err(unknown(node)),
        };
        let name = self.new_name(&node.input[k], ending);
        let layer = self.push(class, name.clone(), about, vec![x]);
        self.values.insert(&node.input[k], layer);
        Ok(name)
    }

    pub(super) fn node(&mut self, node: &'g NodeProto) -> Result<(), String> {
        // A normalization and a pooling may have more outputs than the first, for training.
        let output = node.output.first().ok_or_else(|| unknown(node))?;
        let constants: Vec<Option<&Constant>> =
            (0..node.input.len()).map(|k| self.constant(node, k)).collect();
        let value = match constants::folded(node, &constants) {
            _ if node.op_type == "Constant" => Of::Constant(constants::given(node)?),
            Some(constant) if !constants.is_empty() => Of::Constant(constant),
            _ => self.operator(node)?,
        };
        self.values.insert(output, value);
        Ok(())
    }

    fn operator(&mut self, node: &'g NodeProto) -> Result<Of, String> {
        Ok(match node.op_type.as_str() {
            "Conv" => self.convolution(node)?,
            "Gemm" | "MatMul" => self.dense(node)?,
            "BatchNormalization" => {
                let names = ["gamma", "beta", "moving_mean", "moving_variance"];
                let about = json!({"epsilon": float(node, "epsilon", 1e-5), "momentum": float(node, "momentum", 0.9)});
                self.weighted(node, "BatchNormalization", about, &names)?
            }
            "GroupNormalization" => {
                let about =
                    json!({"epsilon": float(node, "epsilon", 1e-5), "groups": int(node, "num_groups", 0)});
                self.weighted(node, "GroupNormalization", about, &["gamma", "beta"])?
            }
            "InstanceNormalization" => self.instance_normalization(node)?,
            "MaxPool" => self.pooling(node, "MaxPooling2D")?,
            "AveragePool" => self.pooling(node, "AveragePooling2D")?,
            "GlobalAveragePool" => Of::Pooled("GlobalAveragePooling2D", self.layer(node, 0)?),
            "GlobalMaxPool" => Of::Pooled("GlobalMaxPooling2D", self.layer(node, 0)?),
            "ReduceMax" => self.pooled(node, "GlobalMaxPooling2D")?,
            "ReduceMean" => self.pooled(node, "GlobalAveragePooling2D")?,
            "Transpose" if ints(node, "perm") == [0, 2, 3, 1] => Of::Transposed(self.layer(node, 0)?),
            "Flatten" if int(node, "axis", 1) == 1 => self.flatten(node)?,
            "Squeeze" => self.flatten(node)?,
            "Reshape" => self.reshape(node)?,
            "Shape" => self.shape(node)?,
            "Identity" | "Cast" => Of::Layer(self.layer(node, 0)?),
            "Dropout" => {
                let rate = self.constant(node, 1).and_then(|rate| Some(rate.few_floats(1)?[0]));
                let x = self.layer(node, 0)?;
                self.plain(
                    node,
                    "Dropout",
                    json!({"rate": rate.unwrap_or(float(node, "ratio", 0.5))}),
                    vec![x],
                )
            }
            "Pad" => self.pad(node)?,
            "Relu" => self.activation(node, "relu")?,
            "Clip" if self.is_relu(node) => self.activation(node, "relu")?,
            "Clip" => return Err(format!("its node `{}` must be a ReLU, with min=0 and no max", node.name)),
            "Gelu" if word(node, "approximate") != "tanh" => self.activation(node, "gelu")?,
            "Swish" if float(node, "alpha", 1.0) == 1.0 => self.activation(node, "silu")?,
            "Elu" if float(node, "alpha", 1.0) == 1.0 => self.activation(node, "elu")?,
            "Tanh" => self.activation(node, "tanh")?,
            // The loss has them.
            "Softmax" | "LogSoftmax" if [-1, 1].contains(&int(node, "axis", -1)) => {
                self.activation(node, "softmax")?
            }
            "Concat" if int(node, "axis", 1) == 1 => {
                let inputs =
                    (0..node.input.len()).map(|k| self.layer(node, k)).collect::<Result<Vec<_>, _>>()?;
                match <[String; 1]>::try_from(inputs) {
                    Ok([only]) => Of::Layer(only),
                    Err(inputs) => self.plain(node, "Concatenate", json!({}), inputs),
                }
            }
            "Add" | "Div" | "Erf" | "Max" | "Mul" | "Sigmoid" | "Sub" => self.elementwise(node)?,
            _ => return Err(unknown(node)),
        })
    }

    /// A name from that of a weight, a node or its output that no layer has: with this ending, as often as it takes.
    fn new_name(&mut self, of: &str, ending: &str) -> String {
        let mut name = of.trim_start_matches('/').trim_end_matches("_output_0").replace('/', ".");
        while name.is_empty() || !self.names.insert(name.clone()) {
            name += ending;
        }
        name
    }

    /// A layer without weights, called as the node's output, unless the layer before an activation is.
    pub(super) fn plain(&mut self, node: &NodeProto, class: &str, options: Value, inputs: Vec<String>) -> Of {
        let name = self.new_name(&node.output[0], "_act");
        self.push(class, name, options, inputs)
    }

    fn activation(&mut self, node: &'g NodeProto, activation: &str) -> Result<Of, String> {
        let x = self.layer(node, 0)?;
        Ok(self.activate(node, activation, x))
    }

    pub(super) fn activate(&mut self, node: &NodeProto, activation: &str, x: String) -> Of {
        self.plain(node, "Activation", json!({"activation": activation}), vec![x])
    }

    fn push(&mut self, class: &str, name: String, options: Value, inputs: Vec<String>) -> Of {
        let options = options.as_object().cloned().unwrap_or_default();
        self.layers.push(LayerSpec { class: class.to_owned(), name: name.clone(), inputs, options });
        Of::Layer(name)
    }

    /// A layer with weights, called as they are, `conv2d.weight` is of `conv2d`, or as its node.
    fn weighted(
        &mut self,
        node: &'g NodeProto,
        class: &str,
        options: Value,
        names: &[&str],
    ) -> Result<Of, String> {
        let mut weights = Vec::new();
        for k in 1..node.input.len() {
            let constant = self.constant(node, k).cloned();
            weights
                .push(constant.ok_or_else(|| format!("its weights `{}` are no initializer", node.input[k]))?);
        }
        let input = self.layer(node, 0)?;
        Ok(self.layer_of(node, class, options, input, names.iter().copied().zip(weights)))
    }

    pub(super) fn layer_of<'n>(
        &mut self,
        node: &NodeProto,
        class: &str,
        options: Value,
        input: String,
        weights: impl Iterator<Item = (&'n str, Constant)>,
    ) -> Of {
        let own = node.input.get(1).and_then(|first| first.strip_suffix(".weight"));
        let called =
            own.unwrap_or_else(|| node.name.rsplit_once('/').map_or(&*node.output[0], |(path, _)| path));
        let name = self.new_name(called, "_again");
        self.weights.extend(weights.map(|(parameter, constant)| (format!("{name}/{parameter}"), constant)));
        self.push(class, name, options, vec![input])
    }

    /// The shape of a kernel, which one layer may have.
    fn kernel(&mut self, node: &NodeProto) -> Result<Vec<usize>, String> {
        let kernel = self.constant(node, 1).ok_or_else(|| unknown(node))?.shape.clone();
        match self.kernels.insert(node.input[1].clone()) {
            true => Ok(kernel),
            false => Err(format!(
                "its weights `{}` are used twice, but weights can only be used once",
                node.input[1]
            )),
        }
    }

    fn convolution(&mut self, node: &'g NodeProto) -> Result<Of, String> {
        let [filters, _, rows, columns] = self.kernel(node)?[..] else { return Err(unknown(node)) };
        if int(node, "group", 1) != 1 || is_dilated(node) {
            return Err(format!("its node `{}` has groups or dilations, which are not there", node.name));
        }
        let about = json!({
            "filters": filters, "kernel_size": [rows, columns], "strides": strides(node), "padding": padding(node)?,
            "use_bias": node.input.len() > 2,
        });
        self.weighted(node, "Conv2D", about, &["kernel", "bias"])
    }

    fn dense(&mut self, node: &'g NodeProto) -> Result<Of, String> {
        let [rows, columns] = self.kernel(node)?[..] else { return Err(unknown(node)) };
        let plain = float(node, "alpha", 1.0) == 1.0
            && (float(node, "beta", 1.0) == 1.0 || node.input.len() == 2)
            && int(node, "transA", 0) == 0;
        if !plain {
            return Err(format!("its node `{}` must have transA=0, alpha=1 and beta=1", node.name));
        }
        let outputs_first = int(node, "transB", 0) == 1;
        let about =
            json!({"units": if outputs_first { rows } else { columns }, "use_bias": node.input.len() > 2});
        let dense = self.weighted(node, "Dense", about, &["kernel", "bias"])?;
        if let (Of::Layer(name), false) = (&dense, outputs_first) {
            let kernel = self.weights.get_mut(&format!("{name}/kernel"));
            kernel.into_iter().for_each(|kernel| *kernel = kernel.transposed().unwrap_or(kernel.clone()));
        }
        Ok(dense)
    }

    fn pooling(&mut self, node: &'g NodeProto, class: &str) -> Result<Of, String> {
        let padding = padding(node)?;
        let padded = padding != json!([[0, 0], [0, 0]]) && padding != "valid";
        let counts_zeros = int(node, "count_include_pad", 0) != 0 && padded;
        if counts_zeros || is_dilated(node) || int(node, "ceil_mode", 0) != 0 {
            return Err(format!(
                "its node `{}` has count_include_pad, dilations or ceil_mode, which are not there",
                node.name
            ));
        }
        let about =
            json!({"pool_size": ints(node, "kernel_shape"), "strides": strides(node), "padding": padding});
        let input = self.layer(node, 0)?;
        Ok(self.plain(node, class, about, vec![input]))
    }

    /// The mean or the largest number over rows and columns, as PyTorch's `mean((2, 3))` and `AdaptiveAvgPool2d(1)`.
    fn pooled(&mut self, node: &'g NodeProto, class: &'static str) -> Result<Of, String> {
        let axes = self.constant(node, 1).and_then(Constant::as_numbers).unwrap_or(ints(node, "axes"));
        let mut axes: Vec<i64> = axes.iter().map(|&axis| if axis < 0 { axis + 4 } else { axis }).collect();
        axes.sort_unstable();
        if axes != [2, 3] {
            return Err(unknown(node));
        }
        let x = self.layer(node, 0)?;
        Ok(match int(node, "keepdims", 1) {
            1 => Of::Pooled(class, x),
            _ => self.plain(node, class, json!({}), vec![x]),
        })
    }

    fn pad(&mut self, node: &'g NodeProto) -> Result<Of, String> {
        let zero = self.constant(node, 2).is_none_or(|value| value.few_floats(1) == Some(&[0.0]));
        let pads = self.constant(node, 1).and_then(Constant::as_numbers).unwrap_or(ints(node, "pads"));
        let (&[0, 0, top, left, 0, 0, bottom, right], true) = (pads, zero && node.input.len() <= 3) else {
            return Err(unknown(node));
        };
        if !["", "constant"].contains(&word(node, "mode")) {
            return Err(unknown(node));
        }
        let x = self.layer(node, 0)?;
        Ok(self.plain(node, "ZeroPadding2D", json!({"padding": [[top, bottom], [left, right]]}), vec![x]))
    }

    /// Whether a `Clip` has the limits 0 and none.
    fn is_relu(&self, node: &NodeProto) -> bool {
        let limit = |k: usize, key: &str| match self.constant(node, k) {
            Some(limit) => limit.few_floats(1).map(|limit| limit[0]),
            None => find(node, key).and_then(|own| own.f),
        };
        limit(1, "min") == Some(0.0) && limit(2, "max").is_none_or(|most| most >= f32::MAX)
    }

    /// `Flatten`, and what does the same: `Reshape` to a vector, and `Squeeze` of a 1x1 image.
    fn flatten(&mut self, node: &'g NodeProto) -> Result<Of, String> {
        let (class, input) = match self.value(node, 0).cloned() {
            Some(Of::Pooled(class, x)) => (class, x),
            Some(Of::Transposed(x)) => ("Flatten", x),
            Some(Of::Layer(x)) => {
                let before = self.layers.iter().find(|layer| layer.name == x);
                if before
                    .is_some_and(|layer| ["Dense", "Flatten"].contains(&&*layer.class) || is_vector(layer))
                {
                    return Ok(Of::Layer(x));
                }
                let flat = self.plain(node, "Flatten", json!({}), vec![x]);
                self.flattened.extend(self.layers.last().map(|layer| layer.name.clone()));
                return Ok(flat);
            }
            _ => return Err(unknown(node)),
        };
        Ok(self.plain(node, class, json!({}), vec![input]))
    }

    fn reshape(&mut self, node: &'g NodeProto) -> Result<Of, String> {
        let to = self.constant(node, 1).and_then(Constant::as_numbers).ok_or_else(|| unknown(node))?;
        match (self.value(node, 0).cloned(), to) {
            (Some(Of::Layer(x)), &[_, groups, -1]) => Ok(Of::Part(Part::Grouped(groups), x)),
            (Some(Of::Part(Part::Normalized(groups, epsilon), x)), &[_, _, _, _]) => {
                Ok(Of::Part(Part::Ungrouped(groups, epsilon), x))
            }
            (_, [_, _]) => self.flatten(node),
            _ => Err(unknown(node)),
        }
    }

    /// The shape of a layer's output, of which the batch alone is known.
    fn shape(&mut self, node: &'g NodeProto) -> Result<Of, String> {
        self.layer(node, 0)?;
        let all = [0, -1, -1, -1];
        let place = |key: &str, default: i64| usize::try_from(int(node, key, default)).unwrap_or(all.len());
        let part = all.get(place("start", 0)..place("end", 4)).ok_or_else(|| unknown(node))?;
        Ok(Of::Constant(Constant::numbers(part.to_vec())))
    }

    /// Of the groups of a group normalization, or of each channel.
    fn instance_normalization(&mut self, node: &'g NodeProto) -> Result<Of, String> {
        let epsilon = float(node, "epsilon", 1e-5);
        if let Some(Of::Part(Part::Grouped(groups), x)) = self.value(node, 0).cloned() {
            let all = |k: usize, number: f32| {
                let floats = self.constant(node, k).and_then(|constant| constant.few_floats(usize::MAX));
                floats.is_some_and(|floats| floats.iter().all(|&x| x == number))
            };
            return match all(1, 1.0) && all(2, 0.0) {
                true => Ok(Of::Part(Part::Normalized(groups, epsilon), x)),
                false => Err(unknown(node)),
            };
        }
        self.weighted(
            node,
            "GroupNormalization",
            json!({"epsilon": epsilon, "groups": -1}),
            &["gamma", "beta"],
        )
    }

    pub(super) fn finish(self, graph: &GraphProto) -> Result<Graph, String> {
        let [h, w, channels] = self.image;
        let output = graph.output.first().and_then(|output| self.values.get(output.name.as_str()));
        let last = self.layers.last().map(|last| last.name.as_str());
        if matches!(output, Some(Of::Part(Part::Sigmoid, _))) {
            return Err("it ends in a Sigmoid, but a softmax tells the classes apart here".to_owned());
        }
        let is_last = matches!((output, last), (Some(Of::Layer(output)), Some(last)) if output == last);
        if graph.output.len() != 1 || !is_last {
            return Err("its last node must be its only output".to_owned());
        }
        let scale = self.scale.map(|scale| scale.floats()).transpose()?;
        let shift = self.shift.map(|shift| shift.floats()).transpose()?;
        let pixels = (scale.is_some() || shift.is_some()).then(|| {
            let shift = shift.unwrap_or_else(|| vec![0.0; channels]);
            // From (channels, rows, columns) to (rows, columns, channels).
            let shift = layout::channels_first(&shift, channels, shift.len() / channels);
            Pixels { scale: scale.unwrap_or_else(|| vec![1.0; channels]), shift }
        });
        let mut architecture = Architecture { layers: self.layers };
        let classes = architecture.take_classes();
        let name = if graph.name.is_empty() { "model".to_owned() } else { graph.name.clone() };
        let image = (h > 0 && w > 0).then_some([h, w]);
        let network = Imported { name, architecture, classes, image, notes: Vec::new(), compiled: None };
        Ok(Graph { network, weights: self.weights, pixels, flattened: self.flattened })
    }
}

/// Whether a pooling layer makes vectors.
fn is_vector(layer: &LayerSpec) -> bool {
    layer.class.starts_with("Global") && layer.options.get("keepdims") != Some(&true.into())
}

pub(super) fn unknown(node: &NodeProto) -> String {
    let (name, operator) = (shortened(&node.name), shortened(&node.op_type));
    match OPERATORS.split(", ").any(|known| known == node.op_type) {
        true => format!("its node `{name}` is a {operator} in a form that is not there"),
        false => {
            format!("its node `{name}` is a {operator}, which is not there; there are {}", OPERATORS)
        }
    }
}
