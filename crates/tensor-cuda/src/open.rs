//! Opens a device: its driver with all kernels, and its engine.

use crate::cache::Key;
use crate::cuda::{Cuda, Engine};
use crate::driver::{CudaDriver, Driver};
use crate::engine::{Installed, Own};
use crate::kernels::SOURCES;
use crate::libraries::libraries;
use crate::memory::Memory;
use crate::options::{Kernels, Options};
use crate::source::HEADERS;
use crate::step_state;
use std::sync::Arc;
use towers_program::{Error, Precision, Result};

/// The initial loss scale of half precision, as in PyTorch's `GradScaler`.
const FIRST_LOSS_SCALE: f32 = 65536.0;

/// What GPUs of this machine compute with, beside themselves: the driver, the libraries that can be used, and
/// our own kernels, each with its version.
pub fn software() -> Vec<String> {
    let used =
        libraries().into_iter().filter_map(|library| Some((library.name, library.state.ok()?.version)));
    let texts = SOURCES.iter().map(|source| source.text).chain(HEADERS.iter().map(|header| header.1));
    let digest = Key::new("", texts.map(str::as_bytes)).hex();
    let own = format!("towers {}, kernels {}", env!("CARGO_PKG_VERSION"), &digest[..16]);
    used.map(|(name, version)| format!("{name} {version}")).chain([own]).collect()
}

impl Cuda {
    /// Opens a GPU.
    ///
    /// # Errors
    /// [`towers_program::Error::Device`] with the cause and a hint: no driver, no such GPU, a missing or too old
    /// library. With [`Kernels::Library`], cuDNN and cuBLASLt must be there too.
    pub fn new(options: Options) -> Result<Cuda> {
        let driver: Arc<dyn Driver> = Arc::new(CudaDriver::new(&options, SOURCES)?);
        let engine: Box<dyn Engine> = match options.kernels {
            Kernels::Own => Box::new(Own),
            Kernels::Auto | Kernels::Library => Box::new(Installed::new(&driver, &options)),
        };
        match engine.missing().pop() {
            Some(message) if options.kernels == Kernels::Library => {
                Err(Error::Device { device: driver.name(), message })
            }
            _ => Cuda::with(driver, engine, options),
        }
    }

    /// The kernels of this backend on the CPU, for tests of everything except the driver and its libraries.
    ///
    /// # Errors
    /// [`towers_program::Error::Device`] if no C++ compiler is found, or it rejects a kernel.
    #[cfg(feature = "emulation")]
    pub fn emulated(precision: Precision) -> Result<Cuda> {
        let options = Options { precision, ..Options::default() };
        let driver = Arc::new(crate::driver::emulated::EmulatedDriver::new(&options, SOURCES)?);
        Cuda::with(driver, Box::new(Own), options)
    }

    /// As [`emulated`](Cuda::emulated), with other options, for whole runs: it is faster, since it does not look
    /// for races. There is one such GPU, without libraries.
    ///
    /// # Errors
    /// As [`emulated`](Cuda::emulated).
    #[cfg(feature = "emulation")]
    pub fn emulated_with(options: Options) -> Result<Cuda> {
        let driver = Arc::new(crate::driver::emulated::EmulatedDriver::without_races(&options, SOURCES)?);
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
