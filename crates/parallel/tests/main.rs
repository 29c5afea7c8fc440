//! The public interface within one process, one topic a file. One test program: each is linked by itself.
// A test panics where something fails, its own helper functions too.
#![allow(clippy::unwrap_used)]

mod across;
mod emulated;
mod everything;
mod gpus;
mod in_order;
mod local;
#[cfg(feature = "cuda")]
mod nccl;
mod stages;

use towers_parallel::{Error, Nodes, Replica, SumTree, add_run, slice_batch};
use towers_program::Device;

fn cpus(world: usize) -> Vec<Device> {
    vec![towers_tensor_cpu::device(1); world]
}

/// Devices in main memory and, where they can be emulated, GPUs.
fn groups(world: usize) -> Vec<Vec<Device>> {
    [Some(cpus(world)), emulated::gpus(world)].into_iter().flatten().collect()
}
