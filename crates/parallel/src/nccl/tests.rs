//! `Nccl` over an exchange between emulated GPUs, and over NCCL itself where there are GPUs.

#[path = "../../tests/emulated.rs"]
mod emulated;
#[path = "../../tests/everything.rs"]
mod everything;

use super::{Failures, Nccl, NcclJoin};
use crate::local::barrier::Barrier;
use crate::local::hangs::PATIENCE;
use crate::local::members::Members;
use crate::local::replicas::run_members;
use crate::{Error, Exchanges, Nodes, Replica, SumTree, add_run, run_replicas, slice_batch};
use emulated::gpus;
use everything::{EDGE, LENS, bring, everything, value};
use std::sync::Arc;
use std::time::Duration;
use towers_layers::Exchange as _;
use towers_program::{Device, GraphCache, ReplayArgs, Span, Storage};
use towers_tensor_cuda::Options as CudaOptions;
use towers_tensor_cuda::{Cuda, nccl};

/// A group on emulated GPUs.
fn over_threads(devices: &[Device], in_order: bool, patience: Duration) -> Members {
    let failures = Failures { barrier: Arc::new(Barrier::new(devices.len())), watch: None };
    let gpus: Vec<Cuda> = devices.iter().map(|device| super::gpu(device).unwrap().clone()).collect();
    let failed = |_| {
        let failures = failures.clone();
        Some(Box::new(move || failures.first()) as nccl::Failed)
    };
    let communicators = nccl::emulated(&gpus, patience, failed).unwrap();
    ordered(Nccl::members(failures, communicators), in_order)
}

fn ordered((members, group): (Vec<Nccl>, Arc<super::NcclGroup>), in_order: bool) -> Members {
    let members = members.into_iter().map(|member| member.in_order(in_order)).collect();
    Members::new(members, &group.failures.barrier, PATIENCE)
}

#[test]
fn in_order_it_has_the_bits_of_threads_in_host_memory() {
    let everything = |replica| everything(replica, &LENS);
    for world in 2..=4 {
        let Some(devices) = gpus(world) else { return };
        let host = run_replicas(&vec![towers_tensor_cpu::device(1); world], everything).unwrap();
        let by_nccl = run_members(&devices, over_threads(&devices, true, PATIENCE), everything).unwrap();
        assert_eq!(by_nccl, host, "{world} replicas");
    }
}

/// The emulated NCCL adds in the opposite order, so the test above can fail.
#[test]
fn otherwise_the_order_is_nccls() {
    let Some(devices) = gpus(3) else { return };
    let sum = |mut replica: Replica| {
        let mut data = bring(&replica.device, replica.rank(), 9)?;
        replica.collective.all_reduce_sum(&replica.device, &mut data, Span::new(EDGE, 9))?;
        Ok::<_, Error>(data.to_vec(&replica.device, EDGE, 9)?)
    };
    let expected: Vec<f32> = (0..9).map(|k| (value(2, k) + value(1, k)) + value(0, k)).collect();
    let sums = run_members(&devices, over_threads(&devices, false, PATIENCE), sum).unwrap();
    assert_eq!(sums, vec![expected; 3]);
    assert_ne!(sums, run_members(&devices, over_threads(&devices, true, PATIENCE), sum).unwrap());
}

#[test]
fn statistics_are_added_in_the_same_order_by_every_collective() {
    let Some(devices) = gpus(3) else { return };
    let sum = |mut replica: Replica| {
        let (device, at) = (replica.device.clone(), Span::new(EDGE, 9));
        let mut data = bring(&device, replica.rank(), 9)?;
        let mut exchanges = Exchanges::of_replicas(replica.collective.as_mut());
        let passed = exchanges.all_reduce(&device, &mut data, at);
        exchanges.end::<Error>(passed)?;
        Ok::<_, Error>(data.to_vec(&device, EDGE, 9)?)
    };
    let host = run_replicas(&vec![towers_tensor_cpu::device(1); 3], sum).unwrap();
    assert_eq!(run_members(&devices, over_threads(&devices, false, PATIENCE), sum).unwrap(), host);
}

/// Three buckets of gradients, then the rest of 110 numbers.
const THREE_BUCKETS: [Span; 4] = [Span::new(96, 9), Span::new(32, 64), Span::new(0, 32), Span::new(105, 5)];

/// Adds up as a training pass does, from the last layer on.
fn sum_by_buckets(replica: &mut Replica, data: &mut Storage) -> Result<(), Error> {
    let Replica { device, collective } = replica;
    THREE_BUCKETS[..3].iter().try_for_each(|run| collective.start_all_reduce(device, None, data, *run))?;
    collective.finish_all_reduce(device, None, &THREE_BUCKETS, data)
}

