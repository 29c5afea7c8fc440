//! Processes with GPUs: from their start by any launcher, over rendezvous and NCCL, to their end, by force or
//! not.
//!
//! The GPUs are emulated, and so is NCCL. Like the real NCCL, it does not notice a lost process.

use crate::folders::draw;
use crate::ranks::{end, ranks, signal, spawn, wait_for, wait_for_epochs};
use crate::{Place, Ran};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};

/// Batches of two and one for each of two replicas.
const TRAIN: &str = "train --quick --dataset synthetic --limit-train 6 --limit-test 4 --global-batch-size 4 \
                     --schedule constant --threads 1 --no-progress --device cuda";

/// With as many virtual replicas, sums do not depend on who adds them.
const TWO: &str = "--virtual-replicas 2";
const FOUR: &str = "--virtual-replicas 4";

/// A folder where this machine seems to have two GPUs, with files that processes leave; `None` without a
/// compiler.
pub fn with_gpus() -> Option<Place> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".into());
    if let Err(error) = Command::new(&compiler).arg("--version").output() {
        println!("SKIPPED: processes on emulated GPUs: {compiler}: {error}");
        return None;
    }
    let place = Place::new();
    place.make_folder("tmp");
    Some(place)
}

fn command(place: &Place, args: &str) -> Command {
    on_two_gpus(place, place.command(args))
}

/// A command that finds the two GPUs, and writes its files to that folder.
fn on_two_gpus(place: &Place, mut command: Command) -> Command {
    command.env("TOWERS_EMULATED_GPUS", "2").env("TMPDIR", place.path().join("tmp"));
    command
}

fn run(place: &Place, args: &str) -> Ran {
    end(spawn(command(place, args)))
}

/// The result of two replicas in one process.
pub fn expected(place: &Place, epochs: u64) -> Vec<u8> {
    run(place, &format!("{TRAIN} {TWO} --epochs {epochs} --replicas 2 --gpus 2 --output straight")).ends(0);
    place.model("straight")
}

/// A port with a free next port.
fn port() -> String {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    (port.unwrap().port() - 1).to_string()
}

