//! Several processes on this machine, and the end of all when one fails.

use super::{Place, TRAIN};

/// The only process of a job.
const ALONE: [(&str, &str); 2] = [("RANK", "0"), ("WORLD_SIZE", "1")];

#[test]
fn the_first_process_speaks_for_all() {
    let place = Place::new();
    let quiet = place.run("launch --processes 3 -- devices").ends(0);
    assert_eq!((quiet.out().matches("cpu: ").count(), quiet.err().as_str()), (1, ""));
    let all = place.run("launch --processes 3 --verbose -- devices").ends(0);
    assert_eq!(all.out().matches("cpu: ").count(), 1);
    assert!(all.err().contains("[rank 1] cpu: ") && all.err().contains("[rank 2] cpu: "), "{}", all.err());
}

#[test]
fn bad_usage_is_told_and_not_tried_again() {
    let place = Place::new();
    let failed = place.run("launch --processes 2 --max-restarts 3 -- bench --recipe nonsense").ends(2);
    let failed = failed.complains("--recipe is `nonsense`").complains("of 2 ended with exit status 2");
    assert!(!failed.err().contains("restarting"), "{}", failed.err());
    place.refuses("launch --processes 0 -- devices", "--processes is 0");
    place.refuses("launch --processes 5000 -- devices", "at most 1024");
    place.refuses("launch --processes 2", "COMMAND");
    place.refuses("launch --processes 2 --gpus 2 -- devices", "cannot be used with");
}

/// On CPUs only MPI joins processes, and it has its own launcher.
#[test]
fn processes_that_nothing_joins_say_so_after_each_restart() {
    let place = Place::new();
    let bench = "bench --recipe quick --device cpu";
    let failed = place.run(&format!("launch --processes 2 --max-restarts 2 -- {bench}")).ends(1);
    let failed = failed.complains("towers launch started 2 processes, but").complains("(restart 2 of 2)");
    assert_eq!(failed.err().matches("of 2 ended with exit status 1; the others were ended").count(), 3);
}

#[test]
fn training_on_cpus_without_an_mpi_says_what_to_install() {
    let place = Place::new();
    let launch = "launch --processes 2 -- train --quick --device cpu --output run";
    let ran = place.run_with(launch, &[("PATH", "/nowhere")]).ends(2);
    ran.complains("there is no mpiexec in PATH").complains("train --replicas 2");
}

#[test]
fn a_launcher_in_a_launcher_is_refused() {
    let place = Place::new();
    let place_in_job = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")];
    let ran = place.run_with("launch --processes 2 -- devices", &place_in_job).ends(2);
    ran.complains("Open MPI has already started 2 processes; leave `launch --` out");
}

#[test]
fn a_port_in_use_is_told_before_the_start() {
    let place = Place::new();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port() - 1;
    let told = format!("--master-port is {port}, but the next port can't be used for rank 0: ");
    place.fails(&format!("launch --processes 2 --master-port {port} -- devices"), &told);
}

#[test]
fn an_environment_that_makes_no_sense_ends_the_training() {
    let place = Place::new();
    let ran = place.run_with("train --quick --dataset synthetic --output run", &[("TF_CONFIG", "{")]).ends(1);
    ran.complains("error: TF_CONFIG is `{`, but must be JSON");
    assert!(!place.exists("run"));
}

/// What tells that a folder is that of a run.
const CONFIG: &str = r#"{ "recipe": "quick", "changed": [], "model": "small_cnn" }"#;

/// A job that failed before its first checkpoint starts again, where a new run would be refused.
#[test]
fn a_restarted_job_may_replace_what_it_left() {
    let place = Place::new();
    place.make_folder("run/checkpoints/epoch-0001");
    place.write("run/history.csv", "epoch\n1\n");
    place.write("run/config.json", CONFIG);
    // For SLURM, a batch script that runs the program without a step.
    for (variable, count, status) in [
        ("TORCHELASTIC_RESTART_COUNT", "0", 2),
        ("TORCHELASTIC_RESTART_COUNT", "1", 0),
        ("TORCHELASTIC_RESTART_COUNT", "0", 2),
        ("SLURM_RESTART_COUNT", "0", 2),
        ("SLURM_RESTART_COUNT", "1", 0),
    ] {
        let job = if variable.starts_with("SLURM") { ("SLURM_JOB_ID", "7") } else { ALONE[0] };
        place
            .run_with(&format!("{TRAIN} --output run"), &[ALONE[0], ALONE[1], job, (variable, count)])
            .ends(status);
    }
}

