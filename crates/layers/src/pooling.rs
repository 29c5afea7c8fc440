use crate::{Layer, Lower, Padding};
use towers_program::{Pad, Pool2d, Result, Shape, TensorId, ops};

macro_rules! pooling {
    ($(#[$doc:meta])* $name:ident $(, $(#[$flag_doc:meta])* $flag:ident)?) => {
        $(#[$doc])*
        ///
        /// Defaults as in Keras: windows side by side, valid padding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            pool_size: [usize; 2],
            strides: [usize; 2],
            padding: Padding,
            ceil_mode: bool,
            $($(#[$flag_doc])* $flag: bool,)?
        }

        impl $name {
            /// Windows of `pool_size x pool_size`, side by side.
            pub fn new(pool_size: usize) -> Self {
                $name::of([pool_size; 2])
            }

            /// Windows of another number of rows than columns, side by side.
            pub fn of(pool_size: [usize; 2]) -> Self {
                let padding = Padding::Valid;
                $name { pool_size, strides: pool_size, padding, ceil_mode: false $(, $flag: false)? }
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

            /// PyTorch's `ceil_mode`: a last window may reach over the edge, if it begins inside.
            pub fn ceil_mode(self, ceil_mode: bool) -> Self {
                $name { ceil_mode, ..self }
            }

            $($(#[$flag_doc])*
            pub fn $flag(self, $flag: bool) -> Self {
                $name { $flag, ..self }
            })?

            fn spec(&self, x: Shape) -> Pool2d {
                let (kernel, stride) = (self.pool_size, self.strides);
                let pool = Pool2d::new(kernel, stride, self.padding.resolve(x, kernel, stride));
                if self.ceil_mode { pool.ceil(x) } else { pool }
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
    AveragePooling2D,
    /// PyTorch's `count_include_pad`: whether the padding counts, as zeros. What `ceil_mode` adds never does.
    count_include_pad
}

impl Layer for MaxPooling2D {
    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        to.push(ops::MaxPool { pool: self.spec(to.shape(inputs[0])) }, inputs)
    }
}

impl Layer for AveragePooling2D {
    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        let x = to.shape(inputs[0]);
        let given = self.padding.resolve(x, self.pool_size, self.strides);
        let counted = if self.count_include_pad { given } else { Pad::VALID };
        to.push(ops::AveragePool { pool: Pool2d { counted, ..self.spec(x) } }, inputs)
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
    Pool2d::new([x.h, x.w], [1; 2], Pad::VALID)
}
