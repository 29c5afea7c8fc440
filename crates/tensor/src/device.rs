use tensor_cpu::{Cpu, Reference};

/// A place where tensors live and ops run. Clones are the same device.
///
/// The ops are the methods of [`Backend`](crate::Backend), which this type implements.
#[derive(Clone, Debug)]
pub enum Device {
    /// The processor: SIMD kernels on all threads.
    Cpu(Cpu),
    /// The same ops as plain loops in f64: slow, and what the others are checked against.
    Reference(Reference),
}

impl Device {
    /// The processor, with `threads` threads; 0 for one a core.
    pub fn cpu(threads: usize) -> Self {
        Device::Cpu(Cpu::new(threads))
    }

    /// The f64 reference.
    pub fn reference() -> Self {
        Device::Reference(Reference)
    }

    /// The name that `--device` and benchmarks use.
    pub fn kind(&self) -> &'static str {
        match self {
            Device::Cpu(_) => "cpu",
            Device::Reference(_) => "reference",
        }
    }

    /// How many host threads compute.
    pub fn threads(&self) -> usize {
        match self {
            Device::Cpu(cpu) => cpu.threads(),
            Device::Reference(_) => 1,
        }
    }
}
