//! A stopped run resumes exactly where it was.

use std::path::Path;
use std::sync::{Arc, Mutex};
use towers_callbacks::Checkpoints;
use towers_checkpoint::{Store, Tensors};
use towers_config::{Config, Saved, recipe};
use towers_tests::{Finished, assert_same, cpus, in_two_parts, run, run_in, run_on, trained};
use towers_train::{End, Error, Observer, Resume, StopFlag, Training};

fn quick(epochs: u64) -> Config {
    let mut config = recipe("quick").unwrap();
    config.training.epochs = epochs;
    config.training.batch_size = 16;
    // The schedule is for four epochs, however many of them this run does.
    config.training.schedule = "cosine:epochs=4".parse().unwrap();
    config.placement.devices.threads = 2;
    config
}

fn data() -> towers_cifar::Dataset {
    towers_cifar::synthetic(5, 90, 30)
}

fn in_folder(config: &Config, dir: &Path, resume: Option<&Resume>) -> Finished {
    run_in(dir, &cpus(1, 2), config, &data(), resume, None).unwrap()
}

#[test]
fn two_and_two_epochs_are_four() {
    let parts = tempfile::tempdir().unwrap();
    in_folder(&quick(2), parts.path(), None);
    let resume = Resume::newest(parts.path()).unwrap();
    assert_eq!((resume.state.epochs_done, resume.state.step), (2, 12));
    let resumed = in_folder(&quick(4), parts.path(), Some(&resume));
    assert_same(&trained(&cpus(1, 2), &quick(4), &data()), &resumed, "resumed");
}

/// Ends a run after so many steps.
struct Over(u64);

impl Observer for Over {
    fn on_step(&mut self, _: &towers_callbacks::StepInfo) -> towers_callbacks::Result<()> {
        self.0 = self.0.saturating_sub(1);
        Ok(())
    }

    fn is_over(&mut self) -> Option<String> {
        (self.0 == 0).then(|| "it is late".to_owned())
    }
}

/// The steps of a run are done within an epoch, or its time is over. The resumed run is the one that never stopped.
#[test]
fn a_run_that_ends_within_an_epoch_is_measured_and_continues() {
    let quick =
        |epochs| quick(epochs).with(|config| config.training.ema = Some("momentum=0.9".parse().unwrap()));
    let straight = trained(&cpus(2, 1), &quick(3), &data());
    let reason = |run: &Finished| match &run.outcome.end {
        End::Stopped(reason) => reason.clone(),
        end => panic!("{end:?}"),
    };
    for (most, expected) in [
        (2, "the 2 steps of the run are done, at step 2 in epoch 1, with val_loss"),
        (3, "the 3 steps of the run are done"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let limited = quick(3).with(|config| config.outputs.max_steps = Some(most));
        let stopped = run_in(folder.path(), &cpus(2, 1), &limited, &data(), None, None).unwrap();
        assert!(reason(&stopped).starts_with(expected), "{}", reason(&stopped));
        assert_eq!(stopped.outcome.state.step, most);
        assert!(folder.path().join("model.safetensors").exists());
        let resume = Resume::newest(folder.path()).unwrap();
        let again = run_in(folder.path(), &cpus(2, 1), &limited, &data(), Some(&resume), None).unwrap();
        let over = reason(&again).starts_with(&format!("the {most} steps of the run are done"));
        assert_eq!((again.outcome.state.step, over), (most, true), "{}", reason(&again));
        let resumed = run_in(folder.path(), &cpus(2, 1), &quick(3), &data(), Some(&resume), None).unwrap();
        assert_same(&straight, &resumed, "resumed after the steps");
    }

    let observers: Vec<Box<dyn Observer>> = vec![Box::new(Over(1))];
    let stopped = run_on(&cpus(2, 1), &quick(3), &data(), None, None, observers).unwrap();
    assert!(reason(&stopped).starts_with("it is late, at step 2 in epoch 1"), "{}", reason(&stopped));
}

/// Keeps the warnings of a run.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Observer for Warnings {
    fn on_warning(&mut self, warning: &str) -> towers_callbacks::Result<()> {
        self.0.lock().unwrap().push(warning.to_owned());
        Ok(())
    }
}

