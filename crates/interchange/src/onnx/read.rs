//! From a graph with the operators that the [writer](super::write) uses to an architecture with its weights.

use super::MODEL;
use super::proto::{AttributeProto, Dimension, FLOAT, GraphProto, ModelProto, NodeProto, TensorProto};
use crate::pytorch::{Named, named};
use crate::source::Pixels;
use crate::{Error, Imported, Result, file, layout};
use checkpoint::Tensors;
use layers::{Role, Step};
use models::{Architecture, IMAGES, LayerSpec};
use prost::Message;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// The most nodes of a graph: GELU has five.
const MOST_NODES: usize = 10_000;

/// A graph as an architecture, with its weights.
#[derive(Debug)]
pub struct OnnxNetwork {
    path: PathBuf,
    network: Imported,
    /// By layer and parameter: `conv2d/kernel`.
    weights: HashMap<String, TensorProto>,
    pixels: Option<Pixels>,
    /// Layers that flatten their input with its channels first.
    flattened: Vec<String>,
    metadata: BTreeMap<String, String>,
}

impl OnnxNetwork {
    /// Reads a file with one input of images, one output of class scores, and the operators that exports have.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::File`] for a file of another format, and for an operator that is not there.
    pub fn read(path: &Path) -> Result<Self> {
        let refuse = |reason: String| Error::file(path, reason);
        let model = ModelProto::decode(&file::read(path)?[..]);
        let model = model.map_err(|error| refuse(format!("it is no ONNX file: {error}")))?;
        let metadata = model.metadata_props.into_iter().map(|entry| (entry.key, entry.value)).collect();
        let graph = model.graph.ok_or_else(|| refuse("there is no graph in it".to_owned()))?;
        if graph.node.len() > MOST_NODES {
            return Err(refuse(format!(
                "it has {} nodes, but must have at most {MOST_NODES}",
                graph.node.len()
            )));
        }
        let mut reader = Reader::new(&graph).map_err(refuse)?;
        let nodes = graph.node.iter().try_for_each(|node| reader.node(node));
        let read = nodes.and_then(|()| reader.finish(&graph)).map_err(refuse)?;
        Ok(OnnxNetwork { path: path.to_owned(), metadata, ..read })
    }

    /// The network that the graph describes.
    pub fn network(&self) -> &Imported {
        &self.network
    }

    /// What happens to pixels first, where the graph has it as the writer puts it.
    pub fn pixels(&self) -> Option<Pixels> {
        // The writer leaves a scale of 1 and a shift of 0 out.
        let written = self.metadata.contains_key(MODEL);
        let unchanged = written.then(|| Pixels { scale: vec![1.0; 3], shift: vec![0.0; 3] });
        self.pixels.clone().or(unchanged)
    }

    /// The names of the classes, where the metadata have them.
    ///
    /// # Errors
    /// [`Error::File`] if they can't be read, or are more or fewer than the classes.
    pub fn named(&self, classes: usize) -> Result<Option<Named>> {
        named(&self.path, &self.metadata, classes)
    }

    /// The tensors of the [network](OnnxNetwork::network) with these steps, under the names of its slots.
    ///
    /// # Errors
    /// [`Error::Mismatch`] with the first thing that differs.
    pub fn assign(&self, steps: &[Step]) -> Result<Tensors> {
        let refuse = |reason: String| Error::Mismatch { path: self.path.clone(), reason };
        let mut tensors = Tensors::new();
        for step in steps {
            if self.flattened.contains(&step.name) && step.x.h * step.x.w > 1 {
                return Err(refuse(format!(
                    "its `{}` flattens images with the channels first; put a Transpose of perm=[0, 2, 3, 1] before it",
                    step.name
                )));
            }
            for spec in &step.params {
                let name = format!("{}/{}", step.name, spec.name);
                let data = match self.weights.get(&name) {
                    None if spec.role == Role::Frozen => spec.init.values(0, &name, &spec.shape),
                    None => return Err(refuse(format!("it has no weights `{name}`"))),
                    Some(tensor) => {
                        let (is, needs) = (extents(tensor), layout::shape(&spec.shape));
                        if is.as_ref() != Some(&needs) {
                            let is = &tensor.dims;
                            return Err(refuse(format!(
                                "its `{}` has the shape {is:?}, but must have {needs:?}",
                                tensor.name
                            )));
                        }
                        layout::from_torch(&spec.shape, &floats(tensor).map_err(refuse)?)
                    }
                };
                tensors.insert(name, spec.shape.clone(), data)?;
            }
        }
        Ok(tensors)
    }
}

