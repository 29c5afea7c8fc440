//! The optimizer of a configuration, for the parameters of a network.

use crate::config::refuse;
use crate::frozen::takes;
use crate::{Config, Result, Training, layer_decay};
use std::collections::HashMap;
use towers_layers::{Graph, Network, ParamSpec, Role};
use towers_models::Model;
use towers_optim::{Optimizer, ParamGroup, Rest, WeightDecay};
use towers_options::message;
use towers_program::OptimizerState;

impl Config {
    /// The optimizer state for the parameters of `network`, which is `model` or one of its pipeline stages.
    ///
    /// # Errors
    /// [`Error::Optimizer`](crate::Error::Optimizer) for invalid options, and the errors of the device.
    pub fn optimizer_on(&self, model: &Model, network: &Network) -> Result<OptimizerState> {
        let arena = network.arena();
        let state = OptimizerState::new(network.device(), self.training.optimizer, arena.trainable.len)?;
        let matrices = model.hidden_matrices();
        let state = state.matrices(matrices.iter().map(|(name, shape)| (name.as_str(), *shape)));
        let state = state.grouped(&self.groups_of(model)?, arena.trainable_runs())?;
        Ok(match self.training.sam {
            Some(sam) => state.sharpness_aware(network.device(), sam)?,
            None => state,
        })
    }

    /// The parameter groups of a network: those of the option `param_groups`, or with `layer_decay`, `no_bias_decay` or
    /// `freeze_epochs` one for each trained parameter.
    ///
    /// ```
    /// let config = towers_config::read_recipe("like = 'resnet18'\nno_bias_decay = true", "mine")?;
    /// let groups = config.groups_of(&config.network([32, 32, 3], 10)?)?;
    /// assert_eq!(groups[1].to_string(), "batch_normalization/gamma:weight-decay=0");
    /// # Ok::<(), towers_config::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Network`](crate::Error::Network) for a network that can't be built.
    pub fn groups_of(&self, model: &Model) -> Result<Vec<ParamGroup>> {
        let Training { param_groups: given, no_bias_decay, layer_decay, freeze, freeze_epochs, .. } =
            &self.training;
        if !no_bias_decay && layer_decay.is_none() && freeze_epochs.is_none() {
            return Ok(given.clone());
        }
        let factors = layer_decay.map_or(Ok(HashMap::new()), |decay| layer_decay::factors(decay, model))?;
        let trained = model.graph().params().filter(|(_, spec)| spec.role == Role::Trainable);
        let group = |(name, spec): (String, ParamSpec)| {
            let own = ParamGroup::of(given, &name).cloned();
            let mut group = ParamGroup { pattern: name, ..own.unwrap_or(ParamGroup::new("")) };
            group.lr_multiplier *= factors.get(&group.pattern).copied().unwrap_or(1.0);
            if *no_bias_decay && spec.shape.len() == 1 {
                group.weight_decay.get_or_insert(WeightDecay::None);
            }
            if let Some(epochs) =
                freeze_epochs.filter(|_| freeze.iter().any(|own| takes(own, &group.pattern)))
            {
                group.freeze_epochs = epochs;
            }
            group
        };
        Ok(trained.map(group).collect())
    }

    /// A sentence about what Muon takes, and who takes the rest, if it is the optimizer.
    pub fn describe_muon(&self, model: &Model) -> Option<String> {
        let Optimizer { rule, rest, .. } = self.training.optimizer;
        let Rest { rule: other, lr_multiplier } = rest?;
        let matrices = model.hidden_matrices();
        let taken: usize = matrices.iter().map(|(_, [inputs, outputs])| inputs * outputs).sum();
        let all = model.summary().trainable;
        let other = Optimizer::from(other);
        Some(format!(
            "{} steps over {} kernels with {taken} of {all} parameters; {other} over the rest, at {lr_multiplier} times the rate",
            rule.name(),
            matrices.len(),
        ))
    }

