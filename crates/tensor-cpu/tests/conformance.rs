//! Every op of [`towers_tensor_cpu::Cpu`] against the f64 reference, with each instruction set of the processor and in both
//! number formats. Any number of threads gives the same bits.

use towers_conformance::Subject;
use towers_program::Precision;
use towers_tensor_cpu::{Cpu, SIMD_LEVELS};

/// A module with the whole suite.
macro_rules! on {
    ($name:ident: $subject:expr) => {
        mod $name {
            use super::*;
            towers_conformance::suite!($subject);
        }
    };
}

/// In f32 with the kernels of an instruction set, on one, two and three threads; none where the processor lacks it,
/// which is said.
fn fp32(level: &str) -> Subject {
    let device =
        |threads| Some((format!("the CPU on {threads} threads"), Cpu::at_simd_level(threads, level)?));
    let devices: Vec<_> = [1, 2, 3].into_iter().filter_map(device).collect();
    if devices.is_empty() {
        println!("SKIPPED: kernels for {level}: the processor can't run them");
    }
    Subject::new(devices)
}

on!(portable: fp32("portable"));
#[cfg(target_arch = "aarch64")]
on!(neon: fp32("neon"));
#[cfg(target_arch = "x86_64")]
on!(avx2: fp32("avx2"));
#[cfg(target_arch = "x86_64")]
on!(avx512: fp32("avx512"));

/// In bf16, which has the same bits by all instruction sets, but for products in f32, and by plain loops those of the processor's
/// matrix units.
fn bf16() -> Subject {
    let by_loops = SIMD_LEVELS.into_iter().enumerate().filter_map(|(k, level)| {
        let cpu = Cpu::at_simd_level(1 + k, level)?.with_portable_bf16();
        Some((format!("the CPU with {level} on {} threads", 1 + k), cpu))
    });
    let by_units = Cpu::new(2).with_bf16().map(|cpu| ("the CPU with matrix units".to_owned(), cpu));
    if cfg!(target_arch = "x86_64") && by_units.is_none() {
        println!("SKIPPED: matrix units for bf16 (AMX): the processor has none");
    }
    Subject::new(by_loops.chain(by_units)).precision(Precision::Bf16).mixed()
}

on!(bf16: bf16());
