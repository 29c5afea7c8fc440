//! Convolutions and matrix products by our own kernels.

use super::grouped::Grouped;
use super::product::{Product, partial_bytes};
use super::sliding::Sliding;
use super::small_window::SmallWindow;
use crate::cuda::Engine;
use crate::driver::Ptr;
use crate::layer::{Layer, Pass};
use crate::place::Place;
use crate::{Cuda, Kernels};
use towers_program::{Conv2d, Precision, Result, Shape, Write};

/// Needs nothing but the driver and NVRTC, and gives the same bits every time. The 16-bit formats use tensor
/// cores if the GPU has them. f32 stays f32, even where TF32 would be allowed.
pub(crate) struct Own;

/// The most suitable kernels for a pass of a convolution.
enum Suited<'a> {
    Grouped(Grouped<'a>),
    SmallWindow(SmallWindow<'a>),
    Sliding(Sliding),
    Product(Product<'a>),
}

impl<'a> Suited<'a> {
    fn new(cuda: &Cuda, conv: &'a Conv2d, pass: Pass, [x, y]: [Shape; 2]) -> Suited<'a> {
        // The others know neither groups nor dilation.
        if let Some(grouped) = Grouped::new(conv, pass, x, y) {
            return Suited::Grouped(grouped);
        }
        if let Some(small) = SmallWindow::new(cuda, conv, pass, x, y) {
            return Suited::SmallWindow(small);
        }
        match pass {
            Pass::Filter => Sliding::new(cuda, conv, x, y).map(Suited::Sliding),
            Pass::Forward | Pass::Data => None,
        }
        .unwrap_or_else(|| Suited::Product(Product::new(cuda, conv, pass, x, y)))
    }

    /// Parts of the result, and the floats of each.
    fn partial(&self, cuda: &Cuda) -> [usize; 2] {
        match self {
            Suited::Grouped(grouped) => grouped.partial(),
            Suited::SmallWindow(small) => small.partial(),
            Suited::Sliding(sliding) => sliding.partial(),
            Suited::Product(product) => product.partial(cuda),
        }
    }

    fn run(&self, cuda: &Cuda, op: &'static str, places: [Ptr; 3], write: Write) -> Result<()> {
        match self {
            Suited::Grouped(grouped) => grouped.run(cuda, op, places, write),
            Suited::SmallWindow(small) => small.run(cuda, op, places),
            Suited::Sliding(sliding) => sliding.run(cuda, op, places),
            Suited::Product(product) => product.run(cuda, op, places, write),
        }
    }
}

/// Whether our own kernels compute a pass even where cuDNN could, unless [`Kernels::Library`] forbids it. On
/// an H200, cuDNN 9.19 takes 1.3 to 3 times as long for few channels and for gradients of the weights of few
/// filters. In fp32 a step takes 1.5 times as long.
pub(super) fn is_ours(cuda: &Cuda, conv: &Conv2d, pass: Pass, x: Shape) -> bool {
    if cuda.options().kernels == Kernels::Library {
        return false;
    }
    let Ok(y) = conv.output(x) else { return false };
    match Suited::new(cuda, conv, pass, [x, y]) {
        Suited::Grouped(_) => false,
        _ if cuda.options().precision == Precision::Fp32 => true,
        Suited::SmallWindow(_) => true,
        Suited::Sliding(_) => conv.outputs <= 32 || conv.outputs <= 64 && conv.inputs >= 96,
        Suited::Product(_) => false,
    }
}

impl Engine for Own {
    fn prepare(&self, cuda: &Cuda, layer: Layer, x: Shape, training: bool) -> Result<()> {
        let conv = layer.conv();
        let y = conv.output(x)?;
        let passes = [Pass::Forward, Pass::Data, Pass::Filter];
        let passes = passes.into_iter().take(if training { 3 } else { 1 });
        let most =
            passes.map(|pass| partial_bytes(Suited::new(cuda, &conv, pass, [x, y]).partial(cuda))).max();
        cuda.engine_scratch(most.unwrap_or(0)).map(drop)
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
        let places = match pass {
            Pass::Forward => [x.ptr, w, y.ptr],
            Pass::Data => [y.ptr, w, x.ptr],
            Pass::Filter => [x.ptr, y.ptr, w],
        };
        let conv = layer.conv();
        Suited::new(cuda, &conv, pass, [x.shape, y.shape]).run(cuda, layer.op(pass), places, write)
    }
}

#[cfg(all(test, feature = "emulation", target_os = "linux"))]
mod tests {
    use super::*;
    use crate::Options;
    use towers_program::Pad;

    #[test]
    fn few_channels_are_ours_unless_only_libraries_are_allowed() -> Result<()> {
        let is = |kernels, pass, inputs, outputs| -> Result<bool> {
            let options = Options { precision: Precision::Bf16, kernels, ..Options::default() };
            let pad = Pad { top: 1, bottom: 1, left: 1, right: 1 };
            let conv = Conv2d { pad, ..Conv2d::new(inputs, outputs, [3; 2]) };
            let cuda = Cuda::emulated_with(options)?;
            Ok(is_ours(&cuda, &conv, pass, Shape::new(4, 8, 8, inputs)))
        };
        for (pass, inputs, outputs, ours) in [
            (Pass::Forward, 3, 96, true),
            (Pass::Filter, 160, 64, true),
            (Pass::Filter, 64, 64, false),
            (Pass::Forward, 160, 64, false),
        ] {
            assert_eq!(is(Kernels::Auto, pass, inputs, outputs)?, ours, "{pass:?} {inputs} {outputs}");
            assert!(!is(Kernels::Library, pass, inputs, outputs)?);
        }
        let cuda = Cuda::emulated(Precision::Fp32)?;
        for conv in [
            Conv2d { groups: 2, ..Conv2d::new(8, 8, [3; 2]) },
            Conv2d { dilation: [2; 2], ..Conv2d::new(8, 8, [3; 2]) },
        ] {
            assert!(
                !is_ours(&cuda, &conv, Pass::Forward, Shape::new(4, 8, 8, 8)),
                "plain sums are the last resort"
            );
        }
        Ok(())
    }
}
