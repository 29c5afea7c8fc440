//! Descriptions of the devices of a run, for observers.

use super::Worker;
use crate::DeviceWeights;

impl Worker<'_> {
    /// The number of replicas.
    pub(crate) fn replicas(&self) -> usize {
        self.collective.world()
    }

    /// A description of the devices.
    pub(crate) fn describe(&self) -> String {
        let devices = match self.collective.world() {
            1 => self.device.name(),
            world => format!("{world} replicas, each on {}", kind(&self.device.name())),
        };
        let devices = match self.stage.stages() {
            1 => devices,
            stages => format!("{devices}, a pipeline of {stages} stages cut after {}", self.stage.cuts),
        };
        let devices = match (self.state.device_weights.as_str(), &self.config.placement.device_weights) {
            ("even", _) => devices,
            (weights, DeviceWeights::Auto) => format!("{devices}; device weights {weights}, as measured"),
            (weights, _) => format!("{devices}; device weights {weights}"),
        };
        match (self.config.training.virtual_replicas, self.config.micro_batches()) {
            (Some(shards), _) => format!("{devices}; {shards} virtual replicas"),
            (None, 1) => devices,
            (None, micro) => format!("{devices}; {micro} micro-batches"),
        }
    }
}

/// A device's name without the number of its GPU, which differs between replicas.
fn kind(name: &str) -> &str {
    name.rsplit_once(" (cuda:").map_or(name, |(kind, _)| kind)
}

#[cfg(test)]
mod tests {
    use super::kind;

    #[test]
    fn replicas_on_several_gpus_name_none_of_them() {
        assert_eq!(kind("NVIDIA H100 80GB HBM3 (cuda:0)"), "NVIDIA H100 80GB HBM3");
        assert_eq!(kind("the CPU (2 threads)"), "the CPU (2 threads)");
    }
}
