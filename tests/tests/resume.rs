//! A stopped run resumes exactly where it was.

use checkpoint::{Store, Tensors};
use std::path::Path;
use towers_tests::{Finished, run};
use train::callbacks::Checkpoints;
use train::{Config, End, Error, Observer, Resume, Saved, StopFlag, cifar, recipe};

fn quick(epochs: u64) -> Config {
    let mut config = recipe("quick").expect("it is built in");
    config.training.epochs = epochs;
    config.training.batch_size = 16;
    // The schedule is for four epochs, however many of them this run does.
    config.training.schedule = "cosine:epochs=4".parse().expect("it is well-formed");
    config.placement.devices.threads = 2;
    config
}

fn in_folder(config: &Config, dir: &Path, resume: Option<&Resume>, stop_after: Option<u64>) -> Finished {
    let checkpoints: Vec<Box<dyn Observer>> =
        vec![Box::new(Checkpoints::new(dir, &config.outputs.checkpoints).expect("the folder can be made"))];
    run(config, &cifar::synthetic(5, 90, 30), resume, stop_after, checkpoints).expect("the run goes well")
}

/// The history without the times.
fn figures(finished: &Finished) -> Vec<[f64; 5]> {
    finished.outcome.state.history.iter().map(|r| [r.loss, r.acc, r.val_loss, r.val_acc, r.lr]).collect()
}

#[test]
fn two_and_two_epochs_are_four() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let straight = in_folder(&quick(4), whole.path(), None, None);
    in_folder(&quick(2), parts.path(), None, None);
    let resume = Resume::newest(parts.path()).unwrap();
    assert_eq!((resume.state.epoch, resume.state.step), (2, 12));
    let resumed = in_folder(&quick(4), parts.path(), Some(&resume), None);
    assert_eq!(figures(&straight), figures(&resumed));
    assert!(straight.tensors == resumed.tensors, "not the same bits");
}

/// Asks the run to stop in the middle of an evaluation.
struct StopInEvaluation(StopFlag);

impl Observer for StopInEvaluation {
    fn on_evaluate(&mut self, done: usize, all: usize) -> train::callbacks::Result<()> {
        if done < all {
            self.0.raise();
        }
        Ok(())
    }
}

/// The steps of the epoch are kept, and a resume begins with the evaluation.
#[test]
fn an_interrupted_evaluation_begins_again() {
    let data = cifar::synthetic(5, 90, 130);
    for replicas in [1, 3] {
        let mut config = quick(2);
        config.placement.devices.replicas = replicas;
        let straight = run(&config, &data, None, None, Vec::new()).unwrap();
        let (parts, stop) = (tempfile::tempdir().unwrap(), StopFlag::default());
        let mut observers: Vec<Box<dyn Observer>> = vec![
            Box::new(Checkpoints::new(parts.path(), &config.outputs.checkpoints).unwrap()),
            Box::new(StopInEvaluation(stop.clone())),
        ];
        let outcome = train::train(&config, data.clone(), None, &mut observers, &stop).unwrap();
        assert_eq!((outcome.end, outcome.state.epoch), (End::Interrupted, 0), "{replicas} replicas");
        assert_eq!(outcome.state.partial.samples, 90);
        let resume = Resume::newest(parts.path()).unwrap();
        assert_eq!(resume.state.partial.steps, outcome.state.partial.steps);
        let resumed = run(&config, &data, Some(&resume), None, Vec::new()).unwrap();
        assert_eq!(figures(&straight), figures(&resumed), "{replicas} replicas");
        assert!(straight.tensors == resumed.tensors, "{replicas} replicas: not the same bits");
    }
}