/// The warnings of a resume from a run of two replicas that was computed by `arithmetic`, or here.
fn warned(config: &Config, replicas: usize, arithmetic: Option<&str>) -> Vec<String> {
    let (dir, warnings) = (tempfile::tempdir().unwrap(), Warnings::default());
    run_in(dir.path(), &cpus(2, 1), config, &data(), None, Some(1)).unwrap();
    let mut resume = Resume::newest(dir.path()).unwrap();
    if let Some(arithmetic) = arithmetic {
        resume.state.arithmetic = arithmetic.to_owned();
    }
    let devices = cpus(replicas, 1);
    let observers: Vec<Box<dyn Observer>> = vec![Box::new(warnings.clone())];
    run_on(&devices, config, &data(), Some(&resume), None, observers).unwrap();
    Arc::try_unwrap(warnings.0).unwrap().into_inner().unwrap()
}

#[test]
fn a_resume_that_changes_the_results_warns() {
    let config = quick(1);
    assert_eq!(warned(&config, 2, None), [""; 0]);
    let [normalized] = warned(&config, 1, None).try_into().unwrap();
    assert!(
        normalized.starts_with("the number of replicas changes from 2 to 1: each normalizes"),
        "{normalized}"
    );
    let virtually = config.with(|config| config.training.virtual_replicas = Some(2));
    assert_eq!(warned(&virtually, 1, None), [""; 0]);
    let [computed] = warned(&config, 2, Some("a CPU with sve")).try_into().unwrap();
    assert!(
        computed.starts_with("the run was computed by a CPU with sve and continues on a CPU"),
        "{computed}"
    );
    assert!(computed.ends_with("; TOWERS_SIMD=sve keeps them, on a CPU that has it"), "{computed}");
}

/// Asks the run to stop in the middle of an evaluation.
struct StopInEvaluation(StopFlag);

impl Observer for StopInEvaluation {
    fn on_evaluate(&mut self, done: usize, all: usize) -> towers_callbacks::Result<()> {
        if done < all {
            self.0.raise();
        }
        Ok(())
    }
}

/// The steps of the epoch are kept, and a resume begins with the evaluation.
#[test]
fn an_interrupted_evaluation_begins_again() {
    let data = towers_cifar::synthetic(5, 90, 130);
    for replicas in [1, 3] {
        let mut config = quick(2);
        config.placement.devices.replicas = replicas;
        let straight = run(&config, &data, None, None, Vec::new()).unwrap();
        let (parts, stop) = (tempfile::tempdir().unwrap(), StopFlag::default());
        let mut observers: Vec<Box<dyn Observer>> = vec![
            Box::new(Checkpoints::new(parts.path(), &config.outputs.checkpoints).unwrap()),
            Box::new(StopInEvaluation(stop.clone())),
        ];
        let outcome =
            Training::new(&config, data.clone()).observers(&mut observers).stop(&stop).run().unwrap();
        assert_eq!((outcome.end, outcome.state.epochs_done), (End::Interrupted, 0), "{replicas} replicas");
        assert_eq!(outcome.state.partial.samples, 90);
        let resume = Resume::newest(parts.path()).unwrap();
        assert_eq!(resume.state.partial.steps, outcome.state.partial.steps);
        let resumed = run(&config, &data, Some(&resume), None, Vec::new()).unwrap();
        assert_same(&straight, &resumed, &format!("{replicas} replicas"));
    }
}

