use crate::{Layer, Lower};
use towers_program::{Result, Shape, TensorId, ops};

/// The same numbers as an image of another shape, in the order `(row, column, channel)`: Keras' `Reshape`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reshape {
    target: [usize; 3],
}

impl Reshape {
    /// To an image of `[height, width, channels]`.
    pub fn to(target: [usize; 3]) -> Self {
        Reshape { target }
    }
}

impl Layer for Reshape {
    fn lower(&self, to: &mut Lower, inputs: &[TensorId]) -> Result<TensorId> {
        let [h, w, c] = self.target;
        to.push(ops::Reshape { to: Shape::new(to.shape(inputs[0]).n, h, w, c) }, inputs)
    }

    fn makes_images(&self) -> bool {
        true
    }
}
