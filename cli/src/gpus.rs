//! `--gpus`: a number of GPUs, or their ids.

use crate::args::{Device, DeviceArgs};
use crate::error::usage;
use std::str::FromStr;
use train::{DeviceKind, DeviceOptions};

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

impl DeviceArgs {
    /// Writes the devices that the flags ask for into `options`.
    pub fn apply(&self, options: &mut DeviceOptions) -> anyhow::Result<()> {
        if self.gpus.is_some() && self.device == Some(Device::Cpu) {
            return Err(usage(
                "--gpus and --device cpu contradict each other; for towers on the CPU use --replicas",
            ));
        }
        if let Some(device) = self.device {
            options.device = device.into();
        }
        if let Some(gpus) = &self.gpus {
            (options.device, options.gpus) = (DeviceKind::Cuda, Some(gpus.ids()));
        }
        if let Some(precision) = &self.precision {
            let near = || train::did_you_mean(precision, ["fp32", "tf32", "bf16", "fp16"]);
            options.precision =
                precision.parse().map_err(|error| usage(format!("--precision {error}{}", near())))?;
        }
        options.deterministic |= self.deterministic;
        options.no_winograd |= self.no_winograd;
        options.replicas = self.replicas.unwrap_or(options.replicas);
        options.threads = self.threads.unwrap_or(options.threads);
        Ok(())
    }

    /// The one device of a command that needs no towers.
    pub fn single(&self) -> anyhow::Result<DeviceOptions> {
        let mut options = DeviceOptions::default();
        self.apply(&mut options)?;
        Ok(DeviceOptions { replicas: 1, ..options })
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
