//! Convolutions and matrix products by kernels of our own.

use super::Engine;
use crate::Cuda;
use crate::driver::Ptr;
use crate::operand::Place;
use tensor_backend::{Conv2d, Linear, Result, Shape, Write};

/// Needs nothing but the driver and NVRTC, and gives the same bits every time.
pub(crate) struct Own;

#[rustfmt::skip]
impl Engine for Own {
    fn prepare_conv(&self, _: &Cuda, _: &Conv2d, _: Shape, _: bool) -> Result<()> { Ok(()) }
    fn conv_fwd(&self, cuda: &Cuda, _: &Conv2d, _: &Place, _: Ptr, _: &Place) -> Result<()> { Err(cuda.error("not written yet")) }
    fn conv_bwd_data(&self, cuda: &Cuda, _: &Conv2d, _: &Place, _: Ptr, _: &Place, _: Write) -> Result<()> { Err(cuda.error("not written yet")) }
    fn conv_bwd_filter(&self, cuda: &Cuda, _: &Conv2d, _: &Place, _: &Place, _: Ptr) -> Result<()> { Err(cuda.error("not written yet")) }
    fn linear_fwd(&self, cuda: &Cuda, _: &Linear, _: &Place, _: Ptr, _: &Place) -> Result<()> { Err(cuda.error("not written yet")) }
    fn linear_bwd_data(&self, cuda: &Cuda, _: &Linear, _: &Place, _: Ptr, _: &Place, _: Write) -> Result<()> { Err(cuda.error("not written yet")) }
    fn linear_bwd_filter(&self, cuda: &Cuda, _: &Linear, _: &Place, _: &Place, _: Ptr) -> Result<()> { Err(cuda.error("not written yet")) }
}
