//! The GPUs of this machine.

use crate::compile::Nvrtc;
use crate::error::{Error, Result};
use crate::libraries::DRIVER;
use crate::number::{self, MISSING, number};
use core::ffi::{CStr, c_char, c_int};
use cudarc::driver::sys;
use std::path::Path;
use std::ptr;

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its number, as `--gpus` takes it.
    pub number: usize,
    /// Its name.
    pub name: String,
    /// Its compute capability: (9, 0) for Hopper.
    pub capability: (u32, u32),
    /// Bytes of memory.
    pub memory: u64,
}

impl Gpu {
    /// Bytes of free memory, if it is known. To read it the GPU is opened for a moment, which takes a while
    /// unless this process has it open.
    pub fn free_memory(&self) -> Option<u64> {
        Device::find(self.number).and_then(|device| device.free_memory()).ok()
    }
}

/// All GPUs of the driver, in the order of their numbers. None of them is opened.
///
/// # Errors
/// No driver, one that is too old, or one that does not start, or no GPU. [`Error::Unusable`] if there is a GPU.
pub fn gpus() -> Result<Vec<Gpu>> {
    (0..count()?).map(|number| Ok(Device::get(number)?.describe())).collect()
}

/// Whether a GPU can be used: there is a driver with a GPU, and NVRTC can compile for it.
///
/// # Errors
/// The cause, in one sentence. [`Error::Unusable`] if there is a GPU.
pub fn available() -> Result<()> {
    let count = count()?;
    let compiles = |nvrtc: Nvrtc| {
        // One suffices: the others are refused when they are opened.
        let targets = (0..count).map(|number| {
            let device = Device::get(number)?;
            let (major, minor) = device.capability()?;
            nvrtc.target(&device.name(), 10 * major + minor).map(drop)
        });
        let mut refusals = targets.scan((), |(), target| target.err()).collect::<Vec<_>>();
        if refusals.len() < count { Ok(()) } else { Err(refusals.swap_remove(0)) }
    };
    Nvrtc::find().and_then(compiles).map_err(|why| why.of_gpu(Device::get(0).ok()))
}

/// The number of GPUs, at least one. The driver is ready after this.
pub(crate) fn count() -> Result<usize> {
    let started = start();
    let outcome = match (DRIVER.find(), started) {
        (Ok(_), Ok(count)) => return Ok(count),
        (Err(why), Ok(_) | Err((_, MISSING))) => why,
        // What it said might be right once it is new enough.
        (Err(why @ Error::TooOld { .. }), Err((_, answer))) if answer != NO_DEVICE => why,
        (_, Err((call, answer))) => failure(call, answer),
    };
    Err(match is_there(started, kernel_module(Path::new("/"))) {
        true => in_container(outcome).of_gpu(started.ok().and_then(|_| Device::get(0).ok())),
        false => outcome,
    })
}

const NO_DEVICE: u32 = sys::CUresult::CUDA_ERROR_NO_DEVICE as u32;

/// Starts the driver and counts the GPUs, at least one. Else the call that failed, and its answer. A driver that
/// is too old has these functions too.
fn start() -> Result<usize, (&'static str, u32)> {
    let succeed = |call, answer| if answer == 0 { Ok(()) } else { Err((call, answer)) };
    // SAFETY: the function takes no other flags.
    succeed("cuInit", unsafe { number!(sys::cuInit(0)) })?;
    let mut count = 0;
    // SAFETY: the driver is ready; it writes the count.
    succeed("cuDeviceGetCount", unsafe { number!(sys::cuDeviceGetCount(&raw mut count)) })?;
    usize::try_from(count).ok().filter(|&count| count > 0).ok_or(("cuDeviceGetCount", NO_DEVICE))
}