/// The extents of a tensor.
fn extents(tensor: &TensorProto) -> Option<Vec<usize>> {
    tensor.dims.iter().map(|&extent| usize::try_from(extent).ok()).collect()
}

/// The values of a tensor.
fn floats(tensor: &TensorProto) -> Result<Vec<f32>, String> {
    let len = extents(tensor).and_then(|all| all.into_iter().try_fold(4_usize, usize::checked_mul));
    if tensor.data_type != FLOAT || len != Some(tensor.raw_data.len()) {
        return Err(format!("its `{}` must have float32 values in raw_data", tensor.name));
    }
    let (words, _) = tensor.raw_data.as_chunks::<4>();
    Ok(words.iter().map(|&word| f32::from_le_bytes(word)).collect())
}

/// A value of the graph so far.
#[derive(Clone, Debug, PartialEq)]
enum Of {
    /// The output of a layer, or the images.
    Layer(String),
    /// A step of GELU or SiLU on a layer's output: `x / sqrt(2)`, `erf`, `1 + erf`, `x (1 + erf)`, `sigmoid`.
    Part(&'static str, String),
    /// With the channels last.
    Transposed(String),
    /// The mean over rows and columns, as a 1x1 image.
    Pooled(String),
}

/// The architecture in the making.
struct Reader<'g> {
    tensors: HashMap<&'g str, &'g TensorProto>,
    values: HashMap<&'g str, Of>,
    layers: Vec<LayerSpec>,
    weights: HashMap<String, TensorProto>,
    scale: Option<&'g TensorProto>,
    shift: Option<&'g TensorProto>,
    flattened: Vec<String>,
    image: [usize; 3],
}

impl<'g> Reader<'g> {
    fn new(graph: &'g GraphProto) -> Result<Self, String> {
        let tensors: HashMap<&str, &TensorProto> =
            graph.initializer.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
        let mut inputs = graph.input.iter().filter(|input| !tensors.contains_key(input.name.as_str()));
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
        let values = HashMap::from([(input.name.as_str(), Of::Layer(IMAGES.to_owned()))]);
        Ok(Reader {
            tensors,
            values,
            layers: Vec::new(),
            weights: HashMap::new(),
            scale: None,
            shift: None,
            flattened: Vec::new(),
            image: [h, w, channels],
        })
    }

    /// A layer's output, which a node reads as its operand number `k`.
    fn layer(&self, node: &NodeProto, k: usize) -> Result<String, String> {
        match self.values.get(node.input.get(k).map_or("", String::as_str)) {
            Some(Of::Layer(name)) => Ok(name.clone()),
            _ => Err(unknown(node)),
        }
    }

    /// The number in a tensor of one.
    fn constant(&self, name: &str) -> Option<f32> {
        match floats(self.tensors.get(name)?).ok()?[..] {
            [number] => Some(number),
            _ => None,
        }
    }

    fn node(&mut self, node: &'g NodeProto) -> Result<(), String> {
        let [output] = &node.output[..] else { return Err(unknown(node)) };
        let value = match node.op_type.as_str() {
            "Conv" => self.convolution(node)?,
            "Gemm" => self.dense(node)?,
            "BatchNormalization" => {
                let names = ["gamma", "beta", "moving_mean", "moving_variance"];
                let epsilon = float(node, "epsilon", 1e-5);
                self.weighted(node, "BatchNormalization", json!({"epsilon": epsilon}), &names)?
            }
            "GroupNormalization" => {
                let about =
                    json!({"epsilon": float(node, "epsilon", 1e-5), "groups": int(node, "num_groups", 0)});
                self.weighted(node, "GroupNormalization", about, &["gamma", "beta"])?
            }
            "MaxPool" => self.pooling(node, "MaxPooling2D")?,
            "AveragePool" => self.pooling(node, "AveragePooling2D")?,
            "GlobalAveragePool" => Of::Pooled(self.layer(node, 0)?),
            "Transpose" if ints(node, "perm") == [0, 2, 3, 1] => Of::Transposed(self.layer(node, 0)?),
            "Flatten" if int(node, "axis", 1) == 1 => self.flatten(node)?,
            "Identity" => Of::Layer(self.layer(node, 0)?),
            "Relu" => self.plain(node, "ReLU", json!({}), vec![self.layer(node, 0)?]),
            "Concat" if int(node, "axis", 1) == 1 => {
                let inputs = (0..node.input.len()).map(|k| self.layer(node, k)).collect::<Result<_, _>>()?;
                self.plain(node, "Concatenate", json!({}), inputs)
            }
            "Div" | "Erf" | "Sigmoid" | "Add" | "Mul" => self.elementwise(node)?,
            _ => return Err(unknown(node)),
        };
        self.values.insert(output, value);
        Ok(())
    }

