use crate::Config;
use crate::run::{PreparedRun, arithmetic};
use towers_config::{agreed, digest};
use towers_program::Device;
use towers_rendezvous::Agreement;

/// The values that must agree across processes: every option that decides bits, the network, the data, and
/// the arithmetic of the device.
pub(super) fn facts(run: &PreparedRun<'_>, device: &Device) -> Agreement {
    let mut facts = Agreement::new();
    for (key, value) in agreed(run.config) {
        facts = facts.with(format_args!("the setting {key}"), value);
    }
    let summary = run.stages[0].summary();
    facts = with_device_facts(facts, run.config)
        .with("a number of trainable parameters of", summary.trainable)
        .with("a number of running averages of", summary.non_trainable);
    let layers: Vec<_> =
        summary.rows.iter().map(|row| (&row.name, &row.kind, &row.shape, row.params)).collect();
    facts = facts.with("layers of the digest", digest(format!("{layers:?}").as_bytes()));
    for (what, samples) in [("training", &run.data.train), ("validation", &run.data.val)] {
        facts = facts.with(format_args!("a number of {what} images of"), samples.len());
    }
    let arithmetic = match run.config.placement.devices.mixed_devices {
        true => "any device".to_owned(),
        false => arithmetic(device),
    };
    let what = "arithmetic (TOWERS_SIMD chooses a CPU's, and mixed devices may differ) of";
    facts = facts.with(what, arithmetic);
    facts = facts.with("training images of the digest", &run.data.fingerprint.sha256);
    let weights = run.first_values.as_ref().map_or("none", |values| &values.sha256);
    facts = facts.with("first weights of the digest", weights);
    facts.with("validation images of the digest", &run.data.val_sha256)
}

/// Adds the arithmetic of the devices. The choice of devices need not agree.
pub(super) fn with_device_facts(facts: Agreement, config: &Config) -> Agreement {
    facts
        .with("the precision", config.training.arithmetic.precision)
        .with("`devices.no_winograd`", config.training.arithmetic.no_winograd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Training, recipe};

    #[test]
    fn the_instruction_set_must_agree_unless_it_may_differ() {
        let (mut config, devices) = (recipe("quick").unwrap(), [towers_tensor_cpu::device(1)]);
        let of = |config: &Config| {
            let (model, data) = (towers_models::small_cnn(10).unwrap(), towers_cifar::synthetic(1, 40, 20));
            let network = config.checked_with(model, [32, 32, 3]).unwrap();
            let run = PreparedRun::prepare(Training::new(config, data), network, 1, &devices, &mut []);
            format!("{:?}", facts(&run.unwrap(), &devices[0]))
        };
        let arithmetic = format!("a CPU with {}", towers_tensor_cpu::simd_level());
        assert!(of(&config).contains(&arithmetic));
        config.placement.devices.mixed_devices = true;
        assert!(!of(&config).contains(&arithmetic));
    }

    /// Each rank evaluates its part of the validation images, so they must be the same.
    #[test]
    fn other_pixels_are_seen_in_both_splits() {
        type Change = fn(&mut towers_dataset::Dataset);
        let config = recipe("quick").unwrap();
        let of = |change: Change| {
            let mut data = towers_cifar::synthetic(1, 40, 20);
            change(&mut data);
            let (model, devices) = (towers_models::small_cnn(10).unwrap(), [towers_tensor_cpu::device(1)]);
            let network = config.checked_with(model, [32, 32, 3]).unwrap();
            let run = PreparedRun::prepare(Training::new(&config, data), network, 1, &devices, &mut []);
            facts(&run.unwrap(), &devices[0])
        };
        let own = of(|_| ());
        assert_eq!(own, of(|_| ()));
        let changes: [Change; 3] = [
            |data| data.train.images[[39, 31, 31, 2]] ^= 1,
            |data| data.test.images[[19, 31, 31, 2]] ^= 1,
            |data| data.test.labels.swap(0, 1),
        ];
        for change in changes {
            assert_ne!(own, of(change));
        }
    }
}
