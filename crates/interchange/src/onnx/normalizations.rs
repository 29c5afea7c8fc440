//! Normalizations: `BatchNormalization`, `GroupNormalization`, `InstanceNormalization`, `LayerNormalization`, `LRN`.

use super::axes::Axis;
use super::constants::Constant;
use super::extent::{Extent, shown};
use super::graph::{Of, Reader};
use super::node::Node;
use super::nodes::{Float, Nodes, Number, Numbers};
use super::term::{Kind, Term};
use serde_json::json;
use std::sync::Arc;
use towers_layers::Step;
use towers_program::Activation;
use towers_program::ops::LocalResponseNorm;

impl<'g> Reader<'g> {
    pub(super) fn batch_normalization(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let about =
            json!({"epsilon": node.float("epsilon", 1e-5)?, "momentum": node.float("momentum", 0.9)?});
        // A graph that PyTorch wrote for training says so.
        node.flag("training_mode", false)?;
        node.only("spatial", 1)?;
        if !node.since(7) {
            node.given("is_test")?;
            node.ints("consumed_inputs")?;
        }
        let x = self.tensor(node, 0)?;
        if ![2, 4].contains(&x.axes.len()) {
            return Err(node.form(format!("of {} axes", x.axes.len())));
        }
        let names = ["gamma", "beta", "moving_mean", "moving_variance"];
        let weights = self.vectors(node, &names)?;
        if x.kinds()[1] == Axis::Channels {
            return self.pointwise(node, "BatchNormalization", about, weights);
        }
        let x = self.layer(node, 0)?;
        let shape = self.shape(&x);
        Ok(self.weighted(node, "BatchNormalization", about, x, shape, weights))
    }

    pub(super) fn group_normalization(&mut self, node: &Node<'g>) -> Result<Of, String> {
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
    pub(super) fn instance_normalization(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let epsilon = node.float("epsilon", 1e-5)?;
        let weights = self.vectors(node, &["gamma", "beta"])?;
        // PyTorch's group normalization: of groups of channels as channels, with its weights behind it.
        let groups = self.tensor(node, 0)?;
        if let Some(count) = groups.axes.grouped(&groups.shape).filter(|_| groups.axes.len() == 3) {
            let all = |k: usize, number: f32| {
                let floats = weights[k].1.as_floats();
                floats.is_some_and(|all| all.len() as i64 == count && all.iter().all(|&x| x == number))
            };
            let term = Term::kind(Kind::Grouped(count, epsilon, Arc::clone(&groups.term)), node);
            return match all(0, 1.0) && all(1, 0.0) {
                true => Ok(groups.with_term(term).into()),
                false => Err(node.form("of groups with a scale for each of them")),
            };
        }
        let (x, _) = self.image(node, 0)?;
        let shape = self.shape(&x);
        let about = json!({"epsilon": epsilon, "groups": -1});
        Ok(self.weighted(node, "GroupNormalization", about, x, shape, weights))
    }

    /// Each channel by its neighbours.
    pub(super) fn local_response_normalization(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let Some(size) = node.given("size")? else { return Err(node.refuse("lacks its `size`")) };
        let about = json!({
            "size": size, "alpha": node.float("alpha", 1e-4)?, "beta": node.float("beta", 0.75)?,
            "bias": node.float("bias", 1.0)?,
        });
        let (x, _) = self.image(node, 0)?;
        let shape = self.shape(&x);
        Ok(self.plain(node, "LocalResponseNormalization", about, vec![x], shape))
    }

    /// The vectors behind the first operand.
    pub(super) fn vectors<'n>(
        &self,
        node: &Node<'g>,
        names: &[&'n str],
    ) -> Result<Vec<(&'n str, Constant)>, String> {
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

    /// Over the channels, which are the last axis.
    pub(super) fn layer_normalization(&mut self, node: &Node<'g>) -> Result<Of, String> {
        let axis = node.int("axis", -1)?;
        node.only("stash_type", 1)?;
        let epsilon = node.float("epsilon", 1e-5)?;
        let x = self.tensor(node, 0)?;
        let kinds = x.kinds();
        if kinds.last() != Some(&Axis::Channels) || ![-1, kinds.len() as i64 - 1].contains(&axis) {
            return Err(node.form(format!("of the axis {axis} of {}", shown(&x.seen()))));
        }
        let mut weights = self.vectors(node, &["gamma"])?;
        let has_beta = node.operand(2).is_some();
        if has_beta {
            weights = self.vectors(node, &["gamma", "beta"])?;
        }
        let about = json!({"epsilon": epsilon, "center": has_beta});
        self.pointwise(node, "LayerNormalization", about, weights)
    }
}

impl Nodes<'_> {
    /// The nodes of a layer normalization: the channels of images come last for it.
    pub(super) fn layer_normalization(&mut self, step: &Step, operands: &[&str], epsilon: f32) -> String {
        let is_vector = step.inputs.first().is_some_and(|x| self.vectors.contains(x));
        let about = [Float("epsilon", epsilon), Number("axis", if is_vector { 1 } else { 3 })];
        if is_vector {
            return self.activated(step, "LayerNormalization", operands, &about, Activation::None);
        }
        let [last, normal] = ["last", "normal"].map(|part| self.helper(step, part));
        let last = self.node("Transpose", &operands[..1], &[Numbers("perm", &[0, 2, 3, 1])], last);
        let operands = [&[last.as_str()], &operands[1..]].concat();
        let normal = self.node("LayerNormalization", &operands, &about, normal);
        let about = [Numbers("perm", &[0, 3, 1, 2])];
        self.activated(step, "Transpose", &[&normal], &about, Activation::None)
    }

    /// The node of a local response normalization.
    pub(super) fn local_response(&mut self, step: &Step, x: &str, norm: LocalResponseNorm) -> String {
        let LocalResponseNorm { size, alpha, beta, bias } = norm;
        let about = [Number("size", size), Float("alpha", alpha), Float("beta", beta), Float("bias", bias)];
        self.activated(step, "LRN", &[x], &about, Activation::None)
    }
}
