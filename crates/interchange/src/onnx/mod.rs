//! Networks as ONNX graphs: <https://onnx.ai/onnx/intro>.
//!
//! A graph takes `images`, `(batch, 3, height, width)` of values from 0 to 255, and gives `logits`, `(batch, classes)`. The batch
//! may have any length. What the network needs of preprocessing is in the graph. Initializers have the names and the
//! layout of [`pytorch`](crate::pytorch).

mod message;
mod nodes;

use crate::source::Weights;
use crate::{Result, Source};
use message::Message;
use nodes::Nodes;

/// The name of the graph's input.
pub const INPUT: &str = "images";
/// The name of the graph's output.
pub const OUTPUT: &str = "logits";
/// A set of operators, by its number, and the version of the format that came with it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Opset {
    number: u64,
    ir_version: u64,
}

impl Opset {
    /// Of July 2022: for all networks but those of the next one.
    const FIRST: Opset = Opset { number: 17, ir_version: 8 };
    /// Of March 2024: the first one whose `GroupNormalization` has a scale for each channel.
    const WITH_GROUP_NORM: Opset = Opset { number: 21, ir_version: 10 };
}

/// `TensorProto.FLOAT`.
const FLOAT: u64 = 1;

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
    let (graph, opset) = graph.finish();
    let graph = graph
        .text(2, source.name)
        .message(11, value(INPUT, &[c, h, w]))
        .message(12, value(OUTPUT, &[source.classes.len()]));
    let classes = serde_json::Value::from(source.classes.to_vec()).to_string();
    let entry = |key: &str, value: &str| Message::default().text(1, key).text(2, value);
    let model = Message::default()
        .number(1, opset.ir_version)
        .text(2, "towers")
        .text(3, env!("CARGO_PKG_VERSION"))
        .message(7, graph)
        .message(8, Message::default().text(1, "").number(2, opset.number))
        .message(14, entry("towers.model", source.name))
        .message(14, entry("towers.classes", &classes));
    let model = source
        .dataset
        .into_iter()
        .fold(model, |model, dataset| model.message(14, entry("towers.dataset", dataset)));
    Ok(model.into_bytes())
}

/// A `ValueInfoProto`: floats of this shape behind a batch of any length.
fn value(name: &str, shape: &[usize]) -> Message {
    let batch = Message::default().message(1, Message::default().text(2, "batch"));
    let dimension = |n: &usize| Message::default().number(1, *n as u64);
    let shape = shape.iter().map(dimension).fold(batch, |shape, dimension| shape.message(1, dimension));
    let tensor = Message::default().number(1, FLOAT).message(2, shape);
    Message::default().text(1, name).message(2, Message::default().message(1, tensor))
}

/// A `TensorProto`.
fn tensor(weights: &Weights) -> Message {
    let bytes: Vec<u8> = weights.data.iter().flat_map(|value| value.to_le_bytes()).collect();
    Message::default().numbers(1, &weights.shape).number(2, FLOAT).text(8, &weights.name).bytes(9, &bytes)
}
