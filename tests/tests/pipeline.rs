//! A network in stages on separate devices trains like the whole network.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

use program::Precision;
use std::path::Path;
use towers_tests::{Finished, cpus, run_in, run_on};
use train::{Config, End, Error, Observer, Resume, cifar, recipe};
use trained::{Classifier, MODEL_FILE};

/// Batch normalization, dropout and augmentation. Batches of 14 of 45 images: three whole ones, and one of
/// three images, in which most micro-batches are empty.
fn config(stages: usize) -> Config {
    let mut config = recipe("quick").unwrap();
    config.training.epochs = 2;
    config.training.global_batch_size = Some(14);
    config.placement.devices.pipeline_stages = stages;
    // Nothing here depends on the number of epochs.
    config.training.schedule = "constant".parse().unwrap();
    config
}

fn whole(shards: usize) -> Config {
    config(1).with(|config| config.training.virtual_replicas = Some(shards))
}

fn data() -> cifar::Dataset {
    cifar::synthetic(3, 45, 23)
}

fn run(devices: usize, config: &Config) -> Finished {
    run_on(&cpus(devices, 1), config, &data(), None, None, Vec::new()).unwrap()
}

fn assert_same(a: &Finished, b: &Finished, what: &str) {
    assert_eq!(a.outcome.state.step, b.outcome.state.step, "{what}");
    assert_eq!(a.figures(), b.figures(), "{what}: another history");
    assert_eq!(a.losses, b.losses, "{what}: other losses");
    assert!(a.tensors == b.tensors, "{what}: other weights");
}

#[test]
fn stages_train_the_bits_of_the_whole_network() {
    for micro_batches in [1, 3, 4] {
        let one = run(1, &whole(micro_batches));
        for stages in [2, 3, 5] {
            let split = config(stages).with(|config| config.training.micro_batches = Some(micro_batches));
            assert_same(
                &one,
                &run(stages, &split),
                &format!("{stages} stages, {micro_batches} micro-batches"),
            );
        }
    }
}

/// The test above can fail, and micro-batches need no stages.
#[test]
fn other_micro_batches_are_another_run() {
    let three = run(2, &config(2).with(|config| config.training.micro_batches = Some(3)));
    assert_same(
        &three,
        &run(1, &config(1).with(|config| config.training.micro_batches = Some(3))),
        "one stage",
    );
    let four = run(2, &config(2).with(|config| config.training.micro_batches = None));
    assert_same(&four, &run(1, &whole(4)), "two micro-batches a stage by default");
    assert!(three.tensors != four.tensors);
}

#[test]
fn stages_and_replicas_go_together() {
    let one = run(1, &whole(6));
    let split = config(2).with(|config| config.training.micro_batches = Some(3));
    assert_same(&one, &run(4, &split), "two replicas of two stages, three micro-batches each");
    let shards = config(2).with(|config| config.training.virtual_replicas = Some(6));
    assert_same(&one, &run(2, &shards), "one replica of two stages, six virtual replicas");
    assert_same(&one, &run(8, &shards), "four replicas of two stages, six virtual replicas");
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
        let split = mixing(config(stages)).with(|config| config.training.micro_batches = Some(3));
        assert_same(&one, &run(stages, &split), &format!("{stages} stages with mixup and cutmix"));
    }
    assert!(one.losses != run(1, &whole(3)).losses, "that images were mixed at all");
}

/// Every possible cut of the network, and the branches of MiniGoogLeNet.
#[test]
fn any_cut_will_do() {
    let one = run(1, &whole(2));
    for cut in models::small_cnn(10).unwrap().cuts() {
        let mut split = config(2).with(|config| config.training.micro_batches = Some(2));
        split.placement.devices.split_at = vec![cut.layer.clone()];
        assert_same(&one, &run(2, &split), &format!("cut behind {}", cut.layer));
    }
    let few = cifar::synthetic(3, 6, 3);
    let google = |mut config: Config| {
        config.training.model = "minigooglenet".to_owned();
        (config.training.epochs, config.training.global_batch_size) = (1, Some(6));
        run_on(&cpus(config.stages(), 1), &config, &few, None, None, Vec::new()).unwrap()
    };
    let split = google(config(3).with(|config| config.training.micro_batches = Some(2)));
    assert_same(&google(whole(2)), &split, "three stages of MiniGoogLeNet");
}