/// The first model is written before the first checkpoint. A job killed between the two can't be resumed.
#[test]
fn a_model_without_a_checkpoint_is_replaced_by_a_restart() {
    let place = Place::new();
    let leave = |run: &str| {
        std::fs::create_dir(place.path().join(run)).unwrap();
        std::fs::write(place.path().join(run).join("model.safetensors"), "the first epoch's").unwrap();
        std::fs::write(place.path().join(run).join("config.json"), CONFIG).unwrap();
    };
    leave("run");
    place.refuses(&format!("{TRAIN} --output run"), "run already holds a run");
    let restarted = [ALONE[0], ALONE[1], ("TORCHELASTIC_RESTART_COUNT", "1")];
    place.run_with(&format!("{TRAIN} --output run"), &restarted).ends(0);
    leave("again");
    place.run(&format!("{TRAIN} --output again --backup-and-restore")).ends(0);
}

/// Unreadable checkpoints must not be replaced by a new start.
#[test]
fn a_restart_tells_of_checkpoints_that_cannot_be_read() {
    let place = Place::new();
    let line = format!("{TRAIN} --output run --backup-and-restore");
    place.run(&line).ends(0);
    let state = place.path().join("run/checkpoints/epoch-0001/state.json");
    std::fs::write(&state, "{}").unwrap();
    let told = place.fails(&line, "no valid checkpoint to resume from");
    told.complains("state.json").complains("move them away to start again");
    assert_eq!(std::fs::read_to_string(state).unwrap(), "{}");
}

/// Processes are found and killed with Linux' means.
#[cfg(target_os = "linux")]
mod faults {
    use crate::ranks::{all_gone, end, environment, ranks, signal, spawn, start, wait_for, wait_for_epochs};
    use crate::{Place, TRAIN};
    use std::fs;
    use std::process::Command;

    /// Works until it is ended, in one thread, without other processes.
    const ENDLESS: &str = "bench profile --recipe quick --batch 8 --device cpu --threads 1 --seconds 3000";

    #[test]
    fn processes_know_their_place_and_share_a_secret() {
        let place = Place::new();
        let launcher = start(&place, &format!("launch --processes 2 --master-port 23456 -- {ENDLESS}"));
        let ranks = ranks(&launcher, 2);
        let all: Vec<_> = ranks.values().map(|id| environment(id).unwrap()).collect();
        for (rank, variables) in all.iter().enumerate() {
            for (name, value) in [
                ("RANK", rank.to_string().as_str()),
                ("LOCAL_RANK", rank.to_string().as_str()),
                ("WORLD_SIZE", "2"),
                ("LOCAL_WORLD_SIZE", "2"),
                ("MASTER_ADDR", "127.0.0.1"),
                ("MASTER_PORT", "23456"),
                ("TOWERS_RESTART_COUNT", "0"),
            ] {
                assert_eq!(variables[name], value, "{name}");
            }
        }
        let secret = &all[0]["TOWERS_JOB_SECRET"];
        assert_eq!((secret.len(), secret), (64, &all[1]["TOWERS_JOB_SECRET"]));
        let line = fs::read_to_string(format!("/proc/{}/cmdline", ranks[&0])).unwrap();
        assert!(line.contains("bench") && !line.contains(secret.as_str()));
        signal("-TERM", &launcher.id().to_string());
        end(launcher).ends(130);
        all_gone(&ranks);
    }

