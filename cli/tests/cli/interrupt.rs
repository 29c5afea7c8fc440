//! Ctrl-C: the step ends, everything is saved, and the run can be resumed exactly.
#![cfg(unix)]

use super::Place;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn ctrl_c_saves_and_says_how_to_go_on() {
    let place = Place::new();
    let flags = "--dataset synthetic --limit-train 600 --limit-test 60 --schedule constant --no-progress";
    let args = format!("train --quick {flags} --epochs 500 --output run");
    let child = place.command(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // The second epoch has begun once the first one's history is written.
    let patience = Instant::now();
    while !place.exists("run/history.csv") || place.read("run/history.csv").lines().count() < 2 {
        assert!(patience.elapsed() < Duration::from_secs(300), "the first epoch never ends");
        std::thread::sleep(Duration::from_millis(20));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{err}");
    assert!(err.contains("stopping after this step") && err.contains("towers train --resume run"), "{err}");

    let done = place.read("run/history.csv").lines().count() - 1;
    let epochs = done + 1;
    place.run(&format!("train --resume run --epochs {epochs}")).ends(0);
    place.run(&format!("train --quick {flags} --epochs {epochs} --output straight")).ends(0);
    let last = |run: &str| {
        let csv = place.read(&format!("{run}/history.csv"));
        csv.lines().last().unwrap().split(',').take(6).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(last("run"), last("straight"), "the interrupted run is not the same run");
}
