//! Class weights and the balanced sampler: the same bits for any number of replicas, stages and a resumed run.

use towers_augment::ImageDataGenerator;
use towers_config::{ClassWeight, Config, Sampler};
use towers_program::Precision;
use towers_tests::{assert_same, assert_same_steps, cpus, emulated, in_two_parts, quick_on_14, trained};

/// 40 images, of which the classes 1 and 7 have one each.
fn data() -> towers_cifar::Dataset {
    let mut data = towers_cifar::synthetic(5, 56, 20);
    let rare = |class: u16| data.train.labels.iter().position(|label| *label == class).unwrap();
    let kept: Vec<usize> = (0..data.train.len())
        .filter(|k| ![1, 7].contains(&data.train.labels[*k]) || [rare(1), rare(7)].contains(k))
        .take(40)
        .collect();
    data.train = data.train.select(&kept);
    data
}

fn weighted(shards: Option<usize>) -> Config {
    quick_on_14().with(|config| {
        config.training.class_weight = Some(ClassWeight::BALANCED);
        config.training.virtual_replicas = shards;
    })
}

fn balanced(shards: Option<usize>) -> Config {
    weighted(shards).with(|config| {
        config.training.class_weight = None;
        config.training.sampler = Some(Sampler::Balanced);
    })
}

fn mixing(config: Config) -> Config {
    let mixing = |own: ImageDataGenerator| own.mixup(0.4).cutmix(1.0);
    config.with(|config| config.training.augmentation = mixing(config.training.augmentation.clone()))
}

#[test]
fn any_number_of_devices_trains_the_same_bits() {
    for (name, config) in [("weighted", weighted as fn(_) -> _), ("balanced", balanced)] {
        for (mixed, config) in [("", config(Some(3))), (" and mixed", mixing(config(Some(3))))] {
            let one = trained(&cpus(1, 1), &config, &data());
            let what = format!("{name}{mixed} on 3 devices");
            assert_same_steps(&one, &trained(&cpus(3, 1), &config, &data()), &what);
            let stages = config.with(|config| config.placement.devices.pipeline_stages = 2);
            let what = format!("{name}{mixed} on 2 stages");
            assert_same_steps(&one, &trained(&cpus(2, 1), &stages, &data()), &what);
        }
        let plain = config(None);
        let cpu = cpus(1, 1);
        let (_, resumed) = in_two_parts([&cpu, &cpu], &plain, &data(), 2);
        assert_same(&trained(&cpu, &plain, &data()), &resumed, name);
    }
}

/// A device that has the data set itself.
#[test]
fn a_gpu_trains_the_same_numbers() {
    for config in [weighted(None), balanced(None)] {
        let Some(gpu) = emulated(Precision::Fp32) else { return };
        let [on_gpu, on_cpu] =
            [gpu, cpus(1, 1).remove(0)].map(|device| trained(&[device], &config, &data()).losses);
        for (on_gpu, on_cpu) in on_gpu.iter().zip(&on_cpu) {
            assert!((on_gpu - on_cpu).abs() < 1e-3 * on_cpu, "{on_gpu} beside {on_cpu}");
        }
    }
}

/// A class with the weight 2 counts as twice its samples; all weights of 1 change nothing.
#[test]
fn weights_change_the_loss_of_their_class_alone() {
    let of = |text: &str| {
        let config = quick_on_14().with(|config| config.set_text("class_weight", &[text]).unwrap());
        trained(&cpus(1, 1), &config, &data())
    };
    let plain = trained(&cpus(1, 1), &quick_on_14(), &data());
    assert_same(&plain, &of("3=1"), "weights of 1");
    let (double, none) = (of("3=2"), of("3=0"));
    let first = |run: &towers_tests::Finished| run.losses[0];
    let more = first(&double) - first(&plain);
    assert!(
        more > 0.0 && (first(&plain) - first(&none) - more).abs() < 1e-5,
        "the first batch is linear in it"
    );
}
