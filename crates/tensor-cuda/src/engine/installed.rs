//! NVIDIA's libraries if they are installed and support the operation. Our own kernels compute the rest, and
//! the convolutions for which they were measured to be faster.

use super::cublaslt::CublasLt;
use super::cudnn::Cudnn;
use super::own::Own;
use super::product::Pass;
use crate::cuda::Engine;
use crate::driver::{Driver, Ptr};
use crate::place::Place;
use crate::{Cuda, Options};
use program::{Conv2d, Linear, Result, Shape, Write};
use std::sync::Arc;

/// Each library, or the reason why it is not used.
pub(crate) struct Installed {
    cudnn: Result<Cudnn, String>,
    cublaslt: Result<CublasLt, String>,
    own: Own,
}

impl Installed {
    /// A library that is missing, too old or broken is no error: everything works without it, if slower.
    pub(crate) fn new(driver: &Arc<dyn Driver>, options: &Options) -> Installed {
        Installed {
            cudnn: Cudnn::new(Arc::clone(driver), options),
            cublaslt: CublasLt::new(Arc::clone(driver), options),
            own: Own,
        }
    }

    fn convolve(
        &self,
        cuda: &Cuda,
        pass: Pass,
        conv: &Conv2d,
        x: Shape,
        places: [Ptr; 3],
        write: Write,
    ) -> Result<bool> {
        match &self.cudnn {
            Ok(cudnn) => cudnn.run(cuda, pass, conv, x, places, write),
            Err(_) => Ok(false),
        }
    }
}

impl Engine for Installed {
    fn describe(&self) -> Vec<String> {
        let without = |why: &String| vec![format!("own kernels, because {why}")];
        let mut lines = self.cudnn.as_ref().map_or_else(without, Cudnn::describe);
        lines.extend(self.cublaslt.as_ref().map_or_else(without, CublasLt::describe));
        lines
    }

    fn missing(&self) -> Vec<String> {
        self.cudnn.as_ref().err().into_iter().chain(self.cublaslt.as_ref().err()).cloned().collect()
    }

    fn prepare_conv(&self, cuda: &Cuda, conv: &Conv2d, x: Shape, training: bool) -> Result<()> {
        // A library may accept a plan, and later refuse an operand.
        self.own.prepare_conv(cuda, conv, x, training)?;
        self.cudnn.as_ref().map_or(Ok(()), |cudnn| cudnn.prepare(cuda, conv, x, training))
    }

    fn prepare_linear(&self, cuda: &Cuda, linear: &Linear, n: usize, training: bool) -> Result<()> {
        self.own.prepare_linear(cuda, linear, n, training)?;
        self.cublaslt.as_ref().map_or(Ok(()), |_| CublasLt::prepare(cuda))
    }

    fn conv_fwd(&self, cuda: &Cuda, conv: &Conv2d, x: &Place, w: Ptr, y: &Place) -> Result<()> {
        let places = [x.ptr, w, y.ptr];
        if self.convolve(cuda, Pass::Forward, conv, x.shape, places, Write::Set)? {
            return Ok(());
        }
        self.own.conv_fwd(cuda, conv, x, w, y)
    }

    fn conv_bwd_data(
        &self,
        cuda: &Cuda,
        conv: &Conv2d,
        dy: &Place,
        w: Ptr,
        dx: &Place,
        write: Write,
    ) -> Result<()> {
        if self.convolve(cuda, Pass::Data, conv, dx.shape, [dx.ptr, w, dy.ptr], write)? {
            return Ok(());
        }
        self.own.conv_bwd_data(cuda, conv, dy, w, dx, write)
    }

    fn conv_bwd_filter(&self, cuda: &Cuda, conv: &Conv2d, x: &Place, dy: &Place, dw: Ptr) -> Result<()> {
        let places = [x.ptr, dw, dy.ptr];
        if self.convolve(cuda, Pass::Filter, conv, x.shape, places, Write::Set)? {
            return Ok(());
        }
        self.own.conv_bwd_filter(cuda, conv, x, dy, dw)
    }

    fn linear_fwd(&self, cuda: &Cuda, linear: &Linear, x: &Place, w: Ptr, y: &Place) -> Result<()> {
        match &self.cublaslt {
            Ok(cublaslt) if cublaslt.forward(cuda, linear, x, w, y)? => Ok(()),
            _ => self.own.linear_fwd(cuda, linear, x, w, y),
        }
    }

    fn linear_bwd_data(
        &self,
        cuda: &Cuda,
        linear: &Linear,
        dy: &Place,
        w: Ptr,
        dx: &Place,
        write: Write,
    ) -> Result<()> {
        match &self.cublaslt {
            Ok(cublaslt) if cublaslt.data(cuda, linear, dy, w, dx, write)? => Ok(()),
            _ => self.own.linear_bwd_data(cuda, linear, dy, w, dx, write),
        }
    }

    fn linear_bwd_filter(&self, cuda: &Cuda, linear: &Linear, x: &Place, dy: &Place, dw: Ptr) -> Result<()> {
        match &self.cublaslt {
            Ok(cublaslt) if cublaslt.filter(cuda, linear, x, dy, dw)? => Ok(()),
            _ => self.own.linear_bwd_filter(cuda, linear, x, dy, dw),
        }
    }
}

#[cfg(all(test, feature = "emulation", target_os = "linux"))]
mod tests {
    use super::*;

    /// A machine without the libraries computes too, and reports why it is slow. (One that has them can't
    /// create a handle for the emulated device, which is the other reason.)
    #[test]
    fn missing_libraries_are_replaced() -> Result<()> {
        let driver = Arc::clone(Cuda::emulated(program::Precision::Fp32)?.driver());
        let lines = Installed::new(&driver, &Options::default()).describe();
        assert!(
            lines.iter().filter(|line| line.starts_with("own kernels, because cu")).count() == 2,
            "{lines:?}"
        );
        Ok(())
    }
}