    #[test]
    fn whichever_is_killed_ends_all_with_its_status() {
        let place = Place::new();
        for killed in 0..3 {
            let launcher = start(&place, &format!("launch --processes 3 -- {ENDLESS}"));
            let ranks = ranks(&launcher, 3);
            signal("-KILL", &ranks[&killed]);
            let told =
                format!("error: rank {killed} of 3 was ended by signal 9 (SIGKILL); the others were ended\n");
            assert_eq!(end(launcher).ends(137).err(), told);
            all_gone(&ranks);
        }
    }

    #[test]
    fn a_launcher_that_is_killed_leaves_no_process() {
        let place = Place::new();
        let mut launcher = start(&place, &format!("launch --processes 3 -- {ENDLESS}"));
        let ranks = ranks(&launcher, 3);
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        wait_for(|| ranks.values().all(|id| environment(id).is_none()).then_some(()));
    }

    /// A stopped process does not react to signals; after a while it is killed.
    #[test]
    fn who_does_not_end_is_killed() {
        let place = Place::new();
        let launcher = start(&place, &format!("launch --processes 2 --grace 1 -- {ENDLESS}"));
        let ranks = ranks(&launcher, 2);
        stop(&ranks[&0]);
        signal("-ABRT", &ranks[&1]);
        end(launcher).ends(134).complains("rank 1 of 2 was ended by signal 6 (SIGABRT)");
        all_gone(&ranks);
    }

    #[test]
    fn ctrl_c_reaches_all() {
        let place = Place::new();
        let launcher = start(&place, &format!("launch --processes 2 -- {ENDLESS}"));
        let ranks = ranks(&launcher, 2);
        signal("-INT", &launcher.id().to_string());
        assert_eq!(end(launcher).ends(130).err(), "");
        all_gone(&ranks);
    }

    /// Stops a process, and waits until all its threads stand still: a thread that has not yet seen the stop may
    /// take another signal first.
    fn stop(id: &str) {
        signal("-STOP", id);
        wait_for(|| {
            let mut threads = fs::read_dir(format!("/proc/{id}/task")).ok()?.flatten();
            let stands = |status: String| status.contains("State:\tT");
            threads
                .all(|thread| fs::read_to_string(thread.path().join("status")).is_ok_and(stands))
                .then_some(())
        });
    }

    /// Waits until a signal is pending for a stopped process.
    fn wait_for_pending(id: &str, signal: u32) {
        wait_for(|| {
            let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
            let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"))?;
            let pending = u64::from_str_radix(pending.trim(), 16).unwrap();
            (pending >> (signal - 1) & 1 == 1).then_some(())
        });
    }

    /// Ctrl-C while the others are given time to end: there is no restart.
    #[test]
    fn ctrl_c_after_a_failure_ends_the_launch() {
        let place = Place::new();
        let line = format!("launch --processes 2 --max-restarts 3 --grace 3000 -- {ENDLESS}");
        let mut launcher = start(&place, &line);
        let ranks = ranks(&launcher, 2);
        stop(&ranks[&0]);
        signal("-ABRT", &ranks[&1]);
        wait_for_pending(&ranks[&0], 15);
        signal("-INT", &launcher.id().to_string());
        wait_for(|| launcher.try_wait().unwrap());
        let err = end(launcher).ends(134).complains("rank 1 of 2 was ended by signal 6").err();
        assert!(!err.contains("restarting"), "{err}");
        all_gone(&ranks);
    }

    /// Interrupted processes save. A process that fails for another reason may not have saved.
    #[test]
    fn who_dies_after_ctrl_c_is_told() {
        let place = Place::new();
        let launcher = start(&place, &format!("launch --processes 2 --max-restarts 3 -- {ENDLESS}"));
        let ranks = ranks(&launcher, 2);
        stop(&ranks[&1]);
        signal("-INT", &launcher.id().to_string());
        wait_for_pending(&ranks[&1], 2);
        signal("-KILL", &ranks[&1]);
        let err = end(launcher).ends(137).complains("rank 1 of 2 was ended by signal 9").err();
        assert!(!err.contains("restarting"), "{err}");
        all_gone(&ranks);
    }

