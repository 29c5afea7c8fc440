use crate::{Layer, Lower, Padding};
use program::{Pad, Pool2d, Result, Shape, TensorId, ops};

macro_rules! pooling {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Defaults as in Keras: windows side by side, valid padding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            pool_size: [usize; 2],
            strides: [usize; 2],
            padding: Padding,
        }

        impl $name {
            /// Windows of `pool_size x pool_size`, side by side.
            pub fn new(pool_size: usize) -> Self {
                $name::of([pool_size; 2])
            }

            /// Windows of another number of rows than columns, side by side.
            pub fn of(pool_size: [usize; 2]) -> Self {
                $name { pool_size, strides: pool_size, padding: Padding::Valid }
            }

            /// Rows and columns from one window to the next.
            pub fn strides(self, strides: usize) -> Self {
                self.strides_by([strides; 2])
            }

            /// Rows and columns from one window to the next, where they differ.
            pub fn strides_by(self, strides: [usize; 2]) -> Self {
                $name { strides, ..self }
            }

            /// The padding.
            pub fn padding(self, padding: Padding) -> Self {
                $name { padding, ..self }
            }

            fn spec(&self, x: Shape) -> Pool2d {
                let (kernel, stride) = (self.pool_size, self.strides);
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
    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        to.push(ops::MaxPool { pool: self.spec(to.shape(inputs[0])) }, inputs)
    }
}

impl Layer for AveragePooling2D {
    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        to.push(ops::AveragePool { pool: self.spec(to.shape(inputs[0])) }, inputs)
    }
}

/// The mean of each channel over all rows and columns: a vector a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalAveragePooling2D;

impl Layer for GlobalAveragePooling2D {
    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        to.push(ops::AveragePool { pool: over_all(to.shape(inputs[0])) }, inputs)
    }

    fn makes_vectors(&self) -> bool {
        true
    }
}

/// One window as large as the image.
fn over_all(x: Shape) -> Pool2d {
    Pool2d { kernel: [x.h, x.w], stride: [1; 2], pad: Pad::VALID }
}
