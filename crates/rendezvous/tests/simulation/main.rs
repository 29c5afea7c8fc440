//! How processes meet and watch each other, on a simulated network, with virtual time.
//!
//! The files of the crate are compiled here with [`system`] in place of the real one. Each seed is one
//! schedule: a number of processes, delays, lost packets, deaths, cuts of the network, in an order that the
//! seed alone decides. A failed test prints its seed, and `TOWERS_SIMULATION_SEED=N` repeats it with a trace.

// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]
// Not all of the crate takes part.
#![allow(dead_code, unused_imports)]

#[path = "../../src/agreement.rs"]
mod agreement;
mod checks;
#[path = "../../src/cluster/mod.rs"]
mod cluster;
#[path = "../../src/error.rs"]
mod error;
#[path = "../../src/join/mod.rs"]
mod join;
mod network;
mod plan;
mod process;
mod random;
mod system;
mod world;

use agreement::Agreement;
use error::{Error, Result};
use plan::{Kind, Plan};

/// The schedules of each kind by default: some seconds.
const SCHEDULES: u64 = 100;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// Runs schedules of one kind.
fn simulate(kind: Kind) {
    let seeds = match number("TOWERS_SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TOWERS_SIMULATIONS").unwrap_or(SCHEDULES),
    };
    let traced = seeds.end - seeds.start == 1;
    let mut succeeded = 0;
    for seed in seeds.clone() {
        let told = Told(kind, seed);
        let plan = Plan::draw(kind, seed);
        let outcomes = process::run(&plan, traced);
        checks::check(&plan, &outcomes);
        succeeded += u64::from(outcomes.all.iter().any(|outcome| outcome.result.is_ok()));
        core::mem::forget(told);
    }
    println!("{kind:?}: {} schedules, in {succeeded} some process trained to its end", seeds.count());
}

/// Prints the seed of a schedule that fails.
struct Told(Kind, u64);

impl Drop for Told {
    fn drop(&mut self) {
        let Told(kind, seed) = self;
        println!("{kind:?} fails: TOWERS_SIMULATION_SEED={seed} repeats this schedule with a trace");
    }
}

#[test]
fn without_faults_all_train() {
    simulate(Kind::Calm);
}

#[test]
fn a_death_is_named() {
    simulate(Kind::Death);
}

#[test]
fn a_cut_network_is_named() {
    simulate(Kind::Cut);
}

#[test]
fn a_stopped_process_is_named() {
    simulate(Kind::Frozen);
}

#[test]
fn a_replacement_takes_part() {
    simulate(Kind::Replaced);
}

#[test]
fn of_two_with_one_rank_the_later_takes_part() {
    simulate(Kind::Twice);
}

#[test]
fn another_configuration_is_named() {
    simulate(Kind::Different);
}

#[test]
fn who_stays_behind_is_named() {
    simulate(Kind::Behind);
}

#[test]
fn the_reason_of_a_failure_is_told_to_all() {
    simulate(Kind::Fails);
}

/// The same seed is the same schedule.
#[test]
fn a_schedule_can_be_repeated() {
    for seed in 0..5 {
        let plan = Plan::draw(Kind::Death, seed);
        assert_eq!(process::run(&plan, false), process::run(&plan, false));
    }
}