/// Whether the machine has a GPU, by what came of starting the driver. A driver that is there and fails has seen
/// one, unless it says otherwise. Without it the kernel's part of the driver tells.
fn is_there(started: Result<usize, (&'static str, u32)>, kernel_module: bool) -> bool {
    const STUB: u32 = sys::CUresult::CUDA_ERROR_STUB_LIBRARY as u32;
    match started {
        Ok(_) => true,
        Err((_, NO_DEVICE)) => false,
        Err((_, MISSING | STUB)) => kernel_module,
        Err(_) => true,
    }
}

/// Whether the kernel's part of the driver is loaded, on Linux.
fn kernel_module(root: &Path) -> bool {
    ["proc/driver/nvidia/version", "dev/nvidia0"].iter().any(|file| root.join(file).exists())
}

/// The same error. A missing library beside the kernel's part of the driver is most often a container's.
fn in_container(error: Error) -> Error {
    match error {
        Error::Missing { library, reason, hint } => {
            let hint = format!("a container is given it by `docker run --gpus all`; elsewhere {hint}");
            Error::Missing { library, reason, hint }
        }
        other => other,
    }
}

impl Error {
    /// The same as the reason for not using a GPU that is there.
    fn of_gpu(self, gpu: Option<Device>) -> Error {
        let gpu = gpu.map_or_else(|| NAMELESS.into(), |gpu| gpu.name());
        Error::Unusable { gpu, why: Box::new(self) }
    }
}

/// A GPU whose name is not known.
const NAMELESS: &str = "an NVIDIA GPU";

/// A GPU by the driver's handle. There is one only after [`count`].
#[derive(Clone, Copy)]
pub(crate) struct Device {
    number: usize,
    pub(crate) handle: sys::CUdevice,
}

impl Device {
    /// The GPU of that number.
    pub(crate) fn find(number: usize) -> Result<Device> {
        let count = count()?;
        if number < count {
            return Device::get(number);
        }
        let names = (0..count).map(|other| Ok(Device::get(other)?.name()));
        Err(Error::NoSuchGpu { gpu: number, gpus: names.collect::<Result<_>>()? })
    }

    fn get(number: usize) -> Result<Device> {
        let mut handle = 0;
        let ordinal = c_int::try_from(number).unwrap_or(c_int::MAX);
        // SAFETY: the driver is ready; it writes the handle.
        check("cuDeviceGet", unsafe { number!(sys::cuDeviceGet(&raw mut handle, ordinal)) })?;
        Ok(Device { number, handle })
    }

    /// The name, or where the driver has none, a description.
    pub(crate) fn name(&self) -> String {
        let mut bytes = [0u8; 128];
        let size = bytes.len() as c_int;
        // SAFETY: the driver is ready, and writes a string with its end into the bytes.
        let status =
            unsafe { number!(sys::cuDeviceGetName(bytes.as_mut_ptr().cast::<c_char>(), size, self.handle)) };
        let name = CStr::from_bytes_until_nul(&bytes).map(|name| name.to_string_lossy().trim().to_owned());
        match (check("cuDeviceGetName", status), name) {
            (Ok(()), Ok(name)) if !name.is_empty() => name,
            _ => NAMELESS.into(),
        }
    }

    /// The name for messages: `NVIDIA H100 80GB HBM3 (cuda:0)`.
    pub(crate) fn title(&self) -> String {
        format!("{} (cuda:{})", self.name(), self.number)
    }

    /// A property.
    pub(crate) fn attribute(&self, which: sys::CUdevice_attribute) -> Result<u32> {
        let mut value = 0;
        // SAFETY: the driver is ready; it writes the value.
        let status = unsafe { number!(sys::cuDeviceGetAttribute(&raw mut value, which, self.handle)) };
        check("cuDeviceGetAttribute", status)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// The compute capability.
    pub(crate) fn capability(&self) -> Result<(u32, u32)> {
        use sys::CUdevice_attribute as A;
        let major = self.attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        Ok((major, self.attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?))
    }

    fn describe(&self) -> Gpu {
        let mut memory = 0;
        // SAFETY: the driver is ready; it writes the size.
        let status = unsafe { number!(sys::cuDeviceTotalMem_v2(&raw mut memory, self.handle)) };
        Gpu {
            number: self.number,
            name: self.name(),
            capability: self.capability().unwrap_or_default(),
            memory: check("cuDeviceTotalMem", status).map_or(0, |()| memory as u64),
        }
    }

    /// Opens the GPU for a moment, leaving the thread's current one as it was.
    fn free_memory(&self) -> Result<u64> {
        let (mut context, mut free, mut total) = (ptr::null_mut(), 0, 0);
        // SAFETY: the context is released on every way on which it was retained, and popped after it was pushed.
        unsafe {
            check(
                "cuDevicePrimaryCtxRetain",
                number!(sys::cuDevicePrimaryCtxRetain(&raw mut context, self.handle)),
            )?;
            let mut asked = check("cuCtxPushCurrent", number!(sys::cuCtxPushCurrent_v2(context)));
            if asked.is_ok() {
                asked = check("cuMemGetInfo", number!(sys::cuMemGetInfo_v2(&raw mut free, &raw mut total)));
                number!(sys::cuCtxPopCurrent_v2(&raw mut context));
            }
            number!(sys::cuDevicePrimaryCtxRelease_v2(self.handle));
            asked.map(|()| free as u64)
        }
    }
}

/// What a call into the driver returned, as a result.
pub(crate) fn check(call: &'static str, result: u32) -> Result<()> {
    if result == sys::CUresult::CUDA_SUCCESS as u32 { Ok(()) } else { Err(failure(call, result)) }
}

/// The error of a call that failed.
fn failure(call: &'static str, result: u32) -> Error {
    let name = said("cuGetErrorName", result).unwrap_or_else(|| format!("error {result}"));
    let text = match result {
        MISSING => "the driver has no such function".into(),
        _ => said("cuGetErrorString", result)
            .unwrap_or_else(|| "an error that the driver has no words for".into()),
    };
    Error::Call { call, name, text, hint: hint(result) }
}

/// The driver's text for an error, if it knows it.
fn said(function: &str, result: u32) -> Option<String> {
    type Function = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;
    let mut text = ptr::null();
    // SAFETY: the type is that of both functions. The string is static, if the driver knows one.
    let known = unsafe { number::function::<Function>(function)?(result, &raw mut text) };
    if known != sys::CUresult::CUDA_SUCCESS as u32 || text.is_null() {
        return None;
    }
    // SAFETY: a string with its end, as was just said.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Hints for errors.
const HINTS: [(&[sys::CUresult], &str); 9] = {
    use sys::CUresult as E;
    [
        (
            &[E::CUDA_ERROR_NO_DEVICE],
            "`nvidia-smi` shows what the driver sees, CUDA_VISIBLE_DEVICES may hide a GPU, and a container needs `--gpus all`",
        ),
        (
            &[E::CUDA_ERROR_STUB_LIBRARY],
            "that libcuda is the toolkit's stand-in: take its folder out of LD_LIBRARY_PATH",
        ),
        (
            &[E::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH],
            "the driver was updated while it ran: restart the machine, or load its kernel module anew",
        ),
        (
            &[E::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE],
            "that libcuda is of the package `cuda-compat`, which this GPU does not support: take its folder out of \
             LD_LIBRARY_PATH, and update the driver",
        ),
        (
            &[E::CUDA_ERROR_UNKNOWN, E::CUDA_ERROR_OPERATING_SYSTEM],
            "the module nvidia-uvm may not be loaded: `nvidia-modprobe -u -c 0`, or restart the machine",
        ),
        (&[E::CUDA_ERROR_SYSTEM_NOT_READY], "the service nvidia-fabricmanager may not have started"),
        (&[E::CUDA_ERROR_DEVICE_UNAVAILABLE], "another process may have the GPU to itself: see `nvidia-smi`"),
        (
            &[E::CUDA_ERROR_ILLEGAL_ADDRESS, E::CUDA_ERROR_LAUNCH_FAILED, E::CUDA_ERROR_MISALIGNED_ADDRESS],
            "this process can't use the GPU any more; `compute-sanitizer` finds the kernel",
        ),
        (
            &[E::CUDA_ERROR_UNSUPPORTED_PTX_VERSION],
            "NVRTC is newer than the driver: update the driver, or use the NVRTC of its CUDA version",
        ),
    ]
};

fn hint(result: u32) -> Option<&'static str> {
    HINTS.iter().find(|(errors, _)| errors.iter().any(|&error| error as u32 == result)).map(|hint| hint.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_there_if_the_driver_or_the_kernel_has_seen_one() {
        let failed = |answer: u32| Err(("cuInit", answer));
        for kernel_module in [false, true] {
            assert!(is_there(Ok(1), kernel_module));
            assert!(!is_there(failed(NO_DEVICE), kernel_module));
            assert!(is_there(failed(sys::CUresult::CUDA_ERROR_SYSTEM_NOT_READY as u32), kernel_module));
            assert!(is_there(failed(12_345), kernel_module));
            for silent in [MISSING, sys::CUresult::CUDA_ERROR_STUB_LIBRARY as u32] {
                assert_eq!(is_there(failed(silent), kernel_module), kernel_module);
            }
        }
        for file in ["proc/driver/nvidia/version", "dev/nvidia0"] {
            let root = tempfile::tempdir().unwrap();
            assert!(!kernel_module(root.path()));
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
            assert!(kernel_module(root.path()), "{file}");
        }
    }

    #[test]
    fn a_missing_driver_beside_its_kernel_module_has_a_hint_for_containers() {
        let (library, reason, hint) = ("the driver", "no file".to_owned(), "install it".to_owned());
        let missing = in_container(Error::Missing { library, reason, hint }).of_gpu(None).to_string();
        let sentence = "an NVIDIA GPU is there, but can't be used: the driver can't be loaded (no file); a container is \
                        given it by `docker run --gpus all`; elsewhere install it";
        assert_eq!(missing, sentence);
    }

    #[test]
    fn without_a_gpu_there_is_a_sentence_and_with_one_there_are_properties() {
        match gpus() {
            Ok(gpus) => {
                assert!(!gpus.is_empty());
                for (number, gpu) in gpus.iter().enumerate() {
                    assert_eq!(gpu.number, number);
                    let free = gpu.free_memory();
                    assert!(gpu.capability.0 > 0 && free.is_none_or(|free| free <= gpu.memory), "{gpu:?}");
                }
                let error = Device::find(gpus.len()).err().map(|error| error.to_string());
                assert!(error.is_some_and(|error| error.contains(&gpus[0].name)));
            }
            Err(error) => {
                println!("SKIPPED: the properties of GPUs: {error}");
                assert!(!error.to_string().contains('\n'));
                assert!(available().is_err());
                assert_eq!(Device::find(0).err(), Some(error));
            }
        }
    }
}
