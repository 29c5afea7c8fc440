//! In place of `gpus.rs`, in a build without the feature `cuda`: there are no GPUs.

use crate::mpi::Mpi;
use crate::{Error, Result};
use std::time::Duration;
use towers_config::Devices;
use towers_parallel::Replica;
use towers_program::{Device, Precision};
use towers_rendezvous::{Agreement, ProcessGroup};

const WHY: &str = "this program was built without GPUs; build it with the feature `cuda` of towers-train";

pub(crate) fn usable() -> Result<Vec<String>> {
    Err(Error::Device(WHY.into()))
}

pub(crate) fn missing(_: usize, _: &[String]) -> Error {
    Error::Device(WHY.into())
}

pub(crate) fn unusable() -> Option<String> {
    None
}

pub(crate) fn open(_: usize, _: &Devices, _: Precision) -> Result<Device> {
    Err(Error::Device(WHY.into()))
}

pub(crate) fn nccl() -> Result<()> {
    Err(Error::Device(WHY.into()))
}

pub(crate) fn run<T>(
    _: ProcessGroup,
    _: &Agreement,
    _: Duration,
    _: &[Device],
    _: impl Fn(Replica) -> Result<T>,
) -> Result<Vec<T>> {
    Err(Error::Device(WHY.into()))
}

pub(crate) fn run_by_mpi<T>(
    _: &Mpi,
    _: Duration,
    _: &[Device],
    _: impl Fn(Replica) -> Result<T>,
) -> Result<Vec<T>> {
    Err(Error::Device(WHY.into()))
}

pub(crate) fn kernels(_: &Device) -> Option<&'static str> {
    None
}

pub(crate) fn free_memory(_: &Device) -> Option<u64> {
    None
}

pub(crate) fn fallbacks(_: &Device) -> Vec<String> {
    Vec::new()
}

pub(crate) fn describe() -> Vec<String> {
    vec![format!("cuda: none; {WHY}")]
}
