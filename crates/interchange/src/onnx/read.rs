//! A graph as an architecture with its weights.

use super::MODEL;
use super::constants::Constant;
use super::graph::{Graph, Reader};
use super::node::Node;
use super::proto::ModelProto;
use crate::pytorch::{Named, named};
use crate::source::Pixels;
use crate::text::shortened;
use crate::{Error, Imported, Result, file, layout};
use prost::Message;
use prost::bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use towers_checkpoint::Tensors;
use towers_layers::{ParamSpec, Role, Step, Value};
use towers_program::{Op, Shape};

/// The most nodes of a graph: GELU has five.
const MOST_NODES: usize = 10_000;

/// A graph as an architecture, with its weights.
#[derive(Debug)]
pub struct OnnxNetwork {
    path: PathBuf,
    graph: Graph,
    metadata: BTreeMap<String, String>,
    producer: String,
}

impl OnnxNetwork {
    /// Reads a file with one input of images, one output of class scores, and operators that layers here compute. Its weights may be
    /// in another file of the same folder, where PyTorch puts them.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::File`] for a file of another format, and for an operator that is not there.
    pub fn read(path: &Path) -> Result<Self> {
        let refuse = |reason: String| Error::file(path, reason);
        let model = ModelProto::decode(Bytes::from(file::read(path)?));
        let model = model.map_err(|error| refuse(format!("it is no ONNX file: {error}")))?;
        let opset = opset(&model);
        let producer = model.producer_name.clone();
        let metadata: BTreeMap<String, String> =
            model.metadata_props.into_iter().map(|entry| (entry.key, entry.value)).collect();
        let mut graph = model.graph.ok_or_else(|| refuse("there is no graph in it".to_owned()))?;
        let opset = opset.map_err(refuse)?;
        if graph.node.len() > MOST_NODES {
            return Err(refuse(format!(
                "it has {} nodes, but must have at most {MOST_NODES}",
                graph.node.len()
            )));
        }
        let initializers = std::mem::take(&mut graph.initializer);
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut reader =
            Reader::new(&graph, initializers, folder, metadata.contains_key(MODEL)).map_err(refuse)?;
        let mut nodes = graph.node.iter().enumerate();
        let nodes = nodes.try_for_each(|(k, node)| {
            let node = Node::new(node, k + 1, opset)?;
            node.check()?;
            reader.node(&node)
        });
        let graph = nodes.and_then(|()| reader.finish(&graph)).map_err(refuse)?;
        Ok(OnnxNetwork { path: path.to_owned(), graph, metadata, producer })
    }

    /// The network that the graph describes.
    pub fn network(&self) -> &Imported {
        &self.graph.network
    }

    /// Whether PyTorch wrote the file.
    pub fn is_of_pytorch(&self) -> bool {
        self.producer == "pytorch"
    }

    /// What happens to pixels first, where the graph has it as the writer puts it.
    pub fn pixels(&self) -> Option<Pixels> {
        // The writer leaves a scale of 1 and a shift of 0 out.
        let written = self.metadata.contains_key(MODEL);
        let c = self.network().channels.unwrap_or(3);
        let unchanged = written.then(|| Pixels::unchanged(c));
        self.graph.pixels.clone().or(unchanged)
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
        let mut orders = HashMap::new();
        for step in steps {
            let order = self.order(step, &mut orders).map_err(refuse)?;
            for spec in &step.params {
                let name = format!("{}/{}", step.name, spec.name);
                let mut data = match self.graph.weights.get(&name) {
                    None if spec.role == Role::Frozen => spec.init.values(0, &name, &spec.shape),
                    None => return Err(refuse(format!("it has no weights `{name}`"))),
                    Some(constant) => values(constant, spec).map_err(refuse)?,
                };
                if let Some(images) = order.filter(|images| spec.shape[0] == images.per_sample()) {
                    let row = data.len() / images.per_sample();
                    data = channels_last(&data, images, row);
                }
                tensors.insert(name, spec.shape.clone(), data)?;
            }
        }
        match steps.last().is_some_and(|last| orders.contains_key(&last.output)) {
            true => Err(refuse(order_matters(&steps[steps.len() - 1]))),
            false => Ok(tensors),
        }
    }

