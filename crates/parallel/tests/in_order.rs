//! Sums along a tree over the parts of all replicas: the same bits for any number of replicas.

use crate::everything::{EDGE, bring, nodes_of, value};
use crate::{cpus, groups};
use towers_parallel::{Error, Nodes, Replica, Shards, SumTree, run_replicas};
use towers_program::{Device, Span};

const LEN: usize = 23;

/// The sum of `total` parts on every replica, with the parts divided over the devices.
fn sums(total: usize, devices: &[Device]) -> Vec<Vec<f32>> {
    run_replicas(devices, |mut replica: Replica| {
        let device = replica.device.clone();
        let shards = Shards::new(total, replica.world(), replica.rank());
        let tree = SumTree::new(shards.counts());
        let bring = || nodes_of(&device, &tree, shards.rank(), shards.own(), LEN);
        let mut all = Vec::new();
        // Twice, with another collective and a shorter run between: no earlier number remains.
        for at in [Span::new(EDGE, LEN), Span::new(EDGE, 3), Span::new(EDGE, LEN)] {
            let (earlier, mut data) = bring()?;
            device.fill(7.0, &mut data, Span::new(0, EDGE))?;
            let nodes = Nodes { tree: &tree, earlier: &earlier };
            replica.collective.all_reduce(&device, Some(nodes), &mut data, at)?;
            replica.collective.all_reduce_sum(&device, &mut data, Span::new(0, 1))?;
            all = data.to_vec(&device, 0, LEN + 2 * EDGE)?;
        }
        Ok::<_, Error>(all)
    })
    .unwrap()
}

/// The sum of the parts `from..to`, by the definition of the tree.
fn tree_sum(from: usize, to: usize, k: usize) -> f32 {
    match to - from {
        1 => value(from, k),
        len => {
            let middle = from + len.next_power_of_two() / 2;
            tree_sum(from, middle, k) + tree_sum(middle, to, k)
        }
    }
}

/// Through host memory and from GPU to GPU.
#[test]
fn the_sum_is_that_of_the_tree() {
    for total in [1, 2, 3, 4, 5, 7, 8, 9] {
        let expected: Vec<f32> = (0..LEN).map(|k| tree_sum(0, total, k)).collect();
        for world in 1..=total.min(5) {
            for devices in groups(world) {
                for result in sums(total, &devices) {
                    assert_eq!(result[EDGE..EDGE + LEN], expected[..], "{total} parts on {devices:?}");
                    let edges = [result[0], result[1], result[LEN + EDGE], result[LEN + 2 * EDGE - 1]];
                    assert_eq!(edges, [7.0 * world as f32, 7.0, 0.0, 0.0], "only the span changes");
                }
            }
        }
    }
}

/// The test above can fail: in another order the sum has other bits.
#[test]
fn the_order_matters() {
    let sum = |parts: &mut dyn Iterator<Item = usize>| parts.fold(0.0, |sum, part| sum + value(part, 1));
    assert_ne!(sum(&mut (0..5)), sum(&mut (0..5).rev()));
}

#[test]
fn with_one_part_each_it_is_the_plain_sum() {
    for world in 1..=5 {
        let plain = run_replicas(&cpus(world), |mut replica: Replica| {
            let device = replica.device.clone();
            let mut data = bring(&device, replica.rank(), LEN)?;
            replica.collective.all_reduce_sum(&device, &mut data, Span::new(EDGE, LEN))?;
            Ok::<_, Error>(data.to_vec(&device, EDGE, LEN)?)
        });
        for (plain, in_order) in plain.unwrap().iter().zip(sums(world, &cpus(world))) {
            assert_eq!(plain[..], in_order[EDGE..EDGE + LEN]);
        }
    }
}

/// A replica without a part takes part, and gets the sum.
#[test]
fn no_parts_add_nothing() {
    for devices in groups(3) {
        let all = run_replicas(&devices, |mut replica: Replica| {
            let (device, tree) = (replica.device.clone(), SumTree::new(&[0, 1, 0]));
            let mut data = device.alloc(4)?;
            device.fill([5.0, 2.0, 5.0][replica.rank()], &mut data, Span::new(0, 4))?;
            let nodes = Nodes { tree: &tree, earlier: &[] };
            replica.collective.all_reduce(&device, Some(nodes), &mut data, Span::new(0, 4))?;
            Ok::<_, Error>(data.to_vec(&device, 0, 4)?)
        });
        assert_eq!(all.unwrap(), vec![[2.0; 4]; 3]);
    }
}

/// All replicas fail, and none waits: one brings a node too many, or has another tree.
#[test]
fn other_nodes_than_those_of_the_tree_are_an_error_on_all() {
    for (devices, fault) in groups(2).iter().flat_map(|devices| [0, 1].map(|fault| (devices, fault))) {
        let result = run_replicas(devices, |mut replica: Replica| {
            let (device, odd) = (replica.device.clone(), replica.rank() == 1);
            let (more, mut data) = (vec![device.alloc(4)?], device.alloc(4)?);
            let [tree, other] = [[3, 1], [2, 2]].map(|counts| SumTree::new(&counts));
            let nodes = match (replica.rank(), fault) {
                (0, _) => Nodes { tree: &tree, earlier: &more },
                (_, 0) => Nodes { tree: &tree, earlier: &more },
                _ => Nodes { tree: &other, earlier: &[] },
            };
            let met = replica.collective.all_reduce(&device, Some(nodes), &mut data, Span::new(0, 4));
            assert!(met.is_err() || (odd && fault == 1), "{met:?}");
            met
        });
        let error = result.unwrap_err();
        let on_gpus = devices.iter().any(|device| device.get::<towers_tensor_cuda::Cuda>().is_some());
        assert!(on_gpus || matches!(error, Error::PartialSums { .. }), "{error}");
    }
}
