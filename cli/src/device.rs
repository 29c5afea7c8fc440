//! The device of a command that needs no replicas, and `--gpus`.

use crate::error::usage;
use crate::flags::{Compute, Flags};
use crate::print::warn;
use crate::spelling::flag_of;

/// Warns of a GPU that is there and not used where the choice is automatic.
pub fn warn_of_unused_gpu(devices: &towers_config::Devices) {
    if let Some(why) = towers_train::unused_gpu(devices) {
        warn(format_args!("{why}; the CPU computes instead"));
    }
}

/// GPUs by their ids.
#[derive(Clone, Debug)]
pub struct Gpus(pub Vec<usize>);

/// Reads a number of GPUs, or their ids.
pub fn gpus(text: &str) -> Result<Gpus, String> {
    towers_config::parse_gpus(text)
        .map(Gpus)
        .map_err(|accepted| format!("it must be {}", accepted.spelled(flag_of)))
}

/// One device.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Devices")]
pub struct SingleArgs {
    /// The GPU: 1 for the first, or an id with a comma (2,); implies --device cuda
    #[arg(short, long, value_name = "1|ID,", allow_negative_numbers = true, value_parser = gpus)]
    pub gpus: Option<Gpus>,
    #[command(flatten)]
    pub compute: Flags<Compute>,
}

impl SingleArgs {
    /// Opens the device of a command that needs no replicas.
    pub fn open(&self) -> anyhow::Result<towers_train::Device> {
        let mut config = self.compute.config()?;
        let devices = &mut config.placement.devices;
        if let Some(Gpus(gpus)) = &self.gpus {
            if let [_, second, ..] = gpus[..] {
                let count = gpus.len();
                return Err(usage(format!(
                    "--gpus names {count} GPUs, but must name one: 1 for the first, or an id with a comma, as in {second},"
                )));
            }
            if devices.device == towers_config::DeviceKind::Cpu {
                return Err(usage("--gpus and --device cpu contradict each other; leave one of them out"));
            }
            (devices.device, devices.gpus) = (towers_config::DeviceKind::Cuda, Some(gpus.clone()));
        }
        warn_of_unused_gpu(devices);
        Ok(towers_train::open_device(devices, &config.training.arithmetic)?)
    }
}
