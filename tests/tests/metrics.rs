//! Metrics of the validation data are those of the trained network, however the samples are divided.

use towers_config::{Config, recipe};
use towers_program::Precision;
use towers_tests::{cpus, emulated, run_in, trained};
use towers_train::Training;
use towers_trained::Classifier;

const METRICS: [&str; 6] = ["top5_acc", "top2_acc", "balanced_acc", "precision", "recall", "f1"];

fn config() -> Config {
    recipe("quick").unwrap().with(|config| {
        config.outputs.metrics = METRICS.map(str::to_owned).to_vec();
        let training = &mut config.training;
        (training.epochs, training.batch_size, training.virtual_replicas) = (2, 6, Some(3));
    })
}

fn data() -> towers_cifar::Dataset {
    towers_cifar::synthetic(5, 64, 40)
}

#[test]
fn metrics_do_not_depend_on_the_replicas() {
    let of = |config: &Config, replicas: usize| trained(&cpus(replicas, 1), config, &data());
    let folder = tempfile::tempdir().unwrap();
    let one = run_in(folder.path(), &cpus(1, 1), &config(), &data(), None, None).unwrap();
    let values = &one.outcome.state.history[1].metrics;
    let names = ["loss", "acc", "val_loss", "val_acc"].map(str::to_owned).into_iter();
    let mut more = METRICS.map(|name| format!("val_{name}"));
    more.sort();
    let expected = Vec::from_iter(names.chain(more));
    assert_eq!(Vec::from_iter(values.names()), expected);
    assert_eq!(
        (values["val_recall"], values["val_top5_acc"] > values["val_top2_acc"]),
        (values["val_balanced_acc"], true)
    );
    for (what, run) in [
        ("3 replicas", of(&config(), 3)),
        ("2 replicas with other shares", of(&config(), 2)),
        ("2 stages", of(&config().with(|config| config.placement.devices.pipeline_stages = 2), 2)),
    ] {
        assert_eq!(&run.outcome.state.history[1].metrics, values, "{what}");
    }

    let mut model = Classifier::load(&folder.path().join("model.safetensors"), &cpus(1, 1)[0], 16).unwrap();
    let evaluation = towers_trained::evaluate(&mut model, &data(), |_, _| {}).unwrap();
    for name in METRICS.into_iter().filter(|name| *name != "top2_acc") {
        let (own, other) = (values[&format!("val_{name}")], evaluation.metrics[name]);
        assert!((own - other).abs() < 1e-12, "{name}: {own}, evaluated as {other}");
    }
}

/// A device with graphs, whose scores are read after each replay.
#[test]
fn graphs_measure_too() {
    let Some(gpu) = emulated(Precision::Fp32) else { return };
    let config = config().with(|config| config.training.virtual_replicas = None);
    let [on_gpu, on_cpu] =
        [gpu, cpus(1, 1).remove(0)].map(|device| trained(&[device], &config, &data()).outcome);
    for (on_gpu, on_cpu) in on_gpu.state.history.iter().zip(&on_cpu.state.history) {
        assert_eq!(Vec::from_iter(on_gpu.metrics.names()), Vec::from_iter(on_cpu.metrics.names()));
        // Each class has as many samples, so this is the accuracy that the device counts itself.
        assert_eq!(on_gpu.metrics["val_balanced_acc"], on_gpu.metrics["val_acc"]);
        for (name, value) in on_gpu.metrics.iter() {
            assert!((value - on_cpu.metrics[name]).abs() < 0.06, "{name}: {value}, {}", on_cpu.metrics[name]);
        }
    }
}

#[test]
fn metrics_that_the_data_do_not_allow_are_refused() {
    let config = config().with(|config| config.outputs.metrics = vec!["auc".to_owned()]);
    let mut observers = Vec::new();
    let error = Training::new(&config, data()).observers(&mut observers).run().unwrap_err().to_string();
    assert!(
        error.contains("`metrics` is auc, but must be") && error.contains("needs two classes"),
        "{error}"
    );
}
