//! One process a GPU, here threads with emulated ones: joined, and stopped together when one fails.

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use towers_parallel::{Error, NcclProcess, Replica, Result};
use towers_program::{Precision, Span};
use towers_rendezvous::{Agreement, Place, Settings, Source, connect};

const WORLD: usize = 3;
/// Longer than any test takes without a hang.
const LONG: Duration = Duration::from_secs(60);

/// Runs a body as each process. Returns the outcomes by rank, or `None` without a C++ compiler.
fn run(
    timeout: Duration,
    agreement: fn(usize) -> Agreement,
    body: impl Fn(Replica) -> Result<f32> + Clone + Send + Sync + 'static,
) -> Option<Vec<Result<f32, String>>> {
    if let Err(error) = towers_tensor_cuda::emulated(Precision::Fp32) {
        println!("SKIPPED: processes on GPUs: {error}");
        return None;
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let process = |rank: usize| {
        let body = body.clone();
        thread::spawn(move || {
            let master = Some(("127.0.0.1".to_owned(), 1));
            let place = Place { master, ..Place::new(Source::Variables, rank, WORLD) };
            // A process that comes after the others have given up tries for this long.
            let start = Duration::from_secs(20);
            let settings = Settings { port: Some(port), start, ..Settings::default() };
            let device = towers_tensor_cuda::emulated(Precision::Fp32).unwrap();
            let joined = connect(&place, &settings).map_err(Error::from).and_then(|group| {
                NcclProcess { group, agreement: agreement(rank), timeout }.run(&[device], body)
            });
            joined.map(|mut all| all.remove(0)).map_err(|error| error.to_string())
        })
    };
    let threads: Vec<_> = (0..WORLD).map(process).collect();
    Some(threads.into_iter().map(|thread| thread.join().unwrap()).collect())
}

fn same(_rank: usize) -> Agreement {
    Agreement::new()
}

/// The sum of the ranks, each plus one, after so many steps.
fn sum(replica: &mut Replica, steps: u64) -> Result<f32> {
    let device = replica.device.clone();
    let mut data = device.alloc(1)?;
    for step in 0..steps {
        replica.collective.queued().unwrap().at_step(step);
        device.upload(&[1.0 + replica.rank() as f32], &mut data, 0)?;
        replica.collective.all_reduce_sum(&device, &mut data, Span::new(0, 1))?;
    }
    Ok(data.to_vec(&device, 0, 1)?[0])
}

#[test]
fn they_add_up_together() {
    let Some(sums) = run(LONG, same, |mut replica| sum(&mut replica, 3)) else { return };
    assert_eq!(sums, vec![Ok(6.0); WORLD]);
}

/// Rank 1 fails by itself, panics, or asks for something that is not there.
#[test]
fn who_fails_stops_the_others_with_its_reason() {
    for (way, reason) in [
        "the disk is full",
        "replica 1 panicked: one is too many",
        "all_reduce_sum: the run ends at element 2 of a buffer of 1",
    ]
    .into_iter()
    .enumerate()
    {
        let Some(outcomes) = run(LONG, same, move |mut replica| {
            sum(&mut replica, 2)?;
            match way {
                _ if replica.rank() != 1 => sum(&mut replica, 2),
                0 => Err(Error::Other("the disk is full".into())),
                1 => panic!("one is too many"),
                _ => {
                    let mut data = replica.device.alloc(1)?;
                    replica.collective.all_reduce_sum(&replica.device, &mut data, Span::new(1, 1))?;
                    Ok(0.0)
                }
            }
        }) else {
            return;
        };
        let told = Err(format!("stopped because rank 1 failed: {reason}"));
        assert_eq!(outcomes, [told.clone(), Err(reason.to_owned()), told]);
    }
}

/// NCCL's own thread sees the failure before the process can tell the others.
#[test]
fn who_fails_is_named_although_its_thread_ends_late() {
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            thread::sleep(Duration::from_millis(500));
        }
    }
    thread_local! {
        static LATE: Late = const { Late };
    }
    let Some(outcomes) = run(LONG, same, move |mut replica| {
        sum(&mut replica, 2)?;
        if replica.rank() != 1 {
            return sum(&mut replica, 2);
        }
        LATE.with(|_| ());
        Err(Error::Other("the disk is full".into()))
    }) else {
        return;
    };
    let told = Err("stopped because rank 1 failed: the disk is full".to_owned());
    assert_eq!(outcomes, [told.clone(), Err("the disk is full".to_owned()), told]);
}

/// A process that is alive but calls no collective after its last step, as while it saves.
#[test]
fn who_does_not_come_after_a_step_is_named() {
    static NAMED: AtomicUsize = AtomicUsize::new(0);
    let Some(outcomes) = run(Duration::from_secs(5), same, |mut replica| {
        let summed = sum(&mut replica, 2);
        let came = replica.rank() != 1;
        while !came && NAMED.load(Ordering::Relaxed) < WORLD - 1 {
            thread::sleep(Duration::from_millis(5));
        }
        let outcome = if came { summed.and_then(|_| replica.collective.barrier()) } else { Ok(()) };
        NAMED.fetch_add(1, Ordering::Relaxed);
        outcome.map(|()| 0.0)
    }) else {
        return;
    };
    for rank in [0, 2] {
        let told = outcomes[rank].as_ref().unwrap_err();
        assert!(
            told.starts_with("stopped because rank 1 (127.0.0.1) has kept the others waiting for "),
            "{told}"
        );
        assert!(told.ends_with(" s (last step 1)"), "{told}");
    }
}

#[test]
fn those_that_are_about_to_do_something_else_do_not_begin() {
    let agreement = |rank: usize| Agreement::new().with("the batch size", if rank == 2 { 32 } else { 64 });
    let Some(outcomes) = run(LONG, agreement, |mut replica| sum(&mut replica, 1)) else { return };
    let told = "rank 2 has the batch size 32, but rank 0 has 64; start all of them with the same program and options";
    assert_eq!((&outcomes[0], &outcomes[2]), (&Err(told.into()), &Err(told.into())));
    assert!(outcomes[1].is_err());
}
