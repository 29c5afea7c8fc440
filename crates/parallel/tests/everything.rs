//! Operations whose results must have the same bits by every collective. The unit tests of NCCL and the processes
//! of MPI use them too.

use super::{Error, Nodes, Replica, SumTree, add_run, slice_batch};
use core::ops::Range;
use towers_program::{Device, Span, Storage};

/// Numbers of such different sizes that every order of adding them gives other bits.
pub fn value(part: usize, k: usize) -> f32 {
    let size = [1.0e-7, 1.0, 3.0e7, -2.9e7, 0.1][part % 5];
    size * (1.0 + k as f32 * 0.37) / (part + 1) as f32
}

/// Elements before and after the run that is added up.
pub const EDGE: usize = 3;

pub fn bring(device: &Device, part: usize, len: usize) -> Result<Storage, Error> {
    let mut data = device.alloc(len + 2 * EDGE)?;
    let values: Vec<f32> = (0..len).map(|k| value(part, k)).collect();
    device.upload(&values, &mut data, EDGE)?;
    Ok(data)
}

/// The nodes of the tree that a replica brings: those before the last, and that.
pub fn nodes_of(
    device: &Device,
    tree: &SumTree,
    rank: usize,
    parts: Range<usize>,
    len: usize,
) -> Result<(Vec<Storage>, Storage), Error> {
    let mut nodes: Vec<Storage> = Vec::new();
    for (part, joins) in parts.zip(tree.joins_of(rank)) {
        nodes.push(bring(device, part, len)?);
        for _ in 0..joins {
            let (top, below) = (nodes.pop(), nodes.last_mut());
            if let (Some(top), Some(below)) = (top, below) {
                add_run(device, &top, below, Span::new(EDGE, len))?;
            }
        }
    }
    let last = nodes.pop().map_or_else(|| device.alloc(len + 2 * EDGE), Ok)?;
    Ok((nodes, last))
}

pub const LENS: [usize; 7] = [0, 1, 2, 5, 23, 64, 1001];

/// All operations, on runs of these lengths in the middle of the numbers.
pub fn everything(mut replica: Replica, lens: &[usize]) -> Result<Vec<u32>, Error> {
    let (device, rank, world) = (replica.device.clone(), replica.rank(), replica.world());
    let mut all = Vec::new();
    let mut keep = |data: &Storage| -> Result<(), Error> {
        all.extend(data.to_vec(&device, 0, data.len())?.into_iter().map(f32::to_bits));
        Ok(())
    };
    // One part more than the replica before has; or none for most.
    let counts = [(1..=world).collect(), (0..world).map(|rank| slice_batch(2, world, rank).len()).collect()];
    let trees = counts.map(|counts: Vec<usize>| {
        let first: usize = counts[..rank].iter().sum();
        (SumTree::new(&counts), first..first + counts[rank])
    });
    for &len in lens {
        let at = Span::new(EDGE, len);
        let mut data = bring(&device, rank, len)?;
        for _ in 0..2 {
            replica.collective.all_reduce_sum(&device, &mut data, at)?;
            keep(&data)?;
        }
        for (tree, own) in &trees {
            let (earlier, mut data) = nodes_of(&device, tree, rank, own.clone(), len)?;
            let nodes = Nodes { tree, earlier: &earlier };
            replica.collective.all_reduce(&device, Some(nodes), &mut data, at)?;
            keep(&data)?;
            keep(&in_buckets(&mut replica, Some((tree, own.clone())), len)?)?;
        }
        keep(&in_buckets(&mut replica, None, len)?)?;
        device.fill(rank as f32, &mut data, Span::new(0, len + 2 * EDGE))?;
        replica.collective.broadcast(&device, &mut data, at, len % world)?;
        replica.collective.barrier()?;
        keep(&data)?;
        let mut data = bring(&device, rank, len)?;
        replica.collective.all_gather(&device, &mut data, Span::new(EDGE, len - len % world))?;
        keep(&data)?;
    }
    Ok(all)
}

/// Asynchronous sums in buckets, from the last one to the first, during the pass.
fn in_buckets(
    replica: &mut Replica,
    parts: Option<(&SumTree, Range<usize>)>,
    len: usize,
) -> Result<Storage, Error> {
    let (device, rank, third) = (replica.device.clone(), replica.rank(), len / 3);
    let behind = Span::new(3 * third, len - 3 * third);
    let buckets = [Span::new(2 * third, third), Span::new(third, third), Span::new(0, third), behind];
    let (earlier, mut data) = match &parts {
        Some((tree, own)) => nodes_of(&device, tree, rank, own.clone(), len)?,
        None => (Vec::new(), bring(&device, rank, len)?),
    };
    let nodes = parts.as_ref().map(|(tree, _)| Nodes { tree, earlier: &earlier });
    // A replica without a part has nothing to start.
    let has_parts = parts.as_ref().is_none_or(|(_, own)| !own.is_empty());
    for run in buckets[..3].iter().filter(|_| has_parts) {
        replica.collective.start_all_reduce(&device, nodes, &mut data, *run)?;
        device.fill(run.offset as f32, &mut data, Span::new(0, run.offset))?;
        device.fill(rank as f32, &mut data, behind)?;
    }
    replica.collective.finish_all_reduce(&device, nodes, &buckets, &mut data)?;
    Ok(data)
}

type Body<'a> = &'a (dyn Fn(Replica) -> Result<(), Error> + Sync);

/// One of three replicas panics, fails by itself, or fails in an operation. The others stop, and the caller learns
/// the cause. No replica reads freed memory.
pub fn a_failure_of_one_stops_all(run: impl Fn(Body<'_>) -> Result<Vec<()>, Error>) {
    for (bad, way) in (0..3).flat_map(|bad| (0..3).map(move |way| (bad, way))) {
        let result = run(&|mut replica: Replica| {
            let device = replica.device.clone();
            let mut data = device.alloc(40)?;
            replica.collective.all_reduce_sum(&device, &mut data, Span::new(0, 40))?;
            if replica.rank() == bad {
                match way {
                    0 => panic!("replica {bad} is the bad one"),
                    1 => return Err(Error::Mismatch { rank: bad, got: 1, other: 9, expected: 2 }),
                    _ => replica.collective.all_reduce_sum(&device, &mut data, Span::new(1, 40))?,
                }
            }
            for _ in 0..3 {
                replica.collective.all_reduce_sum(&device, &mut data, Span::new(0, 40))?;
            }
            Ok(())
        });
        match (way, result.unwrap_err()) {
            (0, Error::Panicked { rank, .. }) | (1, Error::Mismatch { rank, .. }) => assert_eq!(rank, bad),
            (2, Error::Tensor(error)) => assert!(error.to_string().contains("41"), "{error}"),
            (_, other) => panic!("{other}"),
        }
    }
}

pub fn an_aborted_group_stays_aborted(run: impl Fn(Body<'_>) -> Result<Vec<()>, Error>) {
    let result = run(&|mut replica: Replica| {
        let mut data = replica.device.alloc(4)?;
        replica.collective.abort("the power is going");
        let mut sum = || replica.collective.all_reduce_sum(&replica.device, &mut data, Span::new(0, 4));
        assert!(sum().is_err() && sum().is_err());
        replica.collective.barrier()
    });
    assert_eq!(result.unwrap_err().to_string(), "stopped because the power is going");
}
