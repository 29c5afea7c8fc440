//! Networks as ONNX graphs: <https://onnx.ai/onnx/intro>. [`write()`] makes one; [`OnnxNetwork`] reads it back, and those of PyTorch.
//!
//! A graph that is written takes `images`, `(batch, channels, height, width)` of values from 0 to 255, and gives `logits`, `(batch, classes)`,
//! or the `probability` of the second of two classes, `(batch, 1)`, of a network with one sigmoid output. The batch may have any length. What the network needs of preprocessing is in the graph. Initializers have the names and the
//! layout of [`pytorch`](crate::pytorch).

mod activations;
mod arithmetic;
mod axes;
mod constants;
mod dense;
mod elementwise;
mod ends;
mod extent;
mod external;
mod fold;
mod folded_norms;
mod graph;
mod joins;
mod lower;
mod node;
mod nodes;
mod normalizations;
mod operators;
mod patterns;
mod proto;
mod read;
mod reductions;
mod resize;
mod shapes;
mod tensor;
mod term;
mod windows;

pub use nodes::{INPUT, OUTPUT};
pub use read::OnnxNetwork;

use crate::described::model_of;
use crate::{Loaded, Result, Source};
use nodes::Nodes;
use prost::Message;
use proto::{Dimension, DimensionProto, FLOAT, ModelProto, OperatorSetIdProto, StringStringEntryProto};
use proto::{TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto};
use std::path::Path;

/// The key of the metadata with the network's name, which all graphs of this writer have.
const MODEL: &str = "towers.model";

/// Reads a graph with its weights.
///
/// # Errors
/// As [`OnnxNetwork::read`] and [`OnnxNetwork::assign`]; [`Error::File`](crate::Error::File) if the graph does not say the size of
/// its images or the number of classes.
pub fn load(path: impl AsRef<Path>) -> Result<Loaded> {
    load_at(path.as_ref(), None)
}

/// The same for images of another height and width, or where the graph takes any.
///
/// # Errors
/// As [`load`].
pub fn load_for(path: impl AsRef<Path>, image: [usize; 2]) -> Result<Loaded> {
    load_at(path.as_ref(), Some(image))
}

fn load_at(path: &Path, image: Option<[usize; 2]>) -> Result<Loaded> {
    let graph = OnnxNetwork::read(path)?;
    let model = model_of(path, graph.network(), image)?;
    let tensors = graph.assign(&model.steps())?;
    let classes = graph.named(model.classes())?.map(|named| named.classes);
    Ok(Loaded { model, tensors, pixels: graph.pixels(), classes, told: graph.network().notes.clone() })
}

/// Writes a `.onnx` file.
///
/// # Errors
/// As [`write()`], and [`Error::Io`](crate::Error::Io).
pub fn save(path: impl AsRef<Path>, source: &Source<'_>) -> Result<()> {
    Ok(towers_files::write_output(path.as_ref(), &write(source)?)?)
}

/// The bytes of a `.onnx` file.
///
/// # Errors
/// [`Error::Export`](crate::Error::Export) for a layer that is not a single op, [`Error::Tensor`](crate::Error::Tensor)
/// for a missing tensor.
pub fn write(source: &Source<'_>) -> Result<Vec<u8>> {
    let [h, w, c] = source.image;
    let mut graph = Nodes::new(source);
    for step in &source.steps {
        graph.step(step)?;
    }
    let output = match source.multi_label {
        true => graph.sigmoid("probabilities"),
        false if source.has_one_output() => graph.sigmoid("probability"),
        false => OUTPUT.to_owned(),
    };
    let (mut graph, opset) = graph.finish();
    graph.name = source.name.to_owned();
    graph.input = vec![value(INPUT, &[c, h, w])];
    let outputs = if source.has_one_output() { 1 } else { source.classes.len() };
    graph.output = vec![value(&output, &[outputs])];
    let classes = serde_json::Value::from(source.classes.to_vec()).to_string();
    let entry = |key: &str, value: &str| StringStringEntryProto { key: key.into(), value: value.into() };
    let mut metadata_props = vec![entry(MODEL, source.name), entry("towers.classes", &classes)];
    metadata_props.extend(source.dataset.map(|dataset| entry("towers.dataset", dataset)));
    let model = ModelProto {
        ir_version: opset.ir_version,
        producer_name: "towers".to_owned(),
        producer_version: env!("CARGO_PKG_VERSION").to_owned(),
        graph: Some(graph),
        opset_import: vec![OperatorSetIdProto { domain: Some(String::new()), version: opset.number }],
        metadata_props,
        functions: Vec::new(),
    };
    Ok(model.encode_to_vec())
}

/// Floats of this shape behind a batch of any length.
fn value(name: &str, shape: &[usize]) -> ValueInfoProto {
    let batch = Dimension::Name("batch".to_owned());
    let dim = std::iter::once(batch).chain(shape.iter().map(|&n| Dimension::Length(n as i64)));
    let dim = dim.map(|value| DimensionProto { value: Some(value) }).collect();
    let tensor_type = Some(TensorTypeProto { elem_type: FLOAT, shape: Some(TensorShapeProto { dim }) });
    ValueInfoProto { name: name.to_owned(), r#type: Some(TypeProto { tensor_type }) }
}
