//! Compiled kernels, loaded.

use super::Kernel;
use crate::error::{Error, Result};
use crate::gpus::check;
use crate::number::number;
use crate::source::Source;
use cudarc::driver::sys;
use std::collections::HashMap;
use std::ffi::CString;
use std::ptr;

/// The shared memory that every kernel may use. More must be requested.
const SHARED: u32 = 48 << 10;

/// All kernels of a device.
#[derive(Default)]
pub(super) struct Functions {
    modules: Vec<Module>,
    /// By the number in a [`Kernel`].
    functions: Vec<(&'static str, sys::CUfunction)>,
    numbers: HashMap<&'static str, usize>,
}

impl Functions {
    /// Loads compiled files into the current context. A block may use `shared` bytes of shared memory.
    pub(super) fn load<'a>(
        images: impl IntoIterator<Item = (&'static Source, &'a Vec<u8>)>,
        shared: u32,
    ) -> Result<Functions> {
        let mut all = Functions::default();
        for (source, image) in images {
            let module = Module::load(image)?;
            for name in source.kernels {
                let function = module.function(source, name)?;
                prepare(function, shared)?;
                all.numbers.insert(name, all.functions.len());
                all.functions.push((name, function));
            }
            all.modules.push(module);
        }
        Ok(all)
    }

    pub(super) fn find(&self, name: &str) -> Option<Kernel> {
        self.numbers.get(name).map(|&number| Kernel(number))
    }

    pub(super) fn get(&self, kernel: Kernel) -> Option<(&'static str, sys::CUfunction)> {
        self.functions.get(kernel.0).copied()
    }
}

/// Loads the code now, since the driver would do it at the first launch, perhaps during a capture. The kernel
/// may use all shared memory, and each launch states its share.
fn prepare(function: sys::CUfunction, shared: u32) -> Result<()> {
    use sys::CUfunction_attribute as A;
    let mut own = 0;
    // SAFETY: the function is of a module that is loaded; it writes a number.
    unsafe {
        check("cuFuncLoad", number!(sys::cuFuncLoad(function)))?;
        let size = A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        check("cuFuncGetAttribute", number!(sys::cuFuncGetAttribute(&raw mut own, size, function)))?;
        let most = i64::from(shared) - i64::from(own);
        if let (true, Ok(most)) = (most > i64::from(SHARED), i32::try_from(most)) {
            let size = A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            check("cuFuncSetAttribute", number!(sys::cuFuncSetAttribute(function, size, most)))?;
        }
    }
    Ok(())
}

/// A loaded image.
struct Module(sys::CUmodule);

impl Module {
    fn load(image: &[u8]) -> Result<Module> {
        let mut raw = ptr::null_mut();
        // SAFETY: a context is current. The image is a whole ELF file, or PTX with a zero at its end: it came from NVRTC, or
        // with the right digest from the cache. The driver copies it.
        check("cuModuleLoadData", unsafe {
            number!(sys::cuModuleLoadData(&raw mut raw, image.as_ptr().cast()))
        })?;
        Ok(Module(raw))
    }

    fn function(&self, source: &Source, name: &str) -> Result<sys::CUfunction> {
        let mut raw = ptr::null_mut();
        let missing = |error: Error| match error {
            Error::Call { call, name: code, text, hint } => {
                Error::Call { call, name: code, text: format!("{text} (`{name}` of {})", source.name), hint }
            }
            other => other,
        };
        let c_name = CString::new(name).unwrap_or_default();
        // SAFETY: the module is loaded; the name is a string that outlives the call.
        let status = unsafe { number!(sys::cuModuleGetFunction(&raw mut raw, self.0, c_name.as_ptr())) };
        check("cuModuleGetFunction", status).map_err(missing)?;
        Ok(raw)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: it was loaded, its context is current, and none of its kernels runs.
        unsafe { number!(sys::cuModuleUnload(self.0)) };
    }
}