/// Asynchronous sums in buckets equal those of the whole run, in NCCL's order and in that of the ranks.
#[test]
fn buckets_have_the_bits_of_the_whole() {
    let sum = |mut replica: Replica, by_buckets: bool| {
        let device = replica.device.clone();

        let mut data = bring(&device, replica.rank(), 104)?;
        if by_buckets {
            sum_by_buckets(&mut replica, &mut data)?;
        } else {
            replica.collective.all_reduce_sum(&device, &mut data, Span::new(0, 110))?;
        }
        Ok::<_, Error>(data.to_vec(&device, 0, 110)?)
    };
    for in_order in [false, true] {
        let Some(devices) = gpus(3) else { return };
        let [whole, buckets] = [false, true].map(|by_buckets| {
            run_members(&devices, over_threads(&devices, in_order, PATIENCE), |replica| {
                sum(replica, by_buckets)
            })
            .unwrap()
        });
        assert_eq!(whole, buckets);
    }
}

/// Four steps that add up in buckets: one runs, one is captured, and the rest replay it.
fn recorded(mut replica: Replica) -> Result<Vec<f32>, Error> {
    let (device, own) = (replica.device.clone(), 1.0 + replica.rank() as f32);

    let mut data = device.alloc(110)?;
    let mut recorder = GraphCache::default();
    let mut all = Vec::new();
    for _ in 0..4 {
        recorder.run(&device, (), &ReplayArgs::default(), || {
            device.fill(own, &mut data, Span::new(0, 110))?;
            sum_by_buckets(&mut replica, &mut data)
        })?;
        all.extend(data.to_vec(&device, 0, 110)?);
    }
    assert_eq!(recorder.refusal(), None);
    // Dropped here, before the collective that it holds.
    Ok(all)
}

#[test]
fn recorded_steps_add_up() {
    let Some(devices) = gpus(3) else { return };
    let sums = run_members(&devices, over_threads(&devices, false, PATIENCE), recorded).unwrap();
    assert_eq!(sums, vec![vec![6.0; 4 * 110]; 3]);
}

/// A failure of one replica is known to all. The next question has a new answer.
#[test]
fn all_learn_whether_it_went_well_for_all() {
    let Some(devices) = gpus(3) else { return };
    let ask = |mut replica: Replica| {
        let well = [0, 1, 2].map(|turn| turn != 1 || replica.rank() != 2);
        let queued = replica.collective.queued().unwrap();
        well.into_iter().map(|well| queued.all_agree(well)).collect::<Result<Vec<_>, _>>()
    };
    let told = run_members(&devices, over_threads(&devices, false, PATIENCE), ask).unwrap();
    assert_eq!(told, vec![[true, false, true]; 3]);
}

#[test]
fn a_failing_replica_stops_the_others() {
    let Some(devices) = gpus(3) else { return };
    for in_order in [false, true] {
        let group = || over_threads(&devices, in_order, PATIENCE);
        everything::a_failure_of_one_stops_all(|body| run_members(&devices, group(), body));
        everything::an_aborted_group_stays_aborted(|body| run_members(&devices, group(), body));
    }
}

/// NCCL can't tell why a rank is silent, but the wait is bounded.
#[test]
fn a_replica_that_does_not_come_is_not_waited_for_without_end() {
    let Some(devices) = gpus(2) else { return };
    let group = over_threads(&devices, false, Duration::from_millis(50));
    let result = run_members(&devices, group, |mut replica: Replica| {
        let mut data = replica.device.alloc(4)?;
        replica.collective.queued().unwrap().set_blocking(false);
        match replica.rank() {
            0 => replica.collective.all_reduce_sum(&replica.device, &mut data, Span::new(0, 4)),
            _ => Ok(()),
        }
    });
    let error = result.unwrap_err().to_string();
    assert!(error.contains("rank 0 of 2 waited 0.05 s in ncclAllReduce for the others"), "{error}");
}

/// The tree may be another one each time. A rank with other nodes than those of the tree would give the others
/// wrong numbers.
#[test]
fn a_rank_brings_the_nodes_of_the_tree() {
    let Some(devices) = gpus(2) else { return };
    let result = run_members(&devices, over_threads(&devices, false, PATIENCE), |mut replica: Replica| {
        let (device, rank) = (replica.device.clone(), replica.rank());
        let (earlier, mut data) = ([device.alloc(8)?], device.alloc(8)?);
        for counts in [[3, 1], [1, 3], [4, 3]] {
            let tree = SumTree::new(&counts);
            let nodes = Nodes { tree: &tree, earlier: &earlier[..tree.nodes()[rank] - 1] };
            replica.collective.all_reduce(&device, Some(nodes), &mut data, Span::new(0, 8))?;
        }
        let nodes = Nodes { tree: &SumTree::new(&[3, 1]), earlier: &earlier[rank..] };
        replica.collective.all_reduce(&device, Some(nodes), &mut data, Span::new(0, 8))?;
        let nodes = Nodes { tree: &SumTree::new(&[1, 1]), earlier: &earlier[..rank] };
        replica.collective.all_reduce(&device, Some(nodes), &mut data, Span::new(0, 8))
    });
    let error = result.unwrap_err().to_string();
    assert!(error.contains("rank 1 brings 1 earlier nodes to a sum, but that is not its order"), "{error}");
}

