//! Launches of a shell, from start to end.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]
#![cfg(unix)]

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use towers_launch::{End, Error, Launch};

/// Runs a script in each of `launch`'s processes. Returns the end, and the lines for a person.
fn run(launch: Launch, script: &str) -> (End, Vec<String>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let launch = launch.program("/bin/sh").arguments(["-c", script]);
    let launch = launch.telling(move |line| tell.lock().unwrap().push(line.to_owned()));
    let end = launch.run().unwrap();
    let told = told.lock().unwrap().clone();
    (end, told)
}

#[test]
fn each_process_knows_its_place() {
    let script =
        r#"[ $RANK = 0 ] || echo "$RANK $LOCAL_RANK of $WORLD_SIZE $LOCAL_WORLD_SIZE at $MASTER_ADDR""#;
    let (end, mut told) = run(Launch::new(3).verbose(true), script);
    told.sort();
    assert_eq!(end, End::Done);
    assert_eq!(told, [1, 2].map(|rank| format!("[rank {rank}] {rank} {rank} of 3 3 at 127.0.0.1")));
}

#[test]
fn the_last_words_of_a_failure_are_told_before_the_restart() {
    let script = r#"[ $TOWERS_RESTART_COUNT$RANK = 01 ] || exit 0; echo "no disk" >&2; exit 7"#;
    let failure = ["[rank 1] no disk", "error: rank 1 of 2 ended with exit status 7; the others were ended"];
    assert_eq!(run(Launch::new(2), script), (End::Failed { status: 7 }, failure.map(str::to_owned).to_vec()));
    let (end, told) = run(Launch::new(2).restarts(5), script);
    assert_eq!((end, told.len()), (End::Done, 3));
    assert_eq!(told[2], "restarting all processes (restart 1 of 5)");
}

#[test]
fn statuses_decide_about_a_restart() {
    let of = |status: u8| run(Launch::new(1).restarts(1), &format!("exit {status}"));
    let (end, told) = of(towers_launch::BAD_USAGE);
    assert_eq!((end, told.len()), (End::Failed { status: 2 }, 1), "it is not started again");
    let (end, told) = of(towers_launch::INCOMPLETE);
    assert_eq!((end.status(), told), (75, vec!["restarting all processes (restart 1 of 1)".to_owned()]));
    let (end, told) = run(Launch::new(1), "kill -ABRT $$");
    assert_eq!(end.status(), 134);
    assert_eq!(told, ["error: rank 0 of 1 was ended by signal 6 (SIGABRT)"]);
}

/// A process that ignores SIGTERM is killed.
#[test]
fn one_that_does_not_end_is_killed() {
    let script = "trap '' TERM; [ $RANK = 0 ] && exit 3; while :; do sleep 0.01; done";
    let (end, _) = run(Launch::new(2).grace(std::time::Duration::from_millis(100)), script);
    assert_eq!(end, End::Failed { status: 3 });
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for processes in [0, 5000] {
        assert!(matches!(Launch::new(processes).run(), Err(Error::Processes(count)) if count == processes));
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port() - 1;
    let error = Launch::new(2).port(port).run().unwrap_err();
    assert!(matches!(error, Error::Port { port: told, .. } if told == port), "{error}");
    let error = Launch::new(1).program("/no/such/program").run().unwrap_err();
    assert!(error.to_string().starts_with("the process of rank 0 can't be started: "), "{error}");
}
