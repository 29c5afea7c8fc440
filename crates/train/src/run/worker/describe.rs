//! Descriptions of the devices of a run, for observers.

use super::Worker;
use crate::{Resume, gpus};
use towers_callbacks::TrainState;
use towers_config::DeviceWeights;
use towers_layers::Role;
use towers_optim::Progress;
use towers_options::{Message, message};
use towers_program::Device;

/// The share of their first values, zeros and ones, that running averages may still have.
const UNSETTLED: f64 = 0.05;

impl Worker<'_> {
    /// Why the steps after a resume differ from those of a run that was never stopped: the run `before`
    /// computed elsewhere.
    pub(crate) fn differs_from(&self, before: &TrainState) -> Vec<Message> {
        let TrainState { arithmetic, replicas, .. } = before;
        let mut warnings = Vec::new();
        if !arithmetic.is_empty() && *arithmetic != self.state.arithmetic {
            let remedy = match arithmetic.strip_prefix("a CPU with ") {
                Some(level) => format!("; TOWERS_SIMD={level} keeps them, on a CPU that has it"),
                None => String::new(),
            };
            let now = &self.state.arithmetic;
            warnings.push(message!(
                "the run was computed by {arithmetic} and continues on {now}, so its last bits change{remedy}"
            ));
        }
        let normalizes_alone = !self.network.arena().running.is_empty()
            && !self.syncs_batch_norm
            && self.run.config.training.virtual_replicas.is_none();
        if *replicas > 0 && *replicas != self.state.replicas && normalizes_alone {
            let now = self.state.replicas;
            warnings.push(message!(
                "the number of replicas changes from {replicas} to {now}: each normalizes its own share of a batch, so the \
                 results are those of another run; with ",
                ["virtual_replicas"],
                " they would not depend on it"
            ));
        }
        warnings
    }

    /// Says, in a note and a warning, how long the running averages of batch normalization follow the training: validation
    /// and the saved network are computed with them.
    pub(crate) fn unsettled_averages(&self) -> [Option<String>; 2] {
        let momentum = |role| if let Role::Running { momentum } = role { f64::from(momentum) } else { 0.0 };
        let slots = self.network.arena().slots().iter();
        let momentum = slots.map(|slot| momentum(slot.role)).fold(0.0, f64::max);
        unsettled(momentum, self.steps_per_epoch, self.run.config.training.epochs)
    }

    /// A warning that another number of epochs than that of the run so far moves the learning rate: some curves
    /// run over all epochs.
    pub(crate) fn moves_rate(&self, resume: &Resume) -> Option<Message> {
        let config = self.run.config;
        let (before, now) = (resume.config.training.epochs, config.training.epochs);
        let rate = |epochs| config.lr_at(self.state.global_batch, &Progress { epochs, ..self.progress() });
        if before == now || !self.has_epochs_left() || rate(before) == rate(now) {
            return None;
        }
        let TrainState { partial, history, .. } = &resume.state;
        let last = if partial.steps > 0 { partial.lr } else { history.last()?.lr };
        let [last, next] = [last, self.lr()].map(|rate| format!("{rate:.2e}"));
        if last == next {
            return None;
        }
        let [schedule, kept] =
            [config.training.schedule.clone(), config.training.schedule.clone().over(before)];
        Some(message!(
            "the learning rate goes from {last} to {next}, since the schedule {schedule} runs over all epochs, now {now} \
             and not {before}; ",
            ["schedule"],
            " {kept} keeps the curve of the run, which stays at its end"
        ))
    }

    /// A description of the devices.
    pub(crate) fn describe(&self) -> String {
        let devices = match self.state.replicas {
            1 => self.device.name(),
            world => format!("{world} replicas, each on {}", self.device.model()),
        };
        let devices = match self.stage.stages() {
            1 => devices,
            stages => format!("{devices}, a pipeline of {stages} stages cut after {}", self.run.cuts),
        };
        let devices = match (self.state.device_weights.as_str(), &self.run.config.placement.device_weights) {
            ("even", _) => devices,
            (weights, DeviceWeights::Auto) => format!("{devices}; device weights {weights}, as measured"),
            (weights, _) => format!("{devices}; device weights {weights}"),
        };
        match (self.run.config.training.virtual_replicas, self.run.config.micro_batches()) {
            (Some(shards), _) => format!("{devices}; {shards} virtual replicas"),
            (None, 1) => devices,
            (None, micro) => format!("{devices}; {micro} micro-batches"),
        }
    }
}

/// The note and the warning for a network whose slowest running averages have this momentum.
fn unsettled(momentum: f64, steps_per_epoch: u64, epochs: u64) -> [Option<String>; 2] {
    let steps = (UNSETTLED.ln() / momentum.ln()).ceil();
    // Without averages, or with some that never move, there is nothing to wait for.
    let steps = if steps.is_finite() && momentum > 0.0 { steps as u64 } else { 0 };
    let settled = steps.div_ceil(steps_per_epoch.max(1));
    let about = format!(
        "the running averages of batch normalization (momentum {}) take {steps} steps to settle",
        momentum as f32
    );
    if settled > epochs {
        let all = steps_per_epoch * epochs;
        let what = "validation and the saved network are worse than the training; smaller batches, more epochs or a \
                    momentum of 0.9 help";
        [None, Some(format!("{about}, and this run has {all}: {what}"))]
    } else if settled > 1 {
        [Some(format!("{about}: before epoch {settled} validation is worse than the training")), None]
    } else {
        [None, None]
    }
}

/// What decides the bits of sums and products on a device: the model of a GPU with its kernels, or the instruction
/// set of a CPU.
pub(crate) fn arithmetic(device: &Device) -> String {
    match gpus::kernels(device) {
        None if device.kind() == "cpu" => format!("a CPU with {}", towers_tensor_cpu::simd_level()),
        None => device.model(),
        Some(kernels) => format!("{} with kernels {kernels}", device.model()),
    }
}

#[cfg(test)]
mod tests {
    use super::unsettled;

    #[test]
    fn averages_that_have_not_settled_are_told() {
        // Keras' momentum leaves 4.9% of the first values after 300 steps.
        let told =
            |momentum, steps, epochs| unsettled(momentum, steps, epochs).map(Option::unwrap_or_default);
        assert_eq!(told(0.99, 300, 1), ["", ""]);
        let [note, warning] = told(0.99, 20, 30);
        assert!(
            note.contains("(momentum 0.99) take 299 steps") && note.contains("before epoch 15"),
            "{note}"
        );
        assert_eq!(warning, "");
        let [note, warning] = told(0.99, 20, 14);
        assert!(warning.contains("this run has 280: ") && note.is_empty(), "{warning}");
        assert!(told(0.9, 15, 1)[1].contains("take 29 steps"));
        for none in [0.0, 1.0] {
            assert_eq!(told(none, 1, 1), ["", ""]);
        }
    }
}