    /// The images whose numbers a step reads in the order of ONNX: channel, row, column. Ours is row, column, channel, so the
    /// weights of the layer that reads them change places. `orders` has the vectors in that order so far.
    fn order(&self, step: &Step, orders: &mut HashMap<Value, Shape>) -> Result<Option<Shape>, String> {
        if let Some(len) = self.graph.flattened.get(&step.name) {
            if let Some(len) = len.filter(|&len| len != step.x.per_sample()) {
                return Err(format!(
                    "its `{}` makes vectors of {len} numbers, but images of this size have {} there",
                    step.name,
                    step.x.per_sample()
                ));
            }
            if step.x.h * step.x.w > 1 {
                orders.insert(step.output, step.x);
                return Ok(None);
            }
        }
        let Some(&order) = step.inputs.iter().find_map(|x| orders.get(x)) else { return Ok(None) };
        match step.op {
            Some(Op::LinearForward(_)) => {}
            Some(
                Op::BatchNormTrain(_) | Op::Activate(_) | Op::Dropout(_) | Op::Scale(_) | Op::Reshape(_),
            ) => {
                orders.insert(step.output, order);
            }
            _ => return Err(order_matters(step)),
        }
        Ok(Some(order))
    }
}

/// The versions of the operators that are read.
const OPSETS: core::ops::RangeInclusive<i64> = 3..=28;

/// The version of the operators of a model.
fn opset(model: &ModelProto) -> Result<i64, String> {
    let is_onnx = |domain: &str| ["", "ai.onnx"].contains(&domain);
    if let Some(own) = model.functions.iter().find(|own| is_onnx(&own.domain)) {
        return Err(format!(
            "it has an operator {} of its own, which is not supported",
            shortened(&own.name)
        ));
    }
    let mut sets = model.opset_import.iter().filter(|set| is_onnx(set.domain.as_deref().unwrap_or_default()));
    let (least, most) = (OPSETS.start(), OPSETS.end());
    match (sets.next(), sets.next()) {
        (Some(set), None) if OPSETS.contains(&set.version) => Ok(set.version),
        (Some(set), None) => Err(format!(
            "its operators are of version {}, but must be of one from {least} to {most}; export it with another \
             opset_version",
            set.version
        )),
        _ => Err("it must name one version of its operators".to_owned()),
    }
}

fn order_matters(step: &Step) -> String {
    format!(
        "its `{}` reads flattened images in the order channel, row, column; only a Gemm or MatMul can, since its weights can take the \
         order that is here",
        step.name
    )
}

/// The values of a parameter in our layout.
fn values(constant: &Constant, spec: &ParamSpec) -> Result<Vec<f32>, String> {
    let name = shortened(&constant.name);
    if constant.inputs_first {
        let needs = spec.shape.strip_prefix(&[1, 1]).unwrap_or(&spec.shape);
        return match constant.shape == needs {
            true => constant.floats(),
            false => Err(format!("its `{name}` has the shape {:?}, but must have {needs:?}", constant.shape)),
        };
    }
    let (is, needs) = (&constant.shape, layout::shape(&layout::own(spec)));
    if *is != needs {
        return Err(format!("its `{name}` has the shape {is:?}, but must have {needs:?}"));
    }
    Ok(layout::from_torch(&layout::own(spec), &constant.floats()?))
}

/// Rows of `row` numbers, one for each number of the images, from the order (channel, row, column) to (row, column, channel).
fn channels_last(data: &[f32], images: Shape, row: usize) -> Vec<f32> {
    let pixels = images.h * images.w;
    let place = |pixel: usize, channel: usize| (channel * pixels + pixel) * row;
    let places = (0..pixels).flat_map(|pixel| (0..images.c).map(move |channel| place(pixel, channel)));
    places.flat_map(|at| data[at..at + row].iter().copied()).collect()
}
