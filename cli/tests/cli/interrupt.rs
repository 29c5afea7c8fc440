//! Signals: the step ends, everything is saved, and the run can be resumed exactly.

use super::Place;
use crate::ranks::{end, signal as send, spawn, start, wait_for, wait_for_epochs};
use std::process::{Child, Command};

const FLAGS: &str =
    "--dataset synthetic --limit-train 600 --limit-test 60 --schedule constant --no-progress --threads 1";

/// Starts a run with these options in the folder `run`, and waits for its second epoch.
fn train(place: &Place, options: &str) -> Child {
    let child = start(place, &format!("train --quick {FLAGS} {options} --output run"));
    wait_for_epochs(place, "run", 1);
    child
}

fn signal(name: &str, child: &Child) {
    send(name, &child.id().to_string());
}

/// The checkpoints in the middle of an epoch.
fn saved_steps(place: &Place) -> usize {
    let names = std::fs::read_dir(place.path().join("run/checkpoints")).into_iter().flatten().flatten();
    names.filter(|entry| entry.file_name().to_string_lossy().starts_with("step-")).count()
}

#[test]
fn ctrl_c_saves_and_says_how_to_go_on() {
    let place = Place::new();
    let child = train(&place, "--epochs 500");
    signal("-INT", &child);
    let err = end(child).ends(130).err();
    assert!(err.contains("stopping after this step") && err.contains("towers train --resume run"), "{err}");

    let done = place.read("run/history.csv").lines().count() - 1;
    let epochs = done + 1;
    place.run(&format!("train --resume run --epochs {epochs}")).ends(0);
    place.run(&format!("train --quick {FLAGS} --epochs {epochs} --output straight")).ends(0);
    let last = |run: &str| {
        let csv = place.read(&format!("{run}/history.csv"));
        csv.lines().last().unwrap().split(',').take(6).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(last("run"), last("straight"), "the interrupted run is not the same run");
}

/// A closed terminal, and the limit of processor time. The terminal and the shell each send SIGHUP.
#[test]
fn every_signal_that_ends_a_run_saves_it() {
    for signals in [&["-HUP", "-HUP"][..], &["-XCPU", "-XCPU"], &["-TERM", "-HUP"], &["-INT", "-TERM"]] {
        let place = Place::new();
        let child = train(&place, "--epochs 500");
        signals.iter().for_each(|name| signal(name, &child));
        end(child).ends(130).complains("interrupted; everything is saved");
    }
}

/// `nohup`, and commands in the background of a script.
#[test]
fn an_ignored_signal_stays_ignored() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_towers");
    for launch in ["", "launch --processes 1 --"] {
        let mut shell = Command::new("sh");
        let line =
            format!("trap '' HUP INT; exec {program} {launch} train --quick {FLAGS} --epochs 3 --output run");
        shell.args(["-c", &line]).current_dir(place.path()).env("HOME", place.path());
        let child = spawn(shell);
        wait_for_epochs(&place, "run", 1);
        signal("-HUP", &child);
        signal("-INT", &child);
        end(child).ends(0);
        assert_eq!(place.read("run/history.csv").lines().count(), 4);
        place.remove("run");
    }
}

/// Schedulers send it before they end a job.
#[test]
fn a_user_signal_saves_and_the_run_goes_on() {
    for replicas in [1, 2] {
        let place = Place::new();
        let child = train(&place, &format!("--epochs 500 --save-every 0 --replicas {replicas}"));
        for (name, saved) in [("-USR1", 1), ("-USR2", 2)] {
            signal(name, &child);
            wait_for(|| (saved_steps(&place) == saved).then_some(()));
        }
        signal("-TERM", &child);
        let ended = end(child).ends(130);
        assert_eq!(ended.err().matches("saving a checkpoint after this step").count(), 2, "{}", ended.err());
    }
}

#[test]
fn a_user_signal_may_stop_the_run() {
    let place = Place::new();
    let child = train(&place, "--epochs 500 --signal-action stop");
    signal("-USR1", &child);
    end(child).ends(130).complains("interrupted; everything is saved");
    place.run("train --resume run --max-time 1s").ends(0).complains("resuming from run/checkpoints");
}
