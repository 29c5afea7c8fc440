//! Sharpness-aware runs: the steps of PyTorch, and the same bits on any devices.

use serde_json::Value;
use std::path::Path;
use towers_augment::ImageDataGenerator;
use towers_callbacks::{SAVED, TrainState};
use towers_checkpoint::{Tensors, load_tensors, save_tensors};
use towers_cifar::{Dataset, Split};
use towers_config::{Config, Saved, read_recipe};
use towers_optim::Sam;
use towers_program::{Device, Precision};
use towers_tests::{
    Finished, assert_near, assert_same, assert_same_steps, cpus, distance, emulated, failed, few_images,
    in_two_parts, keras_cnn_on_14, quick_on_14, run_in, run_on, trained,
};
use towers_train::{Error, Resume};
use towers_trained::MODEL_FILE;

const NETWORK: &str = "
    like = 'quick'
    shuffle = false
    preprocessing = 'divide-by-255'
    schedule = 'constant'
    layer = [
        { class = 'Conv2D', filters = 4, kernel_size = 3, activation = 'relu' },
        { class = 'BatchNormalization', momentum = 0.6, epsilon = 1e-3 },
        { class = 'ReLU' },
        { class = 'Conv2D', filters = 6, kernel_size = 3, activation = 'relu', use_bias = false },
        { class = 'GlobalAveragePooling2D' },
        { class = 'Dense' },
    ]";

/// The configuration of a case of `tests/golden/sam.py`.
fn config_of(golden: &Value, case: &Value) -> Config {
    let mut config = read_recipe(NETWORK, "sam").unwrap();
    let training = &mut config.training;
    training.augmentation = ImageDataGenerator::new();
    (training.epochs, training.lr) = (golden["steps"].as_u64().unwrap(), golden["lr"].as_f64().unwrap());
    let mut optimizer = format!("sgd:velocity=pytorch,momentum=0.9,l2={}", case["l2"]);
    if !case["clip"].is_null() {
        optimizer += &format!(",global-clipnorm={}", case["clip"]);
    }
    training.optimizer = optimizer.parse().unwrap();
    let sam = format!("rho={},adaptive={}", case["rho"], case["adaptive"]);
    training.sam = Some(sam.parse().unwrap());
    training.gradient_accumulation = case["micro_batches"].as_u64().unwrap() as usize;
    training.batch_size = 8 / training.gradient_accumulation;
    training.freeze =
        case["freeze"].as_str().map(|name| name.trim_end_matches('/').into()).into_iter().collect();
    config
}

fn data() -> Dataset {
    let pixels = (0..8 * 8 * 8 * 3_u64).map(|k| (k * k % 251) as u8).collect();
    let images = ndarray::Array4::from_shape_vec((8, 8, 8, 3), pixels).unwrap();
    let labels: Vec<u16> = (0..8).map(|k| k % 5).collect();
    let split = Split::new(images, labels).unwrap();
    Dataset::new("numbers", split.clone(), split, ["a", "b", "c", "d", "e"]).unwrap()
}

