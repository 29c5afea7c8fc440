//! Links between devices: the one table of assumptions of the model, each with its source.

use anyhow::{Result, bail};

/// What connects a device with the next.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    pub name: String,
    /// What goes over it one way while as much comes back, in bytes a second: the line's rate times what of it collectives get.
    pub bandwidth: f64,
    /// From the end of one hop of a collective to the end of the next, without the bytes; in seconds.
    pub hop: f64,
}

/// A kind of link that goes by a name.
pub struct Known {
    pub name: &'static str,
    /// Of the line, one way, in GB/s.
    pub line: f64,
    /// What share of it a large all-reduce has been seen to reach.
    pub share: f64,
    /// In microseconds.
    pub hop: f64,
    /// Where these numbers come from.
    pub source: &'static str,
}

/// What one collective costs whatever its size: launch and start, in seconds. NCCL's own model of itself has 8.4 us for a ring
/// with the protocol Simple (`baseLat` in its `src/graph/tuning.cc`).
pub const START: f64 = 8.4e-6;

/// All are ASSUMPTIONS: nothing here was measured with `towers`. The hops are NCCL's own figures for rings with the protocol
/// Simple (`hwLat` in `src/graph/tuning.cc`: NVLink 3.4, PCIe 5.7, network 9.6 us); for small messages it has faster ones.
pub const KNOWN: [Known; 8] = [
    Known {
        name: "nvlink4",
        line: 450.0,
        share: 0.80,
        hop: 3.4,
        source: "18 links of 25 GB/s each way (NVIDIA H100 data sheet); about 370 GB/s of 450 by NCCL's authors (nccl-tests#212)",
    },
    Known {
        name: "nvlink3",
        line: 300.0,
        share: 0.77,
        hop: 3.4,
        source: "12 links of 25 GB/s each way (NVIDIA A100 data sheet); NCCL's own model caps it at 235 GB/s (tuning.cc)",
    },
    Known {
        name: "pcie5",
        line: 63.0,
        share: 0.55,
        hop: 5.7,
        source: "32 GT/s, 16 lanes, 128b/130b; 35 GB/s on 4 and 28 GB/s on 8 GPUs reported (nccl#1639)",
    },
    Known {
        name: "pcie4",
        line: 31.5,
        share: 0.65,
        hop: 5.7,
        source: "16 GT/s, 16 lanes, 128b/130b; the share is a guess between reports for PCIe 3 and 5",
    },
    Known {
        name: "pcie3",
        line: 15.75,
        share: 0.70,
        hop: 5.7,
        source: "8 GT/s, 16 lanes, 128b/130b; NCCL's own models take 12 GB/s for the line (PCI_WIDTH); the share is a guess",
    },
    Known {
        name: "100g",
        line: 12.5,
        share: 0.97,
        hop: 9.6,
        source: "100 Gb/s; 12.2 GB/s is as good as it gets, by NCCL's authors (nccl-tests#29)",
    },
    Known {
        name: "200g",
        line: 25.0,
        share: 0.94,
        hop: 9.6,
        source: "200 Gb/s; between the reports for 100 and 400; four such cards gave 96 GB/s of 100 (nccl-tests#119)",
    },
    Known {
        name: "400g",
        line: 50.0,
        share: 0.92,
        hop: 9.6,
        source: "400 Gb/s; 46 to 48 GB/s expected a card, by NCCL's authors (nccl-tests#290)",
    },
];

impl Link {
    /// A link by its name, or `BANDWIDTH,HOP`: what collectives get in GB/s, and microseconds.
    pub fn parse(text: &str) -> Result<Link> {
        if let Some(known) = KNOWN.iter().find(|known| known.name == text) {
            let (bandwidth, hop) = (1e9 * known.line * known.share, known.hop / 1e6);
            return Ok(Link { name: text.to_owned(), bandwidth, hop });
        }
        let numbers: Option<Vec<f64>> = text.split(',').map(|number| number.trim().parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[bandwidth, hop])
                if bandwidth > 0.0 && bandwidth.is_finite() && hop >= 0.0 && hop.is_finite() =>
            {
                let name = format!("{bandwidth} GB/s, {hop} us");
                Ok(Link { name, bandwidth: 1e9 * bandwidth, hop: hop / 1e6 })
            }
            _ => {
                let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
                bail!(
                    "`{text}` is no link: give BANDWIDTH,HOP in GB/s and microseconds, or one of {}",
                    names.join(", ")
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_names_or_numbers() {
        let link = Link::parse("nvlink4").unwrap();
        assert_eq!((link.bandwidth, link.hop), (360e9, 3.4e-6));
        let own = Link::parse("10, 25").unwrap();
        assert_eq!((own.bandwidth, own.hop), (10e9, 25e-6));
        for bad in ["nvlink9", "10", "0,1", "-1,2", "1,-2", "1,2,3", "nan,1", "inf,1", ""] {
            assert!(Link::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_link_does_better_than_its_line() {
        assert!(
            KNOWN.iter().all(|known| known.share > 0.0 && known.share <= 1.0 && !known.source.is_empty())
        );
    }
}
