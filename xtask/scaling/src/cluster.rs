//! Machines with several GPUs: how long an all-reduce takes, and how long the slowest GPU computes.

use anyhow::{Result, bail};

/// A link between two devices, as a ring uses it.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    pub name: String,
    /// Bytes a second in one direction, while as many come back.
    pub bandwidth: f64,
    /// Seconds of one hop of the ring, without the bytes.
    pub hop: f64,
    /// Where the numbers come from.
    pub source: &'static str,
}

/// The links of the back-tests: name, GB/s of a large all-reduce, microseconds of a hop, source.
///
/// The hops are those of NCCL's own model for rings (`hwLat` in `src/graph/tuning.cc`).
const PRESETS: [(&str, f64, f64, &str); 4] = [
    (
        "pcie3",
        11.0,
        5.7,
        "PCIe 3.0 x16 is 15.75 GB/s; 70% of it is a guess (NCCL's topology code takes 12 GB/s)",
    ),
    ("nvlink1", 72.0, 3.4, "4 links of a P100, 18 GB/s each in NCCL's topology code"),
    ("25g", 3.03, 9.6, "25 Gb/s; 97% of the line, as NCCL's authors report for 100 Gb/s (nccl-tests#29)"),
    ("50g", 6.06, 9.6, "50 Gb/s; 97% of the line"),
];

/// Seconds to start a collective, in NCCL's own model (`baseLat` in `src/graph/tuning.cc`).
const START: f64 = 8.4e-6;

impl Link {
    /// A preset by its name, or `BANDWIDTH,HOP` in GB/s and microseconds.
    pub fn parse(text: &str) -> Result<Link> {
        let link = |bandwidth: f64, hop: f64, source| Link {
            name: text.to_owned(),
            bandwidth: 1e9 * bandwidth,
            hop: hop / 1e6,
            source,
        };
        if let Some((_, bandwidth, hop, source)) = PRESETS.iter().find(|(name, ..)| *name == text) {
            return Ok(link(*bandwidth, *hop, *source));
        }
        let numbers: Option<Vec<f64>> = text.split(',').map(|number| number.trim().parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[bandwidth, hop]) if bandwidth > 0.0 && hop >= 0.0 && bandwidth.max(hop).is_finite() => {
                Ok(link(bandwidth, hop, "as given"))
            }
            _ => {
                let names = PRESETS.map(|(name, ..)| name).join(", ");
                bail!("`{text}` is no link: give BANDWIDTH,HOP in GB/s and microseconds, or one of {names}")
            }
        }
    }

    /// Seconds of a ring all-reduce over `n` devices: `2 (n - 1)` hops and `2 (n - 1) / n` of the bytes.
    fn ring(&self, n: usize, bytes: f64) -> f64 {
        let others = (n - 1) as f64;
        2.0 * others * self.hop + 2.0 * others / n as f64 * bytes / self.bandwidth
    }
}

/// Machines of the same kind, joined by a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Between the GPUs of one machine.
    pub inside: Link,
    /// Between machines, by one network card each.
    pub network: Link,
    /// GPUs of one machine.
    pub node: usize,
}

impl Cluster {
    /// Seconds in which `n` GPUs add up `bytes` bytes each.
    ///
    /// Within a machine it is one ring. Between machines there are three stages: the GPUs of each machine add
    /// a slice each, a ring of machines adds the slices, and the GPUs of each machine pass the sums on.
    pub fn all_reduce(&self, n: usize, bytes: usize) -> f64 {
        let bytes = bytes as f64;
        if n <= 1 || bytes == 0.0 {
            return 0.0;
        }
        if n <= self.node {
            return START + self.inside.ring(n, bytes);
        }
        START + self.inside.ring(self.node, bytes) + self.network.ring(n.div_ceil(self.node), bytes)
    }
}

/// The standard deviation of the logarithm of a GPU's step time: the value with the least squared error over
/// the three back-tests.
pub const JITTER: f64 = 0.025;

/// The expected time of the slowest of `n` GPUs, over the mean time of one.
///
/// Step times are log-normal: `ln t` is normal with standard deviation `sigma`, and the mean of `t` is 1. The
/// result is `E[max] = integral of exp(sigma z - sigma^2 / 2) d(Phi(z)^n)`, summed in steps of 0.005 from -10
/// to 10.
pub fn slowest(n: usize, sigma: f64) -> f64 {
    if n <= 1 || sigma == 0.0 {
        return 1.0;
    }
    const STEP: f64 = 0.005;
    let density = |z: f64| (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let (mut phi, mut power, mut mean) = (0.0_f64, 0.0, 0.0);
    for k in -2000..2000 {
        let middle = (f64::from(k) + 0.5) * STEP;
        phi += density(middle) * STEP;
        let next = phi.min(1.0).powf(n as f64);
        mean += (sigma * middle - 0.5 * sigma * sigma).exp() * (next - power);
        power = next;
    }
    mean / power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_names_or_numbers() {
        let link = Link::parse("25g").unwrap();
        assert_eq!((link.bandwidth, link.hop), (3.03e9, 9.6e-6));
        let given = Link::parse("10, 25").unwrap();
        assert_eq!((given.bandwidth, given.hop), (10e9, 25e-6));
        for bad in ["nvlink9", "10", "0,1", "-1,2", "1,-2", "1,2,3", "nan,1", "inf,1", ""] {
            assert!(Link::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_all_reduce_is_the_closed_form() {
        let cluster =
            Cluster { inside: Link::parse("1,1").unwrap(), network: Link::parse("0.2,1").unwrap(), node: 4 };
        assert_eq!(cluster.all_reduce(1, 1000), 0.0);
        let inside = START + 6e-6 + 1.5e-3;
        assert!((cluster.all_reduce(4, 1_000_000) - inside).abs() < 1e-15);
        // A second machine counts as full.
        for n in [5, 8] {
            assert!((cluster.all_reduce(n, 1_000_000) - inside - 2e-6 - 5e-3).abs() < 1e-15);
        }
    }

    /// For two GPUs `E[max] = 2 Phi(sigma / sqrt 2)`.
    #[test]
    fn the_slowest_of_many_is_slower() {
        assert_eq!((slowest(1, 0.3), slowest(512, 0.0)), (1.0, 1.0));
        assert!((slowest(2, 0.1) - 1.056_372).abs() < 1e-5);
        assert!(slowest(512, 0.05) > slowest(64, 0.05) && slowest(64, 0.1) > slowest(64, 0.05));
    }
}
