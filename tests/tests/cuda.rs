//! Whole runs on the CUDA backend: on the emulated GPU, and on a real one where there is one.
//!
//! On the emulated GPU there are few images, since it computes on one core. On both, the third and later
//! steps of a kind replay a captured graph. The emulated driver refuses to allocate or to wait during
//! capture, so a successful run does neither.

mod recordings;

use towers_config::{Config, recipe};
use towers_program::{CaptureStatus, Device, GraphCache, Precision, ReplayArgs, Span};
use towers_tensor_cuda::Options as CudaOptions;
use towers_tests::{Finished, assert_same, distance, emulated, failed, in_two_parts, trained};
use towers_train::{End, Error, Training};

/// Opens a device of each available kind, and prints the missing ones.
fn on_gpus(precision: Precision, mut test: impl FnMut(&dyn Fn() -> Device)) {
    if emulated(precision).is_some() {
        test(&|| emulated(precision).unwrap());
    }
    let real = || towers_tensor_cuda::device(CudaOptions { precision, ..CudaOptions::default() });
    match real() {
        Ok(_) => test(&|| real().unwrap()),
        Err(why) => {
            assert!(
                std::env::var("TOWERS_REQUIRE_CUDA").as_deref() != Ok("1"),
                "cuda is required, but {why}"
            );
            println!("SKIPPED: cuda: {why}");
        }
    }
}

/// Four batches of 4 and a short one of 2 in an epoch. A group of parameters is trained only in the first
/// epoch, so steps are captured again. An average of the weights replaces them at every other step.
fn config(epochs: u64) -> Config {
    let mut config = recipe("quick").unwrap();
    config.training.epochs = epochs;
    config.training.batch_size = 4;
    config.training.schedule = "constant".parse().unwrap();
    // Small enough not to amplify rounding.
    config.training.lr = 1e-3;
    let groups = ["dense*/bias:lr-multiplier=2,epochs=1", "*/kernel:l2=1e-3"];
    config.training.param_groups = groups.map(|group| group.parse().unwrap()).into();
    config.training.ema = Some("momentum=0.5,every=2,overwrite-frequency=2".parse().unwrap());
    config
}

fn data() -> towers_cifar::Dataset {
    towers_cifar::synthetic(5, 18, 6)
}

fn run(devices: &[Device], config: &Config) -> Finished {
    trained(devices, config, &data())
}

fn assert_near(a: &Finished, b: &Finished, tolerance: f64) {
    let apart = distance(&a.tensors, &b.tensors);
    assert!(apart < tolerance, "the tensors lie {apart} apart");
    for (a, b) in a.outcome.state.history.iter().zip(&b.outcome.state.history) {
        assert!(
            (a.metrics["loss"] - b.metrics["loss"]).abs() < tolerance * a.metrics["loss"].abs(),
            "{} and {}",
            a.metrics["loss"],
            b.metrics["loss"]
        );
        assert!(
            (a.metrics["val_loss"] - b.metrics["val_loss"]).abs()
                < 4.0 * tolerance * a.metrics["val_loss"].abs()
        );
    }
}

#[test]
fn a_gpu_trains_as_the_cpu_does() {
    // The GPU makes the batches itself, or it receives them from the host.
    for samplewise_center in [false, true] {
        let config =
            config(2).with(|config| config.training.augmentation.samplewise_center = samplewise_center);
        let expected = run(&[towers_tensor_cpu::device(2)], &config);
        on_gpus(Precision::Fp32, |open| {
            assert_near(&expected, &run(&[open()], &config), 2e-3);
        });
    }
}

#[test]
fn towers_on_one_gpu_equal_one_tower() {
    on_gpus(Precision::Fp32, |open| {
        // Without normalization, whose statistics are those of one replica.
        let mut config = config(1);
        (config.training.model, config.training.optimizer) = ("keras_cnn".into(), "sgd".parse().unwrap());
        let one = run(&[open()], &config);
        config.training.global_batch_size = Some(4);
        let three = run(&[open(), open(), open()], &config);
        assert_near(&one, &three, 1e-3);
    });
}

#[test]
fn half_precision_learns_about_the_same() {
    let config = config(1).with(|config| config.training.batch_size = 6);
    let expected = run(&[towers_tensor_cpu::device(2)], &config);
    for precision in [Precision::Bf16, Precision::Fp16] {
        on_gpus(precision, |open| {
            let half = run(&[open()], &config);
            for (a, b) in expected.outcome.state.history.iter().zip(&half.outcome.state.history) {
                assert!(
                    (a.metrics["loss"] - b.metrics["loss"]).abs() < 0.05 * a.metrics["loss"],
                    "{precision}: {} and {}",
                    a.metrics["loss"],
                    b.metrics["loss"]
                );
            }
        });
    }
}

#[test]
fn a_run_that_stops_goes_on_bit_for_bit() {
    goes_on_bit_for_bit(Precision::Fp32, &config(2), &[2, 5, 6]);
    // With a loss scale and a count of steps, which are part of the state.
    let adam = config(2).with(|config| config.training.optimizer = "adamw".parse().unwrap());
    goes_on_bit_for_bit(Precision::Fp16, &adam, &[3]);
}