    /// A layer without weights, called as the node's output, unless the layer before an activation is.
    fn plain(&mut self, node: &NodeProto, class: &str, options: Value, inputs: Vec<String>) -> Of {
        let mut name = node.output[0].clone();
        while self.layers.iter().any(|layer| layer.name == name) {
            name += "_act";
        }
        self.push(class, name, options, inputs)
    }

    fn push(&mut self, class: &str, name: String, options: Value, inputs: Vec<String>) -> Of {
        let options = options.as_object().cloned().unwrap_or_default();
        self.layers.push(LayerSpec { class: class.to_owned(), name: name.clone(), inputs, options });
        Of::Layer(name)
    }

    /// A layer with weights, called as they are: `conv2d.weight` is of `conv2d`.
    fn weighted(
        &mut self,
        node: &NodeProto,
        class: &str,
        options: Value,
        names: &[&str],
    ) -> Result<Of, String> {
        let first = node.input.get(1).ok_or_else(|| unknown(node))?;
        let name = first.strip_suffix(".weight").unwrap_or(&node.output[0]).to_owned();
        for (operand, parameter) in node.input[1..].iter().zip(names) {
            let tensor = self.tensors.get(operand.as_str());
            let tensor = tensor.ok_or_else(|| format!("the weights `{operand}` are no initializer of it"))?;
            self.weights.insert(format!("{name}/{parameter}"), (*tensor).clone());
        }
        let input = self.layer(node, 0)?;
        Ok(self.push(class, name, options, vec![input]))
    }

    fn convolution(&mut self, node: &NodeProto) -> Result<Of, String> {
        let kernel =
            self.tensors.get(node.input.get(1).map_or("", String::as_str)).and_then(|kernel| extents(kernel));
        let Some([filters, _, rows, columns]) = kernel.as_deref() else { return Err(unknown(node)) };
        let about = json!({
            "filters": filters, "kernel_size": [rows, columns], "strides": strides(node), "padding": padding(node)?,
            "use_bias": node.input.len() > 2,
        });
        if int(node, "group", 1) != 1 || ints(node, "dilations").iter().any(|&n| n != 1) {
            return Err(format!("its node `{}` has groups or dilations, which are not there", node.name));
        }
        self.weighted(node, "Conv2D", about, &["kernel", "bias"])
    }

    fn dense(&mut self, node: &NodeProto) -> Result<Of, String> {
        let kernel =
            self.tensors.get(node.input.get(1).map_or("", String::as_str)).and_then(|kernel| extents(kernel));
        let Some([units, _]) = kernel.as_deref() else { return Err(unknown(node)) };
        let plain = float(node, "alpha", 1.0) == 1.0
            && float(node, "beta", 1.0) == 1.0
            && int(node, "transA", 0) == 0;
        if int(node, "transB", 0) != 1 || !plain {
            return Err(format!("its node `{}` must have transB=1, alpha=1 and beta=1", node.name));
        }
        let about = json!({"units": units, "use_bias": node.input.len() > 2});
        self.weighted(node, "Dense", about, &["kernel", "bias"])
    }

