//! Reads operators as layers.

use super::constants::Constant;
use super::extent::Extent;
use super::graph::{Of, Part, Reader};
use super::node::Node;
use serde_json::json;

impl<'g> Reader<'g> {
    pub(super) fn operator(&mut self, node: &Node<'g>) -> Result<Of, String> {
        match node.op() {
            "Add" | "Div" | "Erf" | "Max" | "Mul" | "Sigmoid" | "Sub" => self.elementwise(node),
            "AveragePool" => self.pooling(node, "AveragePooling2D"),
            "BatchNormalization" => self.batch_normalization(node),
            "Cast" => self.cast(node),
            "Clip" => self.clip(node),
            "Concat" => self.concat(node),
            "Conv" => self.convolution(node),
            "Dropout" => self.dropout(node),
            "Elu" | "Swish" => {
                let act = if node.op() == "Elu" { "elu" } else { "silu" };
                match node.float("alpha", 1.0)? {
                    1.0 => self.activation(node, act),
                    alpha => Err(node.form(format!("with alpha={alpha}"))),
                }
            }
            "Flatten" => self.flatten(node),
            "Gelu" => match node.word("approximate", "none")? {
                "none" => self.activation(node, "gelu"),
                _ => Err(node.form("with an approximation")),
            },
            "Gemm" | "MatMul" => self.dense(node),
            "GlobalAveragePool" => Ok(Of::Pooled("GlobalAveragePooling2D", self.image(node, 0)?.0)),
            "GlobalMaxPool" => Ok(Of::Pooled("GlobalMaxPooling2D", self.image(node, 0)?.0)),
            "GroupNormalization" => self.group_normalization(node),
            "Identity" => Ok(Of::Layer(self.layer(node, 0)?)),
            "InstanceNormalization" => self.instance_normalization(node),
            "MaxPool" => self.pooling(node, "MaxPooling2D"),
            "Pad" => self.pad(node),
            "ReduceMax" => self.reduce(node, "GlobalMaxPooling2D"),
            "ReduceMean" => self.reduce(node, "GlobalAveragePooling2D"),
            "Relu" => self.activation(node, "relu"),
            "Reshape" => self.reshape(node),
            "Shape" => self.shape_as_value(node),
            "Softmax" | "LogSoftmax" => self.softmax(node),
            "Squeeze" => self.squeeze(node),
            "Tanh" => self.activation(node, "tanh"),
            "Transpose" if node.ints("perm")? == Some(&[0, 2, 3, 1]) => {
                Ok(Of::Transposed(self.image(node, 0)?.0))
            }
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

    /// Only with the limits of a ReLU.
    fn clip(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let [least, most] = match node.since(11) {
            true => [self.number(node, 1)?, self.number(node, 2)?],
            false => [node.given_float("min")?, node.given_float("max")?],
        };
        if least == Some(0.0) && most.is_none_or(|most| most >= f32::MAX) {
            return self.activation(node, "relu");
        }
        let shown = |limit: Option<f32>, none: &str| limit.map_or(none.to_owned(), |limit| limit.to_string());
        let (least, most) = (shown(least, "-inf"), shown(most, "inf"));
        Err(node.refuse(format!("is a Clip from {least} to {most}, but must be a ReLU, from 0 to inf")))
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

    /// A softmax over the channels. The loss has it.
    fn softmax(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let x = self.layer(node, 0)?;
        let shape = self.shape(&x);
        // Before version 13, of all that is behind the axis.
        let axis = node.int("axis", if node.since(13) { -1 } else { 1 })?;
        let is_vector = shape.iter().skip(2).all(|side| *side == Extent::number(1));
        if !is_vector || ![1, 1 - shape.len() as i64].contains(&axis) {
            return Err(node.form(format!("of the axis {axis} of {}", super::extent::shown(&shape))));
        }
        Ok(self.activate(node, "softmax", x))
    }

    fn batch_normalization(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let about =
            json!({"epsilon": node.float("epsilon", 1e-5)?, "momentum": node.float("momentum", 0.9)?});
        // A graph that PyTorch wrote for training says so.
        node.flag("training_mode", false)?;
        node.only("spatial", 1)?;
        let x = self.layer(node, 0)?;
        let shape = self.shape(&x);
        if ![2, 4].contains(&shape.len()) {
            return Err(node.form(format!("of {} axes", shape.len())));
        }
        let names = ["gamma", "beta", "moving_mean", "moving_variance"];
        let weights = self.vectors(node, &names)?;
        Ok(self.weighted(node, "BatchNormalization", about, x, shape, weights))
    }

    fn group_normalization(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let (x, [channels, _, _]) = self.image(node, 0)?;
        let Some(groups) = node.given("num_groups")? else {
            return Err(node.refuse("lacks its `num_groups`"));
        };
        node.only("stash_type", 1)?;
        let weights = self.vectors(node, &["gamma", "beta"])?;
        if !node.since(21) && channels != Extent::number(groups) {
            return Err(node.form("of the operators before version 21, with a scale for each group"));
        }
        let about = json!({"epsilon": node.float("epsilon", 1e-5)?, "groups": groups});
        let shape = self.shape(&x);
        Ok(self.weighted(node, "GroupNormalization", about, x, shape, weights))
    }

    /// A normalization of the groups of a group normalization, or of each channel.
    fn instance_normalization(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let epsilon = node.float("epsilon", 1e-5)?;
        let weights = self.vectors(node, &["gamma", "beta"])?;
        if let Some(Of::Part(Part::Grouped(groups), x)) = self.value(node, 0)?.cloned() {
            let all = |k: usize, number: f32| {
                let floats: Option<&[f32]> = weights[k].1.few_floats(usize::MAX);
                floats.is_some_and(|all| all.len() as i64 == groups && all.iter().all(|&x| x == number))
            };
            return match all(0, 1.0) && all(1, 0.0) {
                true => Ok(Of::Part(Part::Normalized(groups, epsilon), x)),
                false => Err(node.form("of groups with a scale for each of them")),
            };
        }
        let (x, _) = self.image(node, 0)?;
        let shape = self.shape(&x);
        let about = json!({"epsilon": epsilon, "groups": -1});
        Ok(self.weighted(node, "GroupNormalization", about, x, shape, weights))
    }

    /// The vectors behind the first operand.
    fn vectors<'n>(&self, node: &Node<'g>, names: &[&'n str]) -> Result<Vec<(&'n str, Constant)>, String> {
        let of = |(k, &name): (usize, &&'n str)| {
            let constant = self.constant(node, k + 1)?.filter(|constant| constant.shape.len() == 1).cloned();
            Ok((
                name,
                constant.ok_or_else(|| {
                    node.refuse(format!("must have a vector as its operand number {}", k + 2))
                })?,
            ))
        };
        names.iter().enumerate().map(of).collect()
    }

    /// The kernel of a layer with this number of axes, which no other layer may have.
    pub(super) fn kernel(&mut self, node: &Node<'g>, axes: usize) -> Result<Constant, String> {
        let kernel = self.constant(node, 1)?.filter(|kernel| kernel.shape.len() == axes).cloned();
        let kernel = kernel.ok_or_else(|| node.form(format!("without weights of {axes} axes")))?;
        let name = node.operand(1).unwrap_or_default();
        match self.kernels.insert(name.to_owned()) {
            true => Ok(kernel),
            false => Err(node.refuse(format!(
                "uses the weights `{}` again, but weights can only be used once",
                crate::keras::shortened(name)
            ))),
        }
    }

    fn dense(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let kernel = self.kernel(node, 2)?;
        let bias = if node.op() == "Gemm" { self.constant(node, 2)?.cloned() } else { None };
        let mut outputs_first = false;
        if node.op() == "Gemm" {
            let (alpha, beta) = (node.float("alpha", 1.0)?, node.float("beta", 1.0)?);
            if alpha != 1.0 || (beta != 1.0 && bias.is_some()) {
                return Err(node.form(format!("with alpha={alpha} and beta={beta}")));
            }
            if node.flag("transA", false)? {
                return Err(node.form("with transA=1"));
            }
            outputs_first = node.flag("transB", false)?;
        }
        let x = self.layer(node, 0)?;
        let mut shape = self.shape(&x);
        if shape.len() != 2 {
            return Err(node.form(format!("of an image, {}", super::extent::shown(&shape))));
        }
        // As PyTorch has it.
        let kernel = if outputs_first { Some(kernel) } else { kernel.transposed() };
        let kernel = kernel.ok_or_else(|| node.unknown())?;
        let units = kernel.shape[0];
        shape[1] = Extent::number(units as i64);
        let mut weights = vec![("kernel", kernel)];
        let about = json!({"units": units, "use_bias": bias.is_some()});
        if let Some(bias) = bias {
            let vector = bias.vector(units, 0);
            weights
                .push(("bias", vector.ok_or_else(|| node.form(format!("with a bias of {:?}", bias.shape)))?));
        }
        Ok(self.weighted(node, "Dense", about, x, shape, weights))
    }
}
