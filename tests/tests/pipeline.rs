//! A network in stages on separate devices trains like the whole network.

use towers_config::Config;
use towers_program::Precision;
use towers_tests::{
    Finished, assert_same, assert_same_steps, cpus, emulated, failed, few_images, quick_on_14, run_in,
    run_on, trained,
};
use towers_train::{End, Error, Observer, Resume};
use towers_trained::Classifier;

/// Most micro-batches of the last batch, of three images, are empty.
fn config(stages: usize) -> Config {
    quick_on_14().with(|config| config.placement.devices.pipeline_stages = stages)
}

fn split(stages: usize, micro_batches: usize) -> Config {
    config(stages).with(|config| config.training.micro_batches = Some(micro_batches))
}

fn whole(shards: usize) -> Config {
    config(1).with(|config| config.training.virtual_replicas = Some(shards))
}

fn run(devices: usize, config: &Config) -> Finished {
    trained(&cpus(devices, 1), config, &few_images())
}

#[test]
fn stages_train_the_bits_of_the_whole_network() {
    for micro_batches in [1, 3, 4, 8] {
        let one = run(1, &whole(micro_batches));
        for stages in [2, 3, 5] {
            let what = format!("{stages} stages, {micro_batches} micro-batches");
            assert_same_steps(&one, &run(stages, &split(stages, micro_batches)), &what);
        }
    }
}

/// The test above can fail, and micro-batches need no stages.
#[test]
fn other_micro_batches_are_another_run() {
    let three = run(2, &split(2, 3));
    assert_same_steps(&three, &run(1, &split(1, 3)), "one stage");
    let four = run(2, &config(2).with(|config| config.training.micro_batches = None));
    assert_same_steps(&four, &run(1, &whole(4)), "two micro-batches a stage by default");
    assert!(three.tensors != four.tensors);
}

/// Gradients that are accumulated are those of a larger batch in micro-batches.
#[test]
fn accumulated_batches_are_micro_batches_of_a_larger_one() {
    let of = |batch: usize, accumulation: usize, config: Config| {
        let mut config = config;
        (config.training.global_batch_size, config.training.batch_size) = (None, batch);
        config.training.gradient_accumulation = accumulation;
        config
    };
    assert_same_steps(&run(1, &of(15, 1, split(1, 3))), &run(1, &of(5, 3, config(1))), "one replica");
    assert_same_steps(&run(2, &of(15, 1, split(1, 3))), &run(2, &of(5, 3, config(1))), "two replicas");
    assert_same_steps(&run(2, &of(15, 1, split(2, 12))), &run(2, &of(5, 3, config(2))), "two stages");
}

#[test]
fn stages_and_replicas_go_together() {
    let one = run(1, &whole(6));
    assert_same_steps(&one, &run(4, &split(2, 3)), "two replicas of two stages, three micro-batches each");
    let shards = config(2).with(|config| config.training.virtual_replicas = Some(6));
    assert_same_steps(&one, &run(2, &shards), "one replica of two stages, six virtual replicas");
    assert_same_steps(&one, &run(8, &shards), "four replicas of two stages, six virtual replicas");
}

/// The stage with the loss has no images, but mixes their labels in the same way.
#[test]
fn mixed_images_pass_through_stages() {
    let mixing = |config: Config| {
        let augmentation = config.training.augmentation.clone().mixup(0.4).cutmix(1.0);
        config.with(|config| config.training.augmentation = augmentation)
    };
    let one = run(1, &mixing(whole(3)));
    for stages in [2, 3] {
        assert_same_steps(
            &one,
            &run(stages, &mixing(split(stages, 3))),
            &format!("{stages} stages with mixup and cutmix"),
        );
    }
    assert!(one.losses != run(1, &whole(3)).losses, "that images were mixed at all");
}