    fn pooling(&mut self, node: &NodeProto, class: &str) -> Result<Of, String> {
        let padding = padding(node)?;
        let counts_zeros = int(node, "count_include_pad", 0) != 0 && padding != json!([[0, 0], [0, 0]]);
        let dilated = ints(node, "dilations").iter().any(|&n| n != 1);
        if counts_zeros || dilated || int(node, "ceil_mode", 0) != 0 {
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

    fn flatten(&mut self, node: &NodeProto) -> Result<Of, String> {
        let (class, input) = match self.values.get(node.input[0].as_str()) {
            Some(Of::Pooled(x)) => ("GlobalAveragePooling2D", x.clone()),
            Some(Of::Transposed(x)) => ("Flatten", x.clone()),
            Some(Of::Layer(x)) => {
                self.flattened.push(node.output[0].clone());
                ("Flatten", x.clone())
            }
            _ => return Err(unknown(node)),
        };
        Ok(self.plain(node, class, json!({}), vec![input]))
    }

    /// Sums, scales, and the steps of GELU and SiLU.
    fn elementwise(&mut self, node: &'g NodeProto) -> Result<Of, String> {
        let name = |k: usize| node.input.get(k).map_or("", String::as_str);
        let (a, b) = (self.values.get(name(0)).cloned(), self.values.get(name(1)).cloned());
        let number = self.constant(name(1));
        let near = |x: f32| number.is_some_and(|number| (number - x).abs() < 1e-6);
        Ok(match (node.op_type.as_str(), a, b) {
            ("Mul", Some(Of::Layer(x)), None) if name(1) == layout::SCALE && x == IMAGES => {
                self.scale = self.tensors.get(name(1)).copied();
                Of::Layer(x)
            }
            ("Add", Some(Of::Layer(x)), None) if name(1) == layout::SHIFT && x == IMAGES => {
                self.shift = self.tensors.get(name(1)).copied();
                Of::Layer(x)
            }
            ("Div", Some(Of::Layer(x)), None) if near(core::f32::consts::SQRT_2) => Of::Part("scaled", x),
            ("Erf", Some(Of::Part("scaled", x)), None) => Of::Part("erf", x),
            ("Add", Some(Of::Part("erf", x)), None) if near(1.0) => Of::Part("sum", x),
            ("Mul", Some(Of::Layer(x)), Some(Of::Part("sum", y))) if x == y => Of::Part("twice", x),
            ("Mul", Some(Of::Part("twice", x)), None) if near(0.5) => {
                self.plain(node, "Activation", json!({"activation": "gelu"}), vec![x])
            }
            ("Sigmoid", Some(Of::Layer(x)), None) => Of::Part("sigmoid", x),
            ("Mul", Some(Of::Layer(x)), Some(Of::Part("sigmoid", y))) if x == y => {
                self.plain(node, "Activation", json!({"activation": "silu"}), vec![x])
            }
            ("Mul", Some(Of::Layer(x)), None) if number.is_some() => {
                self.plain(node, "Rescaling", json!({"scale": number}), vec![x])
            }
            ("Add", Some(Of::Layer(x)), Some(Of::Layer(y))) => self.plain(node, "Add", json!({}), vec![x, y]),
            _ => return Err(unknown(node)),
        })
    }

    fn finish(self, graph: &GraphProto) -> Result<OnnxNetwork, String> {
        let [h, w, channels] = self.image;
        let output = graph.output.first().and_then(|output| self.values.get(output.name.as_str()));
        let last = self.layers.last().map(|last| Of::Layer(last.name.clone()));
        if graph.output.len() != 1 || last.is_none() || output != last.as_ref() {
            return Err("its last node must be its only output".to_owned());
        }
        let scale = self.scale.map(floats).transpose()?;
        let shift = self.shift.map(floats).transpose()?;
        let pixels = (scale.is_some() || shift.is_some()).then(|| {
            let shift = shift.unwrap_or_else(|| vec![0.0; channels]);
            // From (channels, rows, columns) to (rows, columns, channels).
            let shift = layout::channels_first(&shift, channels, shift.len() / channels);
            Pixels { scale: scale.unwrap_or_else(|| vec![1.0; channels]), shift }
        });
        let mut architecture = Architecture { layers: self.layers };
        let classes = architecture.take_classes();
        let name = if graph.name.is_empty() { "model".to_owned() } else { graph.name.clone() };
        let network = Imported { name, architecture, classes, image: Some([h, w]), notes: Vec::new() };
        let (path, metadata) = (PathBuf::new(), BTreeMap::new());
        Ok(OnnxNetwork { path, network, weights: self.weights, pixels, flattened: self.flattened, metadata })
    }
}

fn unknown(node: &NodeProto) -> String {
    format!(
        "its node `{}` is a {} in a form that is not there; read are the operators that towers exports",
        crate::keras::shortened(&node.name),
        crate::keras::shortened(&node.op_type)
    )
}

fn attribute<'n>(node: &'n NodeProto, name: &str) -> Option<&'n AttributeProto> {
    node.attribute.iter().find(|attribute| attribute.name == name)
}

fn float(node: &NodeProto, name: &str, default: f32) -> f32 {
    attribute(node, name).and_then(|own| own.f).unwrap_or(default)
}

fn int(node: &NodeProto, name: &str, default: i64) -> i64 {
    attribute(node, name).and_then(|own| own.i).unwrap_or(default)
}

fn ints<'n>(node: &'n NodeProto, name: &str) -> &'n [i64] {
    attribute(node, name).map_or(&[], |own| &own.ints)
}

fn strides(node: &NodeProto) -> Vec<i64> {
    let strides = ints(node, "strides");
    if strides.is_empty() { vec![1, 1] } else { strides.to_vec() }
}

/// Zeros above and below, to the left and to the right.
fn padding(node: &NodeProto) -> Result<Value, String> {
    let computed = attribute(node, "auto_pad").is_some();
    match *ints(node, "pads") {
        [] if !computed => Ok(json!([[0, 0], [0, 0]])),
        [top, left, bottom, right] if !computed => Ok(json!([[top, bottom], [left, right]])),
        _ => Err(format!("its node `{}` must have its padding in pads, and no auto_pad", node.name)),
    }
}
