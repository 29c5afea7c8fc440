//! The in-process collective: sums, order, errors.

use crate::{cpus, groups};
use parallel::{Error, Replica, run_replicas};
use program::Span;

#[test]
fn sums_are_added_along_a_tree_over_the_ranks() {
    for world in 1..=5 {
        let value = |rank: usize, k: usize| {
            1.0e7_f32.powi((rank % 2) as i32) * (1.0 + k as f32 * 0.37) / (rank + 1) as f32
        };
        let len = 23;
        let all = run_replicas(&cpus(world), |mut replica: Replica| {
            let device = replica.device.clone();
            let mut data = device.alloc(len + 2)?;
            let mut results = Vec::new();
            for _ in 0..3 {
                let own: Vec<f32> = (0..len).map(|k| value(replica.rank(), k)).collect();
                device.upload(&own, &mut data, 1)?;
                replica.collective.all_reduce_sum(&device, &mut data, Span::new(1, len))?;
                results.push(data.to_vec(&device, 0, len + 2)?);
            }
            Ok::<_, Error>(results)
        })
        .unwrap();
        // Of four and five ranks, in full.
        let sum = |value: [f32; 5]| match world {
            4 => (value[0] + value[1]) + (value[2] + value[3]),
            5 => ((value[0] + value[1]) + (value[2] + value[3])) + value[4],
            _ => value[1..world].iter().fold(value[0], |sum, x| sum + x),
        };
        let expected: Vec<f32> = (0..len).map(|k| sum([0, 1, 2, 3, 4].map(|rank| value(rank, k)))).collect();
        for result in all.iter().flatten() {
            assert_eq!((result[0], result[len + 1]), (0.0, 0.0), "only the span changes");
            assert_eq!(result[1..=len], expected[..], "bit for bit, world {world}");
        }
    }
}

#[test]
fn broadcast_brings_the_roots_numbers() {
    let all = run_replicas(&cpus(3), |mut replica: Replica| {
        let device = replica.device.clone();
        let mut data = device.alloc(2)?;
        device.fill(replica.rank() as f32, &mut data, Span::new(0, 2))?;
        replica.collective.broadcast(&device, &mut data, Span::new(0, 1), 2)?;
        Ok::<_, Error>(data.to_vec(&device, 0, 2)?)
    });
    assert_eq!(all.unwrap(), [[2.0, 0.0], [2.0, 1.0], [2.0, 2.0]]);
}

/// Of every length, also none, for every number of replicas. Elements around the run stay.
#[test]
fn a_gathering_brings_everybodys_part() {
    for (world, len) in (1..=4).flat_map(|world| [0, 1, 5, 64].map(|len| (world, len))) {
        let all = run_replicas(&cpus(world), |mut replica: Replica| {
            let (device, rank) = (replica.device.clone(), replica.rank());
            let mut data = device.alloc(world * len + 2)?;
            device.fill(-1.0, &mut data, Span::new(0, world * len + 2))?;
            for turn in 0..2 {
                let own: Vec<f32> = (0..len).map(|k| (turn * 1000 + rank * len + k) as f32).collect();
                device.upload(&own, &mut data, 1 + rank * len)?;
                replica.collective.all_gather(&device, &mut data, Span::new(1, world * len))?;
            }
            Ok::<_, Error>(data.to_vec(&device, 0, world * len + 2)?)
        });
        let parts = (0..world * len).map(|k| (1000 + k) as f32);
        let expected: Vec<f32> = [-1.0].into_iter().chain(parts).chain([-1.0]).collect();
        assert_eq!(all.unwrap(), vec![expected; world], "{world} replicas, {len} each");
    }
}

#[test]
fn a_gathering_needs_equal_parts() {
    let odd = run_replicas(&cpus(3), |mut replica: Replica| {
        let (device, len) = (replica.device.clone(), 6 + replica.rank() % 2);
        let mut data = device.alloc(len)?;
        let first = replica.collective.all_gather(&device, &mut data, Span::new(0, len));
        assert!(first.is_err() && replica.collective.barrier().is_err());
        first
    });
    let odd = odd.unwrap_err().to_string();
    assert!(odd.contains("the length of the run is 7, but must be a multiple"), "{odd}");
}

