use crate::{Layer, Lower};
use program::{Result, TensorId, ops};

/// All numbers times a constant: Keras' `Rescaling(scale)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rescaling {
    scale: f32,
}

impl Rescaling {
    /// `scale * x`.
    pub fn new(scale: f32) -> Self {
        Rescaling { scale }
    }
}

impl Layer for Rescaling {
    fn lower(&self, to: &mut Lower, x: TensorId) -> Result<TensorId> {
        to.push(ops::Scale { factor: self.scale }, &[x])
    }
}