/// Every possible cut of the network, and the branches of MiniGoogLeNet. AdamW and the average have more than
/// one tensor for each parameter, whose order in a checkpoint must not tell the cut.
#[test]
fn any_cut_will_do() {
    let adam = |config: Config| {
        config.with(|config| {
            config.training.optimizer = "adamw:clipnorm=0.1".parse().unwrap();
            config.training.ema = Some("momentum=0.9".parse().unwrap());
        })
    };
    let muon = |config: Config| {
        config.with(|config| {
            config.training.optimizer = "muon:weight-decay=0.1,clipnorm=0.1".parse().unwrap();
            config.training.layer_decay = Some(0.8);
        })
    };
    let (one, one_adam) = (run(1, &whole(2)), run(1, &adam(whole(2))));
    let one_muon = run(1, &muon(whole(2)));
    for cut in towers_models::small_cnn(10).unwrap().cuts() {
        let cut_there =
            split(2, 2).with(|config| config.placement.devices.split_at = vec![cut.layer.clone()]);
        assert_same_steps(&one, &run(2, &cut_there), &format!("cut behind {}", cut.layer));
        assert_same_steps(
            &one_adam,
            &run(2, &adam(cut_there.clone())),
            &format!("AdamW, cut behind {}", cut.layer),
        );
        assert_same_steps(&one_muon, &run(2, &muon(cut_there)), &format!("Muon, cut behind {}", cut.layer));
    }
    let few = towers_cifar::synthetic(3, 6, 3);
    let google = |mut config: Config| {
        config.training.model = "minigooglenet".to_owned();
        (config.training.epochs, config.training.global_batch_size) = (1, Some(6));
        trained(&cpus(config.stages(), 1), &config, &few)
    };
    assert_same_steps(&google(whole(2)), &google(split(3, 2)), "three stages of MiniGoogLeNet");
}

/// Checkpoints and model files have the tensors of all stages.
#[test]
fn a_run_goes_on_with_another_number_of_stages() {
    let straight = run(1, &whole(4));
    for (before, after, stop_after) in [(3, 2, 2), (2, 1, 5), (1, 3, 5)] {
        let dir = tempfile::tempdir().unwrap();
        let in_folder = |stages: usize, resume: Option<&Resume>, stop_after| {
            run_in(dir.path(), &cpus(stages, 1), &split(stages, 4), &few_images(), resume, stop_after)
                .unwrap()
        };
        assert_eq!(in_folder(before, None, Some(stop_after)).outcome.end, End::Interrupted);
        let resume = Resume::newest(dir.path()).unwrap();
        let resumed = in_folder(after, Some(&resume), None);
        assert_same(&straight, &resumed, &format!("{before} stages, then {after}"));
        Classifier::load(dir.path(), &towers_tensor_cpu::device(1), 4).unwrap();
    }
}

#[test]
fn a_loss_that_is_not_a_number_ends_all_stages() {
    let error = failed(&cpus(3, 1), &config(3).with(|config| config.training.lr = 1e30), &few_images());
    assert!(matches!(error, Error::NotFinite { .. }), "{error}");
}

/// Stops a run with an error.
struct Broken;

impl Observer for Broken {
    fn on_step(&mut self, _: &towers_callbacks::StepInfo) -> towers_callbacks::Result<()> {
        Err(towers_callbacks::Error::other("the observer broke"))
    }
}

#[test]
fn an_error_of_the_first_stage_ends_all_stages() {
    let run = run_on(&cpus(4, 1), &config(2), &few_images(), None, None, vec![Box::new(Broken)]);
    assert_eq!(run.err().unwrap().to_string(), "the observer broke");
}

/// Few images: emulated GPUs compute on one core.
#[test]
fn gpus_train_the_same_bits_too() {
    let (Some(one), Some(other)) = (emulated(Precision::Fp32), emulated(Precision::Fp32)) else { return };
    let gpus = [one, other];
    let few = |mut config: Config| {
        (config.training.global_batch_size, config.training.epochs) = (Some(5), 1);
        config
    };
    let data = towers_cifar::synthetic(3, 17, 4);
    let alone = trained(&gpus[..1], &few(whole(2)), &data);
    assert_same(&alone, &trained(&gpus, &few(split(2, 2)), &data), "two emulated GPUs");
}
