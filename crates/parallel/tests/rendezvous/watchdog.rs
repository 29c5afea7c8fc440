//! A process that dies or falls silent is named on all others.

use super::{BLOB, LONG, at, free_port, wait_for};
use parallel::rendezvous::{ProcessGroup, Watchdog, connect};
use std::thread;
use std::time::Duration;

/// All ranks of a run, connected.
fn groups(world: usize) -> Vec<ProcessGroup> {
    let port = free_port();
    let come = |rank: usize| {
        thread::spawn(move || {
            let (place, settings, hello) = at(rank, world, port);
            connect(&place, &settings, &hello, (rank == 0).then_some(BLOB)).unwrap()
        })
    };
    let threads: Vec<_> = (0..world).map(come).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn watches(world: usize, timeout: Duration) -> Vec<Watchdog> {
    groups(world).into_iter().map(|group| Watchdog::start(group, timeout).unwrap()).collect()
}

fn told(watch: &Watchdog) -> String {
    wait_for(|| watch.failed())
}

#[test]
fn a_dead_rank_is_named_on_all_others() {
    for dead in 0..4 {
        let mut watches = watches(4, LONG);
        watches.remove(dead);
        for watch in &watches {
            assert_eq!(told(watch), format!("rank {dead} (127.0.0.1) has ended unexpectedly (last step 0)"));
        }
    }
}

/// A stopped or cut-off process: its connection stays open, but it sends nothing.
#[test]
fn a_silent_rank_is_named_on_all_others_with_its_last_step() {
    let timeout = Duration::from_secs(2);
    for silent in 0..3 {
        let mut groups = groups(3);
        let kept = groups.remove(silent);
        let watches: Vec<_> =
            groups.into_iter().map(|group| Watchdog::start(group, timeout).unwrap()).collect();
        for watch in &watches {
            let expected = format!("rank {silent} (127.0.0.1) has not been heard of for 2 s (last step 0)");
            assert_eq!(told(watch), expected);
        }
        drop(kept);
    }
}

#[test]
fn the_last_step_is_told() {
    let mut watches = watches(3, Duration::from_secs(4));
    watches.iter().for_each(|watch| watch.step(17));
    // A heartbeat is due every second.
    thread::sleep(Duration::from_secs(4));
    drop(watches.remove(1));
    assert!(watches.iter().all(|watch| told(watch).ends_with("(last step 17)")));
}

/// Steps longer than the time-out: heartbeats continue.
#[test]
fn a_slow_rank_is_no_failure() {
    let watches = watches(3, Duration::from_secs(3));
    thread::sleep(Duration::from_secs(4));
    assert!(watches.iter().all(|watch| watch.failed().is_none()));
    watches.into_iter().for_each(Watchdog::finish);
}

#[test]
fn a_rank_that_gives_up_tells_why() {
    for failing in 0..3 {
        let watches = watches(3, LONG);
        watches[failing].fail("the disk of rank X is full");
        assert!(watches.iter().all(|watch| told(watch) == "the disk of rank X is full"));
    }
}

/// In whatever order they end, that is no failure.
#[test]
fn who_is_done_may_leave() {
    for first in 0..3 {
        let mut watches = watches(3, LONG);
        watches.remove(first).finish();
        thread::sleep(Duration::from_millis(50));
        assert!(watches.iter().all(|watch| watch.failed().is_none()));
        watches.into_iter().for_each(Watchdog::finish);
    }
}

#[test]
fn a_run_of_one_is_watched_too() {
    let alone = watches(1, LONG).remove(0);
    alone.step(3);
    assert_eq!(alone.failed(), None);
    alone.finish();
}

/// A process that sends heartbeats but takes no more steps, or misses the collective after a step: rank 0 or
/// another.
#[test]
fn who_stays_behind_is_named_on_all() {
    for (behind, name, in_step) in [
        (0, "rank 0 has kept", true),
        (2, "rank 2 (127.0.0.1) has kept", true),
        (0, "rank 0 has kept", false),
        (1, "rank 1 (127.0.0.1) has kept", false),
    ] {
        let watches = watches(3, Duration::from_secs(1));
        for (rank, watch) in watches.iter().enumerate() {
            watch.step(if in_step && rank != behind { 7 } else { 6 });
            if !in_step {
                watch.enter();
                (rank != behind).then(|| watch.enter());
            }
        }
        for watch in &watches {
            let told = told(watch);
            assert!(told.starts_with(name) && told.ends_with("(last step 6)"), "{told}");
        }
        watches.into_iter().for_each(Watchdog::finish);
    }
}
