//! The command line.

use crate::fabric::{Algorithm, Fabric};
use crate::link::Link;
use crate::model::Model;
use anyhow::{Result, ensure};
use clap::Parser;
use std::path::PathBuf;

/// Predict the step time of data-parallel training on 1 to 4096 GPUs, from measured layer times and assumed links
#[derive(Debug, Parser)]
#[command(name = "cargo xtask scaling", bin_name = "cargo xtask scaling")]
pub struct Options {
    /// What `towers bench --profile --json` printed; given twice, at two batches, times follow the line between
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["recipe", "threads"])]
    pub profile: Vec<PathBuf>,
    /// Without --profile: measure this recipe's network here, now
    #[arg(long, value_name = "NAME", default_value = "minigooglenet")]
    pub recipe: String,
    /// Without --profile: CPU threads to measure with
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Let one device make so many images/s at the profile's batch, and scale all its times alike
    #[arg(long, value_name = "IMAGES/S")]
    pub speed: Option<f64>,
    /// The share of every layer's time that does not depend on the batch, with one profile
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub fixed: f64,
    /// Devices
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = (0..13).map(|k| 1 << k).collect::<Vec<usize>>())]
    pub gpus: Vec<usize>,
    /// Between devices of a machine: nvlink4, nvlink3, pcie5, pcie4, pcie3, or BANDWIDTH,HOP in GB/s and us. By default a few
    /// common machines are drawn beside each other
    #[arg(long, value_name = "LINK", value_parser = Link::parse, allow_hyphen_values = true)]
    pub link: Option<Link>,
    /// Between machines: 100g, 200g, 400g, or BANDWIDTH,HOP
    #[arg(long, value_name = "LINK", value_parser = Link::parse, default_value = "400g", requires = "link")]
    pub network: Link,
    /// Devices of a machine
    #[arg(long, value_name = "N", default_value_t = 8, requires = "link")]
    pub node: usize,
    /// Network cards of a machine
    #[arg(long, value_name = "N", default_value_t = 1, requires = "link")]
    pub cards: usize,
    /// How devices add up
    #[arg(long, value_enum, default_value_t = Algorithm::Auto)]
    pub algorithm: Algorithm,
    /// Gradients are added up in buckets of so many MiB while backward goes on; `all`: at once after backward
    #[arg(long, value_name = "MIB", default_value = "1", value_parser = bucket)]
    pub bucket: Bucket,
    /// Samples of a device in weak scaling; by default the profile's
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Samples of all devices in strong scaling; by default 64 times the profile's batch
    #[arg(long, value_name = "N")]
    pub global_batch: Option<usize>,
    /// Let times scatter from step to step and device to device: the standard deviation of their logarithm
    #[arg(long, value_name = "SIGMA", default_value_t = 0.0)]
    pub jitter: f64,
    /// Write scaling.jsonl and scaling.svg there
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// A MiB, in which buckets are counted: by default one, as `parallel::Buckets::ELEMENTS` has it.
pub const MIB: f64 = 1_048_576.0;

/// When gradients are added up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bucket {
    /// When so many bytes are there.
    Bytes(usize),
    /// All at once.
    All,
}

fn bucket(text: &str) -> Result<Bucket, String> {
    match text.parse::<f64>() {
        _ if text == "all" => Ok(Bucket::All),
        Ok(mib) if mib > 0.0 && mib.is_finite() => Ok(Bucket::Bytes((mib * MIB) as usize)),
        _ => Err("give a number of MiB above 0, or `all`".to_owned()),
    }
}

/// What is to be predicted.
#[derive(Clone, Debug)]
pub struct Question {
    pub gpus: Vec<usize>,
    pub fabrics: Vec<Fabric>,
    pub bucket: Option<usize>,
    /// Samples of a device in weak scaling.
    pub batch: usize,
    /// Samples of all devices in strong scaling.
    pub global_batch: usize,
    pub jitter: f64,
}

/// Machines of 8 that are drawn where none is named: link inside, cards, link between.
const USUAL: [(&str, usize, &str); 4] =
    [("nvlink4", 8, "400g"), ("nvlink4", 1, "400g"), ("pcie5", 1, "400g"), ("pcie4", 1, "100g")];

impl Options {
    /// The question that the flags ask.
    pub fn question(&self, model: &Model) -> Result<Question> {
        let mut gpus = self.gpus.clone();
        gpus.sort_unstable();
        gpus.dedup();
        ensure!(gpus.first().is_some_and(|&least| least > 0), "--gpus must be numbers of at least 1");
        ensure!(self.node > 0 && self.cards > 0, "--node and --cards must be at least 1");
        ensure!((0.0..=1.0).contains(&self.fixed), "--fixed is {}, but must be from 0 to 1", self.fixed);
        ensure!((0.0..=2.0).contains(&self.jitter), "--jitter is {}, but must be from 0 to 2", self.jitter);
        let algorithm = self.algorithm;
        let fabric = |inside, node, cards, between| Fabric { inside, between, node, cards, algorithm };
        let usual = |&(link, cards, network): &(&str, usize, &str)| -> Result<Fabric> {
            Ok(fabric(Link::parse(link)?, 8, cards, Link::parse(network)?))
        };
        let fabrics = match &self.link {
            Some(link) => vec![fabric(link.clone(), self.node, self.cards, self.network.clone())],
            None => USUAL.iter().map(usual).collect::<Result<_>>()?,
        };
        let batch = self.batch.unwrap_or(model.batch);
        let global_batch = self.global_batch.unwrap_or(64 * model.batch);
        ensure!(batch > 0 && global_batch > 0, "--batch and --global-batch must be at least 1");
        let bucket = match self.bucket {
            Bucket::Bytes(bytes) => Some(bytes),
            Bucket::All => None,
        };
        Ok(Question { gpus, fabrics, bucket, batch, global_batch, jitter: self.jitter })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::profile;
    use clap::CommandFactory as _;

    fn question(flags: &[&str]) -> Result<Question> {
        let model = Model::new(&[profile(10, &[(5, 1.0, 2.0)])], 0.0, None)?;
        Options::try_parse_from([&["scaling"], flags].concat())?.question(&model)
    }

    #[test]
    fn the_flags_are_consistent_and_mean_what_they_say() {
        Options::command().debug_assert();
        let usual = question(&[]).unwrap();
        assert_eq!((usual.gpus.last(), usual.fabrics.len(), usual.bucket), (Some(&4096), 4, Some(1 << 20)));
        assert_eq!((usual.batch, usual.global_batch), (10, 640));
        let own = question(&["--link", "10,5", "--gpus", "4,1,4", "--bucket", "all", "--node", "2"]).unwrap();
        assert_eq!((&own.gpus[..], own.fabrics.len(), own.bucket), (&[1, 4][..], 1, None));
        assert_eq!(own.fabrics[0].node, 2);
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            &["--gpus", "0"][..],
            &["--gpus", "x"],
            &["--bucket", "0"],
            &["--bucket", "many"],
            &["--fixed", "2"],
            &["--jitter", "-1"],
            &["--jitter", "nan"],
            &["--link", "tin"],
            &["--network", "400g"],
            &["--link", "pcie4", "--node", "0"],
            &["--batch", "0"],
        ] {
            assert!(question(bad).is_err(), "{bad:?}");
        }
    }
}