/// The optimizers of both tutorials; AdamW, which counts its steps; Muon, which leaves some parameters to another rule; and one with parameter groups and an
/// average of the weights. Each is stopped in the middle of an epoch, at every step of it.
#[test]
fn an_interrupted_epoch_goes_on_at_the_next_step() {
    for optimizer in [
        "rmsprop",
        "adamw",
        "sgd:momentum=0.9",
        "sgd:momentum=0.8,nesterov,velocity=pytorch",
        "muon:weight-decay=0.1",
        "muon:momentum=0.6,steps=3,adjust=none,normalize+sgd:momentum=0.85,nesterov",
    ] {
        let mut config = quick(2);
        if optimizer.contains("nesterov") {
            let groups = ["*/beta:lr-multiplier=8,l2=1e-3", "dense/bias:epochs=1"];
            config.training.param_groups = groups.map(|group| group.parse().unwrap()).into();
            config.training.ema = Some("every=2,momentum=0.9,power=1,overwrite-frequency=4".parse().unwrap());
        }
        config.training.optimizer = optimizer.parse().unwrap();
        config.training.lr = 1e-3;
        let cpu = cpus(1, 2);
        let straight = trained(&cpu, &config, &data());
        // A flag that is raised after the last step of an epoch takes effect in the following evaluation.
        for stop_after in [1, 5, 6, 7, 12] {
            let (_, resumed) = in_two_parts([&cpu, &cpu], &config, &data(), stop_after);
            assert_same(&straight, &resumed, &format!("{optimizer}, stopped after step {stop_after}"));
        }
    }
}

#[test]
fn three_towers_resume_too() {
    let towers = cpus(3, 1);
    let (resume, resumed) = in_two_parts([&towers, &towers], &quick(2), &data(), 1);
    assert!(resume.state.partial.steps > 0);
    assert_same(&trained(&towers, &quick(2), &data()), &resumed, "three replicas");
}

#[test]
fn other_data_are_refused_where_the_checkpoint_knows_its_own() {
    let dir = tempfile::tempdir().unwrap();
    in_folder(&quick(1), dir.path(), None);
    let mut resume = Resume::newest(dir.path()).unwrap();
    let other = towers_cifar::synthetic(6, 90, 30);
    let refused = run(&quick(2), &other, Some(&resume), None, Vec::new()).err();
    assert!(matches!(refused, Some(Error::OtherData(_))), "{refused:?}");
    // A state without a fingerprint gets one.
    resume.state.data = None;
    let resumed = run(&quick(2), &other, Some(&resume), None, Vec::new()).unwrap();
    assert_eq!(resumed.outcome.state.data, Some(towers_train::fingerprint(&other).unwrap()));
}

#[test]
fn a_damaged_checkpoint_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    in_folder(&quick(3), dir.path(), None);
    let newest = Resume::newest(dir.path()).unwrap();
    let file = newest.path.join("tensors.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let older = Resume::newest(dir.path()).unwrap();
    assert_eq!((newest.state.epochs_done, older.state.epochs_done, older.skipped.len()), (3, 2, 1));
}

/// Digests prove that a file is complete, not that its tensors belong to the network.
#[test]
fn tensors_of_another_shape_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    in_folder(&quick(1), folder.path(), None);
    let store = Store::open(folder.path().join("checkpoints")).unwrap();
    let found = store.newest_valid::<Saved>().unwrap().found.unwrap();
    for changed in ["conv2d/kernel", "velocity/conv2d/kernel"] {
        let mut tensors = Tensors::new();
        for tensor in &found.tensors {
            let mut shape = tensor.shape.to_vec();
            if tensor.name == changed {
                shape.reverse();
            }
            tensors.insert(tensor.name, shape, tensor.data.to_vec()).unwrap();
        }
        store.save(&found.name, &tensors, &found.state).unwrap();
        let resume = Resume::newest(folder.path()).unwrap();
        let resumed = run(&quick(2), &data(), Some(&resume), None, Vec::new());
        let error = resumed.err().unwrap();
        let told = format!("tensor `{changed}` has the shape [16, 3, 3, 3], but must have [3, 3, 3, 16]");
        assert!(error.to_string().contains(&told), "{error}");
    }
}

#[test]
fn nothing_to_resume_is_an_error_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let error = Resume::newest(dir.path()).err().unwrap();
    assert!(
        matches!(&error, Error::Config(towers_config::Error::Run { .. }))
            && error.to_string().contains("`resume`"),
        "{error}"
    );
}
