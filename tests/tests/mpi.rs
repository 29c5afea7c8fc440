//! Training with one process per replica, under mpirun: the same bits as with threads, resumes with other
//! numbers of processes, and faults without loss of files.
//!
//! As in the tests of the crate `parallel`, the ranks run this test program.
#![allow(clippy::unwrap_used, reason = "all of it is a test")]
#![forbid(unsafe_code)]

#[allow(dead_code, reason = "shared with the tests of the crate `parallel`")]
#[path = "../../crates/mpi/tests/mpi/job.rs"]
mod job;

/// The job of a rank; without a job, this test does nothing.
#[test]
fn a_rank() {
    training::rank();
}

mod training {
    use crate::job::{FOLDER, Job, ROLE, mark_file, mpirun_is_there, signal};
    use std::fs;
    use std::io::Write as _;
    use std::path::{Path, PathBuf};
    use std::time::Duration;
    use towers_callbacks::Checkpoints;
    use towers_callbacks::{EpochRecord, Flow, Snapshot, StepInfo, TrainState};
    use towers_config::{Config, recipe};
    use towers_train::{Observer, Outcome, Process, Result, Resume, StopFlag, Training};

    /// The options of a job: the network, epochs, virtual replicas, their weights, replicas of each process,
    /// and additional milliseconds per step.
    const MODEL: &str = "TOWERS_TEST_MODEL";
    const EPOCHS: &str = "TOWERS_TEST_EPOCHS";
    const VIRTUAL: &str = "TOWERS_TEST_VIRTUAL";
    const WEIGHTS: &str = "TOWERS_TEST_WEIGHTS";
    const REPLICAS: &str = "TOWERS_TEST_REPLICAS";
    const DELAY: &str = "TOWERS_TEST_DELAY";

    /// Batches of 20, and one of 10, of 90 samples: uneven slices on three replicas.
    fn config(epochs: u64, virtual_replicas: Option<usize>) -> Config {
        let mut config = recipe("quick").unwrap();
        config.training.epochs = epochs;
        config.training.global_batch_size = Some(20);
        config.training.virtual_replicas = virtual_replicas;
        config.training.schedule = "cosine:epochs=4".parse().unwrap();
        config.placement.devices.device = towers_config::DeviceKind::Cpu;
        config.placement.devices.threads = 3;
        config
    }

    fn data() -> towers_cifar::Dataset {
        towers_cifar::synthetic(5, 90, 31)
    }

    /// Delays every step, and writes a file after every epoch.
    struct Slow(Duration, PathBuf);

    impl Observer for Slow {
        fn on_step(&mut self, _: &StepInfo) -> towers_callbacks::Result<()> {
            std::thread::sleep(self.0);
            Ok(())
        }

        fn on_epoch_end(
            &mut self,
            _: &EpochRecord,
            _: &TrainState,
            _: &dyn Snapshot,
        ) -> towers_callbacks::Result<Flow> {
            mark(&self.1, "epoch", 0);
            Ok(Flow::Continue)
        }
    }

    fn mark(folder: &Path, mark: &str, rank: usize) {
        let path = mark_file(folder, mark, rank);
        fs::write(path.with_extension("new"), std::process::id().to_string()).unwrap();
        fs::rename(path.with_extension("new"), path).unwrap();
    }

    fn number(name: &str) -> Option<u64> {
        std::env::var(name).ok()?.parse().ok()
    }

    /// A run on this many threads in this process, from the newest checkpoint of the folder if there is one.
    fn on_threads(mut config: Config, replicas: usize, folder: &Path) -> Outcome {
        config.placement.devices.replicas = replicas;
        let resume = Resume::newest(folder).ok();
        let mut observers: Vec<Box<dyn Observer>> =
            vec![Box::new(Checkpoints::new(folder, &config.outputs.checkpoints).unwrap())];
        Training::new(&config, data()).resume(resume.as_ref()).observers(&mut observers).run().unwrap()
    }

    fn job(ranks: usize, config: &Config, more: &[(&str, &str)]) -> Job {
        let epochs = config.training.epochs.to_string();
        let shards = config.training.virtual_replicas.map_or(String::new(), |shards| shards.to_string());
        let told = [(MODEL, &*config.training.model), (EPOCHS, &*epochs), (VIRTUAL, &*shards)];
        Job::start("train", ranks, &[&told, more].concat())
    }

