//! A process that dies is named on all others. `tests/simulation` has its other ends.

use super::{BLOB, LONG, at, free_port, wait_for};
use parallel::rendezvous::{Watchdog, connect};
use std::thread;

/// All ranks of a run, connected.
fn watches(world: usize) -> Vec<Watchdog> {
    let port = free_port();
    let come = |rank: usize| {
        thread::spawn(move || {
            let (place, settings, hello) = at(rank, world, port);
            let group = connect(&place, &settings, &hello, (rank == 0).then_some(BLOB)).unwrap();
            Watchdog::start(group, LONG).unwrap()
        })
    };
    let threads: Vec<_> = (0..world).map(come).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn told(watch: &Watchdog) -> String {
    wait_for(|| watch.failed())
}

#[test]
fn a_dead_rank_is_named_on_all_others() {
    for dead in 0..4 {
        let mut watches = watches(4);
        watches.remove(dead);
        for watch in &watches {
            assert_eq!(told(watch), format!("rank {dead} (127.0.0.1) has ended unexpectedly (last step 0)"));
        }
    }
}

#[test]
fn a_run_of_one_is_watched_too() {
    let alone = watches(1).remove(0);
    alone.step(3);
    assert_eq!(alone.failed(), None);
    alone.finish();
}