/// One replica panics, or fails in an operation. The others stop, and the caller learns the cause. No replica reads
/// freed memory.
#[test]
fn a_failing_replica_stops_the_others() {
    for (devices, bad) in groups(3).iter().flat_map(|devices| [0, 1, 2].map(|bad| (devices, bad))) {
        for panics in [false, true] {
            let result = run_replicas(devices, |mut replica: Replica| {
                let device = replica.device.clone();
                let mut data = device.alloc(40)?;
                replica.collective.all_reduce_sum(&device, &mut data, Span::new(0, 40))?;
                if replica.rank() == bad {
                    assert!(!panics, "replica {bad} is the bad one");
                    replica.collective.all_reduce_sum(&device, &mut data, Span::new(1, 40))?;
                }
                let result = replica.collective.all_reduce_sum(&device, &mut data, Span::new(0, 40));
                assert!(result.is_err() && replica.collective.barrier().is_err());
                result
            });
            match result.unwrap_err() {
                Error::Tensor(error) if !panics => assert!(error.to_string().contains("41"), "{error}"),
                Error::Panicked { rank, message } if panics => {
                    assert!(rank == bad && message.contains("is the bad one"), "{message}");
                }
                other => panic!("{other}"),
            }
        }
    }
}

/// No replica waits for one that has returned.
#[test]
fn a_replica_that_finished_early_keeps_nobody_waiting() {
    let result = run_replicas(&cpus(3), |mut replica: Replica| match replica.rank() {
        1 => Ok(()),
        _ => replica.collective.barrier(),
    });
    assert_eq!(result.unwrap_err().to_string(), "stopped because replica 1 has finished");
}

#[test]
fn no_devices_are_no_replicas() {
    let none = run_replicas(&[], |replica: Replica| Ok::<_, Error>(replica.rank()));
    assert!(none.unwrap().is_empty());
}

#[test]
fn different_sizes_are_an_error_on_all() {
    for (devices, operation) in groups(3).iter().flat_map(|devices| [0, 1, 2].map(|k| (devices, k))) {
        let result = run_replicas(devices, |mut replica: Replica| {
            let device = replica.device.clone();
            let len = 6 + replica.rank() / 2 * 3;
            let (mut data, at) = (device.alloc(len)?, Span::new(0, len));
            device.fill(7.0, &mut data, at)?;
            let refused = match operation {
                0 => replica.collective.all_reduce_sum(&device, &mut data, at),
                1 => replica.collective.broadcast(&device, &mut data, at, 0),
                _ => replica.collective.all_gather(&device, &mut data, at),
            };
            let is_kept =
                operation > 0 || device.runs_ahead() || data.to_vec(&device, 0, len)? == vec![7.0; len];
            assert!(is_kept, "what is not added up stays as it was");
            refused
        });
        assert!(matches!(result, Err(Error::Mismatch { .. })), "{result:?}");
    }
}

/// The root has the only numbers, so it can't know. Its error is not the cause.
#[test]
fn a_broadcast_of_different_sizes_names_the_cause() {
    let result = run_replicas(&cpus(2), |mut replica: Replica| {
        let device = replica.device.clone();
        let len = 4 + replica.rank();
        let mut data = device.alloc(len)?;
        replica.collective.broadcast(&device, &mut data, Span::new(0, len), 0)
    });
    assert!(matches!(result, Err(Error::Mismatch { rank: 1, .. })), "{result:?}");
}

/// If a replica's memory does not fit, no replica keeps waiting, even if it carries on.
#[test]
fn an_operation_that_fails_on_one_fails_on_all() {
    let result = run_replicas(&cpus(2), |mut replica: Replica| {
        let device = replica.device.clone();
        let mut data = device.alloc(4)?;
        let at = Span::new(replica.rank(), 4);
        let first = replica.collective.all_reduce_sum(&device, &mut data, at);
        assert!(first.is_err() && replica.collective.barrier().is_err());
        first
    });
    assert!(matches!(result, Err(Error::Tensor(_))), "{result:?}");
}

#[test]
fn an_aborted_group_stays_aborted() {
    let result = run_replicas(&cpus(2), |mut replica: Replica| {
        replica.collective.abort("the power is going");
        let first = replica.collective.barrier();
        let second = replica.collective.barrier();
        assert!(first.is_err() && second.is_err());
        second
    });
    assert_eq!(result.unwrap_err().to_string(), "stopped because the power is going");
}
