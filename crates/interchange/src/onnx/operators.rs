//! The table of operators that are read. A new one is an entry here, and a function of [`Reader`] in the file of its
//! topic, where the writer's part of the same layer is as well.

use super::activations;
use super::graph::{Of, Reader};
use super::node::Node;
use crate::text::shortened;

/// An operator.
struct Operator {
    name: &'static str,
    /// The most outputs. None but the first one is read, but of a `Split`: the others are for training.
    outputs: usize,
    /// Reads a node whose operands are not all constants.
    read: for<'g> fn(&mut Reader<'g>, &Node<'g>) -> Result<Of, String>,
}

const fn operator(
    name: &'static str,
    read: for<'g> fn(&mut Reader<'g>, &Node<'g>) -> Result<Of, String>,
) -> Operator {
    Operator { name, outputs: 1, read }
}

/// All operators but the [plain activations](activations::PLAIN), by name.
const TABLE: &[Operator] = &[
    operator("Abs", |reader, node| reader.unknown(node)),
    operator("Add", |reader, node| reader.elementwise(node)),
    operator("And", |reader, node| reader.unknown(node)),
    operator("AveragePool", |reader, node| reader.pooling(node, "AveragePooling2D")),
    Operator {
        outputs: 5,
        ..operator("BatchNormalization", |reader, node| reader.batch_normalization(node))
    },
    operator("Cast", |reader, node| reader.cast(node)),
    operator("Ceil", |reader, node| reader.unknown(node)),
    operator("Clip", |reader, node| reader.clip(node)),
    operator("Concat", |reader, node| reader.concat(node)),
    operator("Constant", |reader, node| reader.unknown(node)),
    operator("ConstantOfShape", |reader, node| reader.unknown(node)),
    operator("Conv", |reader, node| reader.convolution(node)),
    operator("Div", |reader, node| reader.elementwise(node)),
    Operator { outputs: 2, ..operator("Dropout", |reader, node| reader.dropout(node)) },
    operator("Elu", |reader, node| reader.elu_or_swish(node)),
    operator("Equal", |reader, node| reader.unknown(node)),
    operator("Erf", |reader, node| reader.function(node)),
    operator("Exp", |reader, node| reader.unknown(node)),
    operator("Expand", |reader, node| reader.expand(node)),
    operator("Flatten", |reader, node| reader.flatten(node)),
    operator("Floor", |reader, node| reader.unknown(node)),
    operator("Gather", |reader, node| reader.gather(node)),
    operator("Gelu", |reader, node| reader.gelu(node)),
    operator("Gemm", |reader, node| reader.dense(node)),
    operator("GlobalAveragePool", |reader, node| reader.global_pooling(node, "GlobalAveragePooling2D")),
    operator("GlobalMaxPool", |reader, node| reader.global_pooling(node, "GlobalMaxPooling2D")),
    operator("Greater", |reader, node| reader.unknown(node)),
    operator("GroupNormalization", |reader, node| reader.group_normalization(node)),
    operator("HardSigmoid", |reader, node| reader.hard_sigmoid(node)),
    operator("HardSwish", |reader, node| reader.function(node)),
    operator("Identity", |reader, node| reader.identity(node)),
    operator("InstanceNormalization", |reader, node| reader.instance_normalization(node)),
    operator("LayerNormalization", |reader, node| reader.layer_normalization(node)),
    operator("LeakyRelu", |reader, node| reader.leaky_relu(node)),
    operator("LRN", |reader, node| reader.local_response_normalization(node)),
    operator("Less", |reader, node| reader.unknown(node)),
    operator("Log", |reader, node| reader.unknown(node)),
    operator("LogSoftmax", |reader, node| reader.softmax(node)),
    operator("MatMul", |reader, node| reader.dense(node)),
    operator("Max", |reader, node| reader.elementwise(node)),
    Operator { outputs: 2, ..operator("MaxPool", |reader, node| reader.pooling(node, "MaxPooling2D")) },
    operator("Min", |reader, node| reader.elementwise(node)),
    operator("Mish", |reader, node| reader.function(node)),
    operator("Mod", |reader, node| reader.unknown(node)),
    operator("Mul", |reader, node| reader.elementwise(node)),
    operator("Neg", |reader, node| reader.unknown(node)),
    operator("Not", |reader, node| reader.unknown(node)),
    operator("Or", |reader, node| reader.unknown(node)),
    operator("Pad", |reader, node| reader.pad(node)),
    operator("Pow", |reader, node| reader.elementwise(node)),
    operator("Range", |reader, node| reader.unknown(node)),
    operator("Reciprocal", |reader, node| reader.function(node)),
    operator("ReduceMax", |reader, node| reader.reduce(node, "GlobalMaxPooling2D")),
    operator("ReduceMean", |reader, node| reader.reduce(node, "GlobalAveragePooling2D")),
    operator("ReduceProd", |reader, node| reader.unknown(node)),
    operator("ReduceSum", |reader, node| reader.unknown(node)),
    operator("Reshape", |reader, node| reader.reshape(node)),
    operator("Resize", |reader, node| reader.resize(node)),
    operator("Shape", |reader, node| reader.shape_as_value(node)),
    operator("Slice", |reader, node| reader.slice(node)),
    operator("Softmax", |reader, node| reader.softmax(node)),
    operator("Softplus", |reader, node| reader.function(node)),
    Operator { outputs: 64, ..operator("Split", |reader, node| reader.split(node)) },
    operator("Sqrt", |reader, node| reader.function(node)),
    operator("Squeeze", |reader, node| reader.squeeze(node)),
    operator("Sub", |reader, node| reader.elementwise(node)),
    operator("Sum", |reader, node| reader.elementwise(node)),
    operator("Swish", |reader, node| reader.elu_or_swish(node)),
    operator("Transpose", |reader, node| reader.transpose(node)),
    operator("Unsqueeze", |reader, node| reader.unsqueeze(node)),
    operator("Upsample", |reader, node| reader.resize(node)),
    operator("Where", |reader, node| reader.unknown(node)),
];

