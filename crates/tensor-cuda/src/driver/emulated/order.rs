//! The order in which the threads and blocks of a launch run.

use super::error::error;
use std::collections::BTreeSet;
use towers_program::Result;

/// The variable that fixes it.
const VARIABLE: &str = "TOWERS_EMULATION_ORDER";

/// A launch's order, with the number in emulation/machine.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Sense {
    Forward = 0,
    Reverse = 1,
    Random = 2,
}

/// Assigns each launch an order. A correct kernel gives the same bits in every order.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// None: each launch has the next of the three.
    sense: Option<Sense>,
    seed: u64,
    launches: u64,
}

impl Order {
    /// The orders of the launches alternate.
    pub(super) fn alternating() -> Order {
        Order { sense: None, seed: 0, launches: 0 }
    }

    /// The same for all. `seed` counts up in random order.
    #[cfg(test)]
    pub(super) fn fixed(sense: Sense, seed: u64) -> Order {
        Order { sense: Some(sense), seed, launches: 0 }
    }

    /// Reads `TOWERS_EMULATION_ORDER`: `forward`, `reverse` or `random:SEED`. Unset, they alternate.
    pub(super) fn from_environment() -> Result<Order> {
        std::env::var(VARIABLE).map_or_else(|_| Ok(Order::alternating()), |text| Order::parse(&text))
    }

    pub(super) fn parse(text: &str) -> Result<Order> {
        let (sense, seed) = match text.split_once(':') {
            None if text == "forward" => (Sense::Forward, Some(0)),
            None if text == "reverse" => (Sense::Reverse, Some(0)),
            None if text == "random" => (Sense::Random, Some(0)),
            Some(("random", seed)) => (Sense::Random, seed.parse().ok()),
            _ => (Sense::Random, None),
        };
        let seed = seed.ok_or_else(|| {
            error(format!("{VARIABLE} is {text}: forward, reverse or random:SEED is known"))
        })?;
        Ok(Order { sense: Some(sense), seed, launches: 0 })
    }

    /// The next launch's order, and the nonzero seed of its draws.
    pub(super) fn next(&mut self) -> (Sense, u64) {
        let launch = self.launches;
        self.launches += 1;
        let in_turn = [Sense::Forward, Sense::Reverse, Sense::Random][(launch % 3) as usize];
        // An odd factor tells the launches and seeds apart; the draws mix the rest.
        let state = (self.seed << 32 ^ (launch + 1)).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        (self.sense.unwrap_or(in_turn), state)
    }

    /// The nodes of a graph in an order that keeps each behind those that it comes after: the first that can, the last that can,
    /// or one that is drawn.
    pub(super) fn walk<N>(&mut self, nodes: &[N], after: impl Fn(&N) -> &[usize]) -> Vec<usize> {
        let (sense, mut state) = self.next();
        let mut waits: Vec<usize> = nodes.iter().map(|node| after(node).len()).collect();
        let mut then = vec![Vec::new(); nodes.len()];
        for (at, node) in nodes.iter().enumerate() {
            after(node).iter().for_each(|&before| then[before].push(at));
        }
        let mut open: BTreeSet<usize> = (0..nodes.len()).filter(|&at| waits[at] == 0).collect();
        let mut walk = Vec::with_capacity(nodes.len());
        let mut draw = |below: usize| {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            (state >> 33) as usize % below
        };
        while !open.is_empty() {
            let next = match sense {
                Sense::Forward => open.first(),
                Sense::Reverse => open.last(),
                Sense::Random => open.iter().nth(draw(open.len())),
            };
            let Some(&next) = next else { break };
            open.remove(&next);
            walk.push(next);
            for &at in &then[next] {
                waits[at] -= 1;
                if waits[at] == 0 {
                    open.insert(at);
                }
            }
        }
        walk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_keeps_nodes_behind_those_that_they_come_after() {
        let after: [&[usize]; 6] = [&[], &[], &[0], &[1], &[2, 3], &[]];
        let walk = |order: &mut Order| order.walk(&after, |node| node);
        assert_eq!(walk(&mut Order::fixed(Sense::Forward, 0)), [0, 1, 2, 3, 4, 5]);
        assert_eq!(walk(&mut Order::fixed(Sense::Reverse, 0)), [5, 1, 3, 0, 2, 4]);
        let mut seen = BTreeSet::new();
        for seed in 0..50 {
            let drawn = walk(&mut Order::fixed(Sense::Random, seed));
            let place = |node| drawn.iter().position(|&at| at == node);
            assert_eq!(drawn.len(), 6);
            for (node, before) in after.iter().enumerate() {
                assert!(before.iter().all(|&before| place(before) < place(node)), "{drawn:?}");
            }
            seen.insert(drawn);
        }
        assert!(seen.len() > 10, "{seen:?}");
    }
}
