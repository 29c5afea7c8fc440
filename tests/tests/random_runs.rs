//! Runs with random options resume with the same bits. Their networks and checkpoints have the losses of the runs, and a
//! GPU trains like the CPU.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::RngSeed;
use std::path::Path;
use towers_callbacks::CHECKPOINTS;
use towers_config::{Config, find_recipe, open_model};
use towers_program::Precision;
use towers_tests::{Finished, assert_same, cpus, emulated, in_two_parts, run_in, trained};
use towers_train::Error;
use towers_trained::{Assumed, Classifier, Trained, evaluate};

/// Options of a recipe file: one line of each of some groups.
const OPTIONS: [&[&str]; 30] = [
    &["augmentation.alternating_flip = true", "augmentation.horizontal_flip = true"],
    &["augmentation.brightness_range = [0.8, 1.2]"],
    &["augmentation.cutmix = 1.0"],
    &["augmentation.cutout = 3"],
    &["augmentation.featurewise_center = true"],
    &["augmentation.featurewise_std_normalization = true"],
    &["augmentation.mixup = 0.4"],
    &["augmentation.random_crop = 2"],
    &["augmentation.rotation_range = 15.0"],
    &["augmentation.samplewise_center = true", "augmentation.samplewise_std_normalization = true"],
    &["augmentation.validation_split = 0.2"],
    &["augmentation.width_shift_range = 0.1"],
    &["augmentation.zca_whitening = true"],
    &["checkpoints.every_steps = 2"],
    &["drop_last = true"],
    &["ema = 'momentum=0.5,every=2,overwrite-frequency=2'"],
    &["freeze = ['conv2d']"],
    &["global_batch_size = 4", "global_batch_size = 7"],
    &["label_smoothing = 0.1"],
    &["model = 'keras_cnn'"],
    &["layer_decay = 0.7"],
    &[
        "optimizer = 'adamw:weight-decay=0.01'",
        "optimizer = 'lamb:weight-decay=0.01'",
        "optimizer = 'muon:weight-decay=0.01'",
        "optimizer = 'rmsprop'",
        "optimizer = 'sgd:clipnorm=0.01'",
    ],
    &["param_groups = ['*/kernel:l2=1e-3', 'dense*/bias:lr-multiplier=2,epochs=1']"],
    &["preprocessing = 'standardize'", "preprocessing = 'subtract-pixel-mean'"],
    &["reduce_lr_on_plateau = 'val_loss:factor=0.5,patience=1,min_delta=100'"],
    &["devices.replicas = 2", "devices.replicas = 3"],
    &["sam = '0.05'", "sam = '0.5,adaptive'"],
    &["schedule = 'cosine'", "schedule = 'poly+warmup:epochs=1'"],
    &["sync_batch_norm = true"],
    &["virtual_replicas = 3", "virtual_replicas = 4"],
];

fn options() -> impl Strategy<Value = Vec<&'static str>> {
    let lines = |groups: Vec<&'static [&'static str]>| groups.into_iter().map(select).collect::<Vec<_>>();
    subsequence(OPTIONS.to_vec(), 0..=9).prop_flat_map(lines)
}

/// The configuration of a recipe file with these lines.
fn config(folder: &Path, options: &[&str]) -> towers_config::Result<Config> {
    let file = folder.join("random.toml");
    let base = "like = 'quick'\nepochs = 2\nlr = 1e-4\nbatch_size = 5\nschedule = 'constant'";
    let replaced = |line: &&str| !options.iter().any(|own| own.split(' ').next() == line.split(' ').next());
    let lines: Vec<&str> = base.lines().filter(replaced).chain(options.iter().copied()).collect();
    std::fs::write(&file, lines.join("\n")).unwrap();
    find_recipe(file.to_str().unwrap())
}

/// Small images, so that whitening takes little time.
fn data(seed: u64) -> towers_cifar::Dataset {
    let mut data = towers_cifar::synthetic(seed, 23, 8);
    for split in [&mut data.train, &mut data.test] {
        split.images = split.images.slice(ndarray::s![.., ..;3, ..;3, ..]).to_owned();
    }
    data
}

fn last_losses(run: &Finished) -> [f64; 2] {
    let last = run.outcome.state.history.last().unwrap();
    [last.metrics["loss"], last.metrics["val_loss"]]
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(29),
        failure_persistence: None,
        ..ProptestConfig::with_cases(12)
    })]

    #[test]
    fn runs_with_random_options(options in options(), seed in 0..1000_u64, stop_after in 1..9_u64) {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), &options).unwrap();
        let (data, count) = (data(seed), config.placement.devices.replicas.max(1));
        let straight = match run_in(folder.path(), &cpus(count, 1), &config, &data, None, None) {
            Err(Error::Config(towers_config::Error::Option(_))) => return Err(TestCaseError::reject("these don't go together")),
            run => run.unwrap(),
        };
        if stop_after < straight.outcome.state.step {
            // With virtual replicas the number of devices may change.
            let after = if config.training.virtual_replicas.is_some() { 1 } else { count };
            let (_, resumed) = in_two_parts([&cpus(count, 1), &cpus(after, 2)], &config, &data, stop_after);
            assert_same(&straight, &resumed, "resumed");
        }
        let classifier = |trained: Trained| Classifier::new(&trained, &towers_tensor_cpu::device(1), 4).unwrap();
        let mut classifier_of_run = classifier(Trained::read(folder.path()).unwrap());
        let [_, val_loss] = last_losses(&straight);
        if config.training.ema.is_none() && config.training.augmentation.validation_split == 0.0 {
            let loss = evaluate(&mut classifier_of_run, &data, |_, _| {}).unwrap().loss;
            assert!((loss - val_loss).abs() < 1e-4 * val_loss, "{loss} and {val_loss}");
        }
        let no_data = |_| unreachable!("a checkpoint says all");
        let opened = open_model(&folder.path().join(CHECKPOINTS), &Assumed::default(), no_data).unwrap();
        let pictures: Vec<u8> = data.test.images.iter().copied().collect();
        let logits = classifier(opened).logits(&pictures).unwrap();
        assert!(config.training.ema.is_some() || logits == classifier_of_run.logits(&pictures).unwrap());

        let gpus: Option<Vec<_>> = (0..count).map(|_| emulated(Precision::Fp32)).collect();
        let on_gpus = gpus.map(|gpus| last_losses(&trained(&gpus, &config, &data)));
        for (gpu, cpu) in on_gpus.into_iter().flatten().zip(last_losses(&straight)) {
            // Equal pixels make equal maxima, of which rounding chooses one. Runs that diverge make rounding grow.
            assert!(cpu > 3.0 || (gpu - cpu).abs() < 0.02 * cpu, "{gpu} and {cpu}");
        }
    }
}