/// The operators that are an activation.
const PLAIN: [Operator; activations::PLAIN.len()] = {
    let mut all = [const { operator("", |reader, node| reader.function(node)) }; activations::PLAIN.len()];
    let mut k = 0;
    while k < all.len() {
        all[k].name = activations::PLAIN[k].0;
        k += 1;
    }
    all
};

/// The operator of this name.
fn find(name: &str) -> Option<&'static Operator> {
    TABLE.iter().chain(&PLAIN).find(|own| own.name == name)
}

/// The names of all operators, in order.
fn names() -> String {
    let mut names: Vec<&str> = TABLE.iter().chain(&PLAIN).map(|own| own.name).collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

impl Node<'_> {
    /// Refuses an operator that is not here, and other outputs than it has.
    pub(super) fn check(&self) -> Result<(), String> {
        let (op, outputs) = (shortened(self.op()), self.output_names().len());
        let Some(operator) = find(self.op()) else {
            let known = names();
            return Err(self.refuse(format!("is a {op}, which is not supported; supported are {known}")));
        };
        match !self.output().is_empty() && outputs <= operator.outputs {
            true => Ok(()),
            false => Err(self.refuse(format!("is a {op} with {outputs} outputs"))),
        }
    }
}

impl<'g> Reader<'g> {
    /// The layer or the constant of a node whose operands are not all constants.
    pub(super) fn operator(&mut self, node: &Node<'g>) -> Result<Of, String> {
        (find(node.op()).ok_or_else(|| node.unknown())?.read)(self, node)
    }

    /// An operator of constants alone.
    fn unknown(&mut self, node: &Node<'g>) -> Result<Of, String> {
        Err(node.unknown())
    }
}