#[test]
fn only_gpus_can_join() {
    let join = NcclJoin { id: vec![0; 128], rank: 0, world: 1, patience: PATIENCE, watch: None };
    assert!(Nccl::join(&[towers_tensor_cpu::device(1)], join).is_err());
    let Some(devices) = gpus(1) else { return };
    let join = NcclJoin { id: vec![0; 128], rank: 0, world: 1, patience: PATIENCE, watch: None };
    let error = Nccl::join(&devices, join).err().unwrap().to_string();
    assert!(error.contains("this id is of no group of emulated GPUs"), "{error}");
}

/// A run that can't be cut into equal parts is refused before NCCL is called.
#[test]
fn only_equal_parts_are_gathered() {
    let Some(devices) = gpus(2) else { return };
    let result = run_members(&devices, over_threads(&devices, false, PATIENCE), |mut replica: Replica| {
        let mut data = replica.device.alloc(5)?;
        replica.collective.all_gather(&replica.device, &mut data, Span::new(0, 5))
    });
    let error = result.unwrap_err().to_string();
    assert!(error.contains("the length of the run is 5, but must be a multiple"), "{error}");
}

/// Two processes, here threads, of one replica and of two.
#[test]
fn processes_of_several_replicas_join_by_an_id() {
    let Some(devices) = gpus(3) else { return };
    let id = Nccl::draw_id(&devices[0]).unwrap();
    let process = |first: usize, devices: &[Device]| {
        let join = NcclJoin { id: id.clone(), rank: first, world: 3, patience: PATIENCE, watch: None };
        run_members(devices, ordered(Nccl::join(devices, join)?, true), |mut replica| {
            let well = replica.rank() != 1;
            let queued = replica.collective.queued().unwrap();
            assert_eq!([queued.all_agree(well)?, queued.all_agree(true)?], [false, true]);
            everything(replica, &LENS)
        })
    };
    let (one, others) = std::thread::scope(|scope| {
        let one = scope.spawn(|| process(0, &devices[..1]));
        (process(1, &devices[1..]).unwrap(), one.join().unwrap().unwrap())
    });
    let expected =
        run_members(&devices, over_threads(&devices, true, PATIENCE), |replica| everything(replica, &LENS));
    assert_eq!([others, one].concat(), expected.unwrap());
}

/// NCCL itself, on all GPUs of the machine.
#[test]
fn real_gpus_add_up_by_nccl() {
    if let Err(why) = towers_tensor_cuda::available().and_then(|()| nccl::available()) {
        println!("SKIPPED: sums by NCCL: {why}");
        return;
    }
    for world in 1..=towers_tensor_cuda::gpus().unwrap().len() {
        let open = |gpu| towers_tensor_cuda::device(CudaOptions { gpu, ..CudaOptions::default() }).unwrap();
        let devices: Vec<Device> = (0..world).map(open).collect();
        for in_order in [false, true] {
            let group = || ordered(Nccl::on_threads(&devices, PATIENCE).unwrap(), in_order);
            let whole = (1..=world).sum::<usize>() as f32;
            assert_eq!(run_members(&devices, group(), recorded).unwrap(), vec![vec![whole; 4 * 110]; world]);
            let sums = run_members(&devices, group(), |mut replica: Replica| {
                let mut data = bring(&replica.device, replica.rank(), 1001)?;
                replica.collective.all_reduce_sum(&replica.device, &mut data, Span::new(EDGE, 1001))?;
                replica.collective.broadcast(&replica.device, &mut data, Span::new(EDGE, 1001), 0)?;
                let (rank, world) = (replica.rank(), replica.world());
                let mut ranks = replica.device.alloc(world)?;
                replica.device.fill(rank as f32, &mut ranks, Span::new(rank, 1))?;
                replica.collective.all_gather(&replica.device, &mut ranks, Span::new(0, world))?;
                let expected: Vec<f32> = (0..world).map(|rank| rank as f32).collect();
                assert_eq!(ranks.to_vec(&replica.device, 0, world)?, expected);
                Ok::<_, Error>(data.to_vec(&replica.device, EDGE, 1001)?)
            });
            for sums in sums.unwrap() {
                for (k, sum) in sums.iter().enumerate() {
                    let exact: f64 = (0..world).map(|rank| f64::from(value(rank, k))).sum();
                    let size: f64 = (0..world).map(|rank| f64::from(value(rank, k)).abs()).sum();
                    assert!((f64::from(*sum) - exact).abs() <= 1e-6 * size, "{sum} for {exact}");
                }
            }
        }
    }
}