/// The optimizers of both tutorials; AdamW, which counts its steps; and one with parameter groups and an
/// average of the weights. Each is stopped in the middle of an epoch, at every step of it.
#[test]
fn an_interrupted_epoch_goes_on_at_the_next_step() {
    for optimizer in ["rmsprop", "adamw", "sgd:momentum=0.9", "sgd:momentum=0.8,nesterov,velocity=pytorch"] {
        let mut config = quick(2);
        if optimizer.contains("nesterov") {
            let groups = ["*/beta:lr-multiplier=8,l2=1e-3", "dense/bias:epochs=1"];
            config.training.param_groups =
                groups.map(|group| group.parse().expect("it is well-formed")).into();
            config.training.ema =
                Some("every=2,momentum=0.9,power=1,overwrite-frequency=4".parse().expect("so is this"));
        }
        config.training.optimizer = optimizer.parse().expect("it is well-formed");
        config.training.lr = 1e-3;
        let whole = tempfile::tempdir().unwrap();
        let straight = in_folder(&config, whole.path(), None, None);
        for stop_after in [1, 5, 6, 7, 12] {
            let parts = tempfile::tempdir().unwrap();
            let stopped = in_folder(&config, parts.path(), None, Some(stop_after));
            // A flag that is raised after the last step of an epoch takes effect in the following evaluation.
            assert_eq!(stopped.outcome.end, End::Interrupted);
            let resume = Resume::newest(parts.path()).unwrap();
            let resumed = in_folder(&config, parts.path(), Some(&resume), None);
            assert_eq!(figures(&straight), figures(&resumed), "{optimizer}, stopped after step {stop_after}");
            assert!(straight.tensors == resumed.tensors, "{optimizer}, stopped after step {stop_after}");
        }
    }
}

#[test]
fn three_towers_resume_too() {
    let parts = tempfile::tempdir().unwrap();
    let whole = tempfile::tempdir().unwrap();
    let replicas = |epochs| {
        let mut config = quick(epochs);
        config.placement.devices.replicas = 3;
        config
    };
    let straight = in_folder(&replicas(2), whole.path(), None, None);
    in_folder(&replicas(2), parts.path(), None, Some(1));
    let resume = Resume::newest(parts.path()).unwrap();
    assert!(resume.state.partial.steps > 0);
    let resumed = in_folder(&replicas(2), parts.path(), Some(&resume), None);
    assert!(straight.tensors == resumed.tensors);
}

#[test]
fn other_data_are_refused_where_the_checkpoint_knows_its_own() {
    let dir = tempfile::tempdir().unwrap();
    in_folder(&quick(1), dir.path(), None, None);
    let mut resume = Resume::newest(dir.path()).unwrap();
    let other = cifar::synthetic(6, 90, 30);
    let refused = run(&quick(2), &other, Some(&resume), None, Vec::new()).err();
    assert!(matches!(refused, Some(Error::OtherData(_))), "{refused:?}");
    // A state without a fingerprint gets one.
    resume.state.data = None;
    let resumed = run(&quick(2), &other, Some(&resume), None, Vec::new()).unwrap();
    assert_eq!(resumed.outcome.state.data, Some(train::fingerprint(&other)));
}

#[test]
fn a_damaged_checkpoint_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    in_folder(&quick(3), dir.path(), None, None);
    let newest = Resume::newest(dir.path()).unwrap();
    let file = newest.path.join("tensors.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let older = Resume::newest(dir.path()).unwrap();
    assert_eq!((newest.state.epoch, older.state.epoch, older.skipped.len()), (3, 2, 1));
}

/// Digests prove that a file is complete, not that its tensors belong to the network.
#[test]
fn tensors_of_another_shape_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    in_folder(&quick(1), folder.path(), None, None);
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
        let resumed = run(&quick(2), &cifar::synthetic(5, 90, 30), Some(&resume), None, Vec::new());
        let error = resumed.err().expect("the shape is another");
        let told = format!("tensor `{changed}` has the shape [16, 3, 3, 3], but must have [3, 3, 3, 16]");
        assert!(error.to_string().contains(&told), "{error}");
    }
}

#[test]
fn nothing_to_resume_is_an_error_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let error = Resume::newest(dir.path()).err().unwrap();
    assert!(matches!(&error, Error::Run { .. }) && error.to_string().contains("--resume"), "{error}");
}
