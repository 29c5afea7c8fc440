use crate::{Backward, BackwardReads, Forward, Layer, Op, Operation, Padding, Place};
use tensor::{Backend, Pad, Pool2d, Result, Shape, Storage, View, ViewMut, Write};

macro_rules! pooling {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Defaults as in Keras: windows side by side, valid padding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            pool_size: usize,
            strides: usize,
            padding: Padding,
        }

        impl $name {
            /// Windows of `pool_size x pool_size`, side by side.
            pub fn new(pool_size: usize) -> Self {
                $name { pool_size, strides: pool_size, padding: Padding::Valid }
            }

            /// Rows and columns from one window to the next.
            pub fn strides(self, strides: usize) -> Self {
                $name { strides, ..self }
            }

            /// The padding.
            pub fn padding(self, padding: Padding) -> Self {
                $name { padding, ..self }
            }

            fn spec(&self, x: Shape) -> Pool2d {
                let (kernel, stride) = ([self.pool_size; 2], [self.strides; 2]);
                Pool2d { kernel, stride, pad: self.padding.resolve(x, kernel, stride) }
            }
        }
    };
}

pooling! {
    /// The largest element of each window.
    MaxPooling2D
}
pooling! {
    /// The mean of each window, padding not counted.
    AveragePooling2D
}

impl Layer for MaxPooling2D {
    fn kind(&self) -> &'static str {
        "MaxPooling2D"
    }

    fn output_shape(&self, x: Shape) -> Result<Shape> {
        self.spec(x).output(x)
    }

    fn operation(&self, x: Shape) -> Option<Operation> {
        Some(Operation::MaxPool(self.spec(x)))
    }

    fn build(&self, place: &Place) -> Result<Box<dyn Op>> {
        Ok(Box::new(MaxOp(self.spec(place.x))))
    }
}

impl Layer for AveragePooling2D {
    fn kind(&self) -> &'static str {
        "AveragePooling2D"
    }

    fn output_shape(&self, x: Shape) -> Result<Shape> {
        self.spec(x).output(x)
    }

    fn operation(&self, x: Shape) -> Option<Operation> {
        Some(Operation::AveragePool(self.spec(x)))
    }

    fn backward_reads(&self) -> BackwardReads {
        BackwardReads::NOTHING
    }

    fn build(&self, place: &Place) -> Result<Box<dyn Op>> {
        Ok(Box::new(AverageOp(self.spec(place.x))))
    }
}

/// The mean of each channel over all rows and columns: a vector a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalAveragePooling2D;

impl Layer for GlobalAveragePooling2D {
    fn kind(&self) -> &'static str {
        "GlobalAveragePooling2D"
    }

    fn output_shape(&self, x: Shape) -> Result<Shape> {
        over_all(x).output(x)
    }

    fn makes_vectors(&self) -> bool {
        true
    }

    fn operation(&self, _x: Shape) -> Option<Operation> {
        Some(Operation::GlobalAveragePool)
    }

    fn backward_reads(&self) -> BackwardReads {
        BackwardReads::NOTHING
    }

    fn build(&self, place: &Place) -> Result<Box<dyn Op>> {
        Ok(Box::new(AverageOp(over_all(place.x))))
    }
}

/// One window as large as the image.
fn over_all(x: Shape) -> Pool2d {
    Pool2d { kernel: [x.h, x.w], stride: [1; 2], pad: Pad::VALID }
}

struct MaxOp(Pool2d);

impl Op for MaxOp {
    fn forward(&mut self, cx: Forward<'_>, x: View<Storage>, y: ViewMut<Storage>) -> Result<()> {
        cx.device.maxpool_fwd(&self.0, x, y)
    }

    fn backward(
        &mut self,
        cx: Backward<'_>,
        x: View<Storage>,
        y: View<Storage>,
        dy: ViewMut<Storage>,
        dx: Option<(ViewMut<Storage>, Write)>,
    ) -> Result<()> {
        match dx {
            Some((dx, write)) => cx.device.maxpool_bwd(&self.0, x, y, dy.as_view(), dx, write),
            None => Ok(()),
        }
    }
}

struct AverageOp(Pool2d);

impl Op for AverageOp {
    fn forward(&mut self, cx: Forward<'_>, x: View<Storage>, y: ViewMut<Storage>) -> Result<()> {
        cx.device.avgpool_fwd(&self.0, x, y)
    }

    fn backward(
        &mut self,
        cx: Backward<'_>,
        _x: View<Storage>,
        _y: View<Storage>,
        dy: ViewMut<Storage>,
        dx: Option<(ViewMut<Storage>, Write)>,
    ) -> Result<()> {
        match dx {
            Some((dx, write)) => cx.device.avgpool_bwd(&self.0, dy.as_view(), dx, write),
            None => Ok(()),
        }
    }
}
