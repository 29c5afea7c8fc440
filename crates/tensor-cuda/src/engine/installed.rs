//! NVIDIA's libraries if they are installed and support the operation. Our own kernels compute the rest, and
//! the gradients of convolutions with few filters, where they are faster.

use super::cublaslt::CublasLt;
use super::cudnn::Cudnn;
use super::own::Own;
use crate::cuda::Engine;
use crate::driver::{Driver, Ptr};
use crate::layer::{Layer, Pass};
use crate::place::Place;
use crate::{Cuda, Options};
use std::sync::Arc;
use towers_program::{Result, Shape, Write};

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

    fn prepare(&self, cuda: &Cuda, layer: Layer, x: Shape, training: bool) -> Result<()> {
        // A library may accept a plan, and later refuse an operand.
        self.own.prepare(cuda, layer, x, training)?;
        match (layer, &self.cudnn, &self.cublaslt) {
            (Layer::Conv(conv), Ok(cudnn), _) => cudnn.prepare(cuda, conv, x, training),
            (Layer::Linear(_), _, Ok(_)) => CublasLt::prepare(cuda),
            _ => Ok(()),
        }
    }

    fn run(
        &self,
        cuda: &Cuda,
        layer: Layer,
        pass: Pass,
        x: &Place,
        w: Ptr,
        y: &Place,
        write: Write,
    ) -> Result<()> {
        let is_done = match (layer, &self.cudnn, &self.cublaslt) {
            (Layer::Conv(conv), Ok(cudnn), _) => cudnn.run(cuda, pass, conv, x, w, y, write)?,
            (Layer::Linear(linear), _, Ok(cublaslt)) => cublaslt.run(cuda, pass, linear, x, w, y, write)?,
            _ => false,
        };
        if is_done { Ok(()) } else { self.own.run(cuda, layer, pass, x, w, y, write) }
    }
}

#[cfg(all(test, feature = "emulation", target_os = "linux"))]
mod tests {
    use super::*;

    /// A machine without the libraries computes too, and reports why it is slow. (One that has them can't
    /// create a handle for the emulated device, which is the other reason.)
    #[test]
    fn missing_libraries_are_replaced() -> Result<()> {
        let driver = Arc::clone(Cuda::emulated(towers_program::Precision::Fp32)?.driver());
        let lines = Installed::new(&driver, &Options::default()).describe();
        assert!(
            lines.iter().filter(|line| line.starts_with("own kernels, because cu")).count() == 2,
            "{lines:?}"
        );
        Ok(())
    }
}
