//! Where it runs: `--gpus`, a number of GPUs or their ids, and the other flags about devices.

use crate::error::{at_least_one, usage};
use clap::ValueEnum;
use std::str::FromStr;
use train::{DeviceKind, DeviceOptions};

/// How it is computed.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Devices")]
pub struct ComputeArgs {
    /// auto (CUDA where a GPU works, else the CPU), cpu or cuda
    #[arg(long, value_name = "NAME", value_enum, hide_possible_values = true)]
    pub device: Option<Device>,
    /// CPU threads in all; by default one a core
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub threads: Option<usize>,
    /// The arithmetic: fp32, bf16 where the processor has AMX, or on GPUs tf32, bf16 or fp16
    #[arg(long, value_name = "NAME")]
    pub precision: Option<String>,
    /// Only algorithms that give the same bits every time; the CPU has no others
    #[arg(long)]
    pub deterministic: bool,
    /// On the CPU, convolutions without Winograd's transforms: slower, and a digit more exact
    #[arg(long)]
    pub no_winograd: bool,
}

/// Where several towers run.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Devices")]
pub struct DeviceArgs {
    /// That many GPUs, or those ids, e.g. 3 or 0,2,3; implies --device cuda
    #[arg(long, value_name = "N|IDS", allow_negative_numbers = true)]
    pub gpus: Option<Gpus>,
    /// Towers: copies of the network that share every batch; by default one a device
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub replicas: Option<usize>,
    /// How.
    #[command(flatten)]
    pub compute: ComputeArgs,
}

/// Where one network runs.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Devices")]
pub struct SingleArgs {
    /// The GPU: 1 for the first one, or its id with a comma behind it, as in 2,; implies --device cuda
    #[arg(long, value_name = "1|ID,", allow_negative_numbers = true)]
    pub gpus: Option<Gpus>,
    /// How.
    #[command(flatten)]
    pub compute: ComputeArgs,
}

/// `--device`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Device {
    /// CUDA where a GPU works, else the CPU
    Auto,
    /// The CPU
    Cpu,
    /// NVIDIA GPUs
    Cuda,
}

impl From<Device> for DeviceKind {
    fn from(device: Device) -> Self {
        match device {
            Device::Auto => DeviceKind::Auto,
            Device::Cpu => DeviceKind::Cpu,
            Device::Cuda => DeviceKind::Cuda,
        }
    }
}

/// A number of GPUs, or their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gpus {
    /// The first so many.
    Count(usize),
    /// Those.
    Ids(Vec<usize>),
}

impl FromStr for Gpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| part.trim().parse::<usize>();
        let wrong = |_| "give a number of GPUs, as in --gpus 3, or their ids, as in --gpus 0,2,3".to_owned();
        if !text.contains(',') {
            return match number(text).map_err(wrong)? {
                MOST.. => Err(format!("at most {} GPUs can be asked for", MOST - 1)),
                0 => Err("at least one GPU is needed; for none use --device cpu".to_owned()),
                count => Ok(Gpus::Count(count)),
            };
        }
        let ids = text.split(',').filter(|part| !part.trim().is_empty()).map(number);
        Ok(Gpus::Ids(ids.collect::<Result<_, _>>().map_err(wrong)?))
    }
}

/// More towers than any machine has GPUs.
const MOST: usize = 1024;

impl Gpus {
    /// Their ids. An id that comes several times makes several towers on one GPU.
    pub fn ids(&self) -> Vec<usize> {
        match self {
            Gpus::Count(count) => (0..*count).collect(),
            Gpus::Ids(ids) => ids.clone(),
        }
    }
}

impl ComputeArgs {
    /// Writes what the flags ask for into `options`, on those GPUs.
    fn apply(&self, gpus: Option<&Gpus>, options: &mut DeviceOptions) -> anyhow::Result<()> {
        if gpus.is_some() && self.device == Some(Device::Cpu) {
            return Err(usage(
                "--gpus and --device cpu contradict each other; for towers on the CPU use --replicas",
            ));
        }
        if let Some(device) = self.device {
            options.device = device.into();
        }
        if let Some(gpus) = gpus {
            (options.device, options.gpus) = (DeviceKind::Cuda, Some(gpus.ids()));
        }
        if let Some(precision) = &self.precision {
            let near = || train::did_you_mean(precision, ["fp32", "tf32", "bf16", "fp16"]);
            options.precision =
                precision.parse().map_err(|error| usage(format!("--precision {error}{}", near())))?;
        }
        options.deterministic |= self.deterministic;
        options.no_winograd |= self.no_winograd;
        if let Some(threads) = self.threads {
            at_least_one("--threads", threads)?;
            options.threads = threads;
        }
        Ok(())
    }
}

impl DeviceArgs {
    /// Writes the devices that the flags ask for into `options`.
    pub fn apply(&self, options: &mut DeviceOptions) -> anyhow::Result<()> {
        if let Some(replicas) = self.replicas {
            at_least_one("--replicas", replicas)?;
            options.replicas = replicas;
        }
        self.compute.apply(self.gpus.as_ref(), options)
    }
}

impl SingleArgs {
    /// The device of a command that needs no towers.
    pub fn options(&self) -> anyhow::Result<DeviceOptions> {
        if let Some(gpus) = self.gpus.as_ref().map(Gpus::ids).filter(|gpus| gpus.len() > 1) {
            return Err(usage(format!(
                "--gpus names {} GPUs, but must name one: 1 for the first, or an id with a comma, as in {},",
                gpus.len(),
                gpus[1]
            )));
        }
        let mut options = DeviceOptions { replicas: 1, ..DeviceOptions::default() };
        self.compute.apply(self.gpus.as_ref(), &mut options)?;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_or_ids() {
        assert_eq!("3".parse(), Ok(Gpus::Count(3)));
        assert_eq!("0,2,3".parse(), Ok(Gpus::Ids(vec![0, 2, 3])));
        assert_eq!("2,".parse(), Ok(Gpus::Ids(vec![2])));
        for bad in ["", "0", "-1", "a", "1,b", "1.5"] {
            assert!(bad.parse::<Gpus>().is_err(), "{bad}");
        }
    }
}
