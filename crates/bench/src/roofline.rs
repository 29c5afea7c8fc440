use crate::Result;
use serde::Serialize;
use towers_config::{Arithmetic, DeviceKind, Devices};
use towers_program::{Device, Precision};
use towers_tensor_cpu::{bf16_level, simd_level};
use towers_train::open_devices;

/// What the processor can do at most, as `towers bench roofline --json` prints it.
#[derive(Clone, Debug, Serialize)]
pub struct Roofline {
    /// The instruction set of the kernels, or of the products of operands in bf16.
    pub simd: &'static str,
    /// On one thread, and on all.
    pub roofs: Vec<Roof>,
}

/// The peak of so many threads.
#[derive(Clone, Debug, Serialize)]
pub struct Roof {
    /// The threads.
    pub threads: usize,
    /// 10^9 operations a second of fused multiply-adds, two each.
    pub gflops: f64,
    /// 10^9 bytes a second that a copy from memory to memory reads and writes.
    pub gigabytes_per_s: f64,
}

/// Measures the processor on one thread, and on all that the options allow.
///
/// # Errors
/// What [`open_devices`] says of the options.
pub fn roofline(devices: &Devices, arithmetic: &Arithmetic) -> Result<Roofline> {
    let with = |threads| Devices { device: DeviceKind::Cpu, replicas: 1, threads, ..devices.clone() };
    let mut roofs: Vec<Roof> = Vec::new();
    for threads in [1, devices.threads] {
        for device in open_devices(&with(threads), arithmetic)? {
            roofs.extend(roof(&device)?.filter(|roof| roofs.iter().all(|r| r.threads != roof.threads)));
        }
    }
    let narrow = bf16_level().filter(|_| arithmetic.precision == Precision::Bf16);
    Ok(Roofline { simd: narrow.unwrap_or_else(simd_level), roofs })
}

/// What a device can do at most; `None` if it is no processor.
///
/// # Errors
/// If there is no memory to measure with.
pub(crate) fn roof(device: &Device) -> Result<Option<Roof>> {
    let tenth = |x: f64| (x * 10.0).round() / 10.0;
    let roof = device.get().map(towers_tensor_cpu::Roofline::measure).transpose()?;
    Ok(roof.map(|roof| Roof {
        threads: roof.threads,
        gflops: tenth(roof.gflops),
        gigabytes_per_s: tenth(roof.gigabytes),
    }))
}
