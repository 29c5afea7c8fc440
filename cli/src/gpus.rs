//! `--gpus`: a number of GPUs, or their ids.

use crate::args::DeviceArgs;
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
                0 => Err("at least one GPU is needed; for none use --device cpu".to_owned()),
                count => Ok(Gpus::Count(count)),
            };
        }
        let ids = text.split(',').filter(|part| !part.trim().is_empty()).map(number);
        Ok(Gpus::Ids(ids.collect::<Result<_, _>>().map_err(wrong)?))
    }
}

impl Gpus {
    /// How many towers they make.
    pub fn towers(&self) -> usize {
        match self {
            Gpus::Count(count) => *count,
            Gpus::Ids(ids) => ids.len(),
        }
    }
}

impl DeviceArgs {
    /// The devices that the flags ask for, on top of `options`.
    pub fn apply(&self, options: &mut DeviceOptions) {
        if let Some(gpus) = &self.gpus {
            options.device = DeviceKind::Cuda;
            options.replicas = gpus.towers();
        }
        if let Some(device) = self.device {
            options.device = device.into();
        }
        options.replicas = self.replicas.unwrap_or(options.replicas);
        options.threads = self.threads.unwrap_or(options.threads);
    }

    /// The one device of a command that needs no towers.
    pub fn single(&self) -> DeviceOptions {
        let mut options = DeviceOptions::default();
        self.apply(&mut options);
        DeviceOptions { replicas: 1, ..options }
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
