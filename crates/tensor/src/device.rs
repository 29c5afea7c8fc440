use crate::{CudaOptions, Precision, Result};
use tensor_cpu::{Cpu, Reference, Roofline};
use tensor_cuda::Cuda;

/// A place where tensors live and ops run. Clones are the same device.
///
/// The ops are the methods of [`Backend`](crate::Backend), which this type implements.
#[derive(Clone, Debug)]
pub enum Device {
    /// The processor: SIMD kernels on all threads.
    Cpu(Cpu),
    /// The same ops as plain loops in f64: slow, and what the others are checked against.
    Reference(Reference),
    /// An NVIDIA GPU.
    Cuda(Cuda),
}

impl Device {
    /// The processor, with `threads` threads; 0 for one a core.
    pub fn cpu(threads: usize) -> Self {
        Device::Cpu(Cpu::new(threads))
    }

    /// As [`Device::cpu`], with all convolutions as direct sums of products: slower, and a digit more exact where 3x3 kernels
    /// otherwise go through Winograd's transforms.
    pub fn cpu_without_winograd(threads: usize) -> Self {
        Device::Cpu(Cpu::new(threads).without_winograd())
    }

    /// As [`Device::cpu`], with activations in bf16, which convolutions and dense layers multiply with weights rounded to it, and
    /// add up in f32, in matrix units of the processor. `None` where it has no such units.
    pub fn cpu_bf16(threads: usize) -> Option<Self> {
        Cpu::new(threads).with_bf16().map(Device::Cpu)
    }

    /// The f64 reference.
    pub fn reference() -> Self {
        Device::Reference(Reference)
    }

    /// An NVIDIA GPU.
    ///
    /// # Errors
    /// In one sentence what is missing, and what to do: the driver, the GPU of that number, a library.
    pub fn cuda(options: CudaOptions) -> Result<Self> {
        Ok(Device::Cuda(Cuda::new(options)?))
    }

    /// The CUDA backend without a GPU: its kernels run on the processor, for tests. Slow.
    ///
    /// # Errors
    /// If there is no C++ compiler.
    #[cfg(feature = "emulation")]
    pub fn emulated_cuda(precision: Precision) -> Result<Self> {
        Ok(Device::Cuda(Cuda::emulated(precision)?))
    }

    /// Measures what the processor can do at most; `None` on other devices.
    ///
    /// # Errors
    /// If there is no memory to measure with.
    pub fn roofline(&self) -> Result<Option<Roofline>> {
        match self {
            Device::Cpu(cpu) => Ok(Some(Roofline::measure(cpu)?)),
            _ => Ok(None),
        }
    }

    /// The number formats of its arithmetic.
    pub fn precision(&self) -> Precision {
        match self {
            Device::Cpu(cpu) if cpu.is_bf16() => Precision::Bf16,
            Device::Cpu(_) | Device::Reference(_) => Precision::Fp32,
            Device::Cuda(cuda) => cuda.options().precision,
        }
    }

    /// What of a training's state the device keeps by itself: in half precision the factor on the loss, and the steps since
    /// it changed. `None` on other devices and in other formats.
    ///
    /// # Errors
    /// What the device says.
    pub fn loss_scale(&self) -> Result<Option<[f32; 2]>> {
        match self {
            Device::Cpu(_) | Device::Reference(_) => Ok(None),
            Device::Cuda(cuda) => cuda.loss_scale(),
        }
    }

    /// Goes on with the [`loss_scale`](Device::loss_scale) of another time.
    ///
    /// # Errors
    /// What the device says.
    pub fn set_loss_scale(&self, state: [f32; 2]) -> Result<()> {
        match self {
            Device::Cpu(_) | Device::Reference(_) => Ok(()),
            Device::Cuda(cuda) => cuda.set_loss_scale(state),
        }
    }

    /// The name that `--device` and benchmarks use.
    pub fn kind(&self) -> &'static str {
        match self {
            Device::Cpu(_) => "cpu",
            Device::Reference(_) => "reference",
            Device::Cuda(_) => "cuda",
        }
    }

    /// How many host threads compute.
    pub fn threads(&self) -> usize {
        match self {
            Device::Cpu(cpu) => cpu.threads(),
            Device::Reference(_) | Device::Cuda(_) => 1,
        }
    }
}
