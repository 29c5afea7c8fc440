//! The engines of convolutions and matrix products: NVIDIA's libraries, or our own kernels without them.

mod algorithms;
mod contest;
mod cublaslt;
mod cudnn;
mod faults;
mod installed;
pub(crate) mod own;
mod owned;
pub(crate) mod sliding;
mod store;

pub(crate) use own::Own;

use crate::driver::{CudaDriver, Driver, Ptr};
use crate::place::Place;
use crate::{Cuda, Options};
use installed::Installed;
use program::{Conv2d, Linear, Result, Shape, Write};
use std::sync::Arc;

/// Matrix products and convolutions on prepared operands: tensors are contiguous, all numbers are in the
/// format of activations, and weights lie as (outputs, kh, kw, inputs), or (outputs, inputs) for a dense
/// layer. Sums are f32. The ops add biases and activations.
pub(crate) trait Engine: Send + Sync {
    /// Its name, and its choices so far, a line each.
    fn describe(&self) -> Vec<String> {
        vec!["own kernels".into()]
    }

    /// Chooses algorithms and reserves scratch memory for inputs of up to this shape.
    fn prepare_conv(&self, cuda: &Cuda, conv: &Conv2d, x: Shape, training: bool) -> Result<()>;

    /// The same for a dense layer with up to `n` samples. By default it does nothing.
    fn prepare_linear(&self, _cuda: &Cuda, _linear: &Linear, _n: usize, _training: bool) -> Result<()> {
        Ok(())
    }

    /// `y = conv(x, w)`.
    fn conv_fwd(&self, cuda: &Cuda, conv: &Conv2d, x: &Place, w: Ptr, y: &Place) -> Result<()>;

    /// The gradient of the input, set or added.
    fn conv_bwd_data(
        &self,
        cuda: &Cuda,
        conv: &Conv2d,
        dy: &Place,
        w: Ptr,
        dx: &Place,
        write: Write,
    ) -> Result<()>;

    /// The gradient of the weights, laid out as they are, in the format of activations.
    fn conv_bwd_filter(&self, cuda: &Cuda, conv: &Conv2d, x: &Place, dy: &Place, dw: Ptr) -> Result<()>;

    /// `y = x w^T`.
    fn linear_fwd(&self, cuda: &Cuda, linear: &Linear, x: &Place, w: Ptr, y: &Place) -> Result<()>;

    /// `dx = dy w`, set or added.
    fn linear_bwd_data(
        &self,
        cuda: &Cuda,
        linear: &Linear,
        dy: &Place,
        w: Ptr,
        dx: &Place,
        write: Write,
    ) -> Result<()>;

    /// `dw = dy^T x`.
    fn linear_bwd_filter(&self, cuda: &Cuda, linear: &Linear, x: &Place, dy: &Place, dw: Ptr) -> Result<()>;
}

/// The best engine that the installed libraries allow.
pub(crate) fn of_libraries(driver: &Arc<CudaDriver>, options: &Options) -> Result<Box<dyn Engine>> {
    let driver: Arc<dyn Driver> = Arc::clone(driver) as _;
    Ok(Box::new(Installed::new(&driver, options)))
}
