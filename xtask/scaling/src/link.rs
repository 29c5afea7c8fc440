//! Links between devices: the one table of assumptions of the model, each with its source.

use anyhow::{Result, bail};

/// What connects a device with the next.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    pub name: String,
    /// What goes over it one way while as much comes back, in bytes a second: the line's rate times what of it collectives get.
    pub bandwidth: f64,
    /// From the end of one hop of a collective to the end of the next, without the bytes; in seconds, for each [`Protocol`].
    pub hops: [f64; 2],
}

/// How NCCL hands on data. For each size it takes the one that its model of itself says is faster, and so do we.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Large pieces, then a flag: the whole bandwidth, long hops.
    Simple,
    /// "LL": a flag with every four bytes; short hops.
    LowLatency,
}

/// The numbers are those of NCCL's model of itself, for rings: `baseLat` and `ncclTopoTuneModel` in `src/graph/tuning.cc`. Its
/// third protocol, LL128, lies between the two and is left out.
impl Protocol {
    pub const ALL: [Protocol; 2] = [Protocol::Simple, Protocol::LowLatency];

    /// What a collective costs whatever its size, in seconds.
    pub fn start(self) -> f64 {
        match self {
            Protocol::Simple => 8.4e-6,
            Protocol::LowLatency => 3.6e-6,
        }
    }

    /// What share of the bandwidth is left.
    fn share(self) -> f64 {
        match self {
            Protocol::Simple => 1.0,
            Protocol::LowLatency => 0.25,
        }
    }
}

/// A kind of link that goes by a name.
pub struct Known {
    pub name: &'static str,
    /// Of the line, one way, in GB/s.
    pub line: f64,
    /// What share of it a large all-reduce has been seen to reach.
    pub share: f64,
    /// In microseconds, for each protocol.
    pub hops: [f64; 2],
    /// Where these numbers come from.
    pub source: &'static str,
}

/// Hops of rings in NCCL's model of itself (`hwLat`).
const NVLINK: [f64; 2] = [3.4, 0.47];
const PCIE: [f64; 2] = [5.7, 1.0];
const NETWORK: [f64; 2] = [9.6, 2.7];

/// All are ASSUMPTIONS: nothing here was measured with `towers`.
pub const KNOWN: [Known; 8] = [
    Known {
        name: "nvlink4",
        line: 450.0,
        share: 0.80,
        hops: NVLINK,
        source: "18 links of 25 GB/s each way (NVIDIA H100 data sheet); about 370 GB/s of 450 by NCCL's authors (nccl-tests#212)",
    },
    Known {
        name: "nvlink3",
        line: 300.0,
        share: 0.77,
        hops: NVLINK,
        source: "12 links of 25 GB/s each way (NVIDIA A100 data sheet); NCCL's own model caps it at 235 GB/s (tuning.cc)",
    },
    Known {
        name: "pcie5",
        line: 63.0,
        share: 0.55,
        hops: PCIE,
        source: "32 GT/s, 16 lanes, 128b/130b; 35 GB/s on 4 and 28 GB/s on 8 GPUs reported (nccl#1639)",
    },
    Known {
        name: "pcie4",
        line: 31.5,
        share: 0.65,
        hops: PCIE,
        source: "16 GT/s, 16 lanes, 128b/130b; the share is a guess between reports for PCIe 3 and 5",
    },
    Known {
        name: "pcie3",
        line: 15.75,
        share: 0.70,
        hops: PCIE,
        source: "8 GT/s, 16 lanes, 128b/130b; NCCL's own models take 12 GB/s for the line (PCI_WIDTH); the share is a guess",
    },
    Known {
        name: "100g",
        line: 12.5,
        share: 0.97,
        hops: NETWORK,
        source: "100 Gb/s; 12.2 GB/s is as good as it gets, by NCCL's authors (nccl-tests#29)",
    },
    Known {
        name: "200g",
        line: 25.0,
        share: 0.94,
        hops: NETWORK,
        source: "200 Gb/s; between the reports for 100 and 400; four such cards gave 96 GB/s of 100 (nccl-tests#119)",
    },
    Known {
        name: "400g",
        line: 50.0,
        share: 0.92,
        hops: NETWORK,
        source: "400 Gb/s; 46 to 48 GB/s expected a card, by NCCL's authors (nccl-tests#290)",
    },
];

impl Link {
    /// A link by its name, or `BANDWIDTH,HOP`: what collectives get in GB/s, and microseconds. Such a hop is that of both
    /// protocols.
    pub fn parse(text: &str) -> Result<Link> {
        if let Some(known) = KNOWN.iter().find(|known| known.name == text) {
            let (bandwidth, hops) = (1e9 * known.line * known.share, known.hops.map(|hop| hop / 1e6));
            return Ok(Link { name: text.to_owned(), bandwidth, hops });
        }
        let numbers: Option<Vec<f64>> = text.split(',').map(|number| number.trim().parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[bandwidth, hop])
                if bandwidth > 0.0 && bandwidth.is_finite() && hop >= 0.0 && hop.is_finite() =>
            {
                let name = format!("{bandwidth} GB/s, {hop} us");
                Ok(Link { name, bandwidth: 1e9 * bandwidth, hops: [hop / 1e6; 2] })
            }
            _ => {
                let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
                let names = names.join(", ");
                bail!("`{text}` is no link: give BANDWIDTH,HOP in GB/s and microseconds, or one of {names}")
            }
        }
    }

    /// Seconds of a hop.
    pub fn hop(&self, protocol: Protocol) -> f64 {
        self.hops[protocol as usize]
    }

    /// Seconds that so many bytes take.
    pub fn seconds(&self, protocol: Protocol, bytes: f64) -> f64 {
        bytes / (protocol.share() * self.bandwidth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_names_or_numbers() {
        let link = Link::parse("nvlink4").unwrap();
        assert_eq!((link.bandwidth, link.hops), (360e9, [3.4 / 1e6, 0.47 / 1e6]));
        let own = Link::parse("10, 25").unwrap();
        assert_eq!((own.bandwidth, own.hops), (10e9, [25e-6; 2]));
        for bad in ["nvlink9", "10", "0,1", "-1,2", "1,-2", "1,2,3", "nan,1", "inf,1", ""] {
            assert!(Link::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_flag_with_every_word_is_quick_and_wide() {
        let link = Link::parse("pcie4").unwrap();
        let [simple, quick] = Protocol::ALL.map(|protocol| (link.hop(protocol), link.seconds(protocol, 1e6)));
        assert!(quick.0 < simple.0 && (quick.1 - 4.0 * simple.1).abs() < 1e-12);
    }

    #[test]
    fn no_link_does_better_than_its_line() {
        assert!(
            KNOWN.iter().all(|known| known.share > 0.0 && known.share <= 1.0 && !known.source.is_empty())
        );
    }
}