fn in_folder(stages: usize, dir: &Path, resume: Option<&Resume>, stop_after: Option<u64>) -> Finished {
    let config = config(stages).with(|config| config.training.micro_batches = Some(4));
    run_in(dir, &cpus(stages, 1), &config, &data(), resume, stop_after).unwrap()
}

/// Checkpoints and model files have the tensors of all stages.
#[test]
fn a_run_goes_on_with_another_number_of_stages() {
    let straight = run(1, &whole(4));
    for (before, after, stop_after) in [(3, 2, 2), (2, 1, 5), (1, 3, 5)] {
        let dir = tempfile::tempdir().unwrap();
        let stopped = in_folder(before, dir.path(), None, Some(stop_after));
        assert_eq!(stopped.outcome.end, End::Interrupted);
        let resume = Resume::newest(dir.path()).unwrap();
        let resumed = in_folder(after, dir.path(), Some(&resume), None);
        let same = resumed.tensors == straight.tensors && resumed.figures() == straight.figures();
        assert!(same, "{before} stages, then {after}");
        assert!(dir.path().join(MODEL_FILE).is_file());
        Classifier::load(dir.path(), &tensor_cpu::device(1), 4).unwrap();
    }
}

#[test]
fn a_loss_that_is_not_a_number_ends_all_stages() {
    let mut config = config(3);
    config.training.lr = 1e30;
    let error = run_on(&cpus(3, 1), &config, &data(), None, None, Vec::new()).err().unwrap();
    assert!(matches!(error, Error::NotFinite { .. }), "{error}");
}

/// Stops a run with an error.
struct Broken;

impl Observer for Broken {
    fn on_step(&mut self, _: &train::StepInfo) -> train::callbacks::Result<()> {
        Err(train::callbacks::Error::other("the observer broke"))
    }
}

#[test]
fn an_error_of_the_first_stage_ends_all_stages() {
    let run = run_on(&cpus(4, 1), &config(2), &data(), None, None, vec![Box::new(Broken)]);
    assert_eq!(run.err().unwrap().to_string(), "the observer broke");
}

#[test]
fn what_cannot_be_split_is_an_error() {
    let says = |devices: usize, config: &Config| {
        let run = run_on(&cpus(devices, 1), config, &data(), None, None, Vec::new());
        run.err().unwrap().to_string()
    };
    assert!(says(3, &config(2)).contains("3 devices can't be divided into pipelines of 2 stages"));
    assert!(says(99, &config(99)).contains("`devices.pipeline_stages` is 99, but must be"));
    let both = whole(2).with(|config| config.training.micro_batches = Some(2));
    assert!(says(1, &both).contains("`micro_batches` is 2, but must be left out with `virtual_replicas`"));
    assert!(
        says(1, &config(1).with(|config| config.training.micro_batches = Some(0)))
            .contains("`micro_batches` is 0")
    );
    let mut alone = config(1);
    alone.placement.devices.split_at = vec!["flatten".to_owned()];
    assert!(says(1, &alone).contains("`devices.split_at` is flatten, but must be left out, or given with"));
}

/// Few images: emulated GPUs compute on one core.
#[test]
fn gpus_train_the_same_bits_too() {
    let open = || tensor_cuda::emulated(Precision::Fp32);
    if let Err(why) = open() {
        println!("SKIPPED: emulated cuda: {why}");
        return;
    }
    let few = cifar::synthetic(3, 17, 4);
    let run = |mut config: Config| {
        (config.training.global_batch_size, config.training.epochs) = (Some(5), 1);
        let gpus: Vec<_> = (0..config.stages()).map(|_| open().unwrap()).collect();
        run_on(&gpus, &config, &few, None, None, Vec::new()).unwrap()
    };
    let one = run(whole(2));
    let two = run(config(2).with(|config| config.training.micro_batches = Some(2)));
    assert_eq!(one.outcome.state.step, two.outcome.state.step);
    assert_eq!(one.figures(), two.figures());
    assert!(one.tensors == two.tensors);
}
