//! Opens a device: its driver with all kernels, and its engine.

use crate::cuda::{Cuda, Engine};
use crate::driver::{CudaDriver, Driver};
use crate::engine::{Installed, Own};
use crate::kernels::SOURCES;
use crate::memory::Memory;
use crate::options::Options;
use crate::step_state;
use program::{Precision, Result};
use std::sync::Arc;

/// The initial loss scale of half precision, as in PyTorch's `GradScaler`.
const FIRST_LOSS_SCALE: f32 = 65536.0;

impl Cuda {
    /// Opens a GPU.
    ///
    /// # Errors
    /// [`program::Error::Device`] with the cause and a hint: no driver, no such GPU, a missing or too old
    /// library.
    pub fn new(options: Options) -> Result<Cuda> {
        let driver: Arc<dyn Driver> = Arc::new(CudaDriver::new(&options, SOURCES)?);
        let engine = Box::new(Installed::new(&driver, &options));
        Cuda::with(driver, engine, options)
    }

    /// Opens a GPU without cuDNN and cuBLASLt, for comparisons and for tools that inspect kernels.
    ///
    /// # Errors
    /// As [`new`](Cuda::new).
    pub fn of_own_kernels(options: Options) -> Result<Cuda> {
        Cuda::with(Arc::new(CudaDriver::new(&options, SOURCES)?), Box::new(Own), options)
    }

    /// The kernels of this backend on the CPU, for tests of everything except the driver and its libraries.
    ///
    /// # Errors
    /// [`program::Error::Device`] if no C++ compiler is found, or it rejects a kernel.
    #[cfg(feature = "emulation")]
    pub fn emulated(precision: Precision) -> Result<Cuda> {
        let options = Options { gpu: 0, precision };
        let driver = Arc::new(crate::driver::emulated::EmulatedDriver::new(&options, SOURCES)?);
        Cuda::with(driver, Box::new(Own), options)
    }

    fn with(driver: Arc<dyn Driver>, engine: Box<dyn Engine>, options: Options) -> Result<Cuda> {
        let step_state = Memory::zeros(&driver, step_state::BYTES)?;
        let cuda = Cuda::of(driver, engine, options, step_state)?;
        let half = options.precision == Precision::Fp16;
        cuda.reset_step_state(if half { FIRST_LOSS_SCALE } else { 1.0 }, 0)?;
        Ok(cuda)
    }
}
