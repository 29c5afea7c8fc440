//! Connected processes decide together before they begin.

use super::{BLOB, LONG, at, free_port, sentences};
use parallel::rendezvous::{ProcessGroup, Settings, connect};
use parallel::{Agreement, Error, Result};
use std::thread;
use std::time::Duration;

const WORLD: usize = 3;

/// Runs a body as each process of a group. Returns the outcomes by rank.
fn run(
    body: impl Fn(usize, ProcessGroup) -> Result<Vec<u8>> + Copy + Send + 'static,
) -> Vec<Result<Vec<u8>, String>> {
    let port = free_port();
    let process = |rank: usize| {
        let (place, settings, mut hello) = at(rank, WORLD, port);
        hello.agreement = Agreement::new();
        thread::spawn(move || {
            let group = connect(&place, &settings, &hello, first(rank, b""))?;
            body(rank, group)
        })
    };
    let threads: Vec<_> = (0..WORLD).map(process).collect();
    threads.into_iter().map(|thread| thread.join().unwrap().map_err(|error| error.to_string())).collect()
}

/// The bytes that only rank 0 has.
fn first(rank: usize, blob: &[u8]) -> Option<&[u8]> {
    (rank == 0).then_some(blob)
}

#[test]
fn rank_0_hears_all_before_it_says_what_they_do() {
    let outcomes = run(|rank, mut group| {
        let said = group.gather(&[rank as u8 + 1])?.concat();
        let told = group.broadcast(first(rank, &said))?;
        group.agree(Agreement::new().with("the decision", format!("{told:?}")), first(rank, BLOB))?;
        assert_eq!(group.blob, BLOB);
        Ok(told)
    });
    assert_eq!(outcomes, vec![Ok(vec![1, 2, 3]); WORLD]);
}

#[test]
fn who_is_about_to_do_something_else_is_named_on_all() {
    let outcomes = run(|rank, mut group| {
        let agreement = Agreement::new().with("a batch of", if rank == 2 { 65 } else { 64 });
        group.agree(agreement, first(rank, BLOB)).map(|()| Vec::new())
    });
    for sentence in sentences(&outcomes) {
        assert!(sentence.starts_with("rank 2 has a batch of 65, but rank 0 has 64"), "{sentence}");
    }
}

/// A process that ends after it has connected is noticed at once, not after the time-out.
#[test]
fn who_has_ended_is_named() {
    for gone in 0..WORLD {
        let outcomes = run(move |rank, mut group| {
            if rank == gone {
                return Err(Error::Rendezvous("a folder that is not there".into()));
            }
            group.gather(&[])?;
            group.broadcast(first(rank, b""))
        });
        for (rank, outcome) in outcomes.iter().enumerate().filter(|(rank, _)| *rank != gone) {
            let sentence = outcome.as_ref().unwrap_err();
            let told = format!("rank {gone} (127.0.0.1) ended before all ranks had begun");
            assert_eq!(*sentence, told, "rank {rank}");
        }
    }
}

/// Rank 1 takes its time, as while it reads its data. Rank 2 dies meanwhile, and rank 0 hears of it at once.
#[test]
fn a_dead_rank_is_named_before_a_slow_one_is_heard() {
    let outcomes = run(|rank, mut group| match rank {
        2 => Err(Error::Rendezvous("no space is left".into())),
        // Ends as soon as rank 0 tells why.
        1 => group.broadcast(None),
        _ => group.gather(&[]).map(|_| Vec::new()),
    });
    for outcome in &outcomes[..2] {
        let told = "rank 2 (127.0.0.1) ended before all ranks had begun";
        assert_eq!(outcome.as_ref().unwrap_err(), told);
    }
}

#[test]
fn who_says_nothing_is_named_in_time() {
    let port = free_port();
    let process = |rank: usize| {
        thread::spawn(move || {
            let (place, settings, hello) = at(rank, 2, port);
            let start = if rank == 0 { Duration::from_secs(2) } else { LONG };
            connect(&place, &Settings { start, ..settings }, &hello, first(rank, b"")).unwrap()
        })
    };
    let mut groups = [0, 1].map(process).map(|thread| thread.join().unwrap());
    let error = groups[0].gather(&[]).unwrap_err().to_string();
    assert_eq!(error, "rank 1 (127.0.0.1) said nothing within 2 seconds of its start");
    let error = groups[1].broadcast(None).unwrap_err().to_string();
    assert_eq!(error, "rank 1 (127.0.0.1) said nothing within 2 seconds of its start");
}
