//! How long an all-reduce takes on many devices.

use crate::link::{Link, Protocol};
use clap::ValueEnum;

/// How devices add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Algorithm {
    /// The faster of the two for each size, as NCCL chooses
    Auto,
    /// Round a ring: `2 (n - 1)` hops, `2 (n - 1) / n` of the bytes
    Ring,
    /// Up a tree and down: `2 log2 n` hops, all bytes twice
    Tree,
}

/// A tree gets so much of a ring's bandwidth, in NCCL's own model of itself (`src/graph/tuning.cc`).
const TREE_SHARE: f64 = 0.9;

/// Machines with several devices, and what connects them.
#[derive(Clone, Debug, PartialEq)]
pub struct Fabric {
    /// Between the devices of a machine.
    pub inside: Link,
    /// Between machines, each network card of its own.
    pub between: Link,
    /// Devices of a machine.
    pub node: usize,
    /// Network cards of a machine, used at once.
    pub cards: usize,
    pub algorithm: Algorithm,
}

impl Fabric {
    pub fn name(&self) -> String {
        let cards = if self.cards == 1 { String::new() } else { format!("{} x ", self.cards) };
        format!("{} in nodes of {}, {cards}{} between", self.inside.name, self.node, self.between.name)
    }

    /// Seconds that `n` devices take to add up so many bytes each, by the faster protocol.
    ///
    /// Beyond one machine in three steps: devices of a machine add up a slice each, machines add up these slices over all
    /// their cards, devices of a machine hand the sums round. A last machine that is not full counts as full.
    pub fn all_reduce(&self, n: usize, bytes: usize) -> f64 {
        if n <= 1 || bytes == 0 {
            return 0.0;
        }
        Protocol::ALL.iter().map(|&protocol| self.by(protocol, n, bytes as f64)).fold(f64::INFINITY, f64::min)
    }

    fn by(&self, protocol: Protocol, n: usize, bytes: f64) -> f64 {
        let flat = |link: &Link, n: usize, bytes: f64| match self.algorithm {
            Algorithm::Ring => ring(link, protocol, n, bytes),
            Algorithm::Tree => tree(link, protocol, n, bytes),
            Algorithm::Auto => ring(link, protocol, n, bytes).min(tree(link, protocol, n, bytes)),
        };
        if n <= self.node {
            return protocol.start() + flat(&self.inside, n, bytes);
        }
        // Half a ring there and half a ring back.
        let within = ring(&self.inside, protocol, self.node, bytes);
        protocol.start() + within + flat(&self.between, n.div_ceil(self.node), bytes / self.cards as f64)
    }
}

fn ring(link: &Link, protocol: Protocol, n: usize, bytes: f64) -> f64 {
    let others = (n - 1) as f64;
    2.0 * others * link.hop(protocol) + link.seconds(protocol, 2.0 * others / n as f64 * bytes)
}

fn tree(link: &Link, protocol: Protocol, n: usize, bytes: f64) -> f64 {
    let depth = f64::from(n.next_power_of_two().ilog2());
    2.0 * depth * link.hop(protocol) + link.seconds(protocol, 2.0 / TREE_SHARE * bytes)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn fabric(bandwidth: f64, hop: f64, node: usize) -> Fabric {
        let link =
            |name: &str, share: f64| Link { name: name.into(), bandwidth: share * bandwidth, hops: [hop; 2] };
        let (inside, between) = (link("inside", 1.0), link("between", 0.2));
        Fabric { inside, between, node, cards: 1, algorithm: Algorithm::Ring }
    }

    const START: f64 = 8.4e-6;

    #[test]
    fn one_machine_is_one_ring() {
        let fabric = fabric(1e9, 1e-6, 8);
        assert_eq!(fabric.all_reduce(1, 1000), 0.0);
        let expected = START + 6.0 * 1e-6 + 1.5 * 1e6 / 1e9;
        assert!((fabric.all_reduce(4, 1_000_000) - expected).abs() < 1e-15);
    }

    #[test]
    fn machines_add_up_what_their_devices_have() {
        let fabric = fabric(1e9, 1e-6, 4);
        let within = 6.0 * 1e-6 + 1.5 * 1e6 / 1e9;
        let between = 2.0 * 1e-6 + 1.0 * 1e6 / 0.2e9;
        for n in [5, 8] {
            assert!((fabric.all_reduce(n, 1_000_000) - START - within - between).abs() < 1e-15);
        }
        let cards = Fabric { cards: 4, ..fabric };
        let quarter = 2.0 * 1e-6 + 0.25 * 1e6 / 0.2e9;
        assert!((cards.all_reduce(8, 1_000_000) - START - within - quarter).abs() < 1e-15);
    }

    #[test]
    fn the_faster_protocol_is_chosen() {
        let link = |text| Link::parse(text).unwrap();
        let algorithm = Algorithm::Ring;
        let fabric = Fabric { inside: link("nvlink4"), between: link("400g"), node: 8, cards: 1, algorithm };
        let large = 8.4e-6 + 14.0 * 3.4e-6 + 1.75 * 1e9 / 360e9;
        assert!((fabric.all_reduce(8, 1_000_000_000) - large).abs() < 1e-12);
        let small = 3.6e-6 + 14.0 * 0.47e-6 + 1.75 * 1e3 / 90e9;
        assert!((fabric.all_reduce(8, 1_000) - small).abs() < 1e-12);
    }

    /// Many devices and few bytes: hops count. Few devices and many bytes: bytes do.
    #[test]
    fn the_faster_algorithm_is_chosen() {
        let with = |algorithm| Fabric { algorithm, ..fabric(1e9, 5e-6, 1024) };
        for (n, bytes) in [(2, 100_000_000), (1000, 1_000)] {
            let [auto, ring, tree] =
                [Algorithm::Auto, Algorithm::Ring, Algorithm::Tree].map(|a| with(a).all_reduce(n, bytes));
            assert_eq!(auto, ring.min(tree));
            assert_eq!(ring < tree, n == 2);
        }
    }
}
