//! Buffers that are needed for some time each, packed into few pools of memory.
//!
//! In a pool, buffers whose lives don't meet share memory: each has a place, and larger ones may lie where several smaller ones
//! were. Buffers that one op works with lie in different pools, since an op has a pool either to read or to write.

use core::cmp::Reverse;
use philox::{Philox, domain};

/// The first and the last tick at which a buffer holds something that will be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) from: usize,
    pub(super) to: usize,
}

impl Life {
    fn meets(self, other: Life) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

/// A buffer that needs a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Elements.
    pub(super) len: usize,
    pub(super) life: Life,
}

/// Where a buffer lies: in which pool, and from which of its elements on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) pool: usize,
    pub(super) offset: usize,
}

/// Pools of memory, and the places of buffers in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Packing {
    /// Elements of each pool.
    pub(super) pools: Vec<usize>,
    /// In the order of the requests; `None` for what was none.
    pub(super) spots: Vec<Option<Spot>>,
}

/// Every buffer starts at a multiple of so many elements: two cache lines in f32, one in half precision.
const ALIGN: usize = 32;

/// How many pools to try with: fewer waste less on their edges, more leave each buffer a choice.
const POOLS: core::ops::RangeInclusive<usize> = 3..=8;

/// In which order buffers take their places, the first one first.
type Order = fn(&Request) -> usize;

/// Those that leave the fewest choices come first: large ones, or those that are in the way of most others. Where lives are short, as
/// in inference, one after the other often fits best.
const ORDERS: [Order; 3] = [
    |request| request.len,
    |request| request.len.saturating_mul(request.life.to - request.life.from + 1),
    |request| usize::MAX - request.life.from,
];

/// How often the best attempt is changed a little, where it needs more memory than is alive at once.
const CHANGES: usize = 3000;

/// How many pairs of buffers may be looked at for that: a tenth of the memory is worth some 60 ms.
const PAIRS: usize = 18_000_000;

/// By which share at most a change may make it worse, at first.
const HEAT: f64 = 0.02;

/// Gives every request a place, so that buffers in use at the same time don't overlap, and none of those in one of the lists of
/// `together` share a pool. Of several attempts the one that needs the least memory counts.
pub(super) fn pack(requests: &[Option<Request>], together: &[Vec<usize>]) -> Packing {
    let mut apart = vec![Vec::new(); requests.len()];
    for list in together {
        for &a in list {
            apart[a].extend(list.iter().copied().filter(|&b| b != a));
        }
    }
    let all: Vec<(usize, Request)> =
        requests.iter().enumerate().filter_map(|(k, request)| Some((k, (*request)?))).collect();
    let first = ORDERS.iter().flat_map(|order| {
        let mut turns = all.clone();
        turns.sort_by_key(|(k, request)| (Reverse((order(request), request.len)), request.life.from, *k));
        POOLS.map(move |most| (turns.clone(), most))
    });
    let attempts = first.map(|(turns, most)| Attempt::new(turns, most, &apart));
    let best = attempts.min_by_key(Attempt::cost);
    best.map(|best| improve(best, floor(requests), &apart).packing).unwrap_or_default()
}

/// Changes an attempt a little, again and again, until no more than `floor` and a percent is needed: simulated annealing, which
/// takes worse ones too at first.
fn improve(mut best: Attempt, floor: usize, apart: &[Vec<usize>]) -> Attempt {
    let count = best.turns.len();
    let changes = CHANGES.min(PAIRS / (count * count).max(1));
    let mut random = Philox::new(0, domain("packing"), [0, 0]);
    let mut now = best.clone();
    for change in 0..changes {
        if best.cost().0 <= floor + floor / 100 {
            break;
        }
        let mut turns = now.turns.clone();
        let [from, to] = [0; 2].map(|_| random.below(count as u32) as usize);
        let moved = turns.remove(from);
        turns.insert(to, moved);
        let spread = POOLS.end() - POOLS.start() + 1;
        let most =
            if change % 4 == 0 { POOLS.start() + random.below(spread as u32) as usize } else { now.most };
        let other = Attempt::new(turns, most, apart);
        let heat = HEAT * (1.0 - change as f64 / changes as f64) * random.unit_f64();
        if other.cost().0 as f64 <= now.cost().0 as f64 * (1.0 + heat) {
            now = other;
        }
        if now.cost() < best.cost() {
            best = now.clone();
        }
    }
    best
}

/// What is alive at the busiest tick: no packing needs less.
fn floor(requests: &[Option<Request>]) -> usize {
    let at = |tick: usize| {
        let alive = requests.iter().flatten().filter(|r| (r.life.from..=r.life.to).contains(&tick));
        alive.map(|r| r.len).sum::<usize>()
    };
    requests.iter().flatten().map(|r| at(r.life.from)).max().unwrap_or(0)
}

/// A packing, and what it came of.
#[derive(Clone)]
struct Attempt {
    /// The buffers, by their places in the list of requests, in the order in which they take their places.
    turns: Vec<(usize, Request)>,
    most: usize,
    packing: Packing,
}