fn goes_on_bit_for_bit(precision: Precision, config: &Config, stops: &[u64]) {
    on_gpus(precision, |open| {
        let straight = run(&[open()], config);
        for &stop_after in stops {
            let (_, resumed) = in_two_parts([&[open()], &[open()]], config, &data(), stop_after);
            assert_same(&straight, &resumed, &format!("stopped after step {stop_after}"));
        }
    });
}

#[test]
fn a_loss_that_is_no_number_ends_the_run_and_names_the_step() {
    on_gpus(Precision::Fp32, |open| {
        match failed(&[open()], &config(2).with(|config| config.training.lr = 1e30), &data()) {
            Error::NotFinite { epoch: 1, step, .. } => assert!((2..=4).contains(&step), "step {step}"),
            other => panic!("{other}"),
        }
    });
}

/// Each asynchronous GPU may find the NaN loss alone, and at another step: all still end together.
#[test]
fn gpus_end_together_at_a_loss_that_is_no_number() {
    on_gpus(Precision::Fp32, |open| {
        let config = config(2).with(|config| {
            config.training.lr = 1e30;
            config.outputs.terminate_on_nan = true;
        });
        let stop = towers_train::StopFlag::default();
        let outcome = Training::new(&config, data()).devices(&[open(), open()]).stop(&stop).run().unwrap();
        assert!(
            matches!(&outcome.end, End::Stopped(why) if why.contains("in epoch 1, step ")),
            "{:?}",
            outcome.end
        );
        assert_eq!(outcome.state.epochs_done, 0);
    });
}

/// A CPU alone checks for requests to stop after every step, a GPU seldom. Together both check seldom.
#[test]
fn a_gpu_and_a_cpu_stop_together() {
    on_gpus(Precision::Fp32, |open| {
        for order in [[0, 1], [1, 0]] {
            let devices = order.map(|kind| if kind == 0 { open() } else { towers_tensor_cpu::device(1) });
            let config = config(2).with(|config| config.training.batch_size = 2);
            let (stopped, _) = in_two_parts([&devices, &devices], &config, &data(), 2);
            // The last step of an epoch is a check.
            assert_eq!(stopped.state.step, 5);
        }
    });
}

/// The second epoch is a plateau, so the captured steps of the third have another rate.
#[test]
fn a_plateau_reduces_the_rate_of_recorded_steps() {
    let plateau =
        towers_callbacks::ReduceLrOnPlateau::parse("val_loss:factor=0.5,patience=1,min_delta=100").unwrap();
    let config = config(3).with(|config| config.training.reduce_lr_on_plateau = Some(plateau));
    let expected = run(&[towers_tensor_cpu::device(1)], &config);
    on_gpus(Precision::Fp32, |open| {
        let finished = run(&[open(), open()], &config.with(|config| config.training.batch_size = 2));
        let rates: Vec<f64> = finished.outcome.state.history.iter().map(|record| record.lr).collect();
        assert_eq!(rates, [1e-3, 1e-3, 0.5e-3]);
        let one = run(&[open()], &config);
        assert_near(&expected, &one, 2e-3);
    });
}

/// A replica's capture is discarded if another replica can't capture.
#[test]
fn recorded_work_may_have_to_run_by_itself_again() {
    on_gpus(Precision::Fp32, |open| {
        let (device, mut recorder, runs) = (open(), GraphCache::default(), std::cell::Cell::new(0));
        let mut x = device.alloc(3).unwrap();
        let mut work = || {
            runs.set(runs.get() + 1);
            device.fill(1.0, &mut x, Span::new(0, 3))
        };
        let mut asked = |what: &str| {
            match what {
                "play" => recorder
                    .run::<towers_program::Error>(&device, "fill", &ReplayArgs::default(), &mut work)
                    .unwrap(),
                "forget" => recorder.forget(&"fill"),
                "refuse" => recorder.refuse(&"fill", "another can't".into()),
                _ => {
                    return (
                        Some(recorder.prepare::<towers_program::Error>(&device, &"fill", &mut work)),
                        runs.take(),
                    );
                }
            }
            (None, runs.take())
        };
        assert_eq!(asked("prepare"), (Some(CaptureStatus::Yes), 0));
        assert_eq!(asked("play"), (None, 1));
        assert_eq!(asked("prepare"), (Some(CaptureStatus::Yes), 1));
        assert_eq!(asked("play"), (None, 0));
        asked("forget");
        assert_eq!([asked("play"), asked("play"), asked("play")].map(|(_, runs)| runs), [1, 1, 0]);
        asked("refuse");
        assert_eq!(asked("prepare"), (Some(CaptureStatus::Never), 0));
        assert_eq!([asked("play"), asked("play")].map(|(_, runs)| runs), [1, 1]);
        assert_eq!(recorder.refusal(), Some("another can't"));
    });
}

#[test]
fn what_can_not_be_recorded_runs_every_time_and_says_why() {
    on_gpus(Precision::Fp32, |open| {
        let (device, mut recorder, mut runs) = (open(), GraphCache::default(), 0);
        for step in 0..4 {
            let turn = ReplayArgs { step, ..ReplayArgs::default() };
            let work = || {
                device.alloc(10)?;
                runs += 1;
                Ok(())
            };
            recorder.run::<towers_program::Error>(&device, "alloc", &turn, work).unwrap();
        }
        assert_eq!(runs, 4);
        let why = recorder.refusal().unwrap();
        assert!(why.contains("an op can't be captured: ") && why.contains("allocat"), "{why}");
    });
}
