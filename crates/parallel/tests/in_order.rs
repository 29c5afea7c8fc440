//! Sums of several parts from each replica: the same bits for any number of replicas.

use crate::cpus;
use crate::everything::{EDGE, bring, value};
use parallel::{Error, Replica, Shards, run_replicas};
use program::Span;

const LEN: usize = 23;
/// The sum of `total` parts on every replica, with the parts divided over `world` replicas.
fn sums(total: usize, world: usize) -> Vec<Vec<f32>> {
    run_replicas(&cpus(world), |mut replica: Replica| {
        let device = replica.device.clone();
        let shards = Shards::new(total, replica.world(), replica.rank());
        let parts = shards.own().map(|part| bring(&device, part, LEN)).collect::<Result<Vec<_>, _>>()?;
        let mut into = device.alloc(LEN + 2 * EDGE)?;
        device.fill(7.0, &mut into, Span::new(0, LEN + 2 * EDGE))?;
        // Twice, with another collective and a shorter run between: no earlier number remains.
        replica.collective.all_reduce_in_order(&device, &parts, Span::new(EDGE, LEN), &mut into)?;
        replica.collective.all_reduce_sum(&device, &mut into, Span::new(0, 1))?;
        replica.collective.all_reduce_in_order(&device, &parts, Span::new(EDGE, 3), &mut into)?;
        replica.collective.all_reduce_in_order(&device, &parts, Span::new(EDGE, LEN), &mut into)?;
        Ok::<_, Error>(into.to_vec(&device, 0, LEN + 2 * EDGE)?)
    })
    .unwrap()
}

#[test]
fn the_sum_is_that_of_the_parts_in_their_order() {
    for total in [1, 2, 4, 5, 9] {
        let expected: Vec<f32> =
            (0..LEN).map(|k| (1..total).fold(value(0, k), |sum, part| sum + value(part, k))).collect();
        for world in 1..=total.min(4) {
            for result in sums(total, world) {
                assert_eq!(result[EDGE..EDGE + LEN], expected[..], "{total} parts on {world} replicas");
                let edges = [result[0], result[1], result[LEN + EDGE], result[LEN + 2 * EDGE - 1]];
                assert_eq!(edges, [7.0 * world as f32, 7.0, 7.0, 7.0], "only the span changes");
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
    let plain = run_replicas(&cpus(4), |mut replica: Replica| {
        let device = replica.device.clone();
        let mut data = device.alloc(LEN)?;
        let own: Vec<f32> = (0..LEN).map(|k| value(replica.rank(), k)).collect();
        device.upload(&own, &mut data, 0)?;
        replica.collective.all_reduce_sum(&device, &mut data, Span::new(0, LEN))?;
        Ok::<_, Error>(data.to_vec(&device, 0, LEN)?)
    })
    .unwrap();
    for (plain, in_order) in plain.iter().zip(sums(4, 4)) {
        assert_eq!(plain[..], in_order[EDGE..EDGE + LEN]);
    }
}

/// A replica without a part takes part. Without any part, the sum is 0.
#[test]
fn no_parts_add_nothing() {
    for (world, parts) in [(1, 0), (3, 0), (3, 1)] {
        let all = run_replicas(&cpus(world), |mut replica: Replica| {
            let device = replica.device.clone();
            let (mut own, mut into) = (vec![device.alloc(4)?], device.alloc(4)?);
            device.fill(2.0, &mut own[0], Span::new(0, 4))?;
            device.fill(5.0, &mut into, Span::new(0, 4))?;
            own.truncate(if replica.rank() == 1 { parts } else { 0 });
            replica.collective.all_reduce_in_order(&device, &own, Span::new(0, 4), &mut into)?;
            Ok::<_, Error>(into.to_vec(&device, 0, 4)?)
        });
        assert_eq!(all.unwrap(), vec![[2.0 * parts as f32; 4]; world]);
    }
}

#[test]
fn parts_of_different_sizes_are_an_error_on_all() {
    let result = run_replicas(&cpus(2), |mut replica: Replica| {
        let device = replica.device.clone();
        let len = 4 + replica.rank();
        let (parts, mut into) = (vec![device.alloc(len)?, device.alloc(len)?], device.alloc(len)?);
        replica.collective.all_reduce_in_order(&device, &parts, Span::new(0, len), &mut into)
    });
    assert!(matches!(result, Err(Error::Mismatch { .. })), "{result:?}");
}

/// A run outside of the parts is an error, alone and among others, and no replica keeps waiting.
#[test]
fn a_run_outside_of_the_parts_is_an_error() {
    for world in [1, 2] {
        let result = run_replicas(&cpus(world), |mut replica: Replica| {
            let device = replica.device.clone();
            let (parts, mut into) = (vec![device.alloc(4)?], device.alloc(4)?);
            let at = Span::new(1 - replica.rank(), 4);
            replica.collective.all_reduce_in_order(&device, &parts, at, &mut into)
        });
        assert!(matches!(result, Err(Error::Tensor(_))), "{result:?}");
    }
}
