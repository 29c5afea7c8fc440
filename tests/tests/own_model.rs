//! Runs of networks that no recipe names.

use train::{Config, DeviceKind, Error, Outcome, StopFlag, cifar, recipe, train_model};

fn config() -> Config {
    let mut config = recipe("quick").expect("the recipe");
    (config.epochs, config.batch_size) = (1, 20);
    (config.devices.device, config.devices.replicas, config.devices.threads) = (DeviceKind::Cpu, 2, 2);
    config
}

fn run(model: models::Model, config: &Config) -> Result<Outcome, Error> {
    train_model(model, config, cifar::synthetic(1, 60, 20), None, &mut [], &StopFlag::default())
}

/// The losses and accuracies, not the times.
fn figures(outcome: &Outcome) -> [u64; 4] {
    let epoch = &outcome.state.history[0];
    [epoch.loss, epoch.acc, epoch.val_loss, epoch.val_acc].map(f64::to_bits)
}

#[test]
fn a_network_of_ones_own_trains_as_a_named_one() {
    let own = Config { model: "mine".into(), ..config() };
    let mine = run(models::small_cnn(10).expect("a network"), &own).expect("a run");
    let data = cifar::synthetic(1, 60, 20);
    let named = train::train(&config(), data, None, &mut [], &StopFlag::default()).expect("a run");
    assert_eq!(mine.state.step, 2);
    assert_eq!(figures(&mine), figures(&named));
}

#[test]
fn a_network_for_other_data_is_refused() {
    let error = run(models::small_cnn(7).expect("a network"), &config()).expect_err("7 classes for 10");
    let told = error.to_string();
    assert!(told.contains("32x32x3 images into 7 classes") && told.contains("into 10 classes"), "{told}");
}
