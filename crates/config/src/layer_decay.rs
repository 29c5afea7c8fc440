//! `layer_decay`: learning rates that fall from the last block of a network to its first.

use crate::{Config, Result};
use std::collections::HashMap;
use towers_layers::Role;
use towers_models::Model;

/// The factor of the learning rate of each trained parameter: `decay^(last - k)` in block `k` of `0..=last`.
pub(crate) fn factors(decay: f64, model: &Model) -> Result<HashMap<String, f32>> {
    let (mut blocks, mut begun) = (Vec::new(), false);
    let mut block = 0;
    for piece in model.split(&model.cuts())? {
        let params: Vec<_> = piece.graph().params().collect();
        // A normalization belongs to the block before it, since it has no kernel.
        let has_kernel = params.iter().any(|(_, spec)| spec.shape.len() > 1);
        block += usize::from(has_kernel && begun);
        begun |= has_kernel;
        let trained = params.into_iter().filter(|(_, spec)| spec.role == Role::Trainable);
        blocks.extend(trained.map(|(name, _)| (name, block)));
    }
    let factor = |k| decay.powi((block - k) as i32) as f32;
    Ok(blocks.into_iter().map(|(name, k)| (name, factor(k))).collect())
}

impl Config {
    /// A sentence about the groups that [`layer_decay`](crate::Training::layer_decay) makes, if it is given.
    ///
    /// # Errors
    /// As [`groups_of`](Config::groups_of).
    pub fn describe_layer_decay(&self, model: &Model) -> Result<Option<String>> {
        let Some(decay) = self.training.layer_decay else { return Ok(None) };
        let mut factors: Vec<f32> = factors(decay, model)?.into_values().collect();
        factors.sort_by(f32::total_cmp);
        factors.dedup();
        let [first, last] = [factors.first(), factors.last()].map(|factor| factor.copied().unwrap_or(1.0));
        let groups = factors.len();
        Ok(Some(format!(
            "Layer decay {decay}: {groups} groups, with {first:.3e} to {last} times the learning rate"
        )))
    }
}

#[cfg(test)]
mod tests {
    use crate::{read_recipe, recipe};
    use serde_json::Value;

    /// timm's groups of its ResNet-18, which has the blocks of ours: `tests/golden/layer_decay.py`.
    #[test]
    fn blocks_are_those_of_timm() {
        let golden: Value =
            serde_json::from_str(include_str!("../../../tests/golden/layer_decay.json")).unwrap();
        let expected: Vec<(f64, bool)> = serde_json::from_value(golden["resnet18"].clone()).unwrap();
        let text =
            format!("like = 'resnet18'\nlayer_decay = {}\nno_bias_decay = true", golden["layer_decay"]);
        let config = read_recipe(&text, "mine").unwrap();
        let model = config.network([32, 32, 3], 10).unwrap();
        let groups = config.groups_of(&model).unwrap();
        let mut got: Vec<(f64, bool)> =
            groups.iter().map(|group| (group.lr_multiplier.into(), group.weight_decay.is_none())).collect();
        // A block has its shortcut at another place.
        got.sort_by(|a, b| a.partial_cmp(b).unwrap());
        assert_eq!(got.len(), expected.len());
        for (got, expected) in got.iter().zip(&expected) {
            assert!((got.0 - expected.0).abs() < 1e-7 && got.1 == expected.1, "{got:?}, not {expected:?}");
        }
        let said = config.describe_layer_decay(&model).unwrap().unwrap();
        assert_eq!(said, "Layer decay 0.75: 10 groups, with 7.508e-2 to 1 times the learning rate");
    }

    /// Without shortcuts each layer with a kernel is a block, and takes the normalization behind it. Groups keep their factors.
    #[test]
    fn a_plain_network_has_a_block_for_each_kernel() {
        let text = "like = 'quick'\nlayer_decay = 0.5\nparam_groups = ['batch_normalization/beta:lr-multiplier=6,epochs=2']";
        let config = read_recipe(text, "mine").unwrap();
        let groups = config.groups_of(&config.network([32, 32, 3], 10).unwrap()).unwrap();
        let of = |name: &str| groups.iter().find(|group| group.pattern == name).unwrap();
        let (first, beta) = (of("conv2d/kernel").lr_multiplier, of("batch_normalization/beta"));
        assert_eq!((beta.lr_multiplier, beta.epochs), (6.0 * first, Some(2)));
        assert_eq!(of("batch_normalization/gamma").lr_multiplier, first);
        assert_eq!(of("conv2d_1/kernel").lr_multiplier, 2.0 * first);
        assert_eq!(groups.last().unwrap().lr_multiplier, 1.0);
    }

    /// All blocks count, those of frozen layers too.
    #[test]
    fn frozen_layers_keep_their_place() {
        let config = recipe("quick").unwrap().with(|config| {
            (config.training.layer_decay, config.training.freeze) = (Some(0.5), vec!["dense*".to_owned()]);
        });
        let model = config.frozen(config.network([32, 32, 3], 10).unwrap()).unwrap();
        let groups = config.groups_of(&model).unwrap();
        let last = groups.last().unwrap();
        assert!(!last.pattern.starts_with("dense") && last.lr_multiplier < 1.0, "{last}");
    }
}