    /// Refuses parameter groups without parameters: they are probably misspelt.
    pub(crate) fn check_groups(&self, graph: &Graph) -> Result<()> {
        let names = graph.trained();
        Ok(ParamGroup::check_all(&self.training.param_groups, names.iter().map(String::as_str))?)
    }

    /// Refuses `no_bias_decay` where no parameter has a weight decay.
    pub(crate) fn check_decay(&self) -> Result<()> {
        let Training { optimizer, no_bias_decay, .. } = self.training;
        if no_bias_decay && optimizer.rules().all(|rule| rule.weight_decay() == WeightDecay::None) {
            let accepted =
                message!("left out with ", ["optimizer"], " {optimizer}, which has no weight decay");
            return refuse("no_bias_decay", "given", accepted);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::read_recipe;

    /// timm's rule: no weight decay on parameters of one dimension. A group's own weight decay stays.
    #[test]
    fn biases_and_norms_are_left_out_of_weight_decay() {
        let text = "like = 'quick'\noptimizer = 'sgd:l2=0.1'\nno_bias_decay = true\n\
                    param_groups = ['batch_normalization/*:lr-multiplier=2', 'dense/*:l2=0.3']";
        let config = read_recipe(text, "mine").unwrap();
        let groups = config.groups_of(&config.network([32, 32, 3], 10).unwrap()).unwrap();
        let shown: Vec<String> = groups.iter().map(ToString::to_string).collect();
        let of_norm = "batch_normalization/gamma:lr-multiplier=2,weight-decay=0";
        assert_eq!(shown[..3], ["conv2d/kernel", "conv2d/bias:weight-decay=0", of_norm]);
        assert_eq!(shown.last().unwrap(), "dense/bias:l2=0.3");
    }

    /// Not depthwise kernels, vectors and the last layer.
    #[test]
    fn muon_takes_the_kernels_of_hidden_layers() {
        let text = "like = 'quick'\noptimizer = 'muon:momentum=0.9'\n[[layer]]\nclass = 'Conv2D'\nfilters = 8\nkernel_size = 3\n\
                    [[layer]]\nclass = 'DepthwiseConv2D'\nkernel_size = 3\n[[layer]]\nclass = 'SeparableConv2D'\nfilters = 6\nkernel_size = 3\n\
                    [[layer]]\nclass = 'Conv2D'\nfilters = 4\nkernel_size = 1\ngroups = 2\n[[layer]]\nclass = 'Flatten'\n\
                    [[layer]]\nclass = 'Dense'\nunits = 5\n[[layer]]\nclass = 'Dense'\nunits = 10";
        let config = read_recipe(text, "mine").unwrap();
        let model = config.network([12, 12, 3], 10).unwrap();
        let matrices = model.hidden_matrices();
        let shown: Vec<_> = matrices.iter().map(|(name, shape)| (name.as_str(), *shape)).collect();
        let inputs = 4 * 6 * 6;
        let expected = [
            ("conv2d/kernel", [27, 8]),
            ("separable_conv2d/pointwise_kernel", [8, 6]),
            ("dense/kernel", [inputs, 5]),
        ];
        assert_eq!(shown, expected);
        let taken = 27 * 8 + 48 + 5 * inputs;
        let all = model.summary().trainable;
        assert_eq!(
            config.describe_muon(&model).unwrap(),
            format!(
                "muon steps over 3 kernels with {taken} of {all} parameters; adam:beta2=0.95,epsilon=1e-10,epsilon-hat=false \
                     over the rest, at 0.015 times the rate"
            )
        );
    }

    #[test]
    fn there_must_be_a_weight_decay_to_leave_out() {
        let says =
            read_recipe("like = 'quick'\noptimizer = 'sgd'\nno_bias_decay = true", "mine").unwrap_err();
        assert!(
            says.to_string().contains("must be left out with `optimizer` sgd, which has no weight decay"),
            "{says}"
        );
    }
}
