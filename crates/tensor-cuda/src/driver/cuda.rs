//! The real driver: a GPU, its context and one stream.

use super::{Arg, Driver, Geometry, Graph, Kernel, Ptr};
use crate::Options;
use tensor_backend::{Error, Result};

/// A GPU.
pub(crate) struct CudaDriver {}

impl CudaDriver {
    pub(crate) fn new(_options: &Options) -> Result<CudaDriver> {
        Err(unwritten())
    }
}

fn unwritten() -> Error {
    Error::Device { device: "cuda".into(), message: "not written yet".into() }
}

#[rustfmt::skip]
impl Driver for CudaDriver {
    fn name(&self) -> String { "cuda".into() }
    fn multiprocessors(&self) -> u32 { 1 }
    fn alloc(&self, _: usize) -> Result<Ptr> { Err(unwritten()) }
    unsafe fn free(&self, _: Ptr, _: usize) {}
    unsafe fn write(&self, _: &[u8], _: Ptr) -> Result<()> { Err(unwritten()) }
    unsafe fn read(&self, _: Ptr, _: &mut [u8]) -> Result<()> { Err(unwritten()) }
    unsafe fn clear(&self, _: Ptr, _: usize) -> Result<()> { Err(unwritten()) }
    fn kernel(&self, _: &str) -> Result<Kernel> { Err(unwritten()) }
    unsafe fn launch(&self, _: Kernel, _: Geometry, _: &[Arg]) -> Result<()> { Err(unwritten()) }
    fn synchronize(&self) -> Result<()> { Err(unwritten()) }
    fn begin_capture(&self) -> Result<()> { Err(unwritten()) }
    fn end_capture(&self, _: bool) -> Result<Graph> { Err(unwritten()) }
    fn launch_graph(&self, _: &Graph) -> Result<()> { Err(unwritten()) }
    fn free_graph(&self, _: Graph) {}
    fn stream(&self) -> *mut core::ffi::c_void { core::ptr::null_mut() }
    fn make_current(&self) -> Result<()> { Err(unwritten()) }
}