    /// All tensors of the newest checkpoint, as their file.
    fn newest(folder: &Path) -> (Resume, Vec<u8>) {
        let resume = Resume::newest(folder).unwrap();
        let files = fs::read_dir(&resume.path).unwrap().map(|entry| entry.unwrap().path());
        let file = files.into_iter().find(|path| path.extension().is_some_and(|e| e == "safetensors"));
        let bytes = fs::read(file.unwrap()).unwrap();
        (resume, bytes)
    }

    /// Plays the role in the environment, and ends the process if that fails.
    pub fn rank() {
        let Ok(role) = std::env::var(ROLE) else { return };
        if let Err(error) = play(&role) {
            let _ = std::io::stderr().write_all(format!("error: {error}\n").as_bytes());
            std::process::exit(1);
        }
    }

    fn play(role: &str) -> Result<()> {
        let folder = PathBuf::from(std::env::var(FOLDER).unwrap());
        let mut config = config(number(EPOCHS).unwrap(), number(VIRTUAL).map(|shards| shards as usize));
        if let Ok(weights) = std::env::var(WEIGHTS) {
            config.placement.device_weights = weights.parse()?;
        }
        config.placement.devices.replicas = number(REPLICAS).unwrap_or(1) as usize;
        config.training.model = std::env::var(MODEL).unwrap_or(config.training.model);
        if config.training.model == "keras_cnn" {
            // It can't be built for images of this size; those of the data decide.
            config.training.data.image_size = Some("8".parse().unwrap());
        }
        let rank: usize =
            std::env::var("OMPI_COMM_WORLD_RANK").or(std::env::var("PMI_RANK")).unwrap().parse().unwrap();
        config.training.sync_batch_norm = role == "synchronized";
        config.placement.devices.collective_timeout = 3;
        let process = Process::join(&config.placement.devices)?;
        mark(&folder, "started", rank);
        let mut observers: Vec<Box<dyn Observer>> = Vec::new();
        if rank == 0 {
            observers.push(Box::new(Checkpoints::new(&folder, &config.outputs.checkpoints)?));
            let delay = Duration::from_millis(number(DELAY).unwrap_or(0));
            observers.push(Box::new(Slow(delay, folder.clone())));
        }
        let resume = Resume::newest(&folder).ok();
        let stop = StopFlag::default();
        if role == "interrupted" && rank == 1 {
            // In the middle of the run, and only on one rank.
            let (raised, folder) = (stop.clone(), folder.clone());
            std::thread::spawn(move || {
                while !mark_file(&folder, "epoch", 0).exists() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                raised.raise();
            });
        }
        let outcome = match process {
            Some(process) => {
                let observers = || Ok(std::mem::take(&mut observers));
                process
                    .train(Training::new(&config, data()).resume(resume.as_ref()).stop(&stop), observers)?
            }
            None => Training::new(&config, data())
                .resume(resume.as_ref())
                .observers(&mut observers)
                .stop(&stop)
                .run()?,
        };
        fs::write(folder.join(format!("step-{rank}")), outcome.state.step.to_string()).unwrap();
        Ok(())
    }

    #[test]
    fn processes_train_as_threads_do() {
        if !mpirun_is_there() {
            return;
        }
        for ranks in 1..=3 {
            let ended = job(ranks, &config(2, None), &[]).wait();
            assert!(ended.success, "{}", ended.text);
            let threads = tempfile::tempdir().unwrap();
            let outcome = on_threads(config(2, None), ranks, threads.path());
            let ((resume, processes), (_, threads)) = (newest(&ended.folder), newest(threads.path()));
            assert_eq!(resume.state.step, outcome.state.step);
            assert!(processes == threads, "not the bits of {ranks} threads");
        }
    }

    /// Given and measured weights: threads with the weights that the processes measured give the same bits.
    #[test]
    fn processes_of_unlike_speed_train_as_threads_do() {
        if !mpirun_is_there() {
            return;
        }
        for (weights, shards) in [("3,1,2", None), ("auto", None), ("1,4,1", Some(5)), ("auto", Some(5))] {
            let ended = job(3, &config(2, shards), &[(WEIGHTS, weights)]).wait();
            assert!(ended.success, "{}", ended.text);
            let (resume, processes) = newest(&ended.folder);
            let mut config = config(2, shards);
            // With virtual replicas no bit depends on the weights.
            if shards.is_none() {
                config.placement.device_weights = resume.state.device_weights.parse().unwrap();
            }
            let threads = tempfile::tempdir().unwrap();
            on_threads(config, 3, threads.path());
            assert!(processes == newest(threads.path()).1, "{weights}: not the bits of threads");
        }
    }

