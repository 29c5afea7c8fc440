//! The table of operators that are read. A new one is an entry here, and a function of [`Reader`] in the file of its
//! topic, where the writer's part of the same layer is as well.

use super::activations;
use super::extent::Extent;
use super::graph::{Of, Reader};
use super::node::Node;
use serde_json::json;

/// An operator.
pub(super) struct Operator {
    pub(super) name: &'static str,
    /// The most outputs. None but the first one is read: the others are for training.
    pub(super) outputs: usize,
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
    operator("Add", |reader, node| reader.elementwise(node)),
    operator("AveragePool", |reader, node| reader.pooling(node, "AveragePooling2D")),
    Operator {
        outputs: 5,
        ..operator("BatchNormalization", |reader, node| reader.batch_normalization(node))
    },
    operator("Cast", |reader, node| reader.cast(node)),
    operator("Clip", |reader, node| reader.clip(node)),
    operator("Concat", |reader, node| reader.concat(node)),
    operator("Constant", |reader, node| reader.unknown(node)),
    operator("Conv", |reader, node| reader.convolution(node)),
    operator("Div", |reader, node| reader.elementwise(node)),
    Operator { outputs: 2, ..operator("Dropout", |reader, node| reader.dropout(node)) },
    operator("Elu", |reader, node| reader.elu_or_swish(node)),
    operator("Erf", |reader, node| reader.elementwise(node)),
    operator("Flatten", |reader, node| reader.flatten(node)),
    operator("Gather", |reader, node| reader.unknown(node)),
    operator("Gelu", |reader, node| reader.gelu(node)),
    operator("Gemm", |reader, node| reader.dense(node)),
    operator("GlobalAveragePool", |reader, node| reader.global_pooling(node, "GlobalAveragePooling2D")),
    operator("GlobalMaxPool", |reader, node| reader.global_pooling(node, "GlobalMaxPooling2D")),
    operator("GroupNormalization", |reader, node| reader.group_normalization(node)),
    operator("Identity", |reader, node| reader.identity(node)),
    operator("InstanceNormalization", |reader, node| reader.instance_normalization(node)),
    operator("LogSoftmax", |reader, node| reader.softmax(node)),
    operator("MatMul", |reader, node| reader.dense(node)),
    operator("Max", |reader, node| reader.elementwise(node)),
    Operator { outputs: 2, ..operator("MaxPool", |reader, node| reader.pooling(node, "MaxPooling2D")) },
    operator("Mul", |reader, node| reader.elementwise(node)),
    operator("Pad", |reader, node| reader.pad(node)),
    operator("ReduceMax", |reader, node| reader.reduce(node, "GlobalMaxPooling2D")),
    operator("ReduceMean", |reader, node| reader.reduce(node, "GlobalAveragePooling2D")),
    operator("Reshape", |reader, node| reader.reshape(node)),
    operator("Shape", |reader, node| reader.shape_as_value(node)),
    operator("Sigmoid", |reader, node| reader.elementwise(node)),
    operator("Softmax", |reader, node| reader.softmax(node)),
    operator("Squeeze", |reader, node| reader.squeeze(node)),
    operator("Sub", |reader, node| reader.elementwise(node)),
    operator("Swish", |reader, node| reader.elu_or_swish(node)),
    operator("Transpose", |reader, node| reader.transpose(node)),
    operator("Unsqueeze", |reader, node| reader.unknown(node)),
];

/// The operators that are an activation.
const PLAIN: [Operator; activations::PLAIN.len()] = {
    let mut all =
        [const { operator("", |reader, node| reader.plain_activation(node)) }; activations::PLAIN.len()];
    let mut k = 0;
    while k < all.len() {
        all[k].name = activations::PLAIN[k].0;
        k += 1;
    }
    all
};

/// The operator of this name.
pub(super) fn find(name: &str) -> Option<&'static Operator> {
    TABLE.iter().chain(&PLAIN).find(|own| own.name == name)
}

/// The names of all operators, in order.
pub(super) fn names() -> String {
    let mut names: Vec<&str> = TABLE.iter().chain(&PLAIN).map(|own| own.name).collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
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

    fn identity(&mut self, node: &Node<'g>) -> Result<Of, String> {
        Ok(Of::Layer(self.layer(node, 0)?))
    }

    fn global_pooling(&mut self, node: &Node<'g>, class: &'static str) -> Result<Of, String> {
        Ok(Of::Pooled(class, self.image(node, 0)?.0))
    }

    fn transpose(&mut self, node: &Node<'g>) -> Result<Of, String> {
        match node.ints("perm")? {
            Some(&[0, 2, 3, 1]) => Ok(Of::Transposed(self.image(node, 0)?.0)),
            _ => Err(node.unknown()),
        }
    }

    /// A cast of float32 to float32. Any other type would change the numbers.
    fn cast(&mut self, node: &Node<'g>) -> Result<Of, String> {
        node.int("saturate", 1)?;
        match node.int("to", 0)? {
            1 => Ok(Of::Layer(self.layer(node, 0)?)),
            to => Err(node.form(format!("to another type than float32 (its `to` is {to})"))),
        }
    }

    fn concat(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let inputs = (0..node.names().len()).map(|k| self.layer(node, k)).collect::<Result<Vec<_>, _>>()?;
        let shapes: Vec<Vec<Extent>> = inputs.iter().map(|x| self.shape(x)).collect();
        let mut shape = shapes.first().cloned().ok_or_else(|| node.unknown())?;
        let axis = node.given("axis")?.ok_or_else(|| node.refuse("lacks its `axis`"))?;
        if ![1, 1 - shape.len() as i64].contains(&axis) || shapes.iter().any(|own| own.len() != shape.len()) {
            return Err(node.form(format!("of the axis {axis}")));
        }
        let channels = shapes.iter().map(|own| own[1].known()).sum::<Option<i64>>();
        shape[1] = channels.map_or_else(|| self.new_size(), Extent::number);
        Ok(match <[String; 1]>::try_from(inputs) {
            Ok([only]) => Of::Layer(only),
            Err(inputs) => self.plain(node, "Concatenate", json!({}), inputs, shape),
        })
    }

    fn dropout(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let rate = match node.since(12) {
            true => self.number(node, 1)?.unwrap_or(0.5),
            false => node.float("ratio", 0.5)?,
        };
        // A graph that PyTorch wrote for training says so. It is what training does here too, and nothing
        // else.
        self.constant(node, 2)?;
        node.given("seed")?;
        let x = self.layer(node, 0)?;
        let shape = self.shape(&x);
        Ok(self.plain(node, "Dropout", json!({"rate": rate}), vec![x], shape))
    }
}