    /// As from systemd, which sends SIGTERM to the launcher and its processes.
    #[test]
    fn a_signal_to_all_processes_is_one_request() {
        let place = Place::new();
        let train = format!("{TRAIN} --epochs 500 --threads 1 --output run");
        let launcher = start(&place, &format!("launch --processes 1 -- {train}"));
        let ranks = ranks(&launcher, 1);
        wait_for_epochs(&place, "run", 1);
        signal("-TERM", &ranks[&0]);
        signal("-TERM", &launcher.id().to_string());
        end(launcher).ends(130).complains("interrupted; everything is saved");
        all_gone(&ranks);
    }

    #[test]
    fn a_user_signal_is_passed_on() {
        let place = Place::new();
        let train = format!("{TRAIN} --epochs 500 --threads 1 --save-every 0 --output run");
        let launch = format!("launch --processes 1 --max-restarts 1 -- {train}");
        for (action, saved) in [("save", "saving a checkpoint"), ("stop", "interrupted; everything is saved")]
        {
            let launcher = start(&place, &format!("{launch} --signal-action {action}"));
            ranks(&launcher, 1);
            wait_for_epochs(&place, "run", 1);
            signal("-USR1", &launcher.id().to_string());
            if action == "save" {
                wait_for(|| fs::read_dir(place.path().join("run/checkpoints")).ok()?.next().map(drop));
                signal("-TERM", &launcher.id().to_string());
            }
            end(launcher).ends(130).complains(saved);
            place.remove("run");
        }
    }

    /// A script in the place of MPI's launcher. It starts the processes, and does this when they have ended.
    fn launched_by_script(place: &Place, then: &str, options: &str) -> std::process::Child {
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && exit 0\ncount=$2; shift 2; rank=0\n\
             while [ $rank -lt $count ]; do\n\
             OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=$count \"$@\" & rank=$((rank + 1))\ndone\n\
             wait\n{then}\n"
        );
        place.write("mpiexec", script);
        let file = place.path().join("mpiexec");
        assert!(Command::new("chmod").arg("+x").arg(file).status().unwrap().success());
        let path = format!("{}:{}", place.path().display(), std::env::var("PATH").unwrap());
        // A library that is a pipe: a process that opens it waits.
        assert!(Command::new("mkfifo").arg(place.path().join("pipe")).status().unwrap().success());
        let train = format!("{TRAIN} --device cpu --output run {options}");
        let mut launch = place.command(&format!("launch --processes 2 --grace 1 -- {train}"));
        launch.env("PATH", path);
        spawn(launch)
    }

    /// `prterun` was seen to end with status 0 after all processes had failed, and to never end.
    #[test]
    fn failures_count_whatever_the_launcher_of_mpi_does() {
        for then in ["exit 0", "trap '' TERM HUP INT; while :; do sleep 1; done"] {
            let place = Place::new();
            let launcher = launched_by_script(&place, then, "--mpi-library ./none.so");
            let failed = end(launcher).ends(1).complains("no MPI library was found");
            failed.complains(" of 2 ended with exit status 1; the others were ended");
        }
    }

    /// The id of a process that a script has started.
    fn started_by_script(place: &Place, rank: &str) -> String {
        wait_for(|| {
            processes(place).into_iter().find(|id| {
                environment(id).is_some_and(|all| all.get("OMPI_COMM_WORLD_RANK").is_some_and(|r| r == rank))
                    && threads(id).contains(&"launcher".to_owned())
            })
        })
    }

    /// The processes of a place.
    pub fn processes(place: &Place) -> Vec<String> {
        let folder = place.path().canonicalize().unwrap();
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
        ids.filter(|id| fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|cwd| cwd == folder)).collect()
    }

    /// The names of a process's threads.
    fn threads(id: &str) -> Vec<String> {
        let all = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
        let names = all.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
        names.map(|name| name.trim().to_owned()).collect()
    }

    #[test]
    fn who_is_killed_while_mpi_starts_ends_all() {
        let place = Place::new();
        let launcher = launched_by_script(&place, "exit 0", "--mpi-library ./pipe");
        started_by_script(&place, "0");
        signal("-KILL", &started_by_script(&place, "1"));
        end(launcher).ends(1).complains("error: rank 1 of 2 was lost before all had begun; the others were");
        wait_for(|| processes(&place).is_empty().then_some(()));
    }

    #[test]
    fn processes_that_wait_for_mpi_end_on_a_signal() {
        let place = Place::new();
        let launcher = launched_by_script(&place, "exit 0", "--mpi-library ./pipe");
        for rank in ["0", "1"] {
            started_by_script(&place, rank);
        }
        signal("-TERM", &launcher.id().to_string());
        end(launcher).ends(130);
        wait_for(|| processes(&place).is_empty().then_some(()));
    }

    /// The command line is that of the first start; a run in the same folder is resumed.
    #[test]
    fn a_restarted_training_resumes_by_itself() {
        let place = Place::new();
        let flags = "--dataset synthetic --limit-train 64 --limit-test 16 --epochs 60 --schedule constant";
        let train = format!("train --quick {flags} --no-progress --threads 1 --output");
        let launcher = start(&place, &format!("launch --processes 1 --max-restarts 1 -- {train} run"));
        let ranks = ranks(&launcher, 1);
        wait_for_epochs(&place, "run", 2);
        signal("-KILL", &ranks[&0]);
        end(launcher).ends(0).complains("(restart 1 of 1)").complains("resuming from run/checkpoints");
        place.run(&format!("{train} straight")).ends(0);
        assert!(place.model("run") == place.model("straight"), "the restarted run is not the same run");
    }
}