    /// A network whose gradients are added up in several buckets, during the backward pass.
    #[test]
    fn processes_train_in_buckets_as_threads_do() {
        if !mpirun_is_there() {
            return;
        }
        for (ranks, shards) in [(2, None), (3, Some(4))] {
            let config = config(1, shards).with(|config| config.training.model = "keras_cnn".into());
            let ended = job(ranks, &config, &[]).wait();
            assert!(ended.success, "{}", ended.text);
            let threads = tempfile::tempdir().unwrap();
            on_threads(config, ranks, threads.path());
            assert!(newest(&ended.folder).1 == newest(threads.path()).1, "not the bits of {ranks} threads");
        }
    }

    /// Eight shards on two processes of two replicas each.
    #[test]
    fn processes_of_several_replicas_train_as_one_thread_does() {
        if !mpirun_is_there() {
            return;
        }
        let config = config(1, Some(8));
        let ended = job(2, &config, &[(REPLICAS, "2")]).wait();
        assert!(ended.success, "{}", ended.text);
        assert_eq!(newest(&ended.folder).0.state.replicas, 4);
        let thread = tempfile::tempdir().unwrap();
        on_threads(config, 1, thread.path());
        assert!(newest(&ended.folder).1 == newest(thread.path()).1, "not the bits of one thread");
    }

    /// Also if layers synchronize in the middle of passes.
    #[test]
    fn processes_normalize_together_as_threads_do() {
        if !mpirun_is_there() {
            return;
        }
        let ended = Job::start("synchronized", 3, &[(EPOCHS, "1"), (VIRTUAL, "")]).wait();
        assert!(ended.success, "{}", ended.text);
        let threads = tempfile::tempdir().unwrap();
        on_threads(config(1, None).with(|config| config.training.sync_batch_norm = true), 3, threads.path());
        assert!(newest(&ended.folder).1 == newest(threads.path()).1, "not the bits of threads");
    }

    #[test]
    fn a_checkpoint_of_three_processes_goes_on_on_one_thread() {
        if !mpirun_is_there() {
            return;
        }
        let ended = job(3, &config(1, Some(4)), &[]).wait();
        assert!(ended.success, "{}", ended.text);
        on_threads(config(2, Some(4)), 1, &ended.folder);
        let straight = tempfile::tempdir().unwrap();
        on_threads(config(2, Some(4)), 2, straight.path());
        assert!(newest(&ended.folder).1 == newest(straight.path()).1, "not the same bits");
    }

    #[test]
    fn a_wish_of_one_process_stops_all_at_the_same_step() {
        if !mpirun_is_there() {
            return;
        }
        let variables = [(EPOCHS, "50"), (VIRTUAL, "3"), (DELAY, "5")];
        let ended = Job::start("interrupted", 3, &variables).wait();
        assert!(ended.success, "{}", ended.text);
        let step = |rank: usize| fs::read_to_string(ended.folder.join(format!("step-{rank}"))).unwrap();
        assert_eq!([step(1), step(2)], [step(0), step(0)]);
        let (resume, _) = newest(&ended.folder);
        assert_eq!(resume.state.step.to_string(), step(0));
        let epochs = resume.state.epochs_done + 1;
        on_threads(config(epochs, Some(3)), 1, &ended.folder);
        let straight = tempfile::tempdir().unwrap();
        on_threads(config(epochs, Some(3)), 1, straight.path());
        assert!(newest(&ended.folder).1 == newest(straight.path()).1, "not the same bits");
    }

    #[test]
    fn a_fault_leaves_the_newest_checkpoint_to_go_on_from() {
        if !mpirun_is_there() {
            return;
        }
        for (victim, name) in [(0, "KILL"), (1, "KILL"), (2, "KILL"), (1, "STOP")] {
            let mut job = job(3, &config(50, Some(4)), &[(DELAY, "5")]);
            let ranks = job.wait_for("started", 3);
            job.wait_for("epoch", 1);
            signal(name, ranks[victim]);
            let ended = job.wait();
            assert!(!ended.success, "{}", ended.text);
            let epochs = newest(&ended.folder).0.state.epochs_done + 1;
            on_threads(config(epochs, Some(4)), 1, &ended.folder);
            let straight = tempfile::tempdir().unwrap();
            on_threads(config(epochs, Some(4)), 1, straight.path());
            assert!(newest(&ended.folder).1 == newest(straight.path()).1, "not the same bits after {name}");
        }
    }
}
