//! Every op of [`tensor_cpu::Cpu`] against the f64 reference, in both of its number formats, with the same bits on any
//! number of threads.

use conformance::Subject;
use program::Precision;
use tensor_cpu::Cpu;

/// Devices with names, of so many threads.
fn devices() -> [(String, Cpu); 3] {
    [1, 2, 3].map(|threads| (format!("the CPU on {threads} threads"), Cpu::new(threads)))
}

fn in_fp32() -> Subject {
    Subject::new(devices())
}

/// No devices, and why, where the processor can't.
fn in_bf16() -> Subject {
    let narrow: Vec<_> =
        devices().into_iter().filter_map(|(name, cpu)| Some((name, cpu.with_bf16()?))).collect();
    if narrow.is_empty() {
        println!("SKIPPED: the processor has no units for bf16 (AMX)");
    }
    Subject::new(narrow).precision(Precision::Bf16)
}

mod fp32 {
    use super::*;
    conformance::suite!(in_fp32());
}

mod bf16 {
    use super::*;
    conformance::suite!(in_bf16());
}