/// Processes on CPUs, started by the MPI in PATH. The step `mpi` of the tests brings two of them.
#[cfg(target_os = "linux")]
mod by_mpi {
    use super::faults::processes;
    use crate::ranks::{end, environment, signal, start, wait_for, wait_for_epochs};
    use crate::{Place, TRAIN};
    use std::process::{Child, Command};

    /// A place in which a launch finds an MPI.
    fn with_mpi() -> Option<Place> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        if !std::env::split_paths(&path).any(|folder| folder.join("mpiexec").is_file()) {
            println!(
                "SKIPPED: a launch by MPI: there is no mpiexec in PATH; `cargo xtask test mpi` brings it"
            );
            return None;
        }
        Some(Place::new())
    }

    /// The process of a rank, once it has begun.
    fn rank(place: &Place, number: &str) -> String {
        wait_for(|| {
            processes(place).into_iter().find(|id| {
                let variables = environment(id).unwrap_or_default();
                ["OMPI_COMM_WORLD_RANK", "PMI_RANK"]
                    .iter()
                    .any(|name| variables.get(*name).is_some_and(|rank| rank == number))
            })
        })
    }

    /// Whether the others continue when a process is lost.
    fn is_tolerant() -> bool {
        let said = Command::new("mpiexec").arg("--version").output().unwrap();
        String::from_utf8_lossy(&said.stdout).contains("(Open MPI) 5.")
    }

    /// A run of two processes with many epochs.
    fn long(place: &Place, options: &str) -> Child {
        let train = format!("{TRAIN} --device cpu --epochs 200 --no-progress --output run");
        start(place, &format!("launch --processes 2 {options} -- {train}"))
    }

    /// Trains with this launch, and in one process with as many replicas: the networks are the same.
    fn trains_as(place: &Place, processes: usize, options: &str, replicas: usize) {
        let train = format!("{TRAIN} --device cpu --epochs 2");
        place.run(&format!("launch --processes {processes} -- {train} {options} --output run")).ends(0);
        place.run(&format!("{train} --threads 4 --output straight --replicas {replicas}")).ends(0);
        assert!(place.model("run") == place.model("straight"), "processes train another network");
    }

    #[test]
    fn processes_train_what_threads_do() {
        let Some(place) = with_mpi() else { return };
        trains_as(&place, 3, "", 3);
    }

    #[test]
    fn processes_may_have_several_replicas() {
        let Some(place) = with_mpi() else { return };
        trains_as(&place, 2, "--threads 4 --replicas 2", 4);
    }

    #[test]
    fn ctrl_c_saves_the_run() {
        let Some(place) = with_mpi() else { return };
        let launcher = long(&place, "");
        wait_for_epochs(&place, "run", 2);
        signal("-INT", &launcher.id().to_string());
        let told = "interrupted; everything is saved. Resume with: towers train --resume run";
        end(launcher).ends(130).complains(told);
        assert!(place.read("run/status.json").contains("interrupted"));
        // The rest runs in one process, with as many replicas.
        place
            .run("train --resume run --replicas 2 --max-time 1s")
            .ends(0)
            .complains("resuming from run/checkpoints");
    }

    /// As from systemd: all processes get SIGTERM, MPI's launcher too.
    #[test]
    fn a_signal_to_all_processes_saves_the_run() {
        let Some(place) = with_mpi() else { return };
        let launcher = long(&place, "");
        wait_for_epochs(&place, "run", 2);
        processes(&place).iter().for_each(|id| signal("-TERM", id));
        end(launcher).ends(130).complains("interrupted; everything is saved");
        wait_for(|| processes(&place).is_empty().then_some(()));
    }

    #[test]
    fn a_user_signal_stops_the_run() {
        let Some(place) = with_mpi() else { return };
        let train = format!("{TRAIN} --device cpu --epochs 200 --signal-action stop --output run");
        let launcher = start(&place, &format!("launch --processes 2 -- {train}"));
        wait_for_epochs(&place, "run", 2);
        signal("-USR1", &launcher.id().to_string());
        end(launcher).ends(130).complains("interrupted; everything is saved");
    }

    /// A loss that is not a number ends all processes at once.
    #[test]
    fn a_failure_of_all_is_a_failure() {
        let Some(place) = with_mpi() else { return };
        let train = format!("{TRAIN} --device cpu --epochs 3 --lr 1e30 --output run");
        place.run(&format!("launch --processes 2 --grace 5 -- {train}")).ends(1);
        assert!(place.read("run/status.json").contains("failed"));
    }

    #[test]
    fn the_others_go_on_when_a_rank_is_killed() {
        let Some(place) = with_mpi().filter(|_| is_tolerant()) else {
            println!("SKIPPED: a run that continues after a loss: that needs Open MPI 5");
            return;
        };
        let train = format!("{TRAIN} --device cpu --epochs 12 --virtual-replicas 3 --no-progress");
        place.run(&format!("{train} --output straight")).ends(0);
        for victim in ["0", "1"] {
            let run = format!("run-{victim}");
            let launcher = start(&place, &format!("launch --processes 3 -- {train} --output {run}"));
            wait_for_epochs(&place, &run, 1);
            signal("-KILL", &rank(&place, victim));
            let told = format!("rank {victim} was lost; 2 processes continue after step");
            end(launcher).ends(0).complains(&told);
            assert!(
                place.model(&run) == place.model("straight"),
                "another network after the loss of {victim}"
            );
        }
    }

    /// With Open MPI 5 the others continue until the end of the epoch.
    #[test]
    fn a_killed_rank_restarts_the_job() {
        let Some(place) = with_mpi() else { return };
        let launcher = long(&place, "--max-restarts 1");
        wait_for_epochs(&place, "run", 2);
        signal("-KILL", &rank(&place, "1"));
        wait_for(|| {
            environment(&rank(&place, "1"))?
                .get("TOWERS_RESTART_COUNT")
                .filter(|count| *count == "1")
                .cloned()
        });
        wait_for_epochs(&place, "run", 4);
        signal("-INT", &launcher.id().to_string());
        end(launcher).ends(130).complains("(restart 1 of 1)").complains("resuming from run/checkpoints");
    }

    #[test]
    fn a_launcher_that_is_killed_leaves_no_process() {
        let Some(place) = with_mpi() else { return };
        let mut launcher = long(&place, "");
        let ranks = ["0", "1"].map(|number| rank(&place, number));
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        wait_for(|| ranks.iter().all(|id| environment(id).is_none()).then_some(()));
    }
}
