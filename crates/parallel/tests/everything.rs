//! Operations whose results must have the same bits by every collective. The unit tests of NCCL use them too.

use super::{Error, Nodes, Replica, SumTree, add_run};
use core::ops::Range;
use program::{Device, Precision, Span, Storage};

/// This number of emulated GPUs, or none without a C++ compiler.
pub fn gpus(count: usize) -> Option<Vec<Device>> {
    let devices: Result<Vec<_>, _> = (0..count).map(|_| tensor_cuda::emulated(Precision::Fp32)).collect();
    devices.inspect_err(|error| println!("SKIPPED: collectives on GPUs: {error}")).ok()
}

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

/// Sums, sums of `rank` parts each along a tree, a broadcast and a gather, of runs of these lengths. Most of them work
/// on the results of the last one.
pub fn everything(mut replica: Replica, lens: &[usize]) -> Result<Vec<u32>, Error> {
    let (device, rank) = (replica.device.clone(), replica.rank());
    let mut all = Vec::new();
    for &len in lens {
        let (at, whole) = (Span::new(EDGE, len), len + 2 * EDGE);
        let mut keep = |data: &Storage| -> Result<(), Error> {
            all.extend(data.to_vec(&device, 0, whole)?.into_iter().map(f32::to_bits));
            Ok(())
        };
        let mut data = bring(&device, rank, len)?;
        for _ in 0..2 {
            replica.collective.all_reduce_sum(&device, &mut data, at)?;
            keep(&data)?;
        }
        let tree = SumTree::new(&(0..replica.world()).collect::<Vec<_>>());
        let first = (0..rank).sum();
        let (earlier, mut data) = nodes_of(&device, &tree, rank, first..first + rank, len)?;
        let nodes = Nodes { tree: &tree, earlier: &earlier };
        replica.collective.all_reduce(&device, Some(nodes), &mut data, at)?;
        keep(&data)?;
        device.fill(rank as f32, &mut data, Span::new(0, whole))?;
        replica.collective.broadcast(&device, &mut data, at, 1)?;
        replica.collective.barrier()?;
        keep(&data)?;
        let mut data = bring(&device, rank, len)?;
        let equal_parts = Span::new(EDGE, len - len % replica.world());
        replica.collective.all_gather(&device, &mut data, equal_parts)?;
        keep(&data)?;
    }
    Ok(all)
}
