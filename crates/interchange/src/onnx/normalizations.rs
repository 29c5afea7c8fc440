//! Normalizations: `BatchNormalization`, `GroupNormalization`, `InstanceNormalization`.

use super::constants::Constant;
use super::extent::Extent;
use super::graph::{Of, Part, Reader};
use super::node::Node;
use serde_json::json;

impl<'g> Reader<'g> {
    pub(super) fn batch_normalization(&mut self, node: &Node<'g>) -> Result<Of, String> {
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
}