impl Attempt {
    /// One buffer after the other, each where it makes the memory grow least. More pools than `most` only where there must be.
    fn new(turns: Vec<(usize, Request)>, most: usize, apart: &[Vec<usize>]) -> Self {
        let mut pools: Vec<Pool> = Vec::new();
        let mut spots: Vec<Option<Spot>> = vec![None; apart.len()];
        for &(k, request) in &turns {
            let taken =
                |pool: usize| apart[k].iter().any(|&other| spots[other].is_some_and(|at| at.pool == pool));
            let place = |pool: usize| {
                let offset = pools.get(pool).map_or(0, |pool| pool.offset(request));
                let grows = (offset + request.len).saturating_sub(pools.get(pool).map_or(0, |pool| pool.len));
                (grows, offset, pool)
            };
            let open = pools.len().max(most);
            let best = (0..open).filter(|&pool| !taken(pool)).map(place).min();
            let (_, offset, pool) = best.unwrap_or((request.len, 0, open));
            // The first of the pools that nothing lies in yet.
            let pool = pool.min(pools.len());
            if pool == pools.len() {
                pools.push(Pool::default());
            }
            pools[pool].put(offset, request);
            spots[k] = Some(Spot { pool, offset });
        }
        Attempt {
            turns,
            most,
            packing: Packing { pools: pools.iter().map(|pool| pool.len).collect(), spots },
        }
    }

    /// The memory, and then the number of pools.
    fn cost(&self) -> (usize, usize) {
        (self.packing.pools.iter().sum(), self.packing.pools.len())
    }
}

/// A piece of memory with buffers in it.
#[derive(Default)]
struct Pool {
    len: usize,
    /// By offset.
    buffers: Vec<(usize, Request)>,
}

impl Pool {
    /// Where a buffer fits best: the smallest gap between those that it meets that is large enough, or behind them all.
    fn offset(&self, request: Request) -> usize {
        let (mut end, mut best) = (0, None::<(usize, usize)>);
        for (offset, other) in self.buffers.iter().filter(|(_, other)| other.life.meets(request.life)) {
            let gap = offset.saturating_sub(end);
            if gap >= request.len && best.is_none_or(|(smallest, _)| gap < smallest) {
                best = Some((gap, end));
            }
            end = end.max((offset + other.len).next_multiple_of(ALIGN));
        }
        best.map_or(end, |(_, offset)| offset)
    }

    fn put(&mut self, offset: usize, request: Request) {
        let at = self.buffers.partition_point(|(other, _)| *other < offset);
        self.buffers.insert(at, (offset, request));
        self.len = self.len.max(offset + request.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(len: usize, from: usize, to: usize) -> Option<Request> {
        Some(Request { len, life: Life { from, to } })
    }

    #[test]
    fn a_large_buffer_lies_where_small_ones_were() {
        // Both small ones are used at once, and so lie in two pools, with a part of the large one's neighbours in each.
        let all = [request(64, 0, 3), request(64, 0, 5), request(64, 2, 3), request(128, 6, 9)];
        let packing = pack(&all, &[]);
        assert_eq!(packing.pools.iter().sum::<usize>(), 192, "{packing:?}");
        let [Some(small), .., Some(large)] = packing.spots[..] else { panic!("four places") };
        assert_eq!(pack(&all, &[vec![0, 1]]).pools.iter().sum::<usize>(), 192);
        assert!(small.pool < packing.pools.len() && large.offset + 128 <= packing.pools[large.pool]);
    }

    #[test]
    fn what_one_op_works_with_lies_in_different_pools() {
        let chain: Vec<_> = (0..20).map(|k| request(100, k, k + 1)).collect();
        let together: Vec<_> = (1..20).map(|k| vec![k - 1, k]).collect();
        let packing = pack(&chain, &together);
        assert_eq!(packing.pools, [100, 100], "neighbours take turns");
        // More at once than the pools that are tried.
        let all: Vec<_> = (0..12).map(|_| request(10, 0, 0)).collect();
        let packing = pack(&all, &[(0..12).collect()]);
        assert_eq!(packing.pools, [10; 12]);
    }

    #[test]
    fn nothing_needs_nothing() {
        assert_eq!(pack(&[], &[]), Packing::default());
        assert_eq!(pack(&[None, None], &[]).spots, [None, None]);
        let empty = pack(&[request(0, 0, 9), request(0, 3, 4)], &[vec![0, 1]]);
        assert_eq!(empty.pools.iter().sum::<usize>(), 0);
    }

    fn requests() -> impl Strategy<Value = Vec<Option<Request>>> {
        let life = (0_usize..40, 0_usize..12).prop_map(|(from, len)| Life { from, to: from + len });
        let request = (0_usize..500, life).prop_map(|(len, life)| Request { len, life });
        prop::collection::vec(prop::option::weighted(0.9, request), 0..60)
    }

    proptest! {
        #[test]
        fn no_two_live_buffers_overlap(
            requests in requests(),
            picks in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 2..5), 0..40),
        ) {
            let together: Vec<Vec<usize>> = picks
                .iter()
                .map(|list| list.iter().filter(|_| !requests.is_empty()).map(|k| k.index(requests.len())).collect())
                .collect();
            let Packing { pools, spots } = pack(&requests, &together);
            prop_assert_eq!(spots.len(), requests.len());
            let placed: Vec<_> = requests.iter().zip(&spots).map(|(r, s)| r.zip(*s)).collect();
            for (k, (request, spot)) in requests.iter().zip(&spots).enumerate() {
                prop_assert_eq!(request.is_some(), spot.is_some());
                let Some((a, at)) = placed[k] else { continue };
                prop_assert!(at.offset + a.len <= pools[at.pool] && at.offset % ALIGN == 0);
                for (b, other) in placed[..k].iter().flatten() {
                    let apart = at.offset + a.len <= other.offset || other.offset + b.len <= at.offset;
                    prop_assert!(at.pool != other.pool || apart || !a.life.meets(b.life));
                }
            }
            for list in &together {
                for (&a, &b) in list.iter().flat_map(|a| list.iter().map(move |b| (a, b))).filter(|(a, b)| a != b) {
                    let [a, b] = [a, b].map(|k| spots[k].map(|spot| spot.pool));
                    prop_assert!(a.is_none() || a != b);
                }
            }
            prop_assert!(pools.iter().sum::<usize>() >= floor(&requests));
        }
    }
}
