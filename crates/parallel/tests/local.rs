//! The in-process collective: what broadcasts and gathers bring, and how a run ends after a failure.

use crate::everything::{a_failure_of_one_stops_all, an_aborted_group_stays_aborted};
use crate::{cpus, groups};
use towers_parallel::{Error, Nodes, Replica, SumTree, run_replicas};
use towers_program::{Device, Span, Storage};

/// Of every length, also none, for every number of replicas. Elements around the run stay.
#[test]
fn broadcasts_and_gathers_bring_the_numbers_of_others() {
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
            let gathered = data.to_vec(&device, 0, world * len + 2)?;
            device.fill(rank as f32, &mut data, Span::new(0, len + 2))?;
            replica.collective.broadcast(&device, &mut data, Span::new(1, len), world - 1)?;
            Ok::<_, Error>((gathered, data.to_vec(&device, 0, len + 2)?))
        });
        let parts = (0..world * len).map(|k| (1000 + k) as f32);
        let expected: Vec<f32> = [-1.0].into_iter().chain(parts).chain([-1.0]).collect();
        for (rank, (gathered, brought)) in all.unwrap().into_iter().enumerate() {
            assert_eq!(gathered, expected, "{world} replicas, {len} each");
            assert_eq!(brought[1..=len], vec![(world - 1) as f32; len], "{world} replicas, {len} numbers");
            assert_eq!((brought[0], brought[len + 1]), (rank as f32, rank as f32), "only the run changes");
        }
    }
}

/// Numbers that are all 7.
fn sevens(device: &Device, len: usize) -> Result<Storage, Error> {
    let mut data = device.alloc(len)?;
    device.fill(7.0, &mut data, Span::new(0, len))?;
    Ok(data)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    Sum,
    /// A sum along a tree of which each replica brings two nodes.
    SumOfNodes,
    Broadcast,
    Gather,
}

use Operation::{Broadcast, Gather, Sum, SumOfNodes};

impl Operation {
    /// The operation on a run of so many numbers.
    fn call(self, replica: &mut Replica, len: usize, at: Span) -> Result<(), Error> {
        let (device, tree) = (replica.device.clone(), SumTree::new(&[3, 3, 3]));
        let (earlier, mut data) = ([sevens(&device, len)?], sevens(&device, len)?);
        let collective = &mut replica.collective;
        let done = match self {
            Sum => collective.all_reduce_sum(&device, &mut data, at),
            SumOfNodes => {
                let nodes = Nodes { tree: &tree, earlier: &earlier };
                collective.all_reduce(&device, Some(nodes), &mut data, at)
            }
            Broadcast => collective.broadcast(&device, &mut data, at, 0),
            Gather => collective.all_gather(&device, &mut data, at),
        };
        let stays = done.is_err() && matches!(self, Sum | SumOfNodes) && !device.runs_ahead();
        assert!(!stays || data.to_vec(&device, 0, len)? == vec![7.0; len], "what is not added up stays");
        done
    }
}

/// The last replica calls an operation with another length, or another run of as many numbers. All replicas fail,
/// and none waits.
#[test]
fn operations_that_do_not_fit_fail_on_all() {
    let (whole, behind) = (|len| (len, Span::new(0, len)), (4, Span::new(1, 4)));
    let other = "numbers to a collective to which replica";
    for (operation, usual, odd, told) in [
        (Sum, whole(6), whole(9), other),
        (SumOfNodes, whole(6), whole(9), other),
        (Broadcast, whole(6), whole(9), other),
        (Gather, whole(6), whole(9), other),
        (Gather, whole(6), whole(7), "the length of the run is 7, but must be a multiple"),
        (Sum, whole(4), behind, "ends at element 5 of a buffer of 4"),
        (SumOfNodes, whole(4), behind, "ends at element 5 of a buffer of 4"),
    ] {
        for devices in groups(3) {
            let failed = run_replicas(&devices, |mut replica: Replica| {
                let (len, at) = if replica.rank() == 2 { odd } else { usual };
                let failed = operation.call(&mut replica, len, at);
                assert!(failed.is_err() && replica.collective.barrier().is_err());
                failed
            });
            let error = failed.unwrap_err().to_string();
            assert!(error.contains(told), "{operation:?} on {devices:?}: {error}");
        }
    }
}

#[test]
fn a_failing_replica_stops_the_others() {
    for devices in groups(3) {
        a_failure_of_one_stops_all(|body| run_replicas(&devices, body));
        an_aborted_group_stays_aborted(|body| run_replicas(&devices, body));
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