fn nothing_left(place: &Place) {
    let left: Vec<_> = fs::read_dir(place.path().join("tmp")).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// On pictures that each process decodes for itself.
#[test]
fn launched_processes_train_as_towers_of_one() {
    let Some(place) = with_gpus() else { return };
    for (folder, numbers) in [("train", 0..3), ("test", 3..5)] {
        draw(&place, &format!("pictures/{folder}/blue"), [20, 40, 220], numbers.clone());
        draw(&place, &format!("pictures/{folder}/red"), [220, 40, 20], numbers);
    }
    let train = TRAIN.replace("synthetic", "pictures --stream always");
    // In NCCL's order, which is of no importance to a sum of two.
    let ran = run(&place, &format!("launch -- {train} --epochs 2 --output run")).ends(0);
    ran.complains("10 pictures would take 0.0 GB of memory");
    nothing_left(&place);
    let one = format!("{train} {TWO} --epochs 2 --replicas 2 --gpus 2 --output straight");
    run(&place, &one).ends(0);
    assert!(place.model("run") == place.model("straight"), "the processes trained another network");
    // Only the error of rank 0 counts; the other rank may report the failure differently.
    let ran =
        run(&place, &format!("launch --max-restarts 1 -- {TRAIN} {TWO} --epochs 2 --output run")).ends(2);
    let err = ran.complains("run already holds a run").err();
    assert!(!err.contains("restarting"), "{err}");
}

/// Starts one process of a job with these variables; `#` stands for the rank.
fn process(place: &Place, line: &str, variables: &[(&str, String)], rank: usize) -> Child {
    let mut train = command(place, line);
    for (name, value) in variables {
        train.env(name, value.replace('#', &rank.to_string()));
    }
    spawn(train)
}

/// Starts both, the second with one option changed.
fn job(place: &Place, variables: &[(&str, String)], (option, other): (&str, &str)) -> [Child; 2] {
    let line = format!("{TRAIN} {TWO} --epochs 1 --output run");
    [(0, line.clone()), (1, line.replace(option, other))]
        .map(|(rank, line)| process(place, &line, variables, rank))
}

const SAME: (&str, &str) = ("", "");

fn of_torchrun() -> Vec<(&'static str, String)> {
    let text = |name, value: &str| (name, value.to_owned());
    vec![
        text("RANK", "#"),
        text("WORLD_SIZE", "2"),
        text("LOCAL_RANK", "#"),
        text("LOCAL_WORLD_SIZE", "2"),
        text("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", port()),
        text("TORCHELASTIC_RUN_ID", "a-job"),
        text("TORCHELASTIC_RESTART_COUNT", "0"),
    ]
}

#[test]
fn processes_of_every_launcher_join() {
    let Some(place) = with_gpus() else { return };
    let expected = expected(&place, 1);
    // With a secret they use TCP, not MPI.
    let secret = || ("TOWERS_JOB_SECRET", "a secret of the job".to_owned());
    let master = || [("MASTER_ADDR", "127.0.0.1".to_owned()), ("MASTER_PORT", port()), secret()];
    let with_master = |pairs: &[(&'static str, &str)]| {
        let pairs = pairs.iter().map(|(name, value)| (*name, value.to_string()));
        pairs.chain(master()).collect::<Vec<_>>()
    };
    let (one, other) = (port(), port());
    let workers = format!(r#"{{"cluster":{{"worker":["127.0.0.1:{one}","127.0.0.1:{other}"]}},"#);
    let task = r##""task":{"type":"worker","index":#}}"##;
    let slurm = [
        ("SLURM_PROCID", "#"),
        ("SLURM_STEP_NUM_TASKS", "2"),
        ("SLURM_LOCALID", "#"),
        ("SLURM_STEP_TASKS_PER_NODE", "2"),
        ("SLURM_JOB_ID", "77"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_STEP_NODELIST", "localhost"),
    ];
    let open_mpi = [
        ("OMPI_COMM_WORLD_RANK", "#"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "#"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
    ];
    for variables in [
        of_torchrun(),
        vec![("TF_CONFIG", format!("{workers}{task}")), secret()],
        with_master(&slurm),
        with_master(&open_mpi),
    ] {
        for child in job(&place, &variables, SAME) {
            end(child).ends(0);
        }
        assert!(place.model("run") == expected, "{}: another network", variables[0].0);
        nothing_left(&place);
        place.remove("run");
    }
}

/// One process a machine, as in the tutorials of TensorFlow and in Kubernetes: it takes all GPUs.
#[test]
fn a_process_takes_all_gpus_of_its_machine() {
    let Some(place) = with_gpus() else { return };
    let (one, other) = (port(), port());
    // Two names, as of two machines.
    let workers = format!(r#"{{"cluster":{{"worker":["127.0.0.1:{one}","localhost:{other}"]}},"#);
    let task = r##""task":{"type":"worker","index":#}}"##;
    let secret = ("TOWERS_JOB_SECRET", "a secret of the job".to_owned());
    let variables = [("TF_CONFIG", format!("{workers}{task}")), secret];
    let line = format!("{TRAIN} {FOUR} --epochs 1 --output run");
    for child in [0, 1].map(|rank| process(&place, &line, &variables, rank)) {
        end(child).ends(0);
    }
    let straight = format!("{TRAIN} {FOUR} --epochs 1 --replicas 4 --gpus 2 --output straight");
    run(&place, &straight).ends(0);
    assert!(place.model("run") == place.model("straight"), "the processes trained another network");
    nothing_left(&place);
}

/// The command of the documentation, except for the number of machines. A rank is killed, and torchrun
/// restarts all.
#[test]
fn torchrun_starts_a_job_and_starts_it_again() {
    let python = std::env::var("TOWERS_PYTHON").unwrap_or_else(|_| "python3".into());
    let import = Command::new(&python).args(["-c", "import torch.distributed.run"]).output();
    if !import.is_ok_and(|import| import.status.success()) {
        return println!("SKIPPED: torchrun: {python} has no PyTorch; TOWERS_PYTHON names another");
    }
    let Some(place) = with_gpus() else { return };
    let mut torchrun = Command::new(python);
    let options = "-m torch.distributed.run --nnodes 1 --nproc-per-node 2 --rdzv-backend c10d \
                   --rdzv-endpoint 127.0.0.1:0 --max-restarts 1 --no-python";
    torchrun.args(options.split_whitespace()).arg(env!("CARGO_BIN_EXE_towers"));
    torchrun.args(format!("{TRAIN} {TWO} --epochs 8 --output run").split_whitespace());
    torchrun.current_dir(place.path());
    let launcher = spawn(on_two_gpus(&place, torchrun));
    let ranks = ranks(&launcher, 2);
    wait_for_epochs(&place, "run", 2);
    signal("-KILL", &ranks[&1]);
    end(launcher).ends(0).complains("resuming from run/checkpoints");
    assert!(place.model("run") == expected(&place, 8), "the restarted run is another run");
}

#[test]
fn processes_that_do_not_fit_are_refused() {
    let Some(place) = with_gpus() else { return };
    let mut variables = of_torchrun();
    variables.push(("TOWERS_START_TIMEOUT", "30".into()));
    let told = "rank 1 has the setting devices.no_winograd true, but rank 0 has false; start all of them";
    for child in job(&place, &variables, ("--threads 1", "--threads 1 --no-winograd")) {
        end(child).ends(1).complains(told);
    }
}

/// A failure of a rank in the middle of a run, and the message of the other one. A restart resumes from the
/// newest checkpoint and ends as a run without faults does.
#[test]
fn lost_processes_are_named_and_the_job_goes_on() {
    let Some(place) = with_gpus() else { return };
    let expected = expected(&place, 8);
    for (order, lost, told) in [
        ("-KILL", 1, "error: stopped because rank 1 (127.0.0.1) has ended unexpectedly (last step "),
        ("-KILL", 0, "error: stopped because rank 0 (127.0.0.1) has ended unexpectedly (last step "),
        ("-STOP", 1, "error: stopped because rank 1 (127.0.0.1) has not been heard of for 15 s (last step "),
    ] {
        let train = format!("{TRAIN} {TWO} --epochs 8 --collective-timeout 150 --output run");
        let launch = format!("launch --max-restarts 1 --grace 5 --verbose -- {train}");
        let launcher = spawn(command(&place, &launch));
        let ranks = ranks(&launcher, 2);
        wait_for_epochs(&place, "run", 2);
        signal(order, &ranks[&lost]);
        let ran = end(launcher).ends(0).complains(told);
        ran.complains("(restart 1 of 1)").complains("resuming from run/checkpoints");
        assert!(place.model("run") == expected, "{order} {lost}: the restarted run is another run");
        place.remove("run");
    }
}

/// Kubernetes watches each process, and torchrun those of one machine. If one is ended, the others must
/// report that they are not done, or they would not be restarted. Then the same command resumes the run.
#[test]
fn processes_without_a_common_launcher_say_that_the_run_goes_on() {
    let Some(place) = with_gpus() else { return };
    for (epochs, stopped, torchrun) in
        [(1, None, false), (12, Some(0), false), (12, Some(1), false), (12, Some(0), true), (12, None, false)]
    {
        let mut variables = of_torchrun();
        variables.retain(|(name, _)| torchrun || !name.starts_with("TORCHELASTIC_"));
        let option = format!("--epochs {epochs} --backup-and-restore");
        let line = format!("{TRAIN} {TWO} {option} --output run");
        let processes = [0, 1].map(|rank| process(&place, &line, &variables, rank));
        if let Some(rank) = stopped {
            let before = place.read("run/history.csv").lines().count();
            wait_for_epochs(&place, "run", before);
            signal("-TERM", &processes[rank].id().to_string());
        }
        for process in processes {
            end(process).ends(if stopped.is_some() { 130 } else { 0 });
        }
    }
    assert!(place.model("run") == expected(&place, 12), "the run that went on is another run");
}

/// torchrun counts restarts on each machine: a machine that replaces a lost one counts from 0. Either rank
/// may know of the restart, and rank 0 chooses the checkpoint.
#[test]
fn processes_that_count_restarts_apart_go_on_together() {
    let Some(place) = with_gpus() else { return };
    for (epochs, counts) in [(1, ["0", "2"]), (2, ["0", "1"]), (4, ["3", "0"])] {
        let line = format!("{TRAIN} {TWO} --epochs {epochs} --output run");
        let variables = of_torchrun();
        let processes = [0, 1].map(|rank| {
            // Of a repeated variable the last one counts.
            let own = [("TORCHELASTIC_RESTART_COUNT", counts[rank].to_owned())];
            process(&place, &line, &[variables.clone(), own.to_vec()].concat(), rank)
        });
        for (rank, process) in processes.into_iter().enumerate() {
            let err = end(process).ends(0).err();
            assert_eq!(err.contains("resuming from run/checkpoints"), epochs > 1 && rank == 0, "{err}");
        }
    }
    assert!(place.model("run") == expected(&place, 4), "the run that went on is another run");
}

/// A process that waits for the others has nothing to save, and they may never come.
#[test]
fn processes_that_wait_end_at_once() {
    let Some(place) = with_gpus() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port() - 1;
    for rank in [0, 1] {
        let mut variables = of_torchrun();
        if rank == 1 {
            variables.push(("MASTER_PORT", port.to_string()));
        }
        let child = process(&place, &format!("{TRAIN} {TWO} --epochs 1 --output run"), &variables, rank);
        let came = if rank == 0 {
            let (_, master) = variables.iter().find(|(name, _)| *name == "MASTER_PORT").unwrap();
            let port = master.parse::<u16>().unwrap() + 1;
            wait_for(|| TcpStream::connect(("127.0.0.1", port)).ok().map(|_| None))
        } else {
            Some(listener.accept().unwrap())
        };
        signal("-TERM", &child.id().to_string());
        end(child).ends(130);
        drop(came);
    }
}
