//! Connected processes decide together before they begin.

use super::{BLOB, at, free_port};
use std::thread;
use towers_rendezvous::{Agreement, Error, ProcessGroup, Result, connect};

const WORLD: usize = 3;

/// Runs a body as each process of a group. Returns the outcomes by rank.
fn run(
    body: impl Fn(usize, ProcessGroup) -> Result<Vec<u8>> + Copy + Send + 'static,
) -> Vec<Result<Vec<u8>, String>> {
    let port = free_port();
    let process = |rank: usize| {
        let (place, settings) = at(rank, WORLD, port);
        thread::spawn(move || body(rank, connect(&place, &settings)?))
    };
    let threads: Vec<_> = (0..WORLD).map(process).collect();
    threads.into_iter().map(|thread| thread.join().unwrap().map_err(|error| error.to_string())).collect()
}

#[test]
fn rank_0_hears_all_before_it_says_what_they_do() {
    let outcomes = run(|rank, mut group| {
        let said = group.gather(&[rank as u8 + 1])?.concat();
        let told = group.broadcast(&said)?;
        let agreement = Agreement::new().with("the decision", format!("{told:?}"));
        assert_eq!(group.agree(agreement, if rank == 0 { BLOB } else { &[] })?, BLOB);
        Ok(told)
    });
    assert_eq!(outcomes, vec![Ok(vec![1, 2, 3]); WORLD]);
}

/// Rank 1 takes its time, as while it reads its data. Rank 2 dies meanwhile, and rank 0 hears of it at once.
#[test]
fn a_dead_rank_is_named_before_a_slow_one_is_heard() {
    let outcomes = run(|rank, mut group| match rank {
        2 => Err(Error::Meeting("no space is left".into())),
        // Ends as soon as rank 0 tells why.
        1 => group.broadcast(&[]),
        _ => group.gather(&[]).map(|_| Vec::new()),
    });
    for outcome in &outcomes[..2] {
        let told = "rank 2 (127.0.0.1) ended before all ranks had begun";
        assert_eq!(outcome.as_ref().unwrap_err(), told);
    }
}

#[test]
fn messages_that_are_too_long_are_refused() {
    let outcomes = run(|rank, mut group| match rank {
        0 => group.broadcast(&[0; 600_000]),
        _ => {
            let agreement =
                (0..1200).fold(Agreement::new(), |agreement, k| agreement.with(k, "x".repeat(900)));
            group.agree(agreement, &[])
        }
    });
    for (rank, outcome) in outcomes.iter().enumerate() {
        let told = outcome.as_ref().unwrap_err();
        assert!(told.starts_with(&format!("rank {rank} would send ")), "{told}");
        assert!(told.ends_with(" bytes, but a message has at most 1048576"), "{told}");
    }
}