/// The state before the first step of a run whose first values are those of the script.
fn first_state(config: &Config, folder: &Path) -> Resume {
    let shapes: [(&str, &[usize]); 7] = [
        ("conv2d/kernel", &[3, 3, 3, 4]),
        ("conv2d/bias", &[4]),
        ("batch_normalization/gamma", &[4]),
        ("batch_normalization/beta", &[4]),
        ("conv2d_1/kernel", &[3, 3, 4, 6]),
        ("dense/kernel", &[6, 5]),
        ("dense/bias", &[5]),
    ];
    // A run of one step gives the metadata of a model's file.
    run_in(folder, &cpus(1, 1), &config.with(|config| config.training.epochs = 1), &data(), None, None)
        .unwrap();
    let mut tensors = Tensors::new();
    tensors.metadata_mut().extend(load_tensors(folder.join(MODEL_FILE)).unwrap().metadata().clone());
    for (phase, (name, shape)) in shapes.into_iter().enumerate() {
        let one = if name.ends_with("gamma") { 1.0 } else { 0.0 };
        let value = |k: usize| (0.4 * (1.7 * k as f64 + phase as f64).sin() + one) as f32;
        let values: Vec<f32> = (0..shape.iter().product()).map(value).collect();
        tensors.insert(format!("velocity/{name}"), shape.to_vec(), vec![0.0; values.len()]).unwrap();
        tensors.insert(name, shape.to_vec(), values).unwrap();
    }
    for (name, value) in [("mean", 0.0), ("variance", 1.0)] {
        let name = format!("batch_normalization/moving_{name}");
        tensors.insert(name, vec![4], vec![value; 4]).unwrap();
    }
    let mut state = TrainState::default();
    (state.global_batch, state.replicas, state.device_weights) = (8, 1, "even".into());
    let saved = Saved { config: config.clone(), state, model: Default::default() };
    tensors.metadata_mut().insert(SAVED.into(), serde_json::to_string(&saved).unwrap());
    let file = folder.join("first.safetensors");
    save_tensors(&file, tensors.iter(), tensors.metadata()).unwrap();
    Resume::read(&file).unwrap()
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn apart(run: &Finished, case: &Value) -> f64 {
    let tensors = case["tensors"].as_object().unwrap();
    let mut worst = 0.0_f64;
    for (name, expected) in tensors {
        let found = run.tensors.get(name).unwrap().data();
        for (found, expected) in found.iter().zip(floats(expected)) {
            worst = worst.max((f64::from(*found) - expected).abs());
        }
    }
    assert_eq!(tensors.len(), 9);
    worst
}

/// Plain and adaptive, with clipping, a weight decay, accumulated batches and a frozen layer: the weights, the running
/// averages, and the losses of the first passes.
#[test]
fn steps_are_those_of_pytorch() {
    let golden: Value = serde_json::from_str(include_str!("../golden/sam.json")).unwrap();
    let cases = golden["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 4);
    let devices = [towers_tensor_cpu::reference(), towers_tensor_cpu::device(2)];
    for device in devices.into_iter().chain(emulated(Precision::Fp32)) {
        for case in cases {
            let (config, folder) = (config_of(&golden, case), tempfile::tempdir().unwrap());
            let run = |config: &Config| {
                let resume = first_state(config, folder.path());
                let devices = [device.clone()];
                run_on(&devices, config, &data(), Some(&resume), None, Vec::new()).unwrap()
            };
            let finished = run(&config);
            let what = format!("{} on {}", config.training.sam.unwrap(), device.name());
            let distance = apart(&finished, case);
            assert!(distance < 2e-5, "{what}: {distance:e}");
            let history = &finished.outcome.state.history;
            assert_eq!(history.len(), 6);
            for (epoch, expected) in history.iter().zip(floats(&case["losses"])) {
                assert!((epoch.metrics["loss"] - expected).abs() < 1e-5, "{what}: {}", epoch.metrics["loss"]);
            }
            let without = run(&config.with(|config| config.training.sam = None));
            assert!(apart(&without, case) > 1e-3, "{what}: without it, steps are others");
        }
    }
}

/// With batch normalization, dropout, augmentation and clipping.
fn sharp(config: Config, sam: Sam) -> Config {
    let mut config = config.with(|config| config.training.sam = Some(sam));
    config.training.optimizer = "sgd:momentum=0.9,global-clipnorm=0.5".parse().unwrap();
    config
}

fn run(devices: &[Device], config: &Config) -> Finished {
    trained(devices, config, &few_images())
}

#[test]
fn any_number_of_devices_and_threads_trains_the_same_bits() {
    let config = sharp(quick_on_14(), Sam::new(0.05));
    let config = config.with(|config| config.training.virtual_replicas = Some(4));
    let one = run(&cpus(1, 1), &config);
    for (world, threads) in [(1, 3), (2, 1), (3, 2)] {
        let what = format!("{world} devices with {threads} threads");
        assert_same_steps(&one, &run(&cpus(world, threads), &config), &what);
    }
    let other = run(&cpus(1, 1), &config.with(|config| config.training.sam = Some(Sam::new(0.04))));
    assert!(other.tensors != one.tensors);
    // Plain replicas, one after the other or side by side.
    let config = sharp(quick_on_14(), Sam::new(1.0).adaptive());
    let plain = run(&cpus(3, 1), &config);
    let shards = run(&cpus(1, 2), &config.with(|config| config.training.virtual_replicas = Some(3)));
    assert_same(&plain, &shards, "three shards");
}

/// The gradients of both passes are those of the whole batch, for any division among replicas.
#[test]
fn parts_of_a_batch_make_the_same_steps() {
    let config = sharp(keras_cnn_on_14(), Sam::new(0.1));
    let (one, three) = (run(&cpus(1, 2), &config), run(&cpus(3, 1), &config));
    assert_near(&one, &three, [1e-4, 1e-5], "three replicas");
    let mut parts = config.with(|config| config.training.gradient_accumulation = 2);
    (parts.training.global_batch_size, parts.training.batch_size) = (None, 7);
    assert_near(&one, &run(&cpus(1, 2), &parts), [1e-4, 1e-5], "two accumulated batches");
    let mut config = sharp(quick_on_14(), Sam::new(0.05));
    (config.training.sync_batch_norm, config.training.epochs) = (true, 1);
    let (one, two) = (run(&cpus(1, 2), &config), run(&cpus(2, 1), &config));
    assert_near(&one, &two, [1e-3, 1e-4], "synchronized statistics");
}

#[test]
fn a_run_that_stops_goes_on_bit_for_bit() {
    let mut config = sharp(quick_on_14(), Sam::new(0.5).adaptive());
    (config.training.global_batch_size, config.training.batch_size) = (None, 7);
    config.training.gradient_accumulation = 2;
    config.training.freeze = vec!["conv2d".into()];
    config.training.freeze_epochs = Some(1);
    let straight = run(&cpus(1, 2), &config);
    for stop_after in [2, 4, 5] {
        let devices: [&[Device]; 2] = [&cpus(1, 1), &cpus(1, 2)];
        let (_, resumed) = in_two_parts(devices, &config, &few_images(), stop_after);
        assert_same(&straight, &resumed, &format!("stopped after step {stop_after}"));
    }
}

/// Both parts of a step in one graph, and in several, by virtual replicas. The second epoch trains more parameters.
#[test]
fn captured_graphs_train_as_the_cpu_does() {
    let few = towers_cifar::synthetic(5, 24, 6);
    for (sam, shards) in [(Sam::new(0.05), None), (Sam::new(0.5).adaptive(), Some(2))] {
        let mut config = sharp(quick_on_14(), sam);
        (config.training.global_batch_size, config.training.batch_size) = (None, 4 / shards.unwrap_or(1));
        (config.training.virtual_replicas, config.training.lr) = (shards, 1e-3);
        config.training.freeze = vec!["conv2d".into()];
        config.training.freeze_epochs = Some(1);
        let expected = trained(&cpus(1, 2), &config, &few);
        for precision in [Precision::Fp32, Precision::Fp16] {
            let Some(gpu) = emulated(precision) else { return };
            let found = trained(&[gpu], &config, &few);
            assert_eq!(found.outcome.state.step, 12);
            if precision == Precision::Fp32 {
                let apart = distance(&found.tensors, &expected.tensors);
                assert!(apart < 2e-3, "{sam}: {apart:e} apart");
            }
            for (a, b) in found.outcome.state.history.iter().zip(&expected.outcome.state.history) {
                let [a, b] = [a, b].map(|record| record.metrics["loss"]);
                let share = if precision == Precision::Fp32 { 1e-3 } else { 0.05 };
                assert!((a - b).abs() < share * b, "{sam} in {precision}: {a} and {b}");
            }
        }
        let gpus = [(); 2].map(|()| emulated(Precision::Fp32).unwrap());
        if shards.is_some() {
            assert_same(&trained(&gpus[..1], &config, &few), &trained(&gpus, &config, &few), "two GPUs");
        }
        let devices: [&[Device]; 2] = [&gpus[..1], &gpus[1..]];
        let (_, resumed) = in_two_parts(devices, &config, &few, 5);
        assert_same(&trained(&gpus[..1], &config, &few), &resumed, "stopped after step 5");
    }
}

/// Weights that the first step leaves without a value are found by the second one's first pass.
#[test]
fn a_loss_that_is_no_number_ends_the_run() {
    for devices in [cpus(1, 1), cpus(2, 1)] {
        let config = sharp(quick_on_14(), Sam::new(f32::MAX));
        match failed(&devices, &config, &few_images()) {
            Error::NotFinite { epoch: 1, step: 2, .. } => {}
            other => panic!("{other}"),
        }
    }
}

#[test]
fn stages_are_refused() {
    let mut config = quick_on_14().with(|config| config.training.sam = Some(Sam::new(0.05)));
    config.placement.devices.pipeline_stages = 2;
    let told = failed(&cpus(2, 1), &config, &few_images()).to_string();
    assert!(
        told.starts_with("`sam` is rho=0.05, but must be left out with `devices.pipeline_stages`"),
        "{told}"
    );
}
